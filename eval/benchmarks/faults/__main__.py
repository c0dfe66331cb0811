"""Faults, injected into real runs: what a run survives, and whether anything is lost.

usage: python -m eval.benchmarks.faults [--report] [--quick] [--seed SEED] [--only NAME]

Ends with status 1 if anything was lost; with `--report`, prints a table (case, tries, survived, lost, what happened).
A try is survived when what was to happen did, and the run that went on afterwards came to the end of the run that was
never disturbed: the same choices, the same posterior and the same weights, to the bit.
"""

import argparse
import sys
import time

from . import cases


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Inject faults into real runs and report what became of them.")
    parser.add_argument("--report", action="store_true", help="print the table, not only what was lost")
    parser.add_argument("--quick", action="store_true", help="the shortened form, for CI")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--only", choices=[*cases.CASES], action="append", help="this case; may be given several times"
    )
    args = parser.parse_args(arguments)
    start, results = time.perf_counter(), []
    with cases.bench(seed=args.seed, quick=args.quick) as on:
        for name in args.only or cases.CASES:
            print(f"{name} ...", file=sys.stderr)
            results += cases.run_case(name, on)
    tries, lost = sum(result.tries for result in results), sum(result.lost for result in results)
    if args.report or lost:
        print(cases.table(results if args.report else [result for result in results if result.lost]))
    form = "quick" if args.quick else "full"
    print(f"\n{tries} tries, {lost} lost; {time.perf_counter() - start:.0f} s ({form} form, seed {args.seed})")
    return int(lost > 0)


if __name__ == "__main__":
    sys.exit(main())
