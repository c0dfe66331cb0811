"""Studies beside the main comparison: training on fewer rollouts, and variants of questions.

    python -m eval.benchmarks.learning.studies --only kl shares thin_tune thin --results eval/thinning.jsonl \\
        --tuned eval/learning_first.jsonl
    python -m eval.benchmarks.learning.studies --only accept hinted_tune hinted --results eval/hinted.jsonl \\
        --tuned eval/learning_first.jsonl
    python -m eval.benchmarks.learning.studies --only report --results eval/thinning.jsonl

`--tuned` has the learning rates of the samplers' arms, found on 2026-11-21. Stages:

    kl       a KL term on all rollouts, or on those with a gradient only, at the learning rate of the sampler's arm
    shares   shares of rollouts and of tokens to train on, on tuning seeds, at the learning rate of the sampler's arm
    accept   the regime `hinted`: the pass rate of its hopeless originals by the steps that a hint gives
    hinted_tune, hinted    variants: learning rates, then fresh seeds; all arms of a regime have one rate
    thin_tune, thin    training on fewer rollouts likewise; `lossless` has the rate of the sampler's arm
    report   tables on the standard output
"""

import argparse
import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from .__main__ import run_all
from .arms import ARMS, HINTED, HINTED_TUNED, MAIN, THINNED, THINNED_KL, THINNED_SHARES, THINNED_TUNED
from .curves import TUNING, at_best_rates, best_rates, read, shared_rate, tuning
from .protocol import KEY

THINNED_REGIMES = ("paper_like", "staged", "many_impossible", "no_headroom")
HINTED_REGIMES = ("hinted", "hinted_long")
STAGES = {
    "kl": (THINNED_KL, ("staged", "many_impossible")),
    "shares": (THINNED_SHARES, ("staged",)),
    "thin_tune": (THINNED_TUNED, THINNED_REGIMES),
    "thin": (THINNED, THINNED_REGIMES),
    "accept": ((), HINTED_REGIMES),
    "hinted_tune": (HINTED_TUNED, HINTED_REGIMES),
    "hinted": (HINTED, HINTED_REGIMES),
}
"""The arms of each stage, and its regimes."""
FIRST_SEEDS = range(10, 18)
TUNING_SEEDS = {"thin_tune": (100, 101), "shares": (100, 101), "hinted_tune": (100, 102)}
# Of the seeds 10 to 17 and from 100 on, those whose hints were accepted before any arm was run.
HINTED_SEEDS = {"hinted": (11, 12, 13, 15, 16, 17), "hinted_long": (11, 12, 15, 16, 17)}
RATES = {"thin_tune": (2e-4, 4e-4), "hinted_tune": (2e-4, 4e-4, 8e-4)}


def tasks_of(stage, options, done):
    """All runs of a stage; those after tuning need its results."""
    arms, regimes = STAGES[stage]
    tasks = []
    for regime in [name for name in regimes if name in options.regimes]:
        best = best_rates(tuning(done), regime)
        batches = options.batches or (60 if regime == "paper_like" else 120)
        seeds = options.seeds or TUNING_SEEDS.get(stage) or HINTED_SEEDS.get(regime, FIRST_SEEDS)
        for arm in [arm for arm in arms if arm in (options.arms or ARMS)]:
            if stage in RATES:
                rates = options.rates or RATES[stage]
            elif stage == "hinted":
                rates = [shared_rate(tuning(done), regime)]
            else:  # the learning rate of the arm where it was tuned, else that of its sampler
                sampler = arm.split(" + ")[0]
                rates = [best.get(arm if arm in best or arm in MAIN else sampler)]
            if (not best and stage not in TUNING) or None in rates:
                raise SystemExit(f"No learning rate is known for {arm} in {regime}: run the tuning stage, or --tuned.")
            tasks += [
                dict(zip(KEY, (stage, regime, arm, rate, seed, batches), strict=True))
                for rate in rates
                for seed in seeds
            ]
    return sorted(tasks, key=lambda task: task["seed"])  # when it is stopped, all arms have had the same seeds


def main():
    parser = argparse.ArgumentParser(
        prog="python -m eval.benchmarks.learning.studies",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--tuned", type=Path, help="another results file, with learning rates")
    parser.add_argument("--only", nargs="+", choices=[*STAGES, "report"], required=True, help="stages")
    parser.add_argument("--regimes", nargs="+", default=[*THINNED_REGIMES, *HINTED_REGIMES])
    parser.add_argument("--arms", nargs="+", choices=[*ARMS], help="default: all of the stage")
    parser.add_argument("--rates", nargs="+", type=float, help="learning rates to try; default: the stage's")
    parser.add_argument("--batches", type=int, help="generation batches' worth of rollouts; default: the regime's")
    parser.add_argument("--seeds", nargs="+", type=int, help="default: the stage's")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    options = parser.parse_args()
    options.until = time.monotonic() + float("inf")
    with ProcessPoolExecutor(options.workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        for stage in options.only:
            if stage == "report":
                from .tables import studies

                print(studies(at_best_rates(read(options.results))))
            elif stage == "accept":
                from .hint_tables import acceptance

                for regime in [name for name in HINTED_REGIMES if name in options.regimes]:
                    seeds = options.seeds or (*FIRST_SEEDS, *TUNING_SEEDS["hinted_tune"])
                    print(f"## {regime}: do the hints help?\n\n{acceptance(regime, seeds, pool)}")
            else:
                done = read(options.results) + (read(options.tuned) if options.tuned else [])
                finished = {tuple(record[name] for name in KEY) for record in done}
                left = [task for task in tasks_of(stage, options, done) if tuple(task.values()) not in finished]
                print(f"{stage}: {len(left)} runs to do", flush=True)
                run_all(left, options, pool)


if __name__ == "__main__":
    main()
