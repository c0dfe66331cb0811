"""What a GPU of 80 GB says: memory part by part, images once, the update at live shares, pictures, selection.

    python -m eval.benchmarks.gpu --packed packed --output gpu.json   # one H100 or H200, 9 minutes
    python -m eval.benchmarks.gpu --tiny          # the same program with the testbed's widths, for a CPU

It needs torch, torchvision, transformers, accelerate, datasets and TRL, and neither vLLM nor a network. The model has
the dimensions of Qwen2.5-VL-3B and random weights, made on the GPU. The settings are those of the GRPO recipe for 3B
with these differences. Weights, gradients and optimiser states are bf16: with the recipe's float32 one process would
hold 60 GB of them. Nothing is generated: completions and rewards are given (see `eval.benchmarks.step --live_shares`).

1. Pictures: seconds and bytes of the image processor's pixels.
2. Selection: seconds of a draw and of its outcomes.
3. Memory: two updates with the recipe's KL term, so with passes for old and reference log-probabilities. Prompts and
   completions are all long.
4. Images: a generation batch by stock TRL and by ours, with images TRL's way, once in the processor and the buffer, in
   the vision tower as well, and with the completions of a row side by side, in turn.
5. Update: at each live share, stock TRL, ours without thinning and ours with it, in turn, without a KL term.
6. SmolLM2, with `--packed`: vanilla GRPO, the default and the default with replay, side by side on three seeds for so
   many `--batches` (see `eval.benchmarks.smollm`).

A part that would end after `--minutes`, going by the longest one of its kind, is left out, and the report names it. It
also names a part that failed. On a GPU of less memory take fewer `--layers`.

Timings depend on the machine: they are reported and never tested.
"""

import argparse
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import torch
from transformers.utils import logging as transformers_logging

from ..smollm.__main__ import main as train_smollm
from ..smollm.model import load
from ..step.tables import in_turn
from . import tables
from .bench import REAL, TINY, Bench
from .machine import machine, pictures, selection
from .schedule import Schedule

SHARES = (0.125, 0.25, 0.5, 1.0)
TRAINERS = ("stock", "vade", "lossless")
IMAGES = ("stock", "repeated", "once", "tower", "grouped")


def measure(options: argparse.Namespace, schedule: Schedule) -> None:
    """Run every part, the short ones first."""
    sizes = TINY if options.tiny else REAL
    sizes = replace(sizes, repeats=options.repeats or sizes.repeats)
    if options.packed:
        load(options.packed, tiny=options.tiny)  # a part that lacks is said now
    bench = Bench(sizes, options.layers)
    schedule.found |= {"machine": machine(), "sizes": vars(sizes), "layers": bench.layers}
    schedule.found |= {"parameters": bench.parameters, "seconds to make the model": schedule.seconds}
    schedule.run("pictures", "pictures", pictures, bench.rows, bench.processor, sizes.generations, sizes.repeats)
    for rows in (9_471, 1_000_000):
        schedule.run("selection", f"selection, {rows:,} rows", selection, rows, sizes.chosen, 5)
    for name in ("stock", "live"):
        schedule.run("memory", f"memory, {name}", bench.memory, name)
    if options.packed:
        schedule.run("smollm", "SmolLM2", smollm, options)
    for repeat in range(sizes.repeats):
        for name in in_turn(IMAGES, repeat):
            schedule.run("images", f"images, {name}, repeat {repeat + 1}", bench.update, repeat, 1.0, name)
    for repeat in range(sizes.repeats):
        for share in SHARES:
            for name in in_turn(TRAINERS, repeat):
                part = f"update, {share:.1%} live, {name}, repeat {repeat + 1}"
                schedule.run("update", part, bench.update, repeat, share, name, True)


def smollm(options: argparse.Namespace) -> dict[str, Any]:
    """Train the arms from the same weights; return their points."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()  # the runs are processes of their own
    flags = ["train", "--packed", str(options.packed), "--seeds", "3", "--workers", "9"]
    if options.tiny:
        flags = [*flags[:-2], "--tiny"]
    with tempfile.TemporaryDirectory() as runs:
        return train_smollm([*flags, "--batches", str(2 if options.tiny else options.batches), "--runs", runs])


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m eval.benchmarks.gpu",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--tiny", action="store_true", help="the testbed's widths, for a CPU")
    parser.add_argument("--minutes", type=float, default=8.3, help="of all parts (8.3)")
    parser.add_argument("--repeats", type=int, help=f"of what is timed ({REAL.repeats}; tiny: {TINY.repeats})")
    parser.add_argument("--layers", type=int, help="of the decoder (all)")
    parser.add_argument("--packed", type=Path, metavar="FOLDER", help="SmolLM2, made by eval.benchmarks.smollm pack")
    parser.add_argument("--batches", type=int, default=20, help="of the runs of SmolLM2 (20)")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write all figures there, as JSON")
    options = parser.parse_args(arguments)
    if not options.tiny and not torch.cuda.is_available():
        parser.error("there is no GPU here. --tiny runs the same program on a CPU")
    return options


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    datasets.disable_progress_bars()
    transformers_logging.disable_progress_bar()

    def save(found: dict[str, Any]) -> None:
        if options.output:
            options.output.write_text(json.dumps(found, indent=1))

    schedule = Schedule(options.minutes, save)
    measure(options, schedule)
    save(schedule.found)
    print(tables.report(schedule.found))
    if schedule.found["failed"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
