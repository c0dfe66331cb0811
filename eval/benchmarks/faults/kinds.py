"""Thirteen kinds of run on the testbed: each is killed at random moments, and goes on from each of its checkpoints."""

import random
from functools import partial
from pathlib import Path
from typing import Any

from .bench import Bench, Result, expect, expect_equal, summed, tally
from .kills import KilledRuns
from .runs import end_of

STEPS = {"pictures": True, "max_steps": 8, "save_total_limit": None}
KINDS: dict[str, dict[str, Any]] = {
    "two iterations": {},
    "one iteration": {"num_iterations": 1},
    "four steps a generation batch": {"num_iterations": 2, "steps_per_generation": 2},
    "accumulation": {"num_iterations": 1, "gradient_accumulation_steps": 2},
    "adapters": {"adapter": True},
    "adaptive entropy": {"use_adaptive_entropy": True, "num_iterations": 1},
    "synced reference model": {"beta": 0.1, "sync_ref_model": True, "ref_model_sync_steps": 2},
    "uniform": {"vade_sampler": "uniform"},
    "greedy after initial rollouts": {"vade_sampler": "greedy", "vade_posterior_init": "rollout"},
    "even shares of the tasks": {"vade_stratify_by": "task"},
    "dynamic sampling": {"vade_dynamic_sampling": True},
    "groups that come again": {"vade_replay": 2, "num_generations": 2},
    "variants, D3S": {"vade_variants": "of", "vade_advantage": "diva", "vade_down_sampling": "d3s"},
}
QUICK = ("two iterations", "adaptive entropy")


def kinds_killed(bench: Bench) -> Result:
    """SIGKILL at six random moments of each kind, and a look at every checkpoint that is left."""
    chance, kills = random.Random(bench.seed), 2 if bench.quick else 6
    results, in_a_save = [], 0
    for name in QUICK if bench.quick else KINDS:
        runs = KilledRuns(bench, **STEPS | KINDS[name])
        for _ in range(kills):
            runs.kill(fraction=chance.uniform(0.0, 0.9))
        runs.finish()
        results.append(runs.result(name))
        in_a_save += runs.in_a_save
    note = f"{in_a_save} inside a save; every run came to the end of the undisturbed one"
    return summed(f"kill -9 of {len(results)} kinds of run", results, note)


def kinds_resumed(bench: Bench) -> Result:
    """Go on from every checkpoint of each kind of run."""
    results = []
    for name in QUICK if bench.quick else KINDS:
        settings = STEPS | KINDS[name]
        whole = bench.trainer(bench.folder(), **settings)
        whole.train()
        steps = range(1, 3 if bench.quick else settings["max_steps"])
        tries = {str(step): partial(_resumed, bench, whole, settings, step) for step in steps}
        results.append(tally(name, tries))
    note = "the end of the run that was never stopped"
    return summed(f"resume from every checkpoint of {len(results)} kinds of run", results, note)


def _resumed(bench: Bench, whole: Any, settings: dict[str, Any], step: int) -> str:
    checkpoint = Path(whole.args.output_dir) / f"checkpoint-{step}"
    expect(checkpoint.is_dir(), f"{checkpoint.name} was never saved")
    trainer = bench.trainer(bench.folder(), **settings | {"save_strategy": "no"})
    trainer.train(resume_from_checkpoint=str(checkpoint))
    mine, theirs = end_of(trainer), end_of(whole)
    mine["selection log"] = theirs["selection log"]  # of another folder, which begins at the checkpoint
    expect_equal(mine, theirs)
    return "the end of the run that was never stopped"
