"""The report of a run, in Markdown."""

from typing import Any

from ..smollm.__main__ import report as smollm
from ..step.tables import live_table, spread, table


def report(found: dict[str, Any]) -> str:
    """The tables of the parts that were run, and which were not."""
    parts = [
        memory(found.get("memory", [])),
        pictures(found.get("pictures", [])),
        selection(found.get("selection", [])),
    ]
    parts += [smollm(each) for each in found.get("smollm", [])]
    if "update" in found:
        parts.insert(1, live_table(found["update"]))
    if "images" in found:
        parts.insert(1, table([{"trainer": each["trainer"], "batches": [each]} for each in found["images"]]))
    parts.append(
        f"Decoder layers: {found['layers']}. Parameters: {found['parameters']:,}. Seconds in all: "
        f"{found['seconds']:.0f}, of which {found['seconds to make the model']:.0f} to make the model."
    )
    parts.append(", ".join(f"{name} {value}" for name, value in found["machine"].items()))
    parts += [f"Left out for want of time: {name}." for name in found["left out"]]
    parts += [f"**Failed**: {name}: {error}" for name, error in found["failed"].items()]
    return "\n\n".join(part for part in parts if part)


def memory(runs: list[dict[str, Any]]) -> str:
    """A line for each part: its bytes in each run."""
    if not runs:
        return ""
    head = ["phase", "part", *(f"{each['trainer']}, MiB" for each in runs)]
    lines = [f"| {' | '.join(head)} |", f"| --- | --- |{' ---: |' * len(runs)}"]
    for of_part in zip(*(each["lines"] for each in runs), strict=True):
        cells = [of_part[0]["phase"], of_part[0]["part"], *(mib(line["bytes"]) for line in of_part)]
        lines.append(f"| {' | '.join(cells)} |")
    first = runs[0]
    lengths = ", ".join(f"{name} {number:,}" for name, number in first["lengths"].items())
    return "\n".join(lines) + f"\n\nTokens of a row of the memory's batch, at most: {lengths}."


def mib(number: int) -> str:
    return f"{number / 2**20:,.1f}"


def pictures(runs: list[dict[str, Any]]) -> str:
    if not runs:
        return ""
    lines = ["| pixels of a generation batch | seconds | MiB | seconds to the GPU |", "| --- | ---: | ---: | ---: |"]
    for each in runs:
        for name in ("TRL", "once"):
            times = each["generations"] if name == "TRL" else 1
            what, found = (
                f"{each['images']} images of {each['size'][0]} x {each['size'][1]}, each {times} times",
                each[name],
            )
            moved = spread(found.get("seconds to the GPU", []), 3)
            lines.append(f"| {what} | {spread(found['seconds'], 3)} | {mib(found['bytes'])} | {moved} |")
    return "\n".join(lines)


def selection(runs: list[dict[str, Any]]) -> str:
    if not runs:
        return ""
    lines = ["| rows | chosen | draw, ms | observe, ms |", "| ---: | ---: | ---: | ---: |"]
    for each in runs:
        times = [spread([1000 * seconds for seconds in each[verb]], 2) for verb in ("draw", "observe")]
        lines.append(f"| {each['rows']:,} | {each['chosen']:,} | {times[0]} | {times[1]} |")
    return "\n".join(lines)
