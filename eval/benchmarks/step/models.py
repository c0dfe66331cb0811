"""Models and rows of a size, for what they cost and not for what they say: random weights, photographs.

    python -m eval.benchmarks.step.models 3b qwen-3b --rows 2048 --image_tokens 1024

Nothing is downloaded. The tokenizer is the testbed's, filled up to the vocabulary of the published model, with the
special tokens where that has them; so the costs of the vocabulary are real, and the text means nothing.
"""

import argparse
import json
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

from .shapes import qwen2_5_vl_config

PUBLISHED = ("3b", "7b")
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
        shape: `3b` or `7b`; `small` has the testbed's widths.
    """
    config = qwen2_5_vl_config(shape) if shape in PUBLISHED else build_config(build_processor())
    processor = Qwen2_5_VLProcessor(
        image_processor=Qwen2VLImageProcessor(**IMAGES),
        tokenizer=tokenizer_of_size(config.text_config.vocab_size) if shape in PUBLISHED else build_tokenizer(),
        video_processor=Qwen2VLVideoProcessor(**IMAGES),
        chat_template=CHAT_TEMPLATE,
    )
    config.text_config.pad_token_id = processor.tokenizer.pad_token_id
    if shape not in PUBLISHED:
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=["small", *PUBLISHED])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--image_tokens", type=int, required=True)
    options = parser.parse_args()
    write_model(options.shape, options.folder)
    random_rows(options.rows, options.image_tokens).save_to_disk(str(options.folder / "rows"))


if __name__ == "__main__":
    main()
