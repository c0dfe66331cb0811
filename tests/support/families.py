"""Tiny random models of every family of vision models that TRL trains, each with its own real processor.

The sizes are such that a picture of `vision_runs.SIZES` makes one tile or several, and a few tokens a tile.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers as hf
from tokenizers import Tokenizer, models, pre_tokenizers

from tests.support.runs import WORDS
from trl_vade.testbed.model import build_config
from trl_vade.testbed.processor import build_processor

SIZES = {"hidden_size": 16, "intermediate_size": 32, "initializer_range": 0.1}
LAYER = SIZES | {"num_hidden_layers": 1, "num_attention_heads": 2}
TEXT = LAYER | {"num_key_value_heads": 1, "max_position_embeddings": 512}
PATCHES = SIZES | {"depth": 1, "num_heads": 2, "patch_size": 8, "out_hidden_size": 16}
MERGED = {"patch_size": 8, "merge_size": 2, "temporal_patch_size": 2}
ROPE = {"rope_type": "default", "rope_theta": 1000.0, "mrope_section": [2, 1, 1]}
SQUARE = {"height": 32, "width": 32}
TILES = {"size": {"longest_edge": 64}, "max_image_size": {"longest_edge": 32}}
CROPPED = {"size": {"shortest_edge": 32}, "crop_size": SQUARE}
CLIP = LAYER | {"model_type": "clip_vision_model", "image_size": 32, "patch_size": 8, "projection_dim": 16}

CHAT_TEMPLATE = (
    "{{% for message in messages %}}<|im_start|> "
    "{{% if message['content'] is string %}}{{{{ message['content'] }}}}"
    "{{% else %}}{{% for part in message['content'] %}}"
    "{{% if part['type'] == 'image' %}}{image} {{% elif 'text' in part %}}{{{{ part['text'] }}}}{{% endif %}}"
    "{{% endfor %}}{{% endif %}} <|im_end|> {{% endfor %}}"
    "{{% if add_generation_prompt %}}<|im_start|>{{% endif %}}"
)
"""Of every family: `image` is what its processor replaces by the tokens of a picture."""


def write_family(name: str, path: Path) -> str:
    """Write a new float32 model and the processor of the family `name` to `path`, and return it as a text."""
    config, processor = FAMILIES[name]()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        hf.AutoModelForImageTextToText.from_config(config).save_pretrained(path)
    processor.save_pretrained(path)
    return str(path)


def _tokenizer(image: str, *more: str, **named: str) -> Any:
    """Return a tokenizer of `WORDS` with the special tokens `more` and those that are `named` as attributes."""
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "[UNK]", *dict.fromkeys([image, *more, *named.values()])]
    vocabulary = {token: number for number, token in enumerate([*special, *WORDS])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.add_special_tokens(special)
    return hf.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<|endoftext|>",
        eos_token="<|im_end|>",
        unk_token="[UNK]",
        padding_side="left",
        extra_special_tokens=named,
    )


def _processor(family: str, tokenizer: Any, image: str, **parts: Any) -> Any:
    template = CHAT_TEMPLATE.format(image=image)
    return getattr(hf, f"{family}Processor")(tokenizer=tokenizer, chat_template=template, **parts)


def _config(family: str, tokenizer: Any, text: dict[str, Any], vision: dict[str, Any], **more: Any) -> Any:
    ids = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id, "bos_token_id": None}
    text = TEXT | {"vocab_size": len(tokenizer)} | ids | text
    return getattr(hf, f"{family}Config")(text_config=text, vision_config=vision, dtype="float32", **more)


def _ids(tokenizer: Any, **tokens: str) -> dict[str, int]:
    return {name: tokenizer.convert_tokens_to_ids(token) for name, token in tokens.items()}


def _qwen2_5_vl() -> tuple[Any, Any]:
    processor = build_processor()
    processor.image_processor.size = {"shortest_edge": 28 * 28, "longest_edge": 84 * 84}
    return build_config(processor), processor


def _qwen3_vl() -> tuple[Any, Any]:
    tokens = {"image_token_id": "<|image_pad|>", "video_token_id": "<|video_pad|>"}
    tokens |= {"vision_start_token_id": "<|vision_start|>", "vision_end_token_id": "<|vision_end|>"}
    tokenizer = _tokenizer(*tokens.values())
    images = {"size": {"shortest_edge": 16**2, "longest_edge": 48**2}, **MERGED}
    vision = PATCHES | {"depth": 2, "num_position_embeddings": 16, "deepstack_visual_indexes": [0]}
    text = {"head_dim": 8, "rope_parameters": ROPE}
    return _config("Qwen3VL", tokenizer, text, vision, **_ids(tokenizer, **tokens)), _processor(
        "Qwen3VL",
        tokenizer,
        "<|vision_start|><|image_pad|><|vision_end|>",
        image_processor=hf.Qwen2VLImageProcessor(**images),
        video_processor=hf.Qwen3VLVideoProcessor(**images),
    )


def _glm4v() -> tuple[Any, Any]:
    tokens = {f"{kind}_token_id": f"<|{kind}|>" for kind in ("image", "video")}
    for kind in ("image", "video"):
        tokens |= {f"{kind}_start_token_id": f"<|begin_of_{kind}|>", f"{kind}_end_token_id": f"<|end_of_{kind}|>"}
    tokenizer = _tokenizer(*tokens.values())
    images = {"size": {"shortest_edge": 32**2, "longest_edge": 2 * 48**2}, **MERGED}
    text, vision = {"rope_parameters": ROPE}, PATCHES | {"image_size": 32}
    return _config("Glm4v", tokenizer, text, vision, **_ids(tokenizer, **tokens)), _processor(
        "Glm4v",
        tokenizer,
        "<|begin_of_image|><|image|><|end_of_image|>",
        image_processor=hf.Glm4vImageProcessor(**images),
        video_processor=hf.Glm4vVideoProcessor(**images),
    )


def _gemma3() -> tuple[Any, Any]:
    named = {"boi_token": "<start_of_image>", "eoi_token": "<end_of_image>", "image_token": "<image_soft_token>"}
    tokenizer = _tokenizer("<image_soft_token>", **named)
    return _config(
        "Gemma3",
        tokenizer,
        {"head_dim": 8, "sliding_window": 512, "query_pre_attn_scalar": 8},
        LAYER | {"model_type": "siglip_vision_model", "image_size": 32, "patch_size": 8, "vision_use_head": False},
        mm_tokens_per_image=4,
        boi_token_index=tokenizer.boi_token_id,
        eoi_token_index=tokenizer.eoi_token_id,
        image_token_index=tokenizer.image_token_id,
        initializer_range=0.1,
    ), _processor(
        "Gemma3",
        tokenizer,
        "<start_of_image>",
        image_processor=hf.Gemma3ImageProcessor(size=SQUARE),
        image_seq_length=4,
    )


def _gemma4() -> tuple[Any, Any]:
    named = {"boi_token": "<|image>", "eoi_token": "<image|>", "image_token": "<|image|>"}
    named |= {"boa_token": "<|audio>", "eoa_token": "<audio|>", "audio_token": "<|audio|>"}
    tokenizer, heads = _tokenizer("<|image|>", "<|video|>", **named), {"head_dim": 8, "num_key_value_heads": 2}
    text = {"global_head_dim": 8, "vocab_size_per_layer_input": len(tokenizer), "hidden_size_per_layer_input": 8}
    sizes = {"patch_size": 4, "pooling_kernel_size": 2, "max_soft_tokens": 70}
    processor = _processor(
        "Gemma4",
        tokenizer,
        "<|image|>",
        feature_extractor=hf.Gemma4AudioFeatureExtractor(),
        image_processor=hf.Gemma4ImageProcessor(**sizes),
        video_processor=hf.Gemma4VideoProcessor(**sizes),
        image_seq_length=70,
    )
    return _config(
        "Gemma4",
        tokenizer,
        {"layer_types": ["full_attention"], **text, **heads},
        LAYER | {"patch_size": 4, "pooling_kernel_size": 2, "position_embedding_size": 128, **heads},
        boi_token_id=tokenizer.boi_token_id,
        eoi_token_id=tokenizer.eoi_token_id,
        image_token_id=tokenizer.image_token_id,
        video_token_id=processor.video_token_id,
        boa_token_id=tokenizer.boa_token_id,
        eoa_token_index=tokenizer.eoa_token_id,
        audio_token_id=tokenizer.audio_token_id,
        initializer_range=0.1,
    ), processor


def _llava(family: str = "Llava", **pinpoints: Any) -> tuple[Any, Any]:
    tokenizer = _tokenizer("<image>")
    more = {"vision_feature_layer": -1, **_ids(tokenizer, image_token_index="<image>")}
    return _config(family, tokenizer, {"model_type": "llama"}, CLIP, **more, **pinpoints), _processor(
        family,
        tokenizer,
        "<image>",
        image_processor=getattr(hf, f"{family}ImageProcessor")(**CROPPED, **pinpoints),
        patch_size=8,
        num_additional_image_tokens=1,
        vision_feature_select_strategy="default",
    )


def _idefics3(family: str = "Idefics3", **more: Any) -> tuple[Any, Any]:
    places = [f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7)]
    tokenizer = _tokenizer("<image>", "<fake_token_around_image>", "<end_of_utterance>", "<global-img>", *places)
    images = getattr(hf, f"{family}ImageProcessor")(**TILES)
    return _config(
        family,
        tokenizer,
        {"model_type": "llama"},
        LAYER | {"image_size": 32, "patch_size": 8},
        scale_factor=2,
        pad_token_id=tokenizer.pad_token_id,
        **_ids(tokenizer, image_token_id="<image>"),
    ), _processor(family, tokenizer, "<image>", image_processor=images, image_seq_len=4, **more)


def _internvl() -> tuple[Any, Any]:
    named = {"start_image_token": "<img>", "end_image_token": "</img>", "context_image_token": "<IMG_CONTEXT>"}
    tokenizer = _tokenizer("<IMG_CONTEXT>", **named, video_token="<video>")
    return _config(
        "InternVL",
        tokenizer,
        {"model_type": "qwen2"},
        LAYER | {"image_size": [32, 32], "patch_size": [8, 8]},
        image_token_id=tokenizer.context_image_token_id,
        image_seq_length=4,
    ), _processor(
        "InternVL",
        tokenizer,
        "<IMG_CONTEXT>",
        image_processor=hf.GotOcr2ImageProcessor(size=SQUARE, max_patches=4),
        video_processor=hf.InternVLVideoProcessor(size=SQUARE),
        image_seq_length=4,
    )


def _lfm2_vl() -> tuple[Any, Any]:
    places = [f"<|img_row_{row}_col_{column}|>" for row in range(1, 5) for column in range(1, 5)]
    named = {"image_token": "<image>", "image_start_token": "<|image_start|>", "image_end_token": "<|image_end|>"}
    tokenizer = _tokenizer("<image>", *places, **named, image_thumbnail_token="<|img_thumbnail|>")
    tiles = {"tile_size": 32, "min_image_tokens": 2, "max_image_tokens": 4, "max_tiles": 4}
    vision = {"model_type": "siglip2_vision_model", "patch_size": 8, "num_patches": 16, "vision_use_head": False}
    return _config(
        "Lfm2Vl",
        tokenizer,
        {"layer_types": ["full_attention"], "num_key_value_heads": 2},
        LAYER | vision,
        projector_hidden_size=32,
        image_token_id=tokenizer.image_token_id,
    ), _processor(
        "Lfm2Vl", tokenizer, "<image>", image_processor=hf.Lfm2VlImageProcessor(encoder_patch_size=8, **tiles)
    )


FAMILIES: dict[str, Callable[[], tuple[Any, Any]]] = {
    "qwen2_5_vl": _qwen2_5_vl,
    "qwen3_vl": _qwen3_vl,
    "glm4v": _glm4v,
    "gemma3": _gemma3,
    "gemma4": _gemma4,
    "llava": _llava,
    "llava_next": lambda: _llava("LlavaNext", image_grid_pinpoints=[[32, 64], [64, 32], [64, 64]]),
    "idefics3": _idefics3,
    "smolvlm": lambda: _idefics3("SmolVLM", video_processor=hf.SmolVLMVideoProcessor(**TILES)),
    "internvl": _internvl,
    "lfm2_vl": _lfm2_vl,
}
"""Of each family a function that returns the configuration of its model, and its processor."""
