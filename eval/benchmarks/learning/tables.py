"""The benchmark's tables, in Markdown."""

from collections.abc import Callable

import numpy as np

from . import hint_tables as hinted
from . import thinning_tables as thinned
from .arms import ARMS, MAIN, MORE
from .curves import Record, area, best_rates, by_arm, mean_and_error, paired, rollouts_to, score_at, table


def tables(records: list[Record]) -> str:
    """All tables of the records that are there."""
    parts = []
    regimes = list(dict.fromkeys(record["regime"] for record in records))
    for regime in regimes:
        here = [record for record in records if record["regime"] == regime]
        for stage, title, build in (
            ("tune", "tuning: mean area (seeds apart from those below)", tuning),
            ("main", "main arms, each at its best learning rate", scores),
            ("more", "ablations, other rules", scores),
            ("main", "where the rollouts went", where),
            ("more", "where the rollouts went", where),
            ("trainer", "through VADEGRPOTrainer, beside the fast loop", agreement),
            ("kl", "a KL term on all rollouts or on live ones", thinned.divergence),
            ("shares", "shares to train on (seeds apart from those below)", thinned.shares),
            ("hinted_tune", "variants, tuning: mean area", tuning),
            ("hinted", "do variants pay?", hinted.payoff),
            ("hinted", "variants, where the rollouts went", hinted.liveness),
            ("thin_tune", "training on fewer rollouts, tuning: mean area", tuning),
        ):
            # The oracle has the seeds of the main arms, and stands beside them.
            chosen = [r for r in here if (r["stage"] == stage) != (r["arm"] == "oracle" and stage in ("main", "more"))]
            if stage == "more":  # beside what they vary, on the same seeds
                seeds = {record["seed"] for record in chosen}
                chosen += [r for r in here if r["stage"] == "main" and r["arm"] != "dapo" and r["seed"] in seeds]
            if chosen:
                parts.append(f"## {regime}: {title}\n\n" + build(chosen, here))
    if variants := [record for record in records if record["stage"] == "hinted"]:
        parts.append(hinted.claims(variants))
    thin = [record for record in records if record["stage"] == "thin"]
    return "\n\n".join(parts + thinned.overview(thin) if thin else parts)


def tuning(chosen: list[Record], here: list[Record]) -> str:
    rates = sorted({record["learning_rate"] for record in chosen})
    best = best_rates(chosen, chosen[0]["regime"])
    rows = []
    for arm in [name for name in ARMS if any(record["arm"] == name for record in chosen)]:
        cells = []
        for rate in rates:
            runs = [area(r) for r in chosen if r["arm"] == arm and r["learning_rate"] == rate]
            text = f"{np.mean(runs):.4f}" if runs else "-"
            cells.append(f"**{text}**" if best.get(arm) == rate else text)
        rows.append([arm, *cells])
    return table(["arm", *(f"{rate:g}" for rate in rates)], rows)


def scores(chosen: list[Record], here: list[Record]) -> str:
    """Scores by rollouts; differences are paired by seed, over the seeds that the arm has."""
    arms = by_arm(chosen, chosen[0]["regime"])
    main = by_arm([r for r in here if r["stage"] == "main"], chosen[0]["regime"])
    uniform, dapo = main.get("uniform", []), main.get("dapo", [])
    rows = []
    for arm in [name for name in (*MAIN, *MORE) if name in arms]:
        runs = arms[arm]
        same = [r for r in uniform if r["seed"] in {run["seed"] for run in runs}]
        level = float(np.mean([score_at(r, 1.0) for r in same])) if same else np.nan
        share = rollouts_to(runs, level)
        rows.append(
            [
                arm,
                f"{runs[0]['learning_rate']:g}",
                str(len(runs)),
                spread(runs, area, 4),
                difference(runs, uniform, area),
                difference(runs, dapo, area),
                *(f"{np.mean([score_at(r, s) for r in runs]):.3f}" for s in (0.25, 0.5)),
                spread(runs, lambda r: score_at(r, 1.0), 3),
                f"{np.mean([score_at(r, 1.0, 'greedy') for r in runs]):.3f}",
                "never" if share is None else f"{share:.2f}",
            ]
        )
    head = ["arm", "lr", "seeds", "area", "- uniform", "- dapo", "at 25 %", "at 50 %", "final", "greedy"]
    return table([*head, "rollouts to uniform's final"], rows)


def where(chosen: list[Record], here: list[Record]) -> str:
    """What was chosen, what it gave, and how well it was known."""
    arms = by_arm(chosen, chosen[0]["regime"])
    late: Callable[[Record, str], float] = lambda record, what: float(np.mean(record[what][-4:]))  # noqa: E731
    rows = []
    for arm in [name for name in (*MAIN, *MORE) if name in arms]:
        runs = arms[arm]

        def average(figure: Callable[[Record], float], digits: int = 3, runs: list[Record] = runs) -> str:
            return f"{np.mean([figure(run) for run in runs]):.{digits}f}"

        bands = [
            f"{np.mean(before):.2f} > {np.mean(after):.2f}" if before else "-"
            for name in ("frontier", "mastered")
            for before, after in [band(runs, name)]
        ]
        rows.append(
            [
                arm,
                average(lambda r: float(np.mean(r["ratio"]))),
                average(lambda r: late(r, "ratio")),
                average(lambda r: float(np.mean(r["lift"])), 2),
                average(lambda r: late(r, "chosen_impossible"), 2),
                average(lambda r: late(r, "chosen_mastered"), 2),
                average(lambda r: r["coverage"], 2),
                average(lambda r: r["top_tenth"], 2),
                *bands,
                average(lambda r: float(np.mean(r["grad_norm"])), 2),
                average(lambda r: r["updates"][-1], 0),
                average(lambda r: r["brier"], 4),
                average(lambda r: r["brier_of_the_mean"], 4),
            ]
        )
    head = ["arm", "ratio", "late", "lift", "impossible, late", "mastered, late", "coverage", "top tenth"]
    head += ["frontier rows", "mastered rows", "gradient norm", "updates", "Brier", "of the mean"]
    return table(head, rows)


def band(runs: list[Record], name: str) -> tuple[list[float], list[float]]:
    """Pass rate of the pool's rows of a band before and after, of the runs whose pool has such rows."""
    pairs = [(r["band_before"][name], r["band_after"][name]) for r in runs if r["band_before"][name] is not None]
    return [before for before, _ in pairs], [after for _, after in pairs]


def agreement(chosen: list[Record], here: list[Record]) -> str:
    """Same arm, rate and seeds in the trainer and in the fast loop; only the sampled completions differ."""
    fast = {(r["arm"], r["learning_rate"], r["seed"]): r for r in here if r["stage"] == "main"}
    rows = []
    for arm, runs in by_arm(chosen, chosen[0]["regime"]).items():
        pairs = [(r, fast[key]) for r in runs if (key := (arm, r["learning_rate"], r["seed"])) in fast]
        if not pairs:
            continue
        rows.append(
            [
                arm,
                str(len(pairs)),
                *(spread([pair[i] for pair in pairs], area, 4) for i in (0, 1)),
                *(f"{np.mean([score_at(pair[i], 1.0) for pair in pairs]):.3f}" for i in (0, 1)),
                f"{np.mean([pair[0]['mean_ratio'] for pair in pairs]):.3f}",
                f"{np.mean([np.mean(pair[1]['ratio']) for pair in pairs]):.3f}",
                *(f"{np.mean([pair[i]['seconds'] for pair in pairs]):.0f}" for i in (0, 1)),
            ]
        )
    head = ["arm", "seeds", "area, trainer", "fast", "final, trainer", "fast", "ratio, trainer", "fast"]
    return table([*head, "seconds, trainer", "fast"], rows)


def spread(runs: list[Record], figure: Callable[[Record], float], digits: int) -> str:
    mean, error = mean_and_error([figure(run) for run in runs])
    return f"{mean:.{digits}f} ± {error:.{digits}f}"


def difference(ours: list[Record], theirs: list[Record], figure: Callable[[Record], float]) -> str:
    if not theirs or ours[0]["arm"] == theirs[0]["arm"]:
        return "-"
    mean, error = paired(ours, theirs, figure)
    return f"{mean:+.4f} ± {error:.4f}"
