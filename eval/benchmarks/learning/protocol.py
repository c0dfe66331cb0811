"""What is run: regimes, arms, learning rates and seeds, all fixed before the first run.

A seed is a base policy, a pool, the sampler's draws and the sampled completions. Its base policy differs between
machines, so an arm counts only beside the vanilla run of the same seed on the same machine.

Vanilla GRPO and the default are tuned alike, by turns: the batch (each at its own learning rate), then the passes over
it. What varies them has their batch, and a rate of its own. `frozen.json` holds what came of it, and the date.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
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
}
SHAPES = ((128, 2), (64, 4), (32, 8))  # K groups of G
WIDER = (16, 16)  # tried where 32 x 8 is the best; a group smaller than 2 has no gradient
REPLAY = 4  # batches
ANCHOR = Arm(VANILLA)  # at the middle one of the first rates

TUNE = range(810, 814)
LOOK = range(800, 806)
RUNS = range(820, 836)
LOOKED_AT = ("staged", "wide", "many_impossible", "no_headroom")
IN_TRAINER = ("staged", "no_headroom")
FACTOR = 2.0  # between neighbouring learning rates
FROZEN = Path(__file__).parent / "frozen.json"

KEY = ("stage", "regime", "arm", "learning_rate", "seed", "batches")

Task = dict[str, Any]  # what KEY names
Facts = dict[str, str]  # of `machine`


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


def tuned_rates(records: list[Record], regime: str, arm: Arm) -> dict[float, float]:
    """Return the mean area of an arm by learning rate, of the rates that all tuning seeds have run.

    It is the difference to the run of the anchor with the same base policy: several machines may share the tuning.
    """
    of = [record for record in records if (record["stage"], record["regime"]) == ("tune", regime)]
    anchor = {pair(r): area(r) for r in of if (r["arm"], r["learning_rate"]) == (str(ANCHOR), PLANS[regime].rates[1])}
    areas: dict[float, dict[int, float]] = defaultdict(dict)
    for record in of:
        if record["arm"] == str(arm) and pair(record) in anchor:
            areas[record["learning_rate"]][record["seed"]] = area(record) - anchor[pair(record)]
    return {rate: float(np.mean(list(of.values()))) for rate, of in sorted(areas.items()) if {*TUNE} <= set(of)}


def best_rate(records: list[Record], regime: str, arm: Arm) -> float | None:
    """Return the best learning rate of an arm, or None while it is unknown or at the edge of what was tried."""
    found = tuned_rates(records, regime, arm)
    if len(found) < 3:
        return None
    best = max(found, key=found.__getitem__)
    return None if best in (min(found), max(found)) else best


def best_of(records: list[Record], regime: str, arms: Iterable[Arm]) -> Arm | None:
    """Return the best of arms at their rates, or None while one has none."""
    rates = {arm: best_rate(records, regime, arm) for arm in arms}
    if None in rates.values():
        return None
    return max(rates, key=lambda arm: tuned_rates(records, regime, arm)[rates[arm]])


def by_turns(records: list[Record], regime: str, rule: str) -> Iterator[Arm]:
    """Yield the arms that the tuning of a rule asks for, as far as it has come; the last one ends it."""
    shapes = [Arm(rule, *shape) for shape in SHAPES]
    yield from shapes
    best = best_of(records, regime, shapes)
    if best == shapes[-1]:
        shapes.append(Arm(rule, *WIDER))
        yield shapes[-1]
        best = best_of(records, regime, shapes)
    for passes in (2, 4):
        if best is None:
            return
        yield (more := replace(best, passes=passes))
        before, best = best, best_of(records, regime, [best, more])
        if best == before:
            return


def tuned(records: list[Record], regime: str, rule: str) -> Arm | None:
    """Return what the tuning of a rule has found, or None while it is not done."""
    return best_of(records, regime, by_turns(records, regime, rule))


def batch_of(records: list[Record], regime: str, rule: str) -> Arm | None:
    """Return a rule with one pass over the batch that was best for it."""
    return best_of(records, regime, (arm for arm in by_turns(records, regime, rule) if arm.passes == 1))


def _again(rule: str, passes: int) -> Callable[[list[Record], str], Arm | None]:
    def arm(records: list[Record], regime: str) -> Arm | None:
        found = batch_of(records, regime, rule)
        return found and replace(found, passes=passes, replay=REPLAY)

    return arm


ROLES: dict[str, Callable[[list[Record], str], Arm | None]] = {
    "vanilla": lambda records, regime: tuned(records, regime, VANILLA),
    "vanilla, replay": _again(VANILLA, 1),
    "vanilla, replay, 2 passes": _again(VANILLA, 2),
    "default": lambda records, regime: tuned(records, regime, DEFAULT),
    "default, replay": _again(DEFAULT, 1),
    "default, replay, 2 passes": _again(DEFAULT, 2),
    "oracle": lambda records, regime: Arm(ORACLE),
    "oracle, replay, 2 passes": lambda records, regime: Arm(ORACLE, passes=2, replay=REPLAY),
}
"""The arms of the runs: what each is in a regime, None while the tuning does not say."""


def tuning(records: list[Record], regime: str) -> Iterator[Task]:
    """Yield the tuning runs that a regime lacks: rates by rates, until each arm's best has worse neighbours."""
    arms = [arm for rule in (VANILLA, DEFAULT) for arm in by_turns(records, regime, rule)]
    arms += [arm for role in ROLES.values() if (arm := role(records, regime)) is not None]
    for arm in dict.fromkeys(arms):
        found = tuned_rates(records, regime, arm)
        rates = [rate for rate in first_rates(records, regime, arm) if rate not in found]
        if not rates and best_rate(records, regime, arm) is None:
            best = max(found, key=found.__getitem__)
            rates = [rounded(best / FACTOR if best == min(found) else best * FACTOR)]
        for rate in rates:
            for seed in TUNE:
                yield task("tune", regime, arm, rate, seed)


def first_rates(records: list[Record], regime: str, arm: Arm) -> list[float]:
    """Return the rates to begin with: around the best of its batch with one pass, and higher with replay."""
    known = best_rate(records, regime, replace(arm, passes=1, replay=0))
    if known is None or (arm.passes == 1 and not arm.replay):
        return list(PLANS[regime].rates)
    return [rounded(known * factor) for factor in ((1, 2, 4) if arm.replay else (0.5, 1, 2))]


def rounded(rate: float) -> float:
    return float(f"{rate:.3g}")


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
            anchors = [task("tune", of, ANCHOR, PLANS[of].rates[1], seed) for seed in TUNE]
            lacking += [t for t in anchors * bool(missing) if key(t) not in done] + missing
        return [*{key(t): t for t in lacking}.values()]
    seeds, places = {"look": (LOOK, LOOKED_AT), "trainer": (RUNS[:4], IN_TRAINER)}.get(stage, (RUNS, (*PLANS,)))
    for seed in seeds:
        for regime in [name for name in places if name in {*regimes}]:
            arms = frozen_arms(regime)
            wanted = looked(*arms["default, replay, 2 passes"]) if stage == "look" else [arms[role] for role in roles]
            wanted = [
                (arm, rate) for arm, rate in wanted if stage != "trainer" or not (arm.replay or arm.rule == ORACLE)
            ]
            every = own(task(stage, regime, arm, rate, seed) for arm, rate in dict.fromkeys(wanted))
            if not {*map(key, every)} <= everywhere:  # all of a seed on one machine: these are the pairs
                lacking += [t for t in every if key(t) not in done]
    return lacking


def own(runs: Iterable[Task]) -> list[Task]:
    """Leave out the runs of `nameless` that are those of `staged`; see `curves.read`."""
    return [t for t in runs if t["regime"] != "nameless" or Arm.of(t["arm"]).rule not in READ_NO_WORDS]


def freeze(records: list[Record], date: str) -> dict[str, Any]:
    """Return `frozen.json` with what each arm of the tuned regimes is, and its learning rate."""
    arms = {}
    for regime in PLANS:
        found = {role: of(records, regime) for role, of in ROLES.items()}
        rates = {role: arm and best_rate(records, regime, arm) for role, arm in found.items()}
        if None not in rates.values():
            arms[regime] = {role: [str(arm), rates[role]] for role, arm in found.items()}
    return json.loads(FROZEN.read_text()) | {"arms": arms, "date_of_the_arms": date}


def frozen_arms(regime: str) -> dict[str, tuple[Arm, float]]:
    """Return what each arm is in a regime, and its learning rate, as it was frozen before any of them ran."""
    arms = json.loads(FROZEN.read_text()).get("arms", {})
    if regime not in arms:
        raise ValueError(f"The arms of {regime} are not tuned and frozen: --only tune until it is done, then freeze.")
    return {role: (Arm.of(name), rate) for role, (name, rate) in arms[regime].items()}


def looked(arm: Arm, rate: float) -> list[tuple[Arm, float]]:
    """Return what is looked at: the default with replay and two passes, and what varies it, all at its rate."""
    varied = ({}, {"replay": 2}, {"replay": 8}, {"fill": 0.5}, {"order": "most even"}, {"groups": arm.groups // 2})
    return [(replace(arm, **changes), rate) for changes in varied]


def key(record: Task | Record) -> tuple[Any, ...]:
    return tuple(record[name] for name in KEY)
