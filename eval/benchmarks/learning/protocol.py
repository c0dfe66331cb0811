"""What is run of the main comparison: regimes, arms, learning rates and seeds, all fixed before the first run.

A seed is a base policy, a pool, the sampler's draws and the sampled completions. Its base policy differs between
machines, so an arm counts only beside the vanilla run of the same seed on the same machine.

Main arms are tuned on three seeds, peers and the longer rest on two. A variant of one of them has its learning rate:
to tune each challenger by itself would take as long as half of the runs.

Challengers run on eight seeds first. Those whose mean share of the oracle's gain is then at least that of `frontier`
go on to sixteen. So do the two rests whose interval was below vanilla GRPO in no regime: the rule for the default may
choose one of them. `CONTINUED` names all. `LATE` was suggested by the first eleven seeds: its own are all others.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .arms import ABLATIONS, CHALLENGERS, COLUMNS, DEFAULT, MAIN, PEERS
from .curves import Record, area
from .pools import regime_key
from .regimes import REGIMES

VANILLA, BEST = "uniform", "oracle"
VARIED = "frontier"  # what the challengers vary
BESIDE = (VANILLA, VARIED)  # an arm that is run alone on a machine has these beside it


@dataclass(frozen=True)
class Plan:
    """What is run of a regime."""

    rates: tuple[float, ...]  # learning rates to begin with
    batches: int = 120  # generation batches' worth of rollouts
    evaluate_every: int = 10  # of them
    ablations: bool = False


PLANS = {
    "paper_like": Plan((1e-4, 2e-4, 4e-4), batches=60, evaluate_every=3, ablations=True),
    "staged": Plan((2e-4, 4e-4, 8e-4), ablations=True),
    "many_impossible": Plan((2e-4, 4e-4, 8e-4), ablations=True),
    "graded": Plan((2e-4, 4e-4, 8e-4)),
    "wide": Plan((2e-4, 4e-4, 8e-4)),
    "hard_pictures": Plan((5e-5, 1e-4, 2e-4)),
    "no_headroom": Plan((1e-4, 2e-4, 4e-4)),
}
TUNED = (*MAIN, "mopps", "bots", "sec 0.4", "greso", "difficulty pools", "rest 0.5")
TUNING_SEEDS = {arm: range(100, 103 if arm in MAIN else 102) for arm in TUNED}
CONTINUED = (
    *("rest 0.3", "rest 0.5", "rest 0.8"),
    *("prior by prompt", "prior by prompt, rest 0.5", "prior by prompt, rest by even draw"),
)
LATE = "prior by prompt, rest by even draw, at least 0.5"  # now the default
SEEDS = {arm: range(300, 332 if arm in MAIN else 316) for arm in (*MAIN, *PEERS, *CONTINUED)}
SEEDS |= {arm: range(300, 308) for arm in (*CHALLENGERS, *ABLATIONS) if arm not in CONTINUED}
SEEDS[LATE] = range(316, 332)
CONFIRMING_SEEDS = range(400, 416)
CONFIRMED = (VANILLA, BEST, LATE, "prior by prompt, rest by even draw")  # the rule's choice, and the next by it
TRAINER_SEEDS = CONFIRMING_SEEDS[:4]
COLUMN_SEEDS, COLUMN_ARMS = range(500, 516), (VANILLA, DEFAULT, *COLUMNS)
ONLY = {"trainer": ("staged", "no_headroom"), "column": ("staged", "wide")}  # regimes of a stage
STAGES = ("tune", "runs", "confirm", "trainer", "column")
FACTOR = 2.0  # between neighbouring learning rates
FROZEN = Path(__file__).parent / "frozen.json"

KEY = ("stage", "regime", "arm", "learning_rate", "seed", "batches")

Task = dict[str, Any]  # what KEY names


def digest(regime: str) -> str:
    """Return a digest of all that the base policies, the pools and the budget of a regime depend on."""
    described, plan = REGIMES[regime], PLANS[regime]
    facts = regime_key(described, 0) | {
        "temperature": described.temperature,
        "reward": described.reward.__name__,
        "settings": dict(described.settings),
        "budget": [plan.batches, plan.evaluate_every],
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def check_frozen(regimes: Iterable[str]) -> None:
    """Raise `ValueError` if one of the regimes is not the one that was frozen before any arm was run."""
    frozen = json.loads(FROZEN.read_text())
    changed = [name for name in regimes if digest(name) != frozen["regimes"][name]]
    if changed:
        raise ValueError(
            f"{', '.join(changed)} changed since {frozen['date']}, when the regimes were frozen: their records could "
            f"not be compared. Undo the change, or give the new regime a name and an entry in {FROZEN.name}."
        )


def tuned_rates(records: list[Record], regime: str, arm: str) -> dict[float, float]:
    """Return the mean area of an arm by learning rate, of the rates that all its tuning seeds have run."""
    areas: dict[float, dict[int, float]] = defaultdict(dict)
    for record in records:
        if (record["stage"], record["regime"], record["arm"]) == ("tune", regime, arm):
            areas[record["learning_rate"]][record["seed"]] = area(record)
    wanted = set(TUNING_SEEDS[arm])
    return {rate: float(np.mean(list(of.values()))) for rate, of in sorted(areas.items()) if wanted <= set(of)}


def best_rate(records: list[Record], regime: str, arm: str) -> float | None:
    """Return the best learning rate of an arm, or None while it is unknown or at the edge of what was tried."""
    found = tuned_rates(records, regime, tuned_as(arm))
    if len(found) < 3:
        return None
    if len(set(found.values())) == 1:  # an initial pass took all rollouts
        return sorted(found)[len(found) // 2]
    best = max(found, key=found.__getitem__)
    return None if best in (min(found), max(found)) else best


def tuned_as(arm: str) -> str:
    """Return the arm whose learning rate `arm` has: its own, or that of the arm it varies."""
    if arm in TUNED:
        return arm
    return {"dapo, thrifty": "dapo", "sec 0.2, without replacement": "sec 0.4"}.get(
        arm, "paper" if arm in ABLATIONS else VARIED
    )


def tuning(records: list[Record], regime: str, arm: str) -> Iterator[Task]:
    """Yield the tuning runs that an arm lacks: its grid, then rates beyond it while the best is at its edge."""
    found = tuned_rates(records, regime, arm)
    rates = list(PLANS[regime].rates)
    if set(rates) <= set(found) and best_rate(records, regime, arm) is None:
        best = max(found, key=found.__getitem__)
        rates = [best / FACTOR if best == min(found) else best * FACTOR]
    for rate in rates:
        for seed in TUNING_SEEDS[arm]:
            yield task("tune", regime, arm, float(f"{rate:.3g}"), seed)


def task(stage: str, regime: str, arm: str, rate: float, seed: int) -> Task:
    batches = PLANS[regime].batches
    return {"stage": stage, "regime": regime, "arm": arm, "learning_rate": rate, "seed": seed, "batches": batches}


def tasks(
    stage: str, records: list[Record], machine: str, *, regimes: Iterable[str], arms: Iterable[str]
) -> list[Task]:
    """Return the runs that a stage lacks, seed by seed, those of a seed regime by regime.

    Raises:
        ValueError: the learning rate of an arm is not known yet.
    """
    wanted = [arm for arm in (*SEEDS, *COLUMNS) if arm in set(arms)]
    if stage == "tune":
        tuned = [arm for arm in wanted if arm in TUNING_SEEDS]
        every = [t for arm in tuned for regime in regimes for t in tuning(records, regime, arm)]
        done = {key(record) for record in records}
        return sorted((t for t in every if key(t) not in done), key=lambda t: (t["arm"] not in MAIN, t["seed"]))
    seeds: dict[str, Iterable[int]] = {"confirm": CONFIRMING_SEEDS, "trainer": TRAINER_SEEDS, "column": COLUMN_SEEDS}
    lacking: list[Task] = []
    here = {key(record) for record in records if record["machine"] == machine}
    beside = {(r["stage"], r["regime"], r["seed"], r["machine"]) for r in records if r["arm"] == VANILLA}
    paired = {key(r) for r in records if (r["stage"], r["regime"], r["seed"], r["machine"]) in beside}
    for seed in sorted({seed for arm in wanted for seed in seeds.get(stage) or SEEDS[arm]}):
        for regime in [name for name in regimes if name in ONLY.get(stage, PLANS)]:
            of_seed = [arm for arm in wanted if seed in (seeds.get(stage) or SEEDS[arm])]
            of_seed = [arm for arm in of_seed if arm not in ABLATIONS or PLANS[regime].ablations]
            missing = [tuned_task(stage, records, regime, arm, seed) for arm in of_seed]
            missing = [t for t in missing if key(t) not in paired]
            if missing:
                beside_them = BESIDE if stage == "runs" else (VANILLA,)
                also = [tuned_task(stage, records, regime, arm, seed) for arm in beside_them]
                ran = {t["arm"] for t in missing}
                missing += [t for t in also if t["arm"] not in ran]
            lacking += [t for t in missing if key(t) not in here]
    return lacking


def tuned_task(stage: str, records: list[Record], regime: str, arm: str, seed: int) -> Task:
    rate = best_rate(records, regime, arm)
    if rate is None:
        raise ValueError(
            f"The learning rate of {tuned_as(arm)!r} in {regime} is not known: fewer than three rates were run on all "
            "tuning seeds, or the best one is at the edge. Run the stage tune until it has nothing left to do."
        )
    return task(stage, regime, arm, rate, seed)


def key(record: Task | Record) -> tuple[Any, ...]:
    return tuple(record[name] for name in KEY)
