"""What is run: regimes, arms, learning rates and seeds, all fixed before the first run.

A seed is a base policy, a pool, the sampler's draws and the sampled completions. Its base policy differs between
machines, so an arm counts only beside the vanilla run of the same seed on the same machine.

Vanilla GRPO is tuned in its learning rate and in the shape of its batch, the default in its rate. What varies the
default has its rate. The oracle, DAPO and `paper` have the rates that were tuned for them before 2026-11-27, on seeds
100 to 102 and other machines; in a regime that is newer, those of the regime that it is made from (`LIKE`).
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .arms import (
    AT_ITS_RATE,
    BEST,
    BEST_BATCH,
    COLUMNS,
    DEFAULT,
    LARGER,
    READ_NO_WORDS,
    SHAPES,
    TUNED,
    VANILLA,
    VANILLA_AT_ITS_RATE,
)
from .curves import Record, area
from .pools import regime_key
from .regimes import REGIMES


@dataclass(frozen=True)
class Plan:
    """What is run of a regime."""

    rates: tuple[float, ...]  # learning rates to begin with
    batches: int = 120  # generation batches' worth of rollouts
    evaluate_every: int = 10  # of them


PLANS = {
    "wide": Plan((2e-4, 4e-4, 8e-4)),
    "staged": Plan((2e-4, 4e-4, 8e-4)),
    "nameless": Plan((2e-4, 4e-4, 8e-4)),
    "two_skills": Plan((2e-4, 4e-4, 8e-4), batches=60, evaluate_every=5),
    "many_impossible": Plan((2e-4, 4e-4, 8e-4)),
    "graded": Plan((2e-4, 4e-4, 8e-4)),
    "paper_like": Plan((1e-4, 2e-4, 4e-4), batches=60, evaluate_every=3),
    "hard_pictures": Plan((5e-5, 1e-4, 2e-4)),
    "no_headroom": Plan((1e-4, 2e-4, 4e-4)),
    "wide_4096": Plan((2e-4, 4e-4, 8e-4)),  # of the stage `column` alone
}
COMPARED = [name for name in PLANS if name != "wide_4096"]


@dataclass(frozen=True)
class Stage:
    """Some arms on some seeds of some regimes."""

    arms: tuple[str, ...]
    seeds: range
    regimes: tuple[str, ...] = (*COMPARED,)


STAGES = {
    "tune": Stage((*SHAPES, DEFAULT), range(600, 602)),
    "runs": Stage(
        (VANILLA, VANILLA_AT_ITS_RATE, BEST_BATCH, DEFAULT, AT_ITS_RATE, LARGER, "dapo", "paper", BEST),
        range(700, 716),
    ),
    "column": Stage((VANILLA, DEFAULT, *COLUMNS), range(500, 516), ("staged", "wide_4096")),
    "trainer": Stage((VANILLA, DEFAULT), range(700, 704), ("staged", "no_headroom")),
}
EARLIER = range(100, 103)  # seeds of the arms that were tuned before
LIKE = {"wide": "wide_4096", "two_skills": "staged"}
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
        "told": described.told and described.told.__name__,
        "held_out": [[*cell, parts] for cell, parts in described.held_out.items()],
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
    wanted = {*(STAGES["tune"].seeds if arm in STAGES["tune"].arms else EARLIER)}
    return {rate: float(np.mean(list(of.values()))) for rate, of in sorted(areas.items()) if wanted <= set(of)}


def best_rate(records: list[Record], regime: str, arm: str) -> float | None:
    """Return the best learning rate of an arm, or None while it is unknown or at the edge of what was tried."""
    found = tuned_rates(records, regime, arm)
    if len(found) < 3:
        return None
    if len(set(found.values())) == 1:  # an initial pass took all rollouts
        return sorted(found)[len(found) // 2]
    best = max(found, key=found.__getitem__)
    return None if best in (min(found), max(found)) else best


def best_batch(records: list[Record], regime: str) -> str | None:
    """Return the arm of vanilla GRPO with the best batch, or None while one of its shapes is not tuned."""
    rates = {arm: best_rate(records, regime, arm) for arm in SHAPES}
    if None in rates.values():
        return None
    return max(SHAPES, key=lambda arm: tuned_rates(records, regime, arm)[rates[arm]])


def tuning(records: list[Record], regime: str, arm: str) -> Iterator[Task]:
    """Yield the tuning runs that an arm lacks: its grid, then rates beyond it while the best is at its edge."""
    found = tuned_rates(records, regime, arm)
    rates = list(PLANS[regime].rates)
    if set(rates) <= set(found) and best_rate(records, regime, arm) is None:
        best = max(found, key=found.__getitem__)
        rates = [best / FACTOR if best == min(found) else best * FACTOR]
    for rate in rates:
        for seed in STAGES["tune"].seeds:
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
    of = STAGES[stage]
    wanted, places = [arm for arm in of.arms if arm in {*arms}], [name for name in of.regimes if name in {*regimes}]
    if stage == "tune":
        done = {key(record) for record in records}
        every = (t for seed_arm in wanted for regime in places for t in tuning(records, regime, seed_arm))
        return sorted((t for t in own(every) if key(t) not in done), key=lambda t: wanted.index(t["arm"]))
    here = {key(record) for record in records if record["machine"] == machine}
    beside = {(r["stage"], r["regime"], r["seed"], r["machine"]) for r in records if r["arm"] == VANILLA}
    paired = {key(r) for r in records if (r["stage"], r["regime"], r["seed"], r["machine"]) in beside}
    lacking: list[Task] = []
    for seed in of.seeds:
        for regime in places:
            missing = [tuned_task(stage, records, regime, arm, seed) for arm in wanted if arm != VANILLA]
            vanilla = tuned_task(stage, records, regime, VANILLA, seed)
            same = (VANILLA_AT_ITS_RATE, vanilla["learning_rate"])  # it would be the same run
            missing = [t for t in missing if key(t) not in paired and (t["arm"], t["learning_rate"]) != same]
            if missing or (VANILLA in wanted and key(vanilla) not in paired):
                missing = [vanilla, *missing]
            lacking += [t for t in own(missing) if key(t) not in here]
    return lacking


def own(runs: Iterable[Task]) -> Iterator[Task]:
    """Leave out the runs of `nameless` that are those of `staged`; see `curves.read`."""
    return (t for t in runs if t["regime"] != "nameless" or t["arm"] not in READ_NO_WORDS)


def tuned_task(stage: str, records: list[Record], regime: str, arm: str, seed: int) -> Task:
    """Return the run of an arm at its rate: its own, the default's, or that of the best shape of vanilla's batch."""
    named = best_batch(records, regime) if arm == BEST_BATCH else arm
    tuned = named if named in TUNED else DEFAULT
    of = regime if tuned in STAGES["tune"].arms else LIKE.get(regime, regime)
    rate = best_rate(records, of, tuned) if named else None
    if rate is None:
        raise ValueError(
            f"The learning rate of {arm!r} in {regime} is not known: fewer than three rates were run on all tuning "
            "seeds, or the best one is at the edge. Run the stage tune until it has nothing left to do."
        )
    return task(stage, regime, named or arm, rate, seed)


def key(record: Task | Record) -> tuple[Any, ...]:
    return tuple(record[name] for name in KEY)
