"""Records of runs -> curves over rollouts, areas, crossings, and their spread over seeds."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

Record = dict[str, Any]
TUNING = ("tune", "thin_tune", "hinted_tune")
POINTS = 41  # of a curve over [0, all rollouts]


def read(path: Path) -> list[Record]:
    """The records of a results file, one a line."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def by_arm(records: list[Record], regime: str, rates: dict[str, float] | None = None) -> dict[str, list[Record]]:
    """The records of a regime by arm, in the order of their seeds; of each arm those with its learning rate."""
    arms: dict[str, list[Record]] = defaultdict(list)
    for record in sorted(records, key=lambda record: record["seed"]):
        if record["regime"] == regime and (rates is None or rates.get(record["arm"]) == record["learning_rate"]):
            arms[record["arm"]].append(record)
    return dict(arms)


def budget(record: Record) -> int:
    """Rollouts that the run was given."""
    return int(record["batches"]) * 256


def grid(record: Record) -> np.ndarray:
    return np.linspace(0, budget(record), POINTS)


def curve(record: Record, what: str = "score") -> np.ndarray:
    """(POINTS,) a figure taken at evaluations, over rollouts. A run may overshoot its budget by a part of a batch."""
    return np.interp(grid(record), record["rollouts"], record[what])


def area(record: Record, what: str = "score") -> float:
    """Mean height of the curve: the area under it over the rollouts spent."""
    return float(np.trapezoid(curve(record, what), dx=1 / (POINTS - 1)))


def score_at(record: Record, share: float, what: str = "score") -> float:
    """The figure when this share of the budget was spent."""
    return float(np.interp(share * budget(record), record["rollouts"], record[what]))


def mean_and_error(values: list[float]) -> tuple[float, float]:
    """Mean over seeds and its standard error."""
    array = np.array(values, dtype=float)
    error = array.std(ddof=1) / np.sqrt(len(array)) if len(array) > 1 else float("nan")
    return float(array.mean()), float(error)


def paired(ours: list[Record], theirs: list[Record], figure: Any) -> tuple[float, float]:
    """Mean and standard error of the difference between two arms over the pairs that both have; see `differences`."""
    return mean_and_error(differences(ours, theirs, figure))


def differences(ours: list[Record], theirs: list[Record], figure: Any) -> list[float]:
    """The difference between two arms in each pair: a seed on one machine.

    A pair has one base policy and one pool, so differences vary less than the figures themselves.
    """
    other = {pair(record): figure(record) for record in theirs}
    return [figure(record) - other[pair(record)] for record in ours if pair(record) in other]


def pair(record: Record) -> tuple[Any, ...]:
    """What two runs share that may be compared."""
    return record["seed"], record.get("machine"), record.get("versions")


def interval(values: list[float]) -> tuple[float, float, float]:
    """Mean, and the ends of its 95 % interval by Student's t; infinite for fewer than two values."""
    mean, error = mean_and_error(values)
    reach = float(stats.t.ppf(0.975, len(values) - 1)) * error if len(values) > 1 else float("inf")
    return mean, mean - reach, mean + reach


def share_interval(ours: list[Record], theirs: list[Record], resamples: int = 1000) -> tuple[float, float, float]:
    """Share of the rollouts with which the mean of `ours` reaches the mean final score of `theirs`.

    With the ends of its 95 % interval, by a bootstrap over the pairs; infinite where it never does.
    """
    other = {pair(record): record for record in theirs}
    pairs = [(record, other[pair(record)]) for record in ours if pair(record) in other]
    heights, finals = np.array([curve(record) for record, _ in pairs]), np.array([score_at(r, 1.0) for _, r in pairs])
    chance = np.random.default_rng(0)
    drawn = [np.arange(len(pairs)), *chance.integers(0, len(pairs), (resamples, len(pairs)))]
    shares = [crossing(heights[rows].mean(axis=0), finals[rows].mean()) for rows in drawn]
    low, high = np.quantile(shares[1:], [0.025, 0.975], method="nearest")
    return shares[0], float(low), float(high)


def crossing(heights: np.ndarray, level: float) -> float:
    """Share of the budget at which a curve, (POINTS,), first reaches `level`; infinite: never."""
    reached = np.flatnonzero(heights >= level)
    if not reached.size:
        return float("inf")
    first = int(reached[0])
    if first == 0:
        return 0.0
    low, high = heights[first - 1], heights[first]
    return float((first - 1 + (level - low) / (high - low)) / (POINTS - 1))


def best_rates(records: list[Record], regime: str) -> dict[str, float]:
    """The learning rate of each arm with the largest mean area."""
    areas: dict[str, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        if record["regime"] == regime:
            areas[record["arm"]][record["learning_rate"]].append(area(record))
    return {arm: max(rates, key=lambda rate, rates=rates: float(np.mean(rates[rate]))) for arm, rates in areas.items()}


def shared_rate(records: list[Record], regime: str) -> float:
    """The learning rate with the largest mean area over all arms of a regime."""
    return next(iter(best_rates([{**record, "arm": "all"} for record in records], regime).values()), float("nan"))


def at_best_rates(records: list[Record]) -> list[Record]:
    """The records without those of a main arm at a learning rate that further tuning has shown not to be its best."""
    regimes = {record["regime"] for record in records}
    best = {regime: best_rates(tuning(records), regime) for regime in regimes}
    shared = {regime: shared_rate(tuning(records), regime) for regime in regimes}

    def is_best(record: Record) -> bool:
        rate, regime = record["learning_rate"], record["regime"]
        return bool(rate == (shared[regime] if record["stage"] == "hinted" else best[regime].get(record["arm"], rate)))

    return [record for record in records if record["stage"] in TUNING or is_best(record)]


def tuning(records: list[Record]) -> list[Record]:
    """The records of the stages in which learning rates were tried."""
    return [record for record in records if record["stage"] in TUNING]


def table(head: list[Any], rows: list[list[Any]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)
