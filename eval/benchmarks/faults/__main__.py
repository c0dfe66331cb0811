"""Kills and resumes of real runs: what a run survives, and whether anything is lost.

usage: python -m eval.benchmarks.faults [--report] [--quick] [--seed SEED] [--only NAME]

Ends with status 1 if anything was lost; with `--report`, prints a table (case, tries, survived, lost, what happened).
A try is survived when what was to happen did, and the run that went on afterwards came to the end of the run that was
never disturbed: the same choices, the same posterior and the same weights, to the bit.
"""

import argparse
import io
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

import torch

from .bench import Bench, Result
from .kills import killed_at_random, killed_in_a_save, killed_in_a_second_save
from .kinds import kinds_killed, kinds_resumed

CASES: dict[str, Callable[[Bench], Result | list[Result]]] = {
    "kinds": kinds_killed,
    "resumes": kinds_resumed,
    "kill-random": killed_at_random,
    "kill-in-save": killed_in_a_save,
    "kill-in-second-save": killed_in_a_second_save,
}


@contextmanager
def bench(*, seed: int = 0, quick: bool = False) -> Iterator[Bench]:
    """A bench in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="vade-faults-") as directory:
        yield Bench(Path(directory), seed=seed, quick=quick)


def run_case(name: str, on: Bench) -> list[Result]:
    """The rows of a case; what the runs print is not shown."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the model is tiny, and threads that wait for each other are slow on a busy machine
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            rows = CASES[name](on)
    finally:
        torch.set_num_threads(threads)
    return rows if isinstance(rows, list) else [rows]


def table(results: list[Result]) -> str:
    head = ("case", "tries", "survived", "lost", "what happened")
    lines = [head, *((r.case, str(r.tries), str(r.survived), str(r.lost), r.note) for r in results)]
    width = max(len(line[0]) for line in lines)
    return "\n".join(f"{case:{width}}  {a:>6}  {b:>8}  {c:>6}  {note}" for case, a, b, c, note in lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Inject faults into real runs and report what became of them.")
    parser.add_argument("--report", action="store_true", help="print the table, not only what was lost")
    parser.add_argument("--quick", action="store_true", help="the shortened form, for CI")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=[*CASES], action="append", help="this case; may be given several times")
    args = parser.parse_args(arguments)
    start, results = time.perf_counter(), []
    with bench(seed=args.seed, quick=args.quick) as on:
        for name in args.only or CASES:
            print(f"{name} ...", file=sys.stderr)
            results += run_case(name, on)
    tries, lost = sum(result.tries for result in results), sum(result.lost for result in results)
    if args.report or lost:
        print(table(results if args.report else [result for result in results if result.lost]))
    form = "quick" if args.quick else "full"
    print(f"\n{tries} tries, {lost} lost; {time.perf_counter() - start:.0f} s ({form} form, seed {args.seed})")
    return int(lost > 0)


if __name__ == "__main__":
    sys.exit(main())
