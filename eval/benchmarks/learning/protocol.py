"""What is run: regimes, arms, learning rates and seeds, all fixed before the first run.

A seed is a base policy, a pool, the sampler's draws and the sampled completions. Its base policy differs between
machines, so an arm counts only beside the vanilla run of the same seed on the same machine.

Vanilla GRPO and the default are tuned alike: from 64 groups of 4, one pass and the middle rate the search goes to the
best neighbour in passes, rate or batch, by turns, until all neighbours are worse. With replay they keep their batch:
with one pass they have a rate of their own, and with several a number of passes, too. The oracle has the passes and
rates of the default. `frozen.json` holds what came of it, and the date.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from .arms import DEFAULT, ORACLE, READ_NO_WORDS, VANILLA, Arm
from .curves import Record, area, pair
from .pools import regime_key
from .regimes import REGIMES


@dataclass(frozen=True)
class Plan:
    """What is run of a regime."""

    rate: float  # the learning rate that the tuning begins with
    batches: int = 120  # generation batches' worth of rollouts
    evaluate_every: int = 10  # of them


PLANS = {
    "wide": Plan(4e-4),
    "staged": Plan(4e-4),
    "nameless": Plan(4e-4),
    "two_skills": Plan(4e-4, batches=60, evaluate_every=5),
    "many_impossible": Plan(4e-4),
    "graded": Plan(4e-4),
    "paper_like": Plan(2e-4, batches=60, evaluate_every=3),
    "hard_pictures": Plan(1e-4),
    "no_headroom": Plan(2e-4),
}
SHAPES = ((128, 2), (64, 4), (32, 8), (16, 16))  # K groups of G; smaller ones than 2 have no gradient
PASSES = (1, 2, 4, 8)  # more were not tried: each is an update of all live rows, which a user pays for
REPLAY = 4  # batches
ANCHOR = Arm(VANILLA)  # at the middle rate

TUNE = range(810, 814)
RUNS = range(820, 836)
IN_TRAINER = ("staged", "no_headroom")
THROUGH_TRAINER = ("vanilla", "default", "default, replay, more passes")
FACTOR = 2.0  # between neighbouring learning rates
FROZEN = Path(__file__).parent / "frozen.json"

KEY = ("stage", "regime", "arm", "learning_rate", "seed", "batches")

Task = dict[str, Any]  # what KEY names
Facts = dict[str, str]  # of `machine`
Choice = tuple[Arm, float]  # with its learning rate
ROLES = (
    *("vanilla", "vanilla, replay", "vanilla, replay, more passes"),
    *("default", "default, replay", "default, replay, more passes"),
    *("oracle", "oracle, replay, more passes"),
)
"""The arms of the runs."""


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


def tried(records: list[Record], regime: str) -> dict[Choice, float]:
    """Return the mean area of all choices that all tuning seeds have run.

    It is the difference to the run of the anchor with the same base policy: several machines may share the tuning.
    """
    of = [record for record in records if (record["stage"], record["regime"]) == ("tune", regime)]
    anchor = {pair(r): area(r) for r in of if (r["arm"], r["learning_rate"]) == (str(ANCHOR), PLANS[regime].rate)}
    areas: dict[Choice, dict[int, float]] = defaultdict(dict)
    for record in of:
        if pair(record) in anchor:
            choice = Arm.of(record["arm"]), record["learning_rate"]
            areas[choice][record["seed"]] = area(record) - anchor[pair(record)]
    return {choice: float(np.mean([*of.values()])) for choice, of in areas.items() if {*TUNE} <= {*of}}


def neighbours(choice: Choice) -> list[list[Choice]]:
    """Return the choices next to one in passes, in rate and in batch. With replay the batch stays, and one pass."""
    arm, rate = choice
    rates = [(arm, float(f"{rate * factor:.3g}")) for factor in (1 / FACTOR, FACTOR)]
    passes = [(replace(arm, passes=passes), rate) for passes in beside(PASSES, arm.passes)]
    if arm.replay:
        return [[one for one in passes if min(arm.passes, one[0].passes) > 1], rates]
    shapes = beside(SHAPES, (arm.groups, arm.size))
    return [passes, rates, [(replace(arm, groups=groups, size=size), rate) for groups, size in shapes]]


def beside(values: Sequence[Any], value: Any) -> Sequence[Any]:
    at = values.index(value)
    return [*values[max(at - 1, 0) : at], *values[at + 1 : at + 2]]


def search(known: Mapping[Choice, float], start: Choice) -> tuple[Choice, list[Choice]]:
    """Return the best choice on the way from `start`, and what is to be tried next; nothing at its end."""
    best = start
    while best in known:
        near = neighbours(best)
        better = max([best, *(one for axis in near for one in axis if one in known)], key=known.__getitem__)
        if better == best:  # by turns: an axis is tried when the ones before it have nothing better
            return best, next(filter(None, ([one for one in axis if one not in known] for axis in near)), [])
        best = better
    return best, [best]


def starts(known: Mapping[Choice, float], regime: str) -> dict[str, Choice]:
    """Return what the search of each arm begins with, of those whose beginning is known."""
    found = {rule: (Arm(rule), PLANS[regime].rate) for rule in (VANILLA, DEFAULT)}
    for rule in (VANILLA, DEFAULT):
        (arm, rate), left = search(known, found[rule])
        for passes in (1, 2) if not left else ():
            name = f"{rule}, replay" + ", more passes" * (passes > 1)
            found[name] = replace(arm, passes=passes, replay=REPLAY), float(f"{rate * FACTOR:.3g}")
    return found


def tuning(records: list[Record], regime: str) -> list[Task]:
    """Return the tuning runs that a regime lacks as far as it has come."""
    known = tried(records, regime)
    choices = {choice: None for start in starts(known, regime).values() for choice in search(known, start)[1]}
    return [task("tune", regime, *choice, seed) for choice in choices for seed in TUNE]


def found_by_tuning(records: list[Record], regime: str) -> dict[str, Choice] | None:
    """Return what each arm is in a regime, with its learning rate; None while the tuning is not done."""
    known = tried(records, regime)
    ends = {role: search(known, start) for role, start in starts(known, regime).items()}
    if any(left for _, left in ends.values()) or len(ends) + 2 < len(ROLES):
        return None
    found = {role: best for role, (best, _) in ends.items()}
    for role in ("", ", replay, more passes"):
        arm, rate = found[f"default{role}"]
        found[f"oracle{role}"] = Arm(ORACLE, passes=arm.passes, replay=arm.replay), rate
    return {role: found[role] for role in ROLES}


def task(stage: str, regime: str, arm: Arm, rate: float, seed: int) -> Task:
    batches = PLANS[regime].batches
    return {"stage": stage, "regime": regime, "arm": str(arm), "learning_rate": rate, "seed": seed, "batches": batches}


def tasks(
    stage: str, records: list[Record], here: Facts, *, regimes: Iterable[str], roles: Iterable[str]
) -> list[Task]:
    """Return the runs that a stage lacks, seed by seed, those of a seed regime by regime.

    Raises:
        ValueError: the arms of a regime are not frozen yet.
    """
    everywhere = {key(record) for record in records}
    done = {key(r) for r in records if (r["machine"], r["versions"]) == (here["machine"], here["versions"])}
    lacking: list[Task] = []
    if stage == "tune":
        for regime in regimes:
            missing = [t for t in own(tuning(records, regime)) if key(t) not in everywhere]
            of = "staged" if regime == "nameless" else regime
            anchors = [task("tune", of, ANCHOR, PLANS[of].rate, seed) for seed in TUNE]
            lacking += [t for t in anchors * bool(missing) if key(t) not in done] + missing
        return [*{key(t): t for t in lacking}.values()]
    seeds, places = (RUNS[:4], IN_TRAINER) if stage == "trainer" else (RUNS, (*PLANS,))
    for seed in seeds:
        for regime in [name for name in places if name in {*regimes}]:
            arms = frozen_arms(regime)
            wanted = [arms[role] for role in roles if stage != "trainer" or role in THROUGH_TRAINER]
            every = own(task(stage, regime, arm, rate, seed) for arm, rate in dict.fromkeys(wanted))
            if not {*map(key, every)} <= everywhere:  # all of a seed on one machine: these are the pairs
                lacking += [t for t in every if key(t) not in done]
    return lacking


def own(runs: Iterable[Task]) -> list[Task]:
    """Leave out the runs of `nameless` that are those of `staged`; see `curves.read`."""
    return [t for t in runs if t["regime"] != "nameless" or Arm.of(t["arm"]).rule not in READ_NO_WORDS]


def freeze(records: list[Record], date: str) -> dict[str, Any]:
    """Return `frozen.json` with what each arm of the tuned regimes is, and its learning rate."""
    found = {regime: found_by_tuning(records, regime) for regime in PLANS}
    arms = {regime: {role: [str(arm), rate] for role, (arm, rate) in of.items()} for regime, of in found.items() if of}
    frozen = json.loads(FROZEN.read_text())
    new = {regime: {"date": date} | of for regime, of in arms.items()}
    return frozen | {"arms": new | frozen.get("arms", {})}  # what is frozen stays


def frozen_arms(regime: str) -> dict[str, Choice]:
    """Return what each arm is in a regime, and its learning rate, as it was frozen before any of them ran."""
    arms = json.loads(FROZEN.read_text()).get("arms", {})
    if regime not in arms:
        raise ValueError(f"The arms of {regime} are not tuned and frozen: --only tune until it is done, then freeze.")
    return {role: (Arm.of(of[0]), of[1]) for role, of in arms[regime].items() if role != "date"}


def key(record: Task | Record) -> tuple[Any, ...]:
    return tuple(record[name] for name in KEY)
