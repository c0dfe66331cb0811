"""What an update costs where only a share of the groups has a gradient: every trainer in turn, in one process."""

import contextlib
import gc
from collections.abc import Iterator
from typing import Any

import datasets
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoProcessor
from transformers.utils import logging as transformers_logging

from .given import Given
from .memory import TensorMemory
from .meters import Meter, images_counted
from .one_run import model_and_rows, train, trainer_settings
from .tables import SETTINGS, in_turn


def one_batch(
    name: str,
    given: Given,
    model: Any,
    rows: datasets.Dataset,
    settings: dict[str, Any],
    processor: Any,
    *,
    warmup: int = 0,
    counting: str | None = None,
    watch_more: Any = lambda *_: None,
) -> dict[str, Any]:
    """Train for a generation batch, after `warmup` others; return what it cost.

    `counting` is "flops", or "memory" for the bytes of tensors on a CPU, and then there are no seconds. FLOPs are
    counted alone: torch's counter keeps what checkpointing computes again (torch 2.15).
    """
    clean(model)
    memory = TensorMemory() if counting == "memory" else None
    with contextlib.ExitStack() as stack:
        stack.enter_context(given.in_place_of_generation())
        flops = stack.enter_context(FlopCounterMode(display=False)).get_total_flops if counting == "flops" else int
        meter = stack.enter_context(Meter(memory, flops))
        stack.enter_context(images_counted(meter))

        def watch_all(trainer: Any, meter: Meter) -> None:
            meter.tally(trainer, "_get_per_token_logps_and_entropies", lambda *call, **named: _note(meter, *call))
            watch_more(trainer, meter)

        train(name, model, rows, given.given_reward, settings, meter, warmup + 1, watch_all, processor)
    untrue = {None: ("flops",), "flops": ("seconds", "memory"), "memory": ("seconds", "flops")}[counting]
    return meter.batches[-1] | {"trainer": name} | {kind: {} for kind in untrue}


def clean(model: Any) -> None:
    """Free the memory of the trainers that are gone, and take from `model` what they put on it."""
    if isinstance(model, torch.nn.Module):
        model.__dict__.pop("forward", None)  # TRL's fused head and accelerate's autocast
        model.zero_grad()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _note(meter: Meter, model: Any, input_ids: torch.Tensor, *others: Any) -> None:
    if torch.is_grad_enabled():
        meter.count("completions", input_ids.size(0))
        meter.count("tokens", input_ids.numel())


def measure(options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The figures of each (repeat, share, trainer). First come the repeats `flops` and `memory`."""
    datasets.disable_progress_bars()
    transformers_logging.disable_progress_bar()
    model, rows = model_and_rows(options)
    processor = AutoProcessor.from_pretrained(model)
    settings = trainer_settings(options, model)
    counts = ["flops"] if torch.cuda.is_available() else ["flops", "memory"]  # a GPU counts its memory in each run
    before = max(SETTINGS.get(name, {}).get("vade_replay", 0) for name in options["trainers"])  # batches to replay
    for repeat in [*counts, *range(options["repeats"])]:
        counting, turn = (repeat, 0) if repeat in counts else (None, repeat)
        for share in options["live_shares"]:
            for name in in_turn(options["trainers"], turn):
                sizes = (options["rows"], options["generations"], options["completion_tokens"])
                given = Given(*sizes, share, processor.tokenizer)
                figures = one_batch(name, given, model, rows, settings, None, counting=counting, warmup=before)
                yield {"repeat": repeat, "share": share} | figures
