"""The report of a run, in Markdown."""

from typing import Any

from ..step.tables import live_table, spread, table


def report(found: dict[str, Any]) -> str:
    """The tables of the parts that were run, and which were not."""
    parts = [
        memory(found.get("memory", [])),
        pictures(found.get("pictures", [])),
        selection(found.get("selection", [])),
    ]
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
    """A line for each part of the estimates: of each run the estimate, the measure and their ratio."""
    if not runs:
        return ""
    head = ["phase", "part"]
    for each in runs:
        head += [f"{each['trainer']}: `--plan`, MiB", "measured, MiB", "ratio"]
    found = [{(line["phase"], line["part"]): line for line in each["lines"]} for each in runs]
    lines = [f"| {' | '.join(head)} |", f"| --- | --- |{' ---: |' * (len(head) - 2)}"]
    for place in max(found, key=len):  # images once are a part more
        cells = [*place]
        for each in found:
            line = each.get(place, {"estimated": None, "measured": None})
            ratio = f"{line['measured'] / line['estimated']:.2f}" if line["measured"] else "-"
            cells += [mib(line["estimated"]), mib(line["measured"]), ratio]
        lines.append(f"| {' | '.join(cells)} |")
    first = runs[0]
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
