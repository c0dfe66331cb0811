"""The report of a run, in Markdown."""

from typing import Any

from ..step.tables import live_table, spread


def report(found: dict[str, Any]) -> str:
    """The tables of the parts that were run, and which were not."""
    parts = [
        memory(found.get("memory", [])),
        pictures(found.get("pictures", [])),
        selection(found.get("selection", [])),
    ]
    if "update" in found:
        parts.insert(1, live_table(found["update"]))
    parts.append(
        f"Decoder layers: {found['layers']}. Parameters: {found['parameters']:,}. Seconds in all: "
        f"{found['seconds']:.0f}, of which {found['seconds to make the model']:.0f} to make the model."
    )
    parts.append(", ".join(f"{name} {value}" for name, value in found["machine"].items()))
    parts += [f"Left out for want of time: {name}." for name in found["left out"]]
    parts += [f"**Failed**: {name}: {error}" for name, error in found["failed"].items()]
    return "\n\n".join(part for part in parts if part)


def memory(runs: list[dict[str, Any]]) -> str:
    """A line for each part of the estimate: of the first run its measure and ratio, of the others the totals."""
    if not runs:
        return ""
    first, *others = runs
    head = [
        "phase",
        "part",
        "`--plan`, MiB",
        f"{first['trainer']}, MiB",
        "ratio",
        *(f"{o['trainer']}, MiB" for o in others),
    ]
    lines = [f"| {' | '.join(head)} |", f"| --- | --- |{' ---: |' * (len(head) - 2)}"]
    for place, line in enumerate(first["lines"]):
        cells = [line["phase"], line["part"], mib(line["estimated"]), mib(line["measured"])]
        cells.append("-" if not line["measured"] else f"{line['measured'] / line['estimated']:.2f}")
        cells += [mib(other["lines"][place]["measured"]) for other in others]
        lines.append(f"| {' | '.join(cells)} |")
    lengths = ", ".join(f"{name} {number:,}" for name, number in first["lengths"].items())
    return "\n".join(lines) + f"\n\nTokens of a row of the memory's batch, at most: {lengths}."


def mib(number: int | None) -> str:
    return "-" if number is None else f"{number / 2**20:,.1f}"


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
