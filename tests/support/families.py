"""Tiny random models of every family of vision models that TRL trains, each with its own real processor.

The sizes are such that a picture of `PICTURE_SIZES` makes one tile or several, and a few tokens a tile.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.runs import WORDS

TEXT = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 512,
    "initializer_range": 0.1,
}
"""The language model of each family."""

CHAT_TEMPLATE = (
    "{{% for message in messages %}}<|im_start|> "
    "{{% if message['content'] is string %}}{{{{ message['content'] }}}}"
    "{{% else %}}{{% for part in message['content'] %}}"
    "{{% if part['type'] == 'image' %}}{image} {{% elif 'text' in part %}}{{{{ part['text'] }}}}{{% endif %}}"
    "{{% endfor %}}{{% endif %}} <|im_end|> {{% endfor %}}"
    "{{% if add_generation_prompt %}}<|im_start|>{{% endif %}}"
)
"""Of every family: `image` is what its processor replaces by the tokens of a picture."""


def build_family(name: str) -> tuple[Any, Any]:
    """Return a new float32 model of the family `name` and its processor."""
    import torch

    config, processor = FAMILIES[name]()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        from transformers import AutoModelForImageTextToText

        return AutoModelForImageTextToText.from_config(config), processor


def write_family(name: str, path: Path) -> str:
    """Write model and processor of the family `name` to the folder `path`, and return it as a text."""
    for part in build_family(name):
        part.save_pretrained(path)
    return str(path)


def _tokenizer(image: str, *more: str, **named: str) -> Any:
    """Return a tokenizer of `WORDS` with the special tokens `more` and those that are `named` as attributes."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "[UNK]", *dict.fromkeys([image, *more, *named.values()])]
    vocabulary = {token: number for number, token in enumerate([*special, *WORDS])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.add_special_tokens(special)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<|endoftext|>",
        eos_token="<|im_end|>",
        unk_token="[UNK]",
        padding_side="left",
        extra_special_tokens=named,
    )


def _text(tokenizer: Any, **more: Any) -> dict[str, Any]:
    """Return the configuration of the language model of `tokenizer`."""
    ids = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id, "bos_token_id": None}
    return TEXT | {"vocab_size": len(tokenizer)} | ids | more


def _vision(**more: Any) -> dict[str, Any]:
    """Return the configuration of a vision tower of one layer."""
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    return sizes | {"initializer_range": 0.1} | more


def _qwen2_5_vl() -> tuple[Any, Any]:
    from trl_vade.testbed.model import build_config
    from trl_vade.testbed.processor import build_processor

    processor = build_processor()
    processor.image_processor.size = {"shortest_edge": 28 * 28, "longest_edge": 84 * 84}
    return build_config(processor), processor


def _qwen3_vl() -> tuple[Any, Any]:
    from transformers import Qwen2VLImageProcessor, Qwen3VLConfig, Qwen3VLProcessor, Qwen3VLVideoProcessor

    tokens = [f"<|{name}|>" for name in ("image_pad", "video_pad", "vision_start", "vision_end")]
    tokenizer = _tokenizer(*tokens)
    images: dict[str, Any] = {
        "size": {"shortest_edge": 16 * 16, "longest_edge": 48 * 48},
        "patch_size": 8,
        "merge_size": 2,
        "temporal_patch_size": 2,
    }
    processor = Qwen3VLProcessor(
        image_processor=Qwen2VLImageProcessor(**images),
        tokenizer=tokenizer,
        video_processor=Qwen3VLVideoProcessor(**images),
        chat_template=CHAT_TEMPLATE.format(image="<|vision_start|><|image_pad|><|vision_end|>"),
    )
    rope = {"rope_type": "default", "rope_theta": 1000.0, "mrope_section": [2, 1, 1]}
    vision = {
        "depth": 2,
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_heads": 2,
        "patch_size": 8,
        "out_hidden_size": 16,
        "num_position_embeddings": 16,
        "deepstack_visual_indexes": [0],
        "initializer_range": 0.1,
    }
    ids = dict(
        zip(
            ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id"),
            tokenizer.convert_tokens_to_ids(tokens),
            strict=True,
        )
    )
    return Qwen3VLConfig(
        text_config=_text(tokenizer, head_dim=8, rope_parameters=rope), vision_config=vision, **ids, dtype="float32"
    ), processor


def _glm4v() -> tuple[Any, Any]:
    from transformers import Glm4vConfig, Glm4vImageProcessor, Glm4vProcessor, Glm4vVideoProcessor

    tokens = [f"<|{name}|>" for name in ("image", "video")]
    around = [f"<|{end}_of_{kind}|>" for kind in ("image", "video") for end in ("begin", "end")]
    tokenizer = _tokenizer(*tokens, *around)
    images: dict[str, Any] = {
        "size": {"shortest_edge": 32 * 32, "longest_edge": 2 * 48 * 48},
        "patch_size": 8,
        "merge_size": 2,
        "temporal_patch_size": 2,
    }
    processor = Glm4vProcessor(
        image_processor=Glm4vImageProcessor(**images),
        tokenizer=tokenizer,
        video_processor=Glm4vVideoProcessor(**images),
        chat_template=CHAT_TEMPLATE.format(image="<|begin_of_image|><|image|><|end_of_image|>"),
    )
    vision = {
        "depth": 1,
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_heads": 2,
        "image_size": 32,
        "patch_size": 8,
        "out_hidden_size": 16,
        "initializer_range": 0.1,
    }
    names = ("image_token_id", "video_token_id", "image_start_token_id", "image_end_token_id")
    names += ("video_start_token_id", "video_end_token_id")
    ids = dict(zip(names, tokenizer.convert_tokens_to_ids([*tokens, *around]), strict=True))
    rope = {"rope_type": "default", "rope_theta": 1000.0, "mrope_section": [2, 1, 1]}
    return Glm4vConfig(
        text_config=_text(tokenizer, rope_parameters=rope), vision_config=vision, **ids, dtype="float32"
    ), processor


def _gemma3() -> tuple[Any, Any]:
    from transformers import Gemma3Config, Gemma3ImageProcessor, Gemma3Processor

    named = {"boi_token": "<start_of_image>", "eoi_token": "<end_of_image>", "image_token": "<image_soft_token>"}
    tokenizer = _tokenizer("<image_soft_token>", **named)
    processor = Gemma3Processor(
        image_processor=Gemma3ImageProcessor(size={"height": 32, "width": 32}),
        tokenizer=tokenizer,
        image_seq_length=4,
        chat_template=CHAT_TEMPLATE.format(image="<start_of_image>"),
    )
    return Gemma3Config(
        text_config=_text(tokenizer, head_dim=8, sliding_window=512, query_pre_attn_scalar=8),
        vision_config=_vision(model_type="siglip_vision_model", image_size=32, patch_size=8, vision_use_head=False),
        mm_tokens_per_image=4,
        boi_token_index=tokenizer.boi_token_id,
        eoi_token_index=tokenizer.eoi_token_id,
        image_token_index=tokenizer.image_token_id,
        initializer_range=0.1,
        dtype="float32",
    ), processor


def _gemma4() -> tuple[Any, Any]:
    from transformers import (
        Gemma4AudioFeatureExtractor,
        Gemma4Config,
        Gemma4ImageProcessor,
        Gemma4Processor,
        Gemma4VideoProcessor,
    )

    named = {"boi_token": "<|image>", "eoi_token": "<image|>", "image_token": "<|image|>"}
    named |= {"boa_token": "<|audio>", "eoa_token": "<audio|>", "audio_token": "<|audio|>"}
    tokenizer = _tokenizer("<|image|>", "<|video|>", **named)
    sizes = {"patch_size": 4, "pooling_kernel_size": 2, "max_soft_tokens": 70}
    processor = Gemma4Processor(
        feature_extractor=Gemma4AudioFeatureExtractor(),
        image_processor=Gemma4ImageProcessor(**sizes),
        tokenizer=tokenizer,
        video_processor=Gemma4VideoProcessor(**sizes),
        image_seq_length=70,
        chat_template=CHAT_TEMPLATE.format(image="<|image|>"),
    )
    heads = {"head_dim": 8, "num_key_value_heads": 2}
    return Gemma4Config(
        text_config=_text(
            tokenizer,
            layer_types=["full_attention"],
            global_head_dim=8,
            vocab_size_per_layer_input=len(tokenizer),
            hidden_size_per_layer_input=8,
            **heads,
        ),
        vision_config=_vision(patch_size=4, pooling_kernel_size=2, position_embedding_size=128, **heads),
        boi_token_id=tokenizer.boi_token_id,
        eoi_token_id=tokenizer.eoi_token_id,
        image_token_id=tokenizer.image_token_id,
        video_token_id=processor.video_token_id,
        boa_token_id=tokenizer.boa_token_id,
        eoa_token_index=tokenizer.eoa_token_id,
        audio_token_id=tokenizer.audio_token_id,
        initializer_range=0.1,
        dtype="float32",
    ), processor


def _clip() -> dict[str, Any]:
    return _vision(model_type="clip_vision_model", image_size=32, patch_size=8, projection_dim=16)


def _llava() -> tuple[Any, Any]:
    from transformers import LlavaConfig, LlavaImageProcessor, LlavaProcessor

    tokenizer = _tokenizer("<image>")
    processor = LlavaProcessor(
        image_processor=LlavaImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}),
        tokenizer=tokenizer,
        patch_size=8,
        num_additional_image_tokens=1,
        vision_feature_select_strategy="default",
        chat_template=CHAT_TEMPLATE.format(image="<image>"),
    )
    return LlavaConfig(
        text_config=_text(tokenizer, model_type="llama"),
        vision_config=_clip(),
        vision_feature_layer=-1,
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        image_seq_length=16,
        dtype="float32",
    ), processor


def _llava_next() -> tuple[Any, Any]:
    from transformers import LlavaNextConfig, LlavaNextImageProcessor, LlavaNextProcessor

    tokenizer, pinpoints = _tokenizer("<image>"), [[32, 64], [64, 32], [64, 64]]
    processor = LlavaNextProcessor(
        image_processor=LlavaNextImageProcessor(
            size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}, image_grid_pinpoints=pinpoints
        ),
        tokenizer=tokenizer,
        patch_size=8,
        num_additional_image_tokens=1,
        vision_feature_select_strategy="default",
        chat_template=CHAT_TEMPLATE.format(image="<image>"),
    )
    return LlavaNextConfig(
        text_config=_text(tokenizer, model_type="llama"),
        vision_config=_clip(),
        vision_feature_layer=-1,
        image_grid_pinpoints=pinpoints,
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        dtype="float32",
    ), processor


def _idefics3() -> tuple[Any, Any]:
    from transformers import Idefics3Config, Idefics3ImageProcessor, Idefics3Processor

    places = [f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7)]
    tokenizer = _tokenizer("<image>", "<fake_token_around_image>", "<end_of_utterance>", "<global-img>", *places)
    processor = Idefics3Processor(
        image_processor=Idefics3ImageProcessor(size={"longest_edge": 64}, max_image_size={"longest_edge": 32}),
        tokenizer=tokenizer,
        image_seq_len=4,
        chat_template=CHAT_TEMPLATE.format(image="<image>"),
    )
    return Idefics3Config(
        text_config=_text(tokenizer, model_type="llama"),
        vision_config=_vision(image_size=32, patch_size=8),
        scale_factor=2,
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    ), processor


def _internvl() -> tuple[Any, Any]:
    from transformers import GotOcr2ImageProcessor, InternVLConfig, InternVLProcessor, InternVLVideoProcessor

    named = {
        "start_image_token": "<img>",
        "end_image_token": "</img>",
        "context_image_token": "<IMG_CONTEXT>",
        "video_token": "<video>",
    }
    tokenizer, size = _tokenizer("<IMG_CONTEXT>", **named), {"height": 32, "width": 32}
    processor = InternVLProcessor(
        image_processor=GotOcr2ImageProcessor(size=size, max_patches=4),
        tokenizer=tokenizer,
        video_processor=InternVLVideoProcessor(size=size),
        image_seq_length=4,
        chat_template=CHAT_TEMPLATE.format(image="<IMG_CONTEXT>"),
    )
    return InternVLConfig(
        text_config=_text(tokenizer, model_type="qwen2"),
        vision_config=_vision(image_size=[32, 32], patch_size=[8, 8]),
        image_token_id=tokenizer.context_image_token_id,
        image_seq_length=4,
        dtype="float32",
    ), processor


def _lfm2_vl() -> tuple[Any, Any]:
    from transformers import Lfm2VlConfig, Lfm2VlImageProcessor, Lfm2VlProcessor

    places = [f"<|img_row_{row}_col_{column}|>" for row in range(1, 5) for column in range(1, 5)]
    named = {
        "image_token": "<image>",
        "image_start_token": "<|image_start|>",
        "image_end_token": "<|image_end|>",
        "image_thumbnail_token": "<|img_thumbnail|>",
    }
    tokenizer = _tokenizer("<image>", *places, **named)
    processor = Lfm2VlProcessor(
        image_processor=Lfm2VlImageProcessor(
            encoder_patch_size=8, tile_size=32, min_image_tokens=2, max_image_tokens=4, max_tiles=4
        ),
        tokenizer=tokenizer,
        chat_template=CHAT_TEMPLATE.format(image="<image>"),
    )
    return Lfm2VlConfig(
        text_config=_text(tokenizer, layer_types=["full_attention"], num_key_value_heads=2),
        vision_config=_vision(model_type="siglip2_vision_model", patch_size=8, num_patches=16, vision_use_head=False),
        projector_hidden_size=32,
        image_token_id=tokenizer.image_token_id,
        dtype="float32",
    ), processor


FAMILIES: dict[str, Callable[[], tuple[Any, Any]]] = {
    build.__name__[1:]: build
    for build in (
        _qwen2_5_vl,
        _qwen3_vl,
        _glm4v,
        _gemma3,
        _gemma4,
        _llava,
        _llava_next,
        _idefics3,
        _internvl,
        _lfm2_vl,
    )
}
"""Of each family a function that returns the configuration of its model, and its processor."""
