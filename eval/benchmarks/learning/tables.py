"""The benchmark's tables, in Markdown."""

import re
from collections.abc import Iterable

import numpy as np

from .arms import ABLATIONS, CHALLENGERS, DEFAULT, MAIN, PEERS
from .curves import Record, area, by_arm, differences, interval, pair, score_at, share_interval, table
from .protocol import BEST, PLANS, VANILLA, VARIED

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
    regimes = {f"{name}: difference (95 % interval)": name for name, plan in PLANS.items() if plan.ablations}
    return beside(records, ("paper", *ABLATIONS), VANILLA, regimes)


def challenge(records: list[Record]) -> str:
    return beside(records, (*CHALLENGERS, *GONE), VARIED, {name: name for name in PLANS})


def beside(records: list[Record], arms: Iterable[str], other: str, regimes: dict[str, str]) -> str:
    """The areas of some arms minus that of another one; `regimes` by the heads of their columns."""
    found = [of(records, "runs", regime) for regime in regimes.values()]
    lines = [
        [arm, *(between(differences(here.get(arm, []), here.get(other, []), area)) for here in found)] for arm in arms
    ]
    lines = [line for line in lines if {*line[1:]} != {"-"}]
    return table(["arm", *regimes], lines) if lines else ""


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
    "scores": ("All arms: difference to vanilla GRPO, paired, with 95 % intervals", scores),
    "ranking": ("Share of the oracle's gain, and the rule for the default", ranking),
    "ablations": ("Ablations of the paper's rule: difference of the area to vanilla GRPO, paired", ablations),
    "challengers": ("Challengers: difference of the area to frontier, paired, with 95 % intervals", challenge),
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
