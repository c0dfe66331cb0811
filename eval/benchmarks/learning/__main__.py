"""Does choosing prompts pay, and training again on what was generated? Score by rollouts, and by cost.

    python -m eval.benchmarks.learning --results eval/learning.jsonl --minutes 150    # a part; again for the next
    python -m eval.benchmarks.learning --results eval/learning.jsonl --only report    # tables and pictures

The policy is a tiny, real Qwen2.5-VL (0.3 M parameters), trained by GRPO in the fast loop of `fast_grpo.py`. The
regimes are in `regimes.py`, the arms in `arms.py`, and all that is fixed beforehand in `protocol.py`. Every arm has
the same rollouts to spend. Stages:

    tune       batch, passes and learning rate of vanilla GRPO and of the default, and the rates of what varies them
    freeze     what the tuning has found, with the date, into `frozen.json`
    runs       all arms on 16 fresh seeds
    trainer    three arms through `VADEGRPOTrainer` itself, on the first four seeds of `runs`
    report     tables on the standard output, a picture beside the results

A run that is in the results file is not made again, so the benchmark is taken up where it was, seed by seed.
"""

import argparse
import datetime
import json
import multiprocessing
import os
import time
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path

from ..machine import machine
from .curves import read
from .protocol import FROZEN, PLANS, ROLES, check_frozen, freeze, tasks
from .worker import build, work

STAGES = ("tune", "runs", "trainer")


def run_stage(stage, options, pool):
    """Make the runs that the stage lacks; return whether all were made before the time was up."""
    asked = {"regimes": options.regimes, "roles": options.arms}
    while True:
        left = tasks(stage, read(options.results), machine(), **asked)
        left = [task for task in left if not options.seeds or task["seed"] in options.seeds]
        print(f"{stage}: {len(left)} runs to do", flush=True)
        if not left:
            return True
        made = [{**task, "batches": options.batches or task["batches"]} for task in left]
        if not run_all(made, options, pool):
            return False
        if stage != "tune" or options.batches:  # only tuning can find that more runs are needed
            return True


def run_all(left, options, pool):
    """Make these runs, in their order; return whether there was time for all."""
    began, running, waiting, number = time.monotonic(), {}, list(left), 0
    built: dict[tuple[int, str], Future[None]] = {}
    with options.results.open("a") as file:
        while waiting or running:
            late = time.monotonic() > options.until
            if late and not running:
                return False
            # The next base policy is built beside the runs of this one: of two workers that wait for it, one would be
            # idle, and of two that build it, one would work in vain.
            for pair in list(dict.fromkeys(pair_of(task) for task in waiting))[: 0 if late else 2]:
                if pair not in built:
                    built[pair] = pool.submit(build, pair)
                    running[built[pair]] = None
            while waiting and not late and len(running) < options.workers and built[pair_of(waiting[0])].done():
                task = waiting.pop(0)
                running[pool.submit(work, **task, evaluate_every=PLANS[task["regime"]].evaluate_every)] = task
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                task, record = running.pop(future), future.result()
                if task is None:  # a base policy was built
                    continue
                file.write(json.dumps(record, separators=(",", ":")) + "\n")
                file.flush()
                number += 1
                spent = f"{record['seconds']} s, {(time.monotonic() - began) / 60:.0f} min"
                about = [record[name] for name in ("regime", "arm", "learning_rate", "seed")]
                print(f"{number}/{len(left)}", *about, record["score"][-1], spent, sep=", ", flush=True)
    return True


def pair_of(task):
    return task["seed"], task["regime"]


def main():
    parser = argparse.ArgumentParser(
        prog="python -m eval.benchmarks.learning",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--results", type=Path, default=Path("vade-learning.jsonl"))
    parser.add_argument("--only", nargs="+", choices=[*STAGES, "freeze", "report"], default=["tune", "report"])
    parser.add_argument("--pages", nargs="+", type=Path, default=[], help="whose tables the report makes anew")
    parser.add_argument("--regimes", nargs="+", choices=[*PLANS], default=[*PLANS])
    parser.add_argument("--arms", nargs="+", choices=[*ROLES], default=[*ROLES], help="of the stage runs")
    parser.add_argument("--seeds", nargs="+", type=int, help="some of the stage's; default: all")
    parser.add_argument("--batches", type=int, help="generation batches' worth of rollouts, to try the command")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no run after them")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    options = parser.parse_args()
    check_frozen(options.regimes)
    options.until = time.monotonic() + 60 * options.minutes
    with ProcessPoolExecutor(options.workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        for stage in [stage for stage in STAGES if stage in options.only]:
            if not run_stage(stage, options, pool):
                break
    if "freeze" in options.only:
        FROZEN.write_text(f"{json.dumps(freeze(read(options.results), f'{datetime.date.today()}'), indent=2)}\n")
    if "report" in options.only:
        from .pictures import draw
        from .tables import fill, tables

        records = read(options.results)
        print(tables(records))
        for path in draw(records, options.results.parent):
            print(f"Picture: {path}")
        for page in options.pages:
            page.write_text(fill(page.read_text(), records))


if __name__ == "__main__":
    main()
