"""Records of runs -> curves over rollouts, areas, crossings, and their spread over seeds."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from .arms import READ_NO_WORDS

Record = dict[str, Any]
POINTS = 41  # of a curve over [0, all rollouts]


def read(path: Path) -> list[Record]:
    """The records of a results file, one a line.

    `nameless` is `staged` with other words for the sampler. So an arm that reads no words has the runs of `staged`.
    """
    records = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    same = [r for r in records if r["regime"] == "staged" and r["arm"].split(", ")[0] in READ_NO_WORDS]
    return records + [record | {"regime": "nameless"} for record in same]


def by_arm(records: list[Record], regime: str) -> dict[str, list[Record]]:
    """The records of a regime by arm, in the order of their seeds."""
    arms: dict[str, list[Record]] = defaultdict(list)
    for record in sorted(records, key=lambda record: record["seed"]):
        if record["regime"] == regime:
            arms[record["arm"]].append(record)
    return dict(arms)


def budget(record: Record) -> int:
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
    mean, reach = float(np.mean(values)), float("inf")
    if len(values) > 1:
        reach = float(stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values)))
    return mean, mean - reach, mean + reach


def share_interval(
    ours: list[Record], theirs: list[Record], what: str = "rollouts", resamples: int = 1000, up_to: int = 1
) -> tuple[float, float, float]:
    """Share of the rollouts, tokens or seconds with which the mean of `ours` reaches the mean final score of `theirs`.

    With the ends of its 95 % interval, by a bootstrap over the pairs; infinite where it does not with `up_to` times
    those that `theirs` spend, NaN without pairs.
    """
    other = {pair(record): record for record in theirs}
    pairs = [(record, other[pair(record)]) for record in ours if pair(record) in other]
    if len(pairs) < 2:
        return (float("nan"),) * 3
    # Tokens and seconds are counted in those that the other arm spends in all, on average.
    spent = [budget(record) if what == "rollouts" else record[what][-1] for _, record in pairs]
    shares = np.arange(up_to * (POINTS - 1) + 1) / (POINTS - 1) * float(np.mean(spent))
    heights = np.array([np.interp(shares, record[what], record["score"]) for record, _ in pairs])
    finals = np.array([score_at(record, 1.0) for _, record in pairs])
    chance = np.random.default_rng(0)
    drawn = [np.arange(len(pairs)), *chance.integers(0, len(pairs), (resamples, len(pairs)))]
    found = [crossing(heights[rows].mean(axis=0), finals[rows].mean()) for rows in drawn]
    low, high = np.quantile(found[1:], [0.025, 0.975], method="nearest")
    return found[0], float(low), float(high)


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


def table(head: list[Any], rows: list[list[Any]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)
