"""What is measured beside the trainer's steps: the pictures, the selection, and on which machine."""

import os
import platform
import time
from collections.abc import Callable
from typing import Any

import datasets
import numpy as np
import torch

from trl_vade import ThompsonSampler

from ..machine import commit, processor
from ..step.one_run import versions

COMPLETIONS = 8


def machine() -> dict[str, Any]:
    found = {"processors": os.cpu_count(), "processor": processor() or platform.machine(), **versions()}
    if torch.cuda.is_available():
        found |= {
            "GPU memory, GiB": round(torch.cuda.get_device_properties(0).total_memory / 2**30, 1),
            "CUDA": torch.version.cuda,
        }
    return found | ({"commit": name} if (name := commit()) else {})


def pictures(rows: datasets.Dataset, processor: Any, generations: int, repeats: int) -> dict[str, Any]:
    """Seconds and bytes of the pixels of `rows`: each image `generations` times, as TRL 1.16 does, and once."""
    images = [row["images"][0].convert("RGB") for row in rows]
    found: dict[str, Any] = {"images": len(images), "size": images[0].size, "generations": generations}
    for name, times in (("TRL", generations), ("once", 1)):
        repeated = [each for each in images for _ in range(times)]
        seconds, made = timed(repeats, processor.image_processor, repeated, return_tensors="pt")
        found[name] = {"seconds": seconds, "bytes": made["pixel_values"].nbytes}
        if torch.cuda.is_available():
            found[name]["seconds to the GPU"] = timed(repeats, made["pixel_values"].cuda)[0]
    return found


def selection(num_rows: int, batch: int, repeats: int) -> dict[str, Any]:
    """Seconds of choosing `batch` rows by the default rule and of taking outcomes. 10 % of the rows were visited."""
    random, epoch = np.random.default_rng(0), max(num_rows // batch, 1)
    some = np.packbits(random.random((9_999, 128)) < 0.2, axis=1)  # one of five of the features of a prompt's words
    words, rests = some[np.arange(num_rows) % len(some)], {"cooldown": epoch // 2, "even_rest": epoch}
    sampler = ThompsonSampler(num_rows, words=words, signal_aware_decay=True, prior="prompts", **rests)
    seen = np.arange(0, num_rows, 10)
    sampler.observe(seen, random.binomial(COMPLETIONS, 0.5, seen.size), np.full(seen.size, COMPLETIONS))
    draws, observations = [], []
    for _ in range(repeats + 1):  # the first one is not counted
        seconds, drawn = timed(1, sampler.draw, batch)
        draws += seconds
        right, trials = random.binomial(COMPLETIONS, 0.5, batch), np.full(batch, COMPLETIONS)
        observations += timed(1, sampler.observe, drawn.sample_index, right, trials)[0]
    return {"rows": num_rows, "chosen": batch, "draw": draws[1:], "observe": observations[1:]}


def timed(repeats: int, work: Callable[..., Any], *arguments: Any, **named: Any) -> tuple[list[float], Any]:
    """Seconds of each repeat, and the last result."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = work(*arguments, **named)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return seconds, result
