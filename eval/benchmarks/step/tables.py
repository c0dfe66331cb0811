"""The names of trainers and phases, and the tables of what they cost."""

import statistics
from typing import Any

NAMES = {
    "stock": "stock TRL",
    "vade": "trl_vade without thinning",
    "lossless": "trl_vade lossless",
    "live": "trl_vade live",
    "unseeded": "trl_vade without seeds",
}
THINNING = {"lossless": "lossless", "live": "live"}
"""`vade_down_sampling` of those that have any."""
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
    "prompt tokens in the engine": "prompt tokens in the engine, over all completions",
}


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


def live_table(figures: list[dict[str, Any]]) -> str:
    """Markdown: a line for each live share and trainer, from the batches of `live_shares.measure`."""
    lines = [
        "| live groups | trainer | completions in the update | forward passes before the loss, seconds "
        "| update, seconds | TFLOPs of both | peak memory, MiB |",
        "| ---: | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    cells: dict[tuple[float, int], list[dict[str, Any]]] = {}
    for each in figures:
        cells.setdefault((each["share"], [*NAMES].index(each["trainer"])), []).append(each)
    for (share, trainer), cell in sorted(cells.items(), key=lambda item: item[0]):
        kept = statistics.median(each["counts"]["completions"] for each in cell)
        columns = {
            3: [
                [each["seconds"].get(phase, 0.0) for each in cell if each["seconds"]] for phase in ("score", "update")
            ],
            4: [[(each["flops"].get("score", 0) + each["flops"]["update"]) / 1e12 for each in cell if each["flops"]]],
            1: [[most(each) / 2**20 for each in cell if each["memory"]]],
        }
        shown = [spread(values, digits) for digits, of_kind in columns.items() for values in of_kind]
        lines.append(f"| {' | '.join([f'{share:.0%}', [*NAMES.values()][trainer], f'{kept:,.0f}', *shown])} |")
    return "\n".join(lines)


def most(batch: dict[str, Any]) -> int:
    """Bytes: the highest peak of all phases."""
    return max(peaks.get("allocated", 0) for peaks in batch["memory"].values())
