"""Seconds that the marker of a checkpoint and the selection log take, at a save and at a resume.

usage: python -m eval.benchmarks.saving [--mib MIB] [--lines LINES] [--rows ROWS] [--directory DIRECTORY]
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from trl_vade.files import write_durably
from trl_vade.selection.log import SelectionLog
from trl_vade.selection.outcomes import GroupOutcomes
from trl_vade.trainer.checkpoint.marker import missing_part, write_marker

PARTS = {"model.safetensors": 1, "optimizer.pt": 2, "reference_model/weights.safetensors": 1}  # shares of the bytes


def seconds(do):
    """Median of three calls."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        do()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def of_marker(folder, mib):
    """Seconds to write the files, and to write and to check their marker."""
    rng = np.random.default_rng(0)
    parts = {folder / name: rng.bytes(mib * 2**20 * share // 4) for name, share in PARTS.items()}
    for path in parts:
        path.parent.mkdir(parents=True, exist_ok=True)
    writing = seconds(lambda: [write_durably(path, content) for path, content in parts.items()])
    return {
        "the files themselves, synced to disk": writing,
        "marker written": seconds(lambda: write_marker(folder, run="a run", parent=None, save=1)),
        "marker checked by sizes": seconds(lambda: missing_part(folder)),
        "marker checked by all bytes": seconds(lambda: missing_part(folder, contents=True)),
    }


def of_log(folder, lines, rows):
    """Seconds to append a line, and to go on from a log of so many lines and one more."""
    rng, log, appended = np.random.default_rng(0), SelectionLog(folder), []
    for step in range(1, lines + 2):
        successes = rng.integers(0, 9, rows).astype(float)
        mixed = (successes > 0) & (successes < 8)
        outcomes = GroupOutcomes(
            rng.choice(100 * rows, rows, replace=False), successes, np.full(rows, 8.0), mixed, mixed
        )
        saved, start = log.position._asdict(), time.perf_counter()
        log.append(outcomes, step=step, global_step=step - 1, rollouts=8 * rows * step, predicted_effective_ratio=0.5)
        appended.append(time.perf_counter() - start)
    return {
        f"log of {log.path.stat().st_size / 1e6:.1f} MB: a line appended, first 100": statistics.median(
            appended[:100]
        ),
        "a line appended, last 100": statistics.median(appended[-100:]),
        "checked and cut at a resume": seconds(lambda: log.resume(saved)),
        "every line parsed": seconds(log.read),
    }


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=1024, help="size of the checkpoint")
    parser.add_argument("--lines", type=int, default=5000, help="lines of the selection log")
    parser.add_argument("--rows", type=int, default=512, help="rows of each line")
    parser.add_argument("--directory", help="where to write; a temporary one by default")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        folder = Path(directory)
        for name, value in (
            of_marker(folder / "a", options.mib) | of_log(folder, options.lines, options.rows)
        ).items():
            print(f"{name:60} {value:9.4f} s")


if __name__ == "__main__":
    main()
