"""The benchmark's tables, in Markdown."""

import re

import numpy as np

from . import hint_tables as hinted
from . import thinning_tables as thinned
from .arms import ABLATIONS, ARMS, CHALLENGERS, DEFAULT, MAIN, PEERS
from .curves import (
    Record,
    area,
    best_rates,
    by_arm,
    differences,
    interval,
    mean_and_error,
    pair,
    paired,
    score_at,
    share_interval,
    table,
)
from .protocol import BEST, PLANS, VANILLA, VARIED, best_rate, tuned_as, tuned_rates

GONE = ("calibrated", "growing rest", "rising blind share", "moved rates", "prior by level")
"""Arms whose code was deleted, since they won nothing. Their records stay."""
SHOWN = {
    **{("runs", "dapo"): "DAPO", ("runs", "paper"): "VADE, `paper`"},
    # Not on the seeds that the default was chosen on: there the luck of the best arm would count.
    **{("confirm", DEFAULT): "VADE, default", ("confirm", BEST): "oracle"},
}
"""By stage and arm, the name in the first table."""
TITLES = {
    "paper_like": ("Paper-like", "most rows mastered"),
    "staged": ("Staged", "skills unlock one another"),
    "many_impossible": ("Impossible", "many rows are out of reach"),
    "graded": ("Graded", "staged, with rewards by step"),
    "wide": ("Wide", "staged, with 4,096 rows"),
    "hard_pictures": ("Hard pictures", "half of them out of reach"),
    "no_headroom": ("No headroom", "pictures of medium difficulty"),
}
PLACES = (*MAIN, *PEERS, *CHALLENGERS, *GONE, *ABLATIONS)


def tables(records: list[Record]) -> str:
    """All tables of the main comparison that there are records for."""
    parts = [f"## {title}\n\n{text}" for title, build in TABLES.values() if (text := build(records))]
    runs = [record["seconds"] for record in records]
    parts.append(f"{len(runs):,} runs, {sum(runs) / 3600:.1f} hours of one core.")
    return "\n\n".join(parts)


def fill(text: str, records: list[Record]) -> str:
    """Return the page with its tables made anew, each between `<!-- table: NAME -->` and `<!-- end of table -->`."""

    def made(match: re.Match[str]) -> str:
        return f"{match[1]}\n{TABLES[match[2]][1](records)}\n<!-- end of table -->"

    return re.sub(r"(<!-- table: (\w+) -->).*?<!-- end of table -->", made, text, flags=re.DOTALL)


def main_arms(records: list[Record]) -> str:
    """The arms that a reader looks for first, one regime a line."""
    lines = []
    for regime, title in TITLES.items():
        arms = {stage: of(records, stage, regime) for stage in ("runs", "confirm")}
        vanilla = arms["runs"].get(VANILLA, [])
        if len(vanilla) > 1:
            beside = [(arms[stage].get(arm, []), arms[stage].get(VANILLA, [])) for stage, arm in SHOWN]
            cells = [between(differences(ours, theirs, area)) for ours, theirs in beside]
            lines.append([f"`{regime}`: {title[1]}", f"{np.mean([area(run) for run in vanilla]):.3f}", *cells])
    head = ["situation", "vanilla GRPO: mean", *(f"{name}: difference (95 % interval)" for name in SHOWN.values())]
    return table(head, lines) if lines else ""


def ablations(records: list[Record]) -> str:
    """The paper's rule, and what is left of it without one of its parts."""
    arms, regimes = ("paper", *ABLATIONS), [regime for regime, plan in PLANS.items() if plan.ablations]
    lines = []
    for arm in arms:
        found = [of(records, "runs", regime) for regime in regimes]
        gains = [differences(of_it.get(arm, []), of_it.get(VANILLA, []), area) for of_it in found]
        if any(gains):
            lines.append([arm, *map(between, gains)])
    return table(["arm", *(f"{regime}: difference (95 % interval)" for regime in regimes)], lines) if lines else ""


def tuning(records: list[Record]) -> str:
    lines = []
    for regime in PLANS:
        for arm in PLACES:
            found = tuned_rates(records, regime, arm) if tuned_as(arm) == arm else {}
            best = best_rate(records, regime, arm) if found else None
            cells = [f"{rate:g}: {value:.4f}" for rate, value in found.items()]
            if found:
                lines.append([regime, arm, ", ".join(cells), "open" if best is None else f"{best:g}"])
    return table(["regime", "arm", "rate: mean area", "best"], lines) if lines else ""


def scores(records: list[Record], stage: str = "runs") -> str:
    """All arms in one table; the number of its comparisons is below it."""
    lines = []
    for regime in PLANS:
        arms = of(records, stage, regime)
        vanilla, best = arms.get(VANILLA, []), arms.get(BEST, [])
        for arm in [name for name in PLACES if name in arms and vanilla]:
            runs = arms[arm]
            rate = f"{runs[0]['learning_rate']:g}"
            if arm == VANILLA:
                heights = [f"{np.mean([figure(run) for run in runs]):.3f}" for figure in (area, final)]
                lines.append([regime, arm, rate, len(runs), *heights, "-", "1"])
                continue
            gains = differences(runs, vanilla, area)
            if not gains:  # the benchmark was stopped before the vanilla run of its first seed
                continue
            found = share_of_oracle(runs, best, vanilla)
            share = "-" if found is None else f"{found:.0%}"
            cells = [between(gains), between(differences(runs, vanilla, final))]
            lines.append([regime, arm, rate, len(gains), *cells, share, shown(*share_interval(runs, vanilla))])
    if not lines:
        return ""
    head = ["regime", "arm", "lr", "pairs", "area: vanilla, or difference (95 %)", "final: the same"]
    head += ["share of the oracle's gain", "rollouts to vanilla's final score, share (95 %)"]
    compared = sum(line[1] != VANILLA for line in lines)
    at_chance = f"of {compared} comparisons about {compared * 0.05:.0f} are outside their interval by chance"
    return f"{table(head, lines)}\n\nA number of comparisons: {at_chance}."


def confirmation(records: list[Record]) -> str:
    return scores(records, "confirm")


def ranking(records: list[Record]) -> str:
    """The rule: largest mean share of the oracle's gain, where it has one, of those never below vanilla's interval."""
    shares: dict[str, dict[str, float]] = {}
    below: dict[str, list[str]] = {}
    for regime in PLANS:
        arms = of(records, "runs", regime)
        vanilla = arms.get(VANILLA, [])
        for arm in [
            name for name in (*MAIN, *PEERS, *CHALLENGERS, *GONE) if name in arms and name not in (VANILLA, BEST)
        ]:
            gains = differences(arms[arm], vanilla, area)
            if not gains:
                continue
            below.setdefault(arm, []).extend([regime] if interval(gains)[2] < 0 else [])
            if (share := share_of_oracle(arms[arm], arms.get(BEST, []), vanilla)) is not None:
                shares.setdefault(arm, {})[regime] = share
    order = sorted(shares, key=lambda arm: (bool(below[arm]), -np.mean(list(shares[arm].values()))))
    lines = [
        [arm, f"{np.mean(list(shares[arm].values())):.0%}", ", ".join(below[arm]) or "nowhere",
         ", ".join(f"{regime} {share:.0%}" for regime, share in shares[arm].items())]
        for arm in order
    ]  # fmt: skip
    head = ["arm", "mean share of the oracle's gain", "interval below vanilla in", "by regime"]
    return table(head, lines) if lines else ""


def challenge(records: list[Record]) -> str:
    lines = []
    for arm in (*CHALLENGERS, *GONE):
        cells = []
        for regime in PLANS:
            arms = of(records, "runs", regime)
            cells.append(between(differences(arms.get(arm, []), arms.get(VARIED, []), area)))
        if any(cell != "-" for cell in cells):
            lines.append([arm, *cells])
    return table(["arm", *PLANS], lines) if lines else ""


def where(records: list[Record]) -> str:
    """What was chosen, and what it gave."""
    figures = ("ratio", "lift", "all_wrong_late", "all_right_late", "coverage", "top_tenth", "updates", "refills")
    lines = []
    for regime in PLANS:
        arms = of(records, "runs", regime)
        for arm in [name for name in PLACES if name in arms]:
            found = [run for run in arms[arm] if "coverage" in run]
            cells = [f"{np.mean([np.mean(run[name]) for run in found]):.3g}" if found else "-" for name in figures]
            lines.append([regime, arm, *cells])
    head = ["groups with a gradient", "over an even draw", "all wrong, late", "all right, late", "rows seen"]
    head += ["places of the top tenth", "updates", "refills"]
    return table(["regime", "arm", *head], lines) if lines else ""


def calibration(records: list[Record]) -> str:
    """Mean squared error of the believed rate, and that of the mean of all that came before."""
    lines = []
    for regime in PLANS:
        for arm, runs in of(records, "runs", regime).items():
            found = [run for run in runs if "brier" in run]
            if arm in (*MAIN, DEFAULT) and arm != BEST and found:
                cells = [f"{np.mean([run[name] for run in found]):.4f}" for name in ("brier", "brier_of_the_mean")]
                lines.append([regime, arm, *cells])
    return table(["regime", "arm", "Brier score of the belief", "of the mean so far"], lines) if lines else ""


def agreement(records: list[Record]) -> str:
    """Same arm, rate and seeds in the trainer and in the fast loop; only the sampled completions differ."""
    lines = []
    for regime in PLANS:
        fast = of(records, "confirm", regime)
        for arm, runs in of(records, "trainer", regime).items():
            gains = differences(runs, fast.get(arm, []), area)
            if len(gains) > 1:
                means = [f"{np.mean([figure(run) for run in runs]):.3f}" for figure in (area, final)]
                seconds = f"{np.mean([run['seconds'] for run in runs]):.0f}"
                lines.append([regime, arm, len(gains), *means, between(gains), seconds])
    head = ["regime", "arm", "seeds", "area, trainer", "final, trainer", "area, trainer - fast loop (95 %)", "seconds"]
    return table(head, lines) if lines else ""


TABLES = {
    "main": ("In short: difference to vanilla GRPO, paired", main_arms),
    "tuning": ("Learning rates: mean area of the tuning seeds", tuning),
    "scores": ("All arms: difference to vanilla GRPO, paired, with 95 % intervals", scores),
    "ranking": ("Share of the oracle's gain, and the rule for the default", ranking),
    "ablations": ("Ablations of the paper's rule: difference of the area to vanilla GRPO, paired", ablations),
    "challengers": ("Challengers: difference of the area to frontier, paired, with 95 % intervals", challenge),
    "where": ("Where the rollouts went", where),
    "calibration": ("Belief against outcome", calibration),
    "confirmation": ("Confirmation: difference to vanilla GRPO, paired, with 95 % intervals", confirmation),
    "trainer": ("Through VADEGRPOTrainer, beside the fast loop", agreement),
}
"""By the name that a page marks it with, the title and the maker of each table of the main comparison."""


def of(records: list[Record], stage: str, regime: str) -> dict[str, list[Record]]:
    return by_arm([record for record in records if record["stage"] == stage], regime)


def share_of_oracle(runs: list[Record], best: list[Record], vanilla: list[Record]) -> float | None:
    """The gain of an arm over the oracle's on the same seeds; None where the oracle has no gain by its interval.

    Seeds differ in what there is to win, so the oracle's other seeds would be no measure.
    """
    every, pairs = differences(best, vanilla, area), {pair(run) for run in runs}
    beside = differences([run for run in best if pair(run) in pairs], vanilla, area)
    if not beside or len(every) < 2 or interval(every)[1] <= 0:
        return None
    return float(np.mean(differences(runs, vanilla, area)) / np.mean(beside))


def final(record: Record) -> float:
    return score_at(record, 1.0)


def between(values: list[float]) -> str:
    """Return the mean and its 95 % interval, which takes two values at least."""
    if len(values) < 2:
        return "-"
    mean, low, high = interval(values)
    return f"{mean:+.3f} ({low:+.3f} to {high:+.3f})"


def shown(share: float, low: float, high: float) -> str:
    ends = ["never" if np.isinf(end) else f"{end:.2f}" for end in (share, low, high)]
    return f"{ends[0]} ({ends[1]} to {ends[2]})"


def studies(records: list[Record]) -> str:
    """The tables of the studies beside the main comparison."""
    parts = []
    for regime in dict.fromkeys(record["regime"] for record in records):
        here = [record for record in records if record["regime"] == regime]
        for stages, title, build in (
            (("main", "more"), "arms, beside vanilla GRPO", areas),
            (("kl",), "a KL term on all rollouts or on live ones", thinned.divergence),
            (("shares",), "shares to train on (seeds apart from those below)", thinned.shares),
            (("hinted_tune",), "variants, tuning: mean area", areas_by_rate),
            (("hinted",), "do variants pay?", hinted.payoff),
            (("hinted",), "variants, where the rollouts went", hinted.liveness),
            (("thin_tune",), "training on fewer rollouts, tuning: mean area", areas_by_rate),
        ):
            if chosen := [record for record in here if record["stage"] in stages]:
                parts.append(f"## {regime}: {title}\n\n" + build(chosen, here))
    if variants := [record for record in records if record["stage"] == "hinted"]:
        parts += hinted.over_regimes(variants)
    thin = [record for record in records if record["stage"] == "thin"]
    return "\n\n".join(parts + thinned.overview(thin) if thin else parts)


def areas(chosen: list[Record], here: list[Record]) -> str:
    arms = by_arm(chosen, chosen[0]["regime"])
    lines = []
    for arm, runs in arms.items():
        cells = ["{:.4f} ± {:.4f}".format(*mean_and_error([area(run) for run in runs]))]
        if arm != VANILLA and VANILLA in arms:
            cells.append("{:+.4f} ± {:.4f}".format(*paired(runs, arms[VANILLA], area)))
        lines.append([arm, len(runs), *cells, *["-"] * (2 - len(cells))])
    return table(["arm", "seeds", "area, mean ± standard error", "- vanilla GRPO, paired"], lines)


def areas_by_rate(chosen: list[Record], here: list[Record]) -> str:
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
