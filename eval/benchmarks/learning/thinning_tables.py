"""Tables of training on fewer rollouts: score by rollouts, by completions and tokens trained on, and by cost."""

from collections.abc import Callable

import numpy as np

from .arms import ALL_THINNED
from .curves import Record, area, by_arm, mean_and_error, paired, score_at, table

RATIOS = (0.0, 1.0, 4.0, np.inf)
"""Seconds of training on a completion over seconds of generating one."""


def cost(record: Record, ratio: float, trained: str = "trained_completions") -> np.ndarray:
    """(evaluations,) what was spent so far: rollouts plus `ratio` times what was trained on; at inf the latter."""
    work = np.array(record[trained], dtype=float)
    return work if np.isinf(ratio) else np.array(record["rollouts"]) + ratio * work


def score_by_cost(ours: Record, theirs: Record, ratio: float, trained: str = "trained_completions") -> float:
    """Score of `ours` minus `theirs` when both have spent what the cheaper of the two runs spent in all."""
    spent = [cost(record, ratio, trained) for record in (ours, theirs)]
    end = min(each[-1] for each in spent)
    one, other = (np.interp(end, each, record["score"]) for each, record in zip(spent, (ours, theirs), strict=True))
    return float(one - other)


def differences(ours: list[Record], theirs: list[Record], ratio: float, trained: str) -> list[float]:
    """`score_by_cost` of each seed that both arms have."""
    other = {record["seed"]: record for record in theirs}
    return [score_by_cost(r, other[r["seed"]], ratio, trained) for r in ours if r["seed"] in other]


def break_even(ours: list[Record], theirs: list[Record]) -> float | None:
    """Return the least ratio below 100, in steps of 0.05, at which the mean of `ours` is not behind; None: none."""
    for ratio in np.arange(0.0, 100.0, 0.05):
        if np.mean(differences(ours, theirs, ratio, "trained_completions")) >= 0:
            return float(ratio)
    return None


def with_lossless(chosen: list[Record]) -> list[tuple[str, list[Record], list[Record]]]:
    """Every arm with its runs and those of its sampler's `lossless`."""
    arms = by_arm(chosen, chosen[0]["regime"])
    return [(arm, arms[arm], arms.get(f"{arm.split(' + ')[0]} + lossless", [])) for arm in ALL_THINNED if arm in arms]


def by_rollouts(chosen: list[Record], here: list[Record]) -> str:
    rows = []
    for arm, runs, lossless in with_lossless(chosen):
        final: Callable[[Record], float] = lambda record: score_at(record, 1.0)  # noqa: E731
        cells = [f"{runs[0]['learning_rate']:g}", str(len(runs)), average(runs, area, 4), versus(runs, lossless, area)]
        cells += [average(runs, final, 3), versus(runs, lossless, final)]
        cells += [f"{np.mean([r[name][-1] for r in runs]):,.0f}" for name in ("trained_completions", "trained_tokens")]
        rows.append([arm, *cells])
    head = ["arm", "lr", "seeds", "area", "- lossless", "final", "- lossless", "trained completions"]
    return table([*head, "trained tokens"], rows)


def usefulness(chosen: list[Record], here: list[Record]) -> str:
    """Shares of rollouts with a gradient and variances of advantages, of all rollouts and of those trained on."""
    rows = []
    for arm, runs, _ in with_lossless(chosen):
        live = average(runs, lambda r: r["live_completions"] / r["rollouts"][-1], 3)
        names = ("useful_share", "advantage_variance", "kept_advantage_variance")
        rows.append([arm, live, *(average(runs, lambda r, name=name: r[name], 3) for name in names)])
    return table(["arm", "useful, of all", "useful, of the kept", "variance of all", "of the kept"], rows)


def by_cost(chosen: list[Record], here: list[Record]) -> str:
    """Score minus that of `lossless` in the same seed at equal cost; the first is at equal rollouts."""
    rows = []
    for arm, runs, lossless in with_lossless(chosen):
        if not lossless or runs is lossless:
            continue
        cells = [signed(differences(runs, lossless, ratio, "trained_completions")) for ratio in RATIOS]
        cells.append(signed(differences(runs, lossless, np.inf, "trained_tokens")))
        least = break_even(runs, lossless)
        rows.append([arm, *cells, "none" if least is None else f"{least:.2f}"])
    head = ["arm", *(f"ratio {ratio:g}" for ratio in RATIOS[:-1]), "equal trained completions", "equal trained tokens"]
    return table([*head, "break-even ratio"], rows)


def divergence(chosen: list[Record], here: list[Record]) -> str:
    """A KL term on all rollouts and on those with a gradient: the second minus the first in the same seed."""
    arms = by_arm(chosen, chosen[0]["regime"])
    rows = []
    kinds: dict[str, Callable[[Record], float]] = {
        "area": area,
        "final score": lambda record: score_at(record, 1.0),
        "KL, mean of the run": lambda record: float(np.mean(record["kl"])),
        "KL, end": lambda record: record["kl"][-1],
        "completions with a gradient": lambda record: record["trained_completions"][-1] / record["rollouts"][-1],
    }
    for sampler in ("uniform", "frontier"):
        everything, live = (arms.get(f"{sampler} + {name}", []) for name in ("kl", "kl on live rows"))
        for name, figure in kinds.items() if everything and live else ():
            cells = [average(everything, figure, 4), average(live, figure, 4), versus(live, everything, figure)]
            rows.append([sampler, str(len(live)), name, *cells])
    return table(["sampler", "seeds", "figure", "KL on all", "on live rows", "difference"], rows)


def average(runs: list[Record], figure: Callable[[Record], float], digits: int) -> str:
    return f"{np.mean([figure(run) for run in runs]):.{digits}f}"


def versus(ours: list[Record], theirs: list[Record], figure: Callable[[Record], float]) -> str:
    if not theirs or ours is theirs:
        return "-"
    mean, error = paired(ours, theirs, figure)
    return f"{mean:+.4f} ± {error:.4f}"


def signed(values: list[float]) -> str:
    mean, error = mean_and_error(values)
    return f"{mean:+.3f} ± {error:.3f}"
