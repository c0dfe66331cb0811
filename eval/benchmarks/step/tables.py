"""The names of trainers and phases, and the tables of what they cost."""

import statistics
from collections.abc import Sequence
from typing import Any

NAMES = {
    "stock": "stock TRL",
    "vade": "trl_vade without thinning",
    "lossless": "trl_vade lossless",
    "live": "trl_vade live",
    "replay": "trl_vade lossless, replay of four batches",
    "repeated": "trl_vade, images TRL's way",
    "once": "trl_vade, images once: processor, buffer",
    "tower": "trl_vade, images once: and tower",
    "grouped": "trl_vade, images once: and side by side",
}
SETTINGS: dict[str, dict[str, Any]] = {
    "lossless": {"vade_down_sampling": "lossless"},
    "live": {"vade_down_sampling": "live"},
    "replay": {"vade_down_sampling": "lossless", "vade_replay": 4},
    "repeated": {"vade_images_once": False},
}
"""Of those of our trainers that have any of their own."""
IMAGES = {"once": (False, False), "tower": (True, False), "grouped": (True, True)}
"""Whether the tower encodes each image once, and whether the completions of an image are put side by side."""
SECONDS = {
    "rows": "choose and load rows",
    "tokenise": "tokenise prompts",
    "sync": "weight sync",
    "generate": "generate",
    "rewards": "rewards (a stand-in)",
    "observe": "scores to the posterior",
    "inputs": "inputs of the training forward",
    "score": "score log-probabilities",
    "update": "forward and backward",
    "optimise": "optimiser step",
    "other": "everything else",
}
COUNTS = {
    "calls": "calls of the engine",
    "requests": "requests to the engine",
    "encoded by the engine": "images encoded by the engine",
    "encoded by the trainer": "images encoded by the trainer's passes",
    "processed": "images through an image processor, in this process",
    "decoded": "images decoded",
    "buffered": "bytes of images in the buffered generation batch",
    "stored": "bytes of images in the store beside it",
    "prompt tokens in the engine": "prompt tokens in the engine, over all completions",
}


def in_turn(trainers: Sequence[str], repeat: int) -> list[str]:
    """Return `trainers` in the order of this repeat, which begins with another one than the repeat before."""
    return [trainers[(place + repeat) % len(trainers)] for place in range(len(trainers))]


def total(batch: dict[str, Any]) -> float:
    return sum(batch["seconds"].values())


def table(runs: list[dict[str, Any]]) -> str:
    """Markdown: a line for each figure that any run has, a column for each trainer."""
    batches: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        batches.setdefault(run["trainer"], []).extend(run["batches"])
    trainers = [name for name in NAMES if name in batches]
    lines = ["| a generation batch | " + " | ".join(NAMES[name] for name in trainers) + " |"]
    lines.append("| --- |" + " ---: |" * len(trainers))

    def line(what: str, figure: Any, digits: int) -> None:
        cells = [[figure(batch) for batch in batches[name]] for name in trainers]
        if any(map(any, cells)):
            lines.append(f"| {what} | " + " | ".join(spread(values, digits) for values in cells) + " |")

    line("seconds", total, 2)
    for phase, what in SECONDS.items():
        line(f"- {what}", lambda batch, phase=phase: batch["seconds"].get(phase, 0.0), 3)
    every = {count for each in batches.values() for batch in each for count in batch["counts"]}
    for count in [*COUNTS, *sorted(every - COUNTS.keys())]:
        line(COUNTS.get(count, count), lambda batch, count=count: batch["counts"].get(count, 0), 0)
    resident = "peak memory of the process above that before the training, MiB"
    line(resident, lambda batch: most(batch, "resident") / 2**20, 0)
    for kind in ("allocated", "reserved", "in use"):
        for phase, what in SECONDS.items():
            peak = f"peak GPU memory, GiB, {kind}: {what}"
            line(peak, lambda batch, p=phase, k=kind: batch["memory"].get(p, {}).get(k, 0) / 2**30, 1)
    return "\n".join(lines)


def spread(values: list[float], digits: int) -> str:
    """Median (lowest to highest); one figure where they are the same, `-` where there is none."""
    low, high = min(values, default=0), max(values, default=0)
    if not high:
        return "-"
    if low == high:
        return f"{low:,.{digits}f}"
    return f"{statistics.median(values):,.{digits}f} ({low:,.{digits}f} to {high:,.{digits}f})"


LIVE_COLUMNS = {
    "completions in the update": (lambda each: each["counts"]["completions"], 0),
    "forward passes before the loss, seconds": (lambda each: each["seconds"].get("score", 0.0), 3),
    "whole generation batch, seconds": (total, 3),
    "update, seconds": (lambda each: each["seconds"].get("update", 0.0), 3),
    "TFLOPs of both": (lambda each: (each["flops"].get("score", 0) + each["flops"].get("update", 0)) / 1e12, 4),
    "peak memory, MiB": (lambda each: most(each) / 2**20, 1),
}
"""Figure and digits; 0 where a batch does not have the figure."""


def live_table(figures: list[dict[str, Any]]) -> str:
    """Markdown: a line for each live share and trainer, from batches as `live_shares.measure` makes them."""
    cells: dict[tuple[float, int], list[dict[str, Any]]] = {}
    for each in figures:
        cells.setdefault((each["share"], [*NAMES].index(each["trainer"])), []).append(each)
    # Counting makes runs of its own, so not every batch has every figure, and some have none in any batch.
    columns = {
        name: [spread([value for each in cells[place] if (value := figure(each))], digits) for place in sorted(cells)]
        for name, (figure, digits) in LIVE_COLUMNS.items()
    }
    columns = {name: column for name, column in columns.items() if {*column} != {"-"}}
    lines = [
        f"| live groups | trainer | {' | '.join(columns)} |",
        f"| ---: | --- |{' ---: |' * len(columns)}",
    ]
    for (share, trainer), *shown in zip(sorted(cells), *columns.values(), strict=True):
        lines.append(f"| {100 * share:g}% | {[*NAMES.values()][trainer]} | {' | '.join(shown)} |")
    return "\n".join(lines)


def most(batch: dict[str, Any], kind: str = "allocated") -> int:
    """Bytes: the highest peak of all phases, or 0 where memory was not measured."""
    return max((peaks.get(kind, 0) for peaks in batch["memory"].values()), default=0)
