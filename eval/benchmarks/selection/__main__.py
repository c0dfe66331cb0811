"""What does choosing prompts cost, by the size of the data set? `ThompsonSampler` against full redraws of every row.

    python -m eval.benchmarks.selection                                           # up to 1e6 rows: minutes
    python -m eval.benchmarks.selection --rows 9471 1e4 1e5 1e6 1e7 --output small.json
    python -m eval.benchmarks.selection --rows 1e8 --output large.json            # a quarter of an hour, 16 GB
    python -m eval.benchmarks.selection --from small.json large.json --picture FILE.png    # tables and picture
    python -m eval.benchmarks.selection --precision                               # stored counts against float64

A cell is a number of rows and the share of them that was ever visited. In each cell every contender holds the same
evidence, and its verbs are timed:

    draw       choose `--batch` rows
    observe    take the outcomes of the rows just drawn, 8 completions each
    save       write the state to the disk
    load       let go of the state and read it again

The contenders (`contenders.py`):

    ours           `ThompsonSampler` with its defaults, `save_snapshot` and `load_snapshot`. These also flush to the
                   disk and check a SHA-256, which none of the others does
    numpy          dense float64, `Generator.beta` of all rows, gain p(1-p)^2, `argpartition`; `savez`
    numpy gamma    the same in float32, a Beta variate from two Gamma variates: the fastest redraw known to us
    torch          the same on the CPU with torch's Gamma and `topk`; safetensors
    loop           an object a row and `random.betavariate`; JSON. Up to `--loop_rows` rows
    ours, prompts  the rule of the default preset; only where `--contenders` names it
    ours, variants draws problems of originals and matched variants; only where `--contenders` names it

A full redraw decays all its rows in `observe`, as equation 6 is written, so it holds and saves alpha and beta alone;
ours also holds the visits and the last step of each visited row.

Each contender of a cell is a process of its own, and they take turns: draw and observe of each once, which is not
counted, then in every repeat of each in an order that rotates, so that a drift of the machine's speed falls on all;
after that save and load in the same way. Ratios are taken within a repeat. Memory is that of the process, over what
it was with all packages loaded: what the state adds, and the peak in a verb (Linux only). Below some MB it is noise.

All contenders have one thread. Files are read from the system's cache, as far as memory goes: at 1e8 rows, all
visited, ours needs 12 GB beside its file. Timings depend on the machine: they are reported and never tested.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from . import precision, tables
from .contenders import CONTENDERS, DEFAULT
from .evidence import stride_of
from .workers import ContenderError, Worker, machine

LARGE = 10_000_000  # rows above which there are fewer repeats


def measure(options, num_rows, percent, directory):
    """The records of a cell, one for each contender."""
    records, workers = {}, {}
    for name in options.contenders:
        records[name] = {"rows": num_rows, "percent": percent, "contender": name, "peak_bytes": {}, "failed": None}
        if name == "loop" and num_rows > options.loop_rows:
            records[name]["failed"] = f"more than --loop_rows {options.loop_rows:,}"
        else:
            workers[name] = Worker(name, directory)

    def ask(name, verb, *arguments):
        """The answer, or None where the contender failed and is out of the cell."""
        try:
            return workers[name].ask(verb, *arguments)
        except ContenderError as error:
            records[name]["failed"] = str(error)
            workers.pop(name).close()
            return None

    def time_once(name, verb, *arguments, counts=True):
        answer = ask(name, verb, *arguments) if name in workers else None
        if answer is None or not counts:
            return
        record = records[name]
        record.setdefault(verb, []).append(answer["seconds"])
        record["file_bytes"] = answer.get("file_bytes", record.get("file_bytes"))
        if answer["peak_bytes"] is not None:
            record["peak_bytes"][verb] = max(answer["peak_bytes"], record["peak_bytes"].get(verb, 0))

    try:
        # One after the other: at the largest size the memory does not suffice for all to build at once.
        for name in list(workers):
            ask(name, "build", num_rows, percent, options.seed)
        repeats = options.repeats_large if num_rows > LARGE else options.repeats
        for repeat in range(repeats + 1):
            for name in rotated(options.contenders, repeat):
                time_once(name, "draw", min(options.batch, num_rows), counts=repeat > 0)
                time_once(name, "observe", counts=repeat > 0)
        for name in list(workers):
            records[name] |= ask(name, "held") or {}
        for repeat in range(repeats):
            for name in rotated(options.contenders, repeat):
                time_once(name, "save")
                time_once(name, "load")
    finally:
        for worker in workers.values():
            worker.close()
    return list(records.values())


def rotated(names, places):
    places %= len(names)
    return [*names[places:], *names[:places]]


def measure_all(options):
    os.environ["OMP_NUM_THREADS"] = "1"  # a worker inherits it
    arguments = " ".join(options.arguments)
    figures = {
        "command": f"python -m eval.benchmarks.selection {arguments}".strip(),
        "machine": machine(),
        "cells": [],
    }
    figures |= {"batch": options.batch, "seed": options.seed}
    for num_rows in options.rows:
        for percent in options.visited:
            start = time.perf_counter()
            directory = tempfile.mkdtemp(dir=options.directory)
            try:
                figures["cells"] += measure(options, num_rows, percent, directory)
            finally:
                shutil.rmtree(directory)
            print(f"{num_rows:,} rows, {percent:g} %: {time.perf_counter() - start:.0f} s", flush=True)
            write(options.output, figures)  # after every cell: the last ones take longest
    return figures


def write(path, figures):
    if path:
        path.write_text(json.dumps(figures, indent=1) + "\n")


def parse(arguments):
    parser = argparse.ArgumentParser(
        prog="python -m eval.benchmarks.selection",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    whole = lambda text: int(float(text))  # noqa: E731  1e8 is easier to read than its zeros
    parser.add_argument("--rows", nargs="+", type=whole, default=[9471, 10_000, 100_000, 1_000_000])
    parser.add_argument(
        "--visited", nargs="+", type=float, default=[0.1, 1.0, 10.0, 100.0], help="percent of the rows"
    )
    parser.add_argument("--contenders", nargs="+", choices=list(CONTENDERS), default=list(DEFAULT))
    parser.add_argument("--batch", type=int, default=512, help="rows of a draw (default 512)")
    parser.add_argument("--repeats", type=int, default=7, help="of every verb (default 7)")
    parser.add_argument("--repeats_large", type=int, default=3, help=f"above {LARGE:,} rows (default 3)")
    parser.add_argument("--loop_rows", type=whole, default=1_000_000, help="the most rows for the loop")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--directory", type=Path, help="where states are saved (default: the system's for such files)")
    parser.add_argument("--output", type=Path, help="write all figures as JSON here")
    parser.add_argument("--picture", type=Path, help="write the picture here")
    parser.add_argument(
        "--from", dest="sources", nargs="+", type=Path, help="measure nothing; read what --output wrote"
    )
    parser.add_argument("--precision", action="store_true", help="compare the stored counts with float64, and no more")
    parser.add_argument("--steps", type=int, default=10_000, help="of --precision")
    options = parser.parse_args(arguments)
    options.arguments = sys.argv[1:] if arguments is None else arguments
    try:
        for percent in options.visited:
            stride_of(percent)
    except ValueError as error:
        parser.error(f"--visited: {error}")
    return options


def main(arguments=None):
    options = parse(arguments)
    if options.precision:
        results = [precision.compare(200_000, options.steps, 256, options.seed, aware) for aware in (False, True)]
        print(precision.report(results))
        write(options.output, {"precision": results, "machine": machine()})
        return
    if options.sources:
        runs = [json.loads(path.read_text()) for path in options.sources]
        figures = runs[0] | {"cells": [cell for run in runs for cell in run["cells"]]}
    else:
        figures = measure_all(options)
    print(tables.report(figures))
    if options.picture:
        from . import pictures  # matplotlib, which is an extra

        pictures.draw(figures, options.picture)


if __name__ == "__main__":
    main()
