"""The benchmark's tables, in Markdown."""

import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from .arms import (
    AT_ITS_RATE,
    BEST,
    BEST_BATCH,
    COLUMNS,
    DEFAULT,
    LARGER,
    SHAPES,
    TRIED,
    VANILLA,
    VANILLA_AT_ITS_RATE,
)
from .curves import Record, area, by_arm, differences, interval, score_at, share_interval, table
from .protocol import COMPARED, best_batch, best_rate

TITLES = {
    "wide": ("Wide", "8,192 rows, most met once or never"),
    "staged": ("Staged", "skills unlock one another"),
    "nameless": ("Nameless", "staged, and words tell nothing"),
    "two_skills": ("Two skills", "answers of 7 to 60 tokens"),
    "many_impossible": ("Impossible", "45 % of the answers are wrong"),
    "graded": ("Graded", "staged, with rewards by step"),
    "paper_like": ("Paper-like", "most rows mastered"),
    "hard_pictures": ("Hard pictures", "half of them out of reach"),
    "no_headroom": ("No headroom", "pictures of medium difficulty"),
}
SHOWN = {
    VANILLA_AT_ITS_RATE: "vanilla GRPO, at the default's rate",
    **{BEST_BATCH: "vanilla GRPO, best batch", "dapo": "DAPO", "paper": "VADE, `paper`", DEFAULT: "VADE, default"},
    **{LARGER: "VADE, default, 64 x 4"},
    **{AT_ITS_RATE: "oracle, at the default's rate", BEST: "oracle, at its own rate"},
}
"""By arm, the name in the tables."""


def tables(records: list[Record]) -> str:
    """All tables that there are records for."""
    parts = [f"## {title}\n\n{text}" for title, build in TABLES.values() if (text := build(records))]
    runs = [record["seconds"] for record in records]
    parts.append(f"{len(runs):,} runs, {sum(runs) / 3600:.1f} hours of one core.")
    return "\n\n".join(parts)


def fill(text: str, records: list[Record]) -> str:
    """Return the page with its tables made anew, each between `<!-- table: NAME -->` and `<!-- end of table -->`."""

    def made(match: re.Match[str]) -> str:
        return f"{match[1]}\n{TABLES[match[2]][1](records)}\n<!-- end of table -->"

    return re.sub(r"(<!-- table: (\w+) -->).*?<!-- end of table -->", made, text, flags=re.DOTALL)


def main_arms(records: list[Record], shown: Iterable[str] = SHOWN) -> str:
    """The areas of some arms, one regime a line, all on the same seeds; without those that no regime has run."""
    lines, found = [], compared(records)
    shown = [arm for arm in shown if any(arms.get(arm) for _, arms in found)]
    for regime, arms in found:
        vanilla = arms[VANILLA]
        cells = [between(differences(arms.get(arm, []), vanilla, area)) for arm in shown]
        lines.append([titled(regime), len(vanilla), f"{np.mean([area(run) for run in vanilla]):.3f}", *cells])
    names = [f"{SHOWN[arm]}: difference (95 % interval)" for arm in shown]
    return table(["situation", "seeds", "vanilla GRPO: mean", *names], lines) if lines else ""


def short(records: list[Record]) -> str:
    """The arms that a reader looks for first."""
    return main_arms(records, (BEST_BATCH, DEFAULT, LARGER, AT_ITS_RATE))


def costs(records: list[Record]) -> str:
    """The default beside vanilla GRPO with its best batch, and what it spends until it has the final score of that."""
    lines = []
    for regime, arms in compared(records):
        best, cells = arms[BEST_BATCH], []
        for runs in (arms.get(DEFAULT, []), arms.get(LARGER, [])):
            cells.append(between(differences(runs, best, area)))
            cells += [shown(*share_interval(runs, best, what)) for what in ("rollouts", "tokens")]
        lines.append([titled(regime), *cells])
    head = ["situation"]
    for arm in (DEFAULT, LARGER):
        head += [f"{SHOWN[arm]}: difference (95 %)", "rollouts, share (95 %)", "tokens, share (95 %)"]
    return table(head, lines) if lines else ""


def tuned(records: list[Record]) -> str:
    """The learning rates, and the shape of vanilla's best batch."""
    lines = []
    for regime in COMPARED:
        rates = [best_rate(records, regime, arm) for arm in (*SHAPES, DEFAULT)]
        if None not in rates:
            lines.append([f"`{regime}`", *(f"{rate:g}" for rate in rates), best_batch(records, regime)])
    names = [f"{arm}: rate" for arm in (*SHAPES, DEFAULT)]
    return table(["situation", *names, "best batch"], lines) if lines else ""


def challenge(records: list[Record]) -> str:
    """The challengers on six seeds, and what was tried further on those of the runs."""
    regimes, arms = {name: name for name in COMPARED}, (LARGER, *TRIED)
    found = (beside(records, "challenge", arms, regimes), beside(records, "runs", arms, regimes))
    return "\n\n".join(filter(None, found))


def columns(records: list[Record]) -> str:
    regimes = {"staged": "staged", "wide_4096": "wide, 4,096 rows"}
    return beside(records, "column", (VANILLA, *COLUMNS), regimes)


def beside(records: list[Record], stage: str, arms: Iterable[str], regimes: dict[str, str]) -> str:
    """The areas of some arms of a stage minus that of the default; `regimes` with the heads of their columns."""
    found = {regime: of(records, stage, regime) for regime in regimes}
    found = {regime: here for regime, here in found.items() if len(here.get(DEFAULT, [])) > 1}
    lines = [
        [arm, *(between(differences(here.get(arm, []), here[DEFAULT], area)) for here in found.values())]
        for arm in arms
    ]
    lines = [line for line in lines if {*line[1:]} - {"-"}]
    seeds = {len(here[DEFAULT]) for here in found.values()}
    head = [f"arm, against the default on {' or '.join(map(str, sorted(seeds)))} seeds"]
    return table([*head, *(regimes[regime] for regime in found)], lines) if lines else ""


def forgetting(records: list[Record]) -> str:
    """The score of a skill that was not trained on, before and after."""
    arms = of(records, "runs", "two_skills")
    lines = []
    for arm, runs in arms.items():
        change = [run["held_out"][1] - run["held_out"][0] for run in runs]
        lines.append([SHOWN.get(arm, arm), f"{np.mean([run['held_out'][0] for run in runs]):.3f}", between(change)])
    return table(["arm", "before: mean", "after - before (95 %)"], lines) if lines else ""


def calibration(records: list[Record]) -> str:
    """Mean squared error of the default's believed rate, and that of the mean of all that came before."""
    lines = []
    for regime, arms in compared(records):
        if runs := arms.get(DEFAULT):
            cells = [f"{np.mean([run[name] for run in runs]):.4f}" for name in ("brier", "brier_of_the_mean")]
            lines.append([f"`{regime}`", *cells])
    return table(["situation", "Brier score of the belief", "of the mean so far"], lines) if lines else ""


def agreement(records: list[Record]) -> str:
    """Same arm, rate and seeds in the trainer and in the fast loop; only the sampled completions differ."""
    lines = []
    for regime in COMPARED:
        fast = of(records, "runs", regime)
        for arm, runs in of(records, "trainer", regime).items():
            gains = differences(runs, fast.get(arm, []), area)
            if len(gains) > 1:
                means = [f"{np.mean([figure(run) for run in runs]):.3f}" for figure in (area, final)]
                seconds = f"{np.mean([run['seconds'] for run in runs]):.0f}"
                lines.append([f"`{regime}`", arm, len(gains), *means, between(gains), seconds])
    head = [
        "situation",
        "arm",
        "seeds",
        "area, trainer",
        "final, trainer",
        "area, trainer - fast loop (95 %)",
        "seconds",
    ]
    return table(head, lines) if lines else ""


TABLES = {
    "short": ("In short", short),
    "main": ("Difference of the area to vanilla GRPO, paired by seed", main_arms),
    "costs": ("Beside vanilla GRPO with its best batch", costs),
    "tuned": ("What was tuned", tuned),
    "challengers": ("Challengers: difference of the area to the default, paired", challenge),
    "columns": ("With a column of pass rates: difference of the area to the default, paired", columns),
    "forgetting": ("A skill that is not trained on", forgetting),
    "calibration": ("Belief against outcome", calibration),
    "trainer": ("Through VADEGRPOTrainer, beside the fast loop", agreement),
}
"""By the name that a page marks it with, the title and the maker of each table."""


def compared(records: list[Record]) -> list[tuple[str, dict[str, list[Record]]]]:
    """Return the arms by regime of those that have two runs of vanilla GRPO, with its best batch by that name."""
    found = []
    for regime in COMPARED:
        arms = of(records, "runs", regime)
        if len(arms.get(VANILLA, [])) > 1:
            arms[BEST_BATCH] = arms.get(best_batch(records, regime) or "", [])
            if best_rate(records, regime, DEFAULT) == arms[VANILLA][0]["learning_rate"]:
                arms[VANILLA_AT_ITS_RATE] = arms[VANILLA]
            found.append((regime, arms))
    return found


def of(records: list[Record], stage: str, regime: str) -> dict[str, list[Record]]:
    return by_arm([record for record in records if record["stage"] == stage], regime)


def titled(regime: str) -> str:
    return f"`{regime}`: {TITLES[regime][1]}"


def final(record: Record) -> float:
    return score_at(record, 1.0)


def between(values: list[float]) -> str:
    """Return the mean and its 95 % interval, which takes two values at least."""
    if len(values) < 2:
        return "-"
    mean, low, high = interval(values)
    return f"{mean:+.3f} ({low:+.3f} to {high:+.3f})"


def shown(share: float, low: float, high: float) -> str:
    ends: list[Any] = ["never" if np.isinf(end) else f"{end:.2f}" for end in (share, low, high)]
    return "-" if np.isnan(share) else f"{ends[0]} ({ends[1]} to {ends[2]})"
