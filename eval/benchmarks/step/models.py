"""Models and rows of a size, for what they cost and not for what they say: random weights, photographs.

    python -m eval.benchmarks.step.models 3b qwen-3b 2048 1024      # a folder, its rows, tokens of an image

Nothing is downloaded. The tokenizer is the testbed's, filled up to the vocabulary of the published model, with the
special tokens where that has them; so the costs of the vocabulary are real, and the text means nothing.
"""

import json
import sys
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import torch
from PIL import Image
from tokenizers import AddedToken
from transformers import (
    GenerationConfig,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2_5_VLProcessor,
    Qwen2Tokenizer,
    Qwen2VLImageProcessor,
    Qwen2VLVideoProcessor,
)

from trl_vade.testbed.model import build_config
from trl_vade.testbed.processor import CHAT_TEMPLATE, SPECIAL_TOKENS, build_processor, build_tokenizer

PATCH, MERGE = 14, 2
# The published preprocessor_config.json.
IMAGES = {
    "size": {"shortest_edge": 56 * 56, "longest_edge": 28 * 28 * 16384},
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
    "patch_size": PATCH,
    "merge_size": MERGE,
    "temporal_patch_size": 2,
}
# Ids of the published tokenizer.
QWEN_IDS = {
    "<|endoftext|>": 151643,
    "<|im_start|>": 151644,
    "<|im_end|>": 151645,
    "<|vision_start|>": 151652,
    "<|vision_end|>": 151653,
    "<|vision_pad|>": 151654,
    "<|image_pad|>": 151655,
    "<|video_pad|>": 151656,
}


def published_config() -> Qwen2_5_VLConfig:
    """Return the configuration of Qwen2.5-VL-3B-Instruct, as the `config.json` on the Hub has it."""
    sizes = {"hidden_size": 2048, "num_hidden_layers": 36, "num_attention_heads": 16, "num_key_value_heads": 2}
    sizes |= {"intermediate_size": 11008, "max_window_layers": 70, "vocab_size": 151936}
    return Qwen2_5_VLConfig(
        architectures=["Qwen2_5_VLForConditionalGeneration"],
        dtype="bfloat16",
        tie_word_embeddings=True,
        text_config={
            **sizes,
            "tie_word_embeddings": True,
            "rms_norm_eps": 1e-6,
            "max_position_embeddings": 128000,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]},
        },
        vision_config={"hidden_size": 1280, "out_hidden_size": 2048, "tokens_per_second": 2},
    )


def tokenizer_of_size(vocab_size: int) -> Qwen2Tokenizer:
    """The testbed's tokenizer with `vocab_size` tokens, of which all but its own are fillers, and Qwen's special ids.

    Without fillers an engine would refuse, or fail to decode, most of what random weights sample.
    """
    model = json.loads(build_tokenizer().backend_tokenizer.to_str())["model"]
    words = [word for word in sorted(model["vocab"], key=model["vocab"].get) if word not in SPECIAL_TOKENS]
    token_of = {number: token for token, number in QWEN_IDS.items()}
    vocabulary = {token_of.get(number, f"filler{number}"): number for number in range(len(words), vocab_size)}
    return Qwen2Tokenizer(
        vocab={word: number for number, word in enumerate(words)} | vocabulary,
        merges=[tuple(merge) for merge in model["merges"]],
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        extra_special_tokens=[AddedToken(token, special=True) for token in QWEN_IDS],
        padding_side="left",
        model_max_length=131072,
        chat_template=CHAT_TEMPLATE,
    )


def processor_and_config(shape: str) -> tuple[Qwen2_5_VLProcessor, Qwen2_5_VLConfig]:
    """The two agree on every token id; the images are Qwen2.5-VL's: 28 x 28 pixels a token.

    Args:
        shape: `3b`, or `small` with the testbed's widths.
    """
    published = shape == "3b"
    config = published_config() if published else build_config(build_processor())
    processor = Qwen2_5_VLProcessor(
        image_processor=Qwen2VLImageProcessor(**IMAGES),
        tokenizer=tokenizer_of_size(config.text_config.vocab_size) if published else build_tokenizer(),
        video_processor=Qwen2VLVideoProcessor(**IMAGES),
        chat_template=CHAT_TEMPLATE,
    )
    config.text_config.pad_token_id = processor.tokenizer.pad_token_id
    if not published:
        config.text_config.max_position_embeddings = 131072
        config.text_config.rope_parameters["rope_theta"] = 1e6
    return processor, config


def random_model(config: Qwen2_5_VLConfig, tokenizer: Qwen2Tokenizer) -> Qwen2_5_VLForConditionalGeneration:
    """Make a model with random weights of the configuration's type, on the GPU if there is one.

    That takes half a minute there, and minutes on a CPU: billions of normal draws.
    """
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        torch.manual_seed(0)
        model = Qwen2_5_VLForConditionalGeneration._from_config(config, dtype=config.dtype)
    model.generation_config = GenerationConfig(
        do_sample=True, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    return model


def write_model(shape: str, folder: Path, *, weights: bool = True) -> None:
    """Write a model of this shape with random weights, and its processor."""
    processor, config = processor_and_config(shape)
    processor.save_pretrained(folder)
    (random_model(config, processor.tokenizer) if weights else config).save_pretrained(folder)


def photographs(count: int, megapixels: float) -> Iterator[bytes]:
    """Yield JPEG files, 4:3, of smooth colours with some grain: about 0.25 MB a megapixel at quality 90."""
    random = np.random.default_rng(0)
    width, height = round((megapixels * 1e6 * 4 / 3) ** 0.5), round((megapixels * 1e6 * 3 / 4) ** 0.5)
    large = np.full((2 * height, 2 * width, 3), 128, np.float32)
    for cells, strength in ((8, 70), (40, 40), (160, 25), (640, 10)):
        coarse = Image.fromarray(random.integers(0, 256, (cells, cells, 3), dtype=np.uint8))
        large += strength * (np.asarray(coarse.resize((2 * width, 2 * height), Image.BICUBIC)) / np.float32(128) - 1)
    large += 4 * random.standard_normal((2 * height, 2 * width, 1), dtype=np.float32)
    large = large.clip(0, 255).astype(np.uint8)
    for top, left in random.integers(0, (height, width), (count, 2)):
        file = BytesIO()
        Image.fromarray(large[top : top + height, left : left + width]).save(file, "JPEG", quality=90)
        yield file.getvalue()


def random_rows(count: int, image_tokens: int, filler: int = 0) -> datasets.Dataset:
    """Make `count` rows of a question, after `filler` words, and a photograph (JPEG, 4:3) of about `image_tokens`."""
    megapixels = image_tokens * (PATCH * MERGE) ** 2 / 1e6
    features = datasets.Features(
        {
            "prompt": [{"role": datasets.Value("string"), "content": datasets.Value("string")}],
            "images": datasets.List(datasets.Image()),
        }
    )

    def rows() -> Any:
        for number, file in enumerate(photographs(count, megapixels)):
            question = f"{'the ' * filler}How many shapes are there? What is the sum of the digits {number}?"
            yield {"prompt": [{"role": "user", "content": question}], "images": [{"bytes": file, "path": None}]}

    return datasets.Dataset.from_list(list(rows()), features=features)


if __name__ == "__main__":
    shape, folder, number, tokens = sys.argv[1:]
    write_model(shape, Path(folder))
    random_rows(int(number), int(tokens)).save_to_disk(f"{folder}/rows")
