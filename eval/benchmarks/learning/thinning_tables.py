"""Tables of training on fewer rollouts: score by rollouts, by completions and tokens trained on, and by cost."""

from collections.abc import Callable
from itertools import product

import numpy as np

from .arms import SAMPLERS, THINNED_SHARES, TRAINING
from .curves import Record, area, by_arm, mean_and_error, paired, score_at, table


def cost(record: Record, ratio: float, trained: str = "trained_completions") -> np.ndarray:
    """(evaluations,) what was spent so far: rollouts plus `ratio` times what was trained on; at inf the latter.

    The ratio is seconds of training on a completion over seconds of generating one.
    """
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


def shares(chosen: list[Record], here: list[Record]) -> str:
    """Scores by rollouts of each share; differences are paired by seed."""
    arms, rows = by_arm(chosen, chosen[0]["regime"]), []
    lossless = arms.get("frontier + lossless", [])
    for arm, runs in ((arm, arms[arm]) for arm in THINNED_SHARES if arm in arms):
        cells = [average(runs, area, 4), versus(runs, lossless, area), average(runs, final, 3)]
        cells += [versus(runs, lossless, final)]
        cells += [f"{np.mean([r[name][-1] for r in runs]):,.0f}" for name in ("trained_completions", "trained_tokens")]
        rows.append([arm, str(len(runs)), *cells])
    head = ["arm", "seeds", "area", "- lossless", "final", "- lossless", "trained completions", "trained tokens"]
    return table(head, rows)


def overview(records: list[Record]) -> list[str]:
    """A table for each of `FIGURES`, a line for each regime and sampler; mean ± one standard error over seeds.

    The lines of `all` are over the seeds of all regimes.
    """
    arms = {regime: by_arm(records, regime) for regime in dict.fromkeys(record["regime"] for record in records)}
    arms["all"] = by_arm([{**r, "regime": "all", "seed": (r["regime"], r["seed"])} for r in records], "all")
    parts = []
    for title, figure in FIGURES.items():
        rows = []
        for regime, sampler in product(arms, SAMPLERS):
            found = {name: arms[regime].get(f"{sampler} + {name}") for name in TRAINING}
            if found["lossless"]:
                cells = [figure(runs, found["lossless"]) if runs else "" for runs in found.values()]
                rows.append([regime, sampler, str(len(found["lossless"])), *cells])
        parts.append(
            f"## Training on fewer rollouts: {title}\n\n" + table(["regime", "sampler", "seeds", *TRAINING], rows)
        )
    return parts


def divergence(chosen: list[Record], here: list[Record]) -> str:
    """A KL term on all rollouts and on those with a gradient: the second minus the first in the same seed."""
    arms = by_arm(chosen, chosen[0]["regime"])
    rows = []
    kinds: dict[str, Callable[[Record], float]] = {
        "area": area,
        "final score": final,
        "KL, mean of the run": lambda record: float(np.mean(record["kl"])),
        "KL, end": lambda record: record["kl"][-1],
        "completions with a gradient": lambda record: record["trained_completions"][-1] / record["rollouts"][-1],
    }
    for sampler in SAMPLERS:
        everything, live = (arms.get(f"{sampler} + {name}", []) for name in ("kl", "kl on live rows"))
        for name, figure in kinds.items() if everything and live else ():
            cells = [average(everything, figure, 4), average(live, figure, 4), versus(live, everything, figure)]
            rows.append([sampler, str(len(live)), name, *cells])
    return table(["sampler", "seeds", "figure", "KL on all", "on live rows", "difference"], rows)


def final(record: Record) -> float:
    return score_at(record, 1.0)


def average(runs: list[Record], figure: Callable[[Record], float], digits: int) -> str:
    return f"{np.mean([figure(run) for run in runs]):.{digits}f}"


def versus(ours: list[Record], theirs: list[Record], figure: Callable[[Record], float]) -> str:
    if not theirs or ours is theirs:
        return "-"
    mean, error = paired(ours, theirs, figure)
    return f"{mean:+.4f} ± {error:.4f}"


def at_cost(ratio: float, trained: str = "trained_completions") -> Callable[[list[Record], list[Record]], str]:
    def cell(ours: list[Record], theirs: list[Record]) -> str:
        mean, error = mean_and_error(differences(ours, theirs, ratio, trained))
        return "-" if ours is theirs else f"{mean:+.3f} ± {error:.3f}"

    return cell


def at_rollouts(figure: Callable[[Record], float]) -> Callable[[list[Record], list[Record]], str]:
    def cell(ours: list[Record], theirs: list[Record]) -> str:
        mean, error = mean_and_error([figure(run) for run in ours])
        return f"{mean:.3f} ± {error:.3f}" if ours is theirs else versus(ours, theirs, figure)

    return cell


def least_ratio(ours: list[Record], theirs: list[Record]) -> str:
    ratio = break_even(ours, theirs)
    return "-" if ours is theirs else "none" if ratio is None else f"{ratio:.2f}"


def trained_share(record: Record) -> float:
    return float(record["trained_completions"][-1] / record["rollouts"][-1])


def live_share(record: Record) -> float:
    return float(record["live_completions"] / record["rollouts"][-1])


def before_and_after(before: Callable[[Record], float], after: str) -> Callable[[list[Record], list[Record]], str]:
    return lambda runs, _: f"{average(runs, before, 2)} > {average(runs, lambda run: run[after], 2)}"


FIGURES: dict[str, Callable[[list[Record], list[Record]], str]] = {
    "learning rate": lambda runs, _: ", ".join(f"{rate:g}" for rate in sorted({run["learning_rate"] for run in runs})),
    "area by rollouts of lossless, difference to it": at_rollouts(area),
    "final score of lossless, difference to it": at_rollouts(final),
    "share of the rollouts trained on": lambda runs, _: average(runs, trained_share, 3),
    "score minus that of lossless at equal cost, training on a completion as dear as generating it": at_cost(1.0),
    "score minus that of lossless at equal trained completions": at_cost(np.inf),
    "score minus that of lossless at equal trained tokens": at_cost(np.inf, "trained_tokens"),
    "break-even ratio, training on a completion over generating it": least_ratio,
    "share with an advantage, of all rollouts > of the kept": before_and_after(live_share, "useful_share"),
    "variance of advantages, of all rollouts > of the kept": before_and_after(
        lambda run: run["advantage_variance"], "kept_advantage_variance"
    ),
}
