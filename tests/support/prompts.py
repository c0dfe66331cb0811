"""Rows with pictures of very different sizes, and the processor that makes most of it."""

import datasets
import PIL.Image
from datasets import Dataset
from transformers import Qwen2_5_VLProcessor, Qwen2VLImageProcessor

from trl_vade.testbed.processor import build_processor


def of_full_size(processor_class=Qwen2_5_VLProcessor):
    """The testbed's processor with the image processor of Qwen2.5-VL as it comes: patches of 14, merged 2 by 2."""
    small = build_processor()
    return processor_class(
        image_processor=Qwen2VLImageProcessor(),
        tokenizer=small.tokenizer,
        video_processor=small.video_processor,
        chat_template=small.chat_template,
    )


def loaded(directory):
    file, cache = str(directory / "rows.parquet"), str(directory / "cache")
    return datasets.load_dataset("parquet", data_files=file, split="train", cache_dir=cache)


def picture(width, height, colour=(200, 30, 30)):
    return PIL.Image.new("RGB", (width, height), colour)


def asked(text):
    return [{"role": "user", "content": text}]


def rows_of(images, column="images", texts=None):
    texts = texts or [f"What is the sum of the {'two ' * (i % 4)}bars?" for i in range(len(images))]
    rows = [{"prompt": asked(text), column: image} for text, image in zip(texts, images, strict=True)]
    feature = datasets.Image() if column == "image" else datasets.List(datasets.Image())
    features = datasets.Features(
        {"prompt": [{"role": datasets.Value("string"), "content": datasets.Value("string")}], column: feature}
    )
    return Dataset.from_list(rows, features=features)


def uneven_rows():
    """Five rows whose images become 4, 16, 36, 64 and 100 tokens."""
    return rows_of([[picture(56 * i, 56 * i)] for i in range(1, 6)], texts=["How many?"] * 5)
