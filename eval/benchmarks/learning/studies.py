"""Does choosing prompts pay? Score by rollouts of VADE, vanilla GRPO, DAPO's dynamic sampling and other rules.

    python -m eval.benchmarks.learning                                  # everything; hours on two cores
    python -m eval.benchmarks.learning --regimes staged --seeds 0 1     # a part of it
    python -m eval.benchmarks.learning --only report --results eval/learning.jsonl    # tables and pictures again
    python -m eval.benchmarks.learning --only kl shares thin_tune thin --results eval/thinning.jsonl \\
        --tuned eval/learning.jsonl

The policy is a tiny, real Qwen2.5-VL (0.3 M parameters), trained by GRPO in the fast loop of `fast_grpo.py`; its
regimes are described in `regimes.py`, the arms in `arms.py`. Every arm has the same rollouts to spend, initial passes
and refills included. Stages:

    tune     main arms at several learning rates, on seeds of their own: each arm goes on at its best one
    main     the main arms, on fresh seeds
    more     the oracle on the same seeds; ablations and other rules on some of them, at the learning rate of `paper`
             for its own ablations, of `frontier` for all others
    trainer  main arms through `VADEGRPOTrainer` itself
    kl       a KL term on all rollouts, or on those with a gradient only, at the learning rate of the sampler's arm
    shares   shares of rollouts and of tokens to train on, on tuning seeds, at the learning rate of the sampler's arm
    accept   the regime `hinted`: the pass rate of its hopeless originals by the steps that a hint gives
    hinted_tune, hinted    variants, as `tune` and `main`; all arms of a regime have one rate
    thin_tune, thin    training on fewer rollouts: as `tune` and `main`; `lossless` has the rate of the sampler's arm
    report   tables on the standard output, pictures beside the results

A seed is a base policy, a pool, the sampler's draws and the sampled completions. A run that is in the results file is
not run again, so an interrupted benchmark is taken up where it was.
"""

import argparse
import json
import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from .arms import (
    ALL_THINNED,
    ARMS,
    HINTED,
    HINTED_TUNED,
    MAIN,
    MORE,
    THINNED,
    THINNED_KL,
    THINNED_SHARES,
    THINNED_TUNED,
)
from .curves import TUNING, at_best_rates, best_rates, read, shared_rate, tuning
from .worker import build, work


@dataclass(frozen=True)
class Plan:
    """What is run of a regime."""

    batches: int  # generation batches' worth of rollouts
    evaluate_every: int  # of them
    rates: tuple[float, ...]  # learning rates to try
    tuning_seeds: int  # from FIRST_TUNING_SEED on
    seeds: int  # of the main arms, from FIRST_SEED on
    more: tuple[str, ...] = tuple(MORE)
    trainer_seeds: int = 0  # of the main arms through the trainer, which takes several times as long
    also: tuple[str, ...] = ()  # further stages


REGIMES = {
    "paper_like": Plan(60, 3, (1e-4, 2e-4, 4e-4, 8e-4), 3, 8, more=("oracle",), also=("thin_tune", "thin")),
    "staged": Plan(
        120, 10, (2e-4, 4e-4, 8e-4, 1.6e-3), 3, 8, trainer_seeds=2, also=("kl", "shares", "thin_tune", "thin")
    ),
    "graded": Plan(120, 10, (4e-4, 8e-4), 2, 3, more=("spread", "fractions", "threshold 0.5", "threshold 1")),
    "hinted": Plan(120, 10, (), 0, 0, also=("accept", "hinted_tune", "hinted")),
    "hinted_long": Plan(120, 10, (), 0, 0, also=("accept", "hinted_tune", "hinted")),
    "many_impossible": Plan(120, 10, (2e-4, 4e-4, 8e-4, 1.6e-3), 3, 8, also=("kl", "thin_tune", "thin")),
    "hard_pictures": Plan(120, 10, (1e-4, 2e-4), 2, 5, more=("oracle",)),
    "no_headroom": Plan(120, 10, (1e-4, 2e-4, 4e-4), 2, 5, more=("oracle",), also=("thin_tune", "thin")),
}
FIRST_TUNING_SEED = 100
FIRST_SEED = 10  # those before were used to find out what the regimes should be
# Of the seeds 10 to 17 and from 100 on, those whose hints were accepted before any arm was run.
HINTED_RATES, HINTED_TUNING_SEEDS = (2e-4, 4e-4, 8e-4), (100, 102)
HINTED_SEEDS = {"hinted": (11, 12, 13, 15, 16, 17), "hinted_long": (11, 12, 15, 16, 17)}
FURTHER = {
    "hinted_tune": HINTED_TUNED,
    "hinted": HINTED,
    "kl": THINNED_KL,
    "shares": THINNED_SHARES,
    "thin_tune": THINNED_TUNED,
    "thin": THINNED,
}
THIN_RATES, THIN_TUNING_SEEDS, THIN_SEEDS = (2e-4, 4e-4), range(100, 102), range(10, 18)
STAGES = ("tune", "main", "more", "trainer", "accept", *FURTHER, "report")
KEY = ("stage", "regime", "arm", "learning_rate", "seed", "batches")


def tasks_of(stage, options, done):
    """All runs of a stage; those after `tune` need its results."""
    tasks = []
    for regime in options.regimes:
        plan = REGIMES[regime]
        best = best_rates(tuning(done), regime)
        if stage not in plan.also if stage in FURTHER else not plan.rates:
            continue
        if stage not in TUNING and not best:
            sys.exit(f"{options.results} has no tuning runs for {regime}: run the stage tune first.")
        main_seeds = options.seeds or range(FIRST_SEED, FIRST_SEED + plan.seeds)
        seeds = {
            "tune": options.tuning_seeds or range(FIRST_TUNING_SEED, FIRST_TUNING_SEED + plan.tuning_seeds),
            "main": main_seeds,
            "more": options.more_seeds,
            "trainer": options.trainer_seeds or range(FIRST_SEED, FIRST_SEED + plan.trainer_seeds),
            "hinted_tune": options.tuning_seeds or HINTED_TUNING_SEEDS,
            "hinted": options.seeds or HINTED_SEEDS.get(regime),
            "kl": options.seeds or THIN_SEEDS,
            "shares": options.tuning_seeds or THIN_TUNING_SEEDS,
            "thin_tune": options.tuning_seeds or THIN_TUNING_SEEDS,
            "thin": options.seeds or THIN_SEEDS,
        }[stage]
        arms = plan.more if stage == "more" else FURTHER.get(stage, MAIN)
        for arm in [arm for arm in arms if arm in (options.arms or ARMS)]:
            tried = {"tune": plan.rates, "thin_tune": THIN_RATES, "hinted_tune": HINTED_RATES}.get(stage)
            shared = stage == "hinted" and shared_rate(tuning(done), regime)
            rates = (options.rates or tried) if tried else [shared or rate_of(arm, best)]
            for rate in rates:
                for seed in main_seeds if arm == "oracle" else seeds:
                    batches = options.batches or plan.batches
                    tasks.append(dict(zip(KEY, (stage, regime, arm, rate, seed, batches), strict=True)))
    return sorted(tasks, key=lambda task: task["seed"])  # when it is stopped, all arms have had the same seeds


def rate_of(arm, best):
    """The learning rate of an arm: its own where it was tuned, else that of the main arm it is closest to."""
    sampler = arm.split(" + ")[0] if arm in ALL_THINNED else "paper" if arm.startswith("paper") else "frontier"
    closest = arm if arm in best or arm in MAIN else sampler
    if closest not in best:
        sys.exit(
            f"There are no tuning runs of {closest}, whose learning rate {arm} takes: run the stage tune with it."
        )
    return best[closest]


def run_stage(stage, options, pool):
    done = read(options.results) + (read(options.tuned) if options.tuned else [])
    finished = {tuple(record[name] for name in KEY) for record in done}
    tasks = [task for task in tasks_of(stage, options, done) if tuple(task.values()) not in finished]
    print(f"{stage}: {len(tasks)} runs to do", flush=True)
    if not tasks:
        return
    with options.results.open("a") as file:
        # Base policies and pools first: of two workers that build the same one, one would work in vain.
        list(pool.map(build, sorted({(task["seed"], task["regime"]) for task in tasks})))
        futures = [pool.submit(work, **task, evaluate_every=REGIMES[task["regime"]].evaluate_every) for task in tasks]
        for number, future in enumerate(as_completed(futures), start=1):
            record = future.result()
            file.write(json.dumps(record) + "\n")
            file.flush()
            about = f"{record['regime']}, {record['arm']}, lr {record['learning_rate']:g}, seed {record['seed']}"
            print(
                f"{stage} {number}/{len(tasks)}: {about}: {record['score'][-1]:.3f}, {record['seconds']} s", flush=True
            )


def main():
    parser = argparse.ArgumentParser(
        prog="python -m eval.benchmarks.learning",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--results", type=Path, default=Path("vade-learning.jsonl"))
    parser.add_argument("--tuned", type=Path, help="another results file, whose runs need not be made again")
    parser.add_argument("--only", nargs="+", choices=STAGES, default=list(STAGES), help="stages")
    parser.add_argument("--regimes", nargs="+", choices=list(REGIMES), default=list(REGIMES))
    parser.add_argument("--arms", nargs="+", choices=[*ARMS], help="default: all of the stage")
    parser.add_argument("--rates", nargs="+", type=float, help="learning rates to try; default: the regime's")
    parser.add_argument("--batches", type=int, help="generation batches' worth of rollouts; default: the regime's")
    parser.add_argument("--tuning_seeds", nargs="+", type=int, help="default: the regime's")
    parser.add_argument("--seeds", nargs="+", type=int, help="of the main arms; default: the regime's")
    parser.add_argument("--more_seeds", nargs="+", type=int, default=[10, 11, 12])
    parser.add_argument("--trainer_seeds", nargs="+", type=int, help="default: the regime's")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    options = parser.parse_args()
    with ProcessPoolExecutor(options.workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        for stage in options.only:
            if stage == "report":
                from .pictures import draw
                from .tables import tables

                records = at_best_rates(read(options.results))
                print(tables(records))
                for path in draw(records, options.results.parent):
                    print(f"Picture: {path}")
            elif stage == "accept":
                from .hint_tables import acceptance

                for regime in [name for name in options.regimes if stage in REGIMES[name].also]:
                    seeds = options.seeds or (*range(FIRST_SEED, 18), *HINTED_TUNING_SEEDS)
                    print(f"## {regime}: do the hints help?\n\n{acceptance(regime, seeds, pool)}")
            else:
                run_stage(stage, options, pool)


if __name__ == "__main__":
    main()
