"""The tables: seconds of each verb, and bytes, as Markdown that can be read as it is."""

import math
import statistics

VERBS = ("draw", "observe", "save", "load")
SIZES = {
    "memory held": lambda cell: cell.get("state_bytes"),
    "peak, draw and observe": lambda cell: _peak(cell, "draw", "observe"),
    "peak, save and load": lambda cell: _peak(cell, "save", "load"),
    "on the disk": lambda cell: cell.get("file_bytes"),
}
TIMES, BYTES = (("us", 1e-6), ("ms", 1e-3), ("s", 1.0)), (("kB", 1e3), ("MB", 1e6), ("GB", 1e9))


def report(figures):
    """Everything that was measured; a figure that was not is "-"."""
    cells = figures["cells"]
    names = list(dict.fromkeys(cell["contender"] for cell in cells))
    places = list(dict.fromkeys((cell["rows"], cell["percent"]) for cell in cells))
    found = {(cell["rows"], cell["percent"], cell["contender"]): cell for cell in cells}
    blocks = [_times(verb, places, names, found) for verb in VERBS]
    blocks += [_sizes(title, size, places, names, found) for title, size in SIZES.items()]
    missing = dict.fromkeys(
        f"{cell['contender']}, {cell['rows']:,} rows: {cell['failed']}" for cell in cells if cell.get("failed")
    )
    return "\n\n".join([*blocks, *(["Not measured (-):\n" + "\n".join(missing)] if missing else [])])


def _times(verb, places, names, found):
    others = [name for name in names if name != "ours"]
    head = [f"{verb}: rows", "visited", *names, "ours / numpy", "ours / best other"]
    lines = []
    for place in places:
        values = {name: found.get((*place, name), {}).get(verb) for name in names}
        measured = [name for name in others if values[name]]
        best = min(measured, key=lambda name: statistics.median(values[name]), default=None)
        ratios = [ratio(values.get("ours"), values.get(other)) for other in ("numpy", best)]
        lines.append([*_place(place), *(spread(values[name]) for name in names), *ratios])
    return aligned(head, lines)


def _sizes(title, size, places, names, found):
    lines = [
        [*_place(place), *(amount(size(found.get((*place, name), {})), BYTES) for name in names)] for place in places
    ]
    return aligned([f"{title}: rows", "visited", *names], lines)


def _peak(cell, *verbs):
    peaks = cell.get("peak_bytes", {})
    return max(peaks[verb] for verb in verbs) if all(peaks.get(verb) is not None for verb in verbs) else None


def _place(place):
    return f"{place[0]:,}", f"{place[1]:g} %"


def ratio(ours, theirs):
    """The median over the repeats, in each of which both were timed one after the other."""
    if not ours or not theirs:
        return "-"
    return three_digits(statistics.median(mine / other for mine, other in zip(ours, theirs, strict=False)))


def spread(seconds):
    """Median (lowest to highest), in the unit of the median."""
    if not seconds:
        return "-"
    _, scale = unit(statistics.median(seconds), TIMES)
    low, high = (three_digits(value / scale) for value in (min(seconds), max(seconds)))
    return f"{amount(statistics.median(seconds), TIMES)} ({low} to {high})"


def amount(value, units):
    if value is None:
        return "-"
    name, scale = unit(value, units)
    return f"{three_digits(value / scale)} {name}"


def three_digits(value):
    if value <= 0:
        return "0"
    return f"{value:.{max(0, 2 - math.floor(math.log10(value)))}f}"


def unit(value, units):
    return next((unit for unit in reversed(units) if value * 1.001 >= unit[1]), units[0])


def aligned(head, lines):
    """A Markdown table whose columns stand under one another."""
    widths = [max(map(len, column)) for column in zip(head, *lines, strict=True)]
    table = [head, ["-" * width for width in widths], *lines]
    return "\n".join(
        f"| {' | '.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))} |" for line in table
    )
