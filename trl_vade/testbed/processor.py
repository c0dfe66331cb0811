"""A real `Qwen2_5_VLProcessor` with a byte-level BPE tokenizer, trained on the testbed's sentences."""

import json
from itertools import product
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import Qwen2_5_VLProcessor, Qwen2Tokenizer, Qwen2VLImageProcessor, Qwen2VLVideoProcessor
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

from .scenes import (
    BAR_QUESTIONS,
    CELL,
    COLOUR_QUESTION,
    COLOURS,
    CORNERS,
    COUNT_QUESTION,
    DIGIT_QUESTIONS,
    SIDES,
    SIZE,
)

_NAMES = ("endoftext", "im_start", "im_end", "vision_start", "vision_end", "vision_pad", "image_pad", "video_pad")
SPECIAL_TOKENS = tuple(f"<|{name}|>" for name in _NAMES)

IMAGE_MEAN = 0.96
IMAGE_STD = 0.4
"""The normalisation of pixels: white maps to 0.1, so an empty patch is close to zero, and full ink to about -2.3."""

# Qwen2.5-VL's template without tools, vision counters and the default system message: nine tokens a prompt less.
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for content in message['content'] %}"
    "{% if content['type'] == 'image' or 'image' in content or 'image_url' in content %}"
    "<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif content['type'] == 'video' or 'video' in content %}"
    "<|vision_start|><|video_pad|><|vision_end|>"
    "{% elif 'text' in content %}{{ content['text'] }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def build_processor() -> Qwen2_5_VLProcessor:
    """Return a processor with padding on the left that turns a 56 x 56 image, unscaled, into 4 image tokens."""
    images: dict[str, Any] = {
        "size": {"shortest_edge": SIZE**2, "longest_edge": SIZE**2},
        **{"image_mean": [IMAGE_MEAN] * 3, "image_std": [IMAGE_STD] * 3},
        **{"patch_size": CELL, "merge_size": 2, "temporal_patch_size": 2},
    }
    return Qwen2_5_VLProcessor(
        image_processor=Qwen2VLImageProcessor(**images),
        tokenizer=build_tokenizer(),
        # Qwen2_5_VLProcessor requires a video processor.
        video_processor=Qwen2VLVideoProcessor(**images),
        chat_template=CHAT_TEMPLATE,
    )


def build_tokenizer() -> Qwen2Tokenizer:
    """Train a BPE with a token for every word of the testbed, and return it as Qwen's tokenizer class."""
    bpe = Tokenizer(models.BPE())
    bpe.normalizer = normalizers.NFC()
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(pattern=Regex(PRETOKENIZE_REGEX), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=2048,  # never reached: merging ends when every word is one token
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=list(SPECIAL_TOKENS),
        show_progress=False,
    )
    colours = tuple(COLOURS)
    questions = [COUNT_QUESTION, *BAR_QUESTIONS, *DIGIT_QUESTIONS, COLOUR_QUESTION]
    questions += [f"How many {colour} shapes are there?" for colour in colours]
    questions += [f"What colours are the {a} shape and the {b} shape?" for a, b in product(CORNERS + SIDES, repeat=2)]
    answers = [f"{a} {b}" for a, b in product(colours, repeat=2)] + list("0123456789")
    sentences = questions + [f"<answer>{answer}</answer>" for answer in answers]
    # The roles come from the chat template. A merge needs two occurrences.
    bpe.train_from_iterator(sentences * 2 + ["user\n", "assistant\n", "system\n"] * 2, trainer)
    state = json.loads(bpe.to_str())["model"]
    return Qwen2Tokenizer(
        vocab=state["vocab"],
        merges=[tuple(merge) for merge in state["merges"]],
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        extra_special_tokens=[AddedToken(token, special=True) for token in SPECIAL_TOKENS],
        padding_side="left",
        model_max_length=1024,
        chat_template=CHAT_TEMPLATE,
    )
