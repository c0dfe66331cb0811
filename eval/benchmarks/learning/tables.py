"""The benchmark's tables, in Markdown."""

import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from .arms import ORACLE, Arm
from .curves import Record, area, by_arm, differences, interval, share_interval, table
from .protocol import IN_TRAINER, PLANS, ROLES, frozen_arms

TITLES = {
    "wide": ("Wide", "8,192 rows, most met once or never"),
    "staged": ("Staged", "long sums build on short ones"),
    "nameless": ("Nameless", "staged, and no prompt tells its length"),
    "two_skills": ("Two skills", "answers of 7 to 60 tokens"),
    "many_impossible": ("Impossible", "45 % of the labels are wrong"),
    "graded": ("Graded", "staged, with a reward for each step"),
    "paper_like": ("Paper-like", "most rows mastered"),
    "hard_pictures": ("Hard pictures", "half of them out of reach"),
    "no_headroom": ("No headroom", "pictures of medium difficulty"),
}
VANILLA, BEST = "vanilla", "default, replay, more passes"
CHOICES = {  # what an arm gains by its choice alone: the other one reuses rollouts as it does
    "VADE - vanilla GRPO, both with more passes": ("default", VANILLA),
    "VADE - vanilla GRPO, both with replay": ("default, replay", "vanilla, replay"),
    "VADE - vanilla GRPO, both with replay and more passes": (BEST, "vanilla, replay, more passes"),
    "oracle - VADE, both with more passes": ("oracle", "default"),
    "oracle - VADE, both with replay and more passes": ("oracle, replay, more passes", BEST),
}
SHARES: dict[str, Callable[[Record], Record]] = {  # what is spent: a completion generated costs 1, one trained on r
    "rollouts": lambda record: record,
    "cost, r = 0.3": lambda record: with_cost(record, 0.3),
    "cost, r = 1": lambda record: with_cost(record, 1.0),
    "tokens": lambda record: record | {"cost": record["tokens"]},
}


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


def main_arms(records: list[Record]) -> str:
    """The areas of all arms but the oracles minus that of vanilla GRPO, one regime a line."""
    lines = []
    others = [role for role in ROLES if role != VANILLA and not role.startswith(ORACLE)]
    for regime, arms in compared(records):
        vanilla = arms[VANILLA]
        cells = [between(differences(arms[role], vanilla, area)) for role in others]
        lines.append([f"`{regime}`", len(vanilla), f"{np.mean([area(run) for run in vanilla]):.3f}", *cells])
    head = ["situation", "seeds", "vanilla, tuned: mean", *(f"{role}: difference (95 %)" for role in others)]
    return table(head, lines) if lines else ""


def choices(records: list[Record]) -> str:
    """What a choice gains where the other arm reuses its rollouts likewise, one regime a line, and their mean."""
    lines, gains = [], []
    for regime, arms in compared(records):
        gains.append([differences(arms[ours], arms[theirs], area) for ours, theirs in CHOICES.values()])
        lines.append([f"`{regime}`", *map(between, gains[-1])])
    means = []  # of each seed over the regimes; no arm reads words in "nameless" but ours, so it lacks an oracle
    for of in zip(*gains, strict=True):
        shortest = min(map(len, filter(None, of)), default=0)
        means.append(np.mean([values[:shortest] for values in of if values], axis=0).tolist() if shortest else [])
    lines.append(["mean", *map(between, means)])
    return table(["situation", *(f"{name}: difference (95 %)" for name in CHOICES)], lines) if gains else ""


def short(records: list[Record]) -> str:
    """What a reader looks for first: how much the score gains, and what the gain spares."""
    lines = []
    for regime, arms in compared(records):
        vanilla, gains = arms[VANILLA], [differences(arms[role], arms[VANILLA], area) for role in ("default", BEST)]
        cells = [f"{np.mean(of):+.3f} ± {np.mean(of) - interval(of)[1]:.3f}" if len(of) > 1 else "-" for of in gains]
        share = share_interval(arms[BEST], vanilla)[0]
        needs = "-" if np.isnan(share) else "never" if np.isinf(share) else f"{share:.0%}"
        lines.append([titled(regime), needs, *cells[::-1], f"{np.mean([area(run) for run in vanilla]):.3f}"])
    head = ["situation", "rollouts needed", "VADE with replay: gain", "VADE: gain", "vanilla GRPO: score"]
    return table(head, lines) if lines else ""


def costs(records: list[Record]) -> str:
    """What the default with replay spends until it has vanilla GRPO's final score."""
    lines = []
    for regime, arms in compared(records):
        cells = []
        for name, spent in SHARES.items():
            ours, theirs = ([spent(run) for run in arms[role]] for role in (BEST, VANILLA))
            cells.append(shown(*share_interval(ours, theirs, "rollouts" if name == "rollouts" else "cost")))
        lines.append([f"`{regime}`", *cells])
    return table(["situation", *(f"{name}: share (95 %)" for name in SHARES)], lines) if lines else ""


def with_cost(record: Record, r: float) -> Record:
    spent = zip(record["rollouts"], record["trained"], strict=True)
    return record | {"cost": [rollouts + r * trained for rollouts, trained in spent]}


def tuned(records: list[Record]) -> str:
    """Batch, passes and learning rate of each arm; the oracle has those of the default."""
    lines, roles = [], [role for role in ROLES if not role.startswith(ORACLE)]
    for regime, arms in frozen():
        found = [arms[role] for role in roles]
        lines.append([f"`{regime}`", *(f"{str(arm).partition(', ')[2]}: {rate:g}" for arm, rate in found)])
    return table(["situation", *(f"{role}: batch, more, rate" for role in roles)], lines) if lines else ""


def answers(records: list[Record]) -> str:
    """The policy at the end, with vanilla GRPO and with the default and replay, and how right the belief was."""
    lines, head = [], ["entropy of a token: nats", "KL to the base policy: nats a token", "answer: tokens"]
    for regime, arms in compared(records):
        both = [arms[VANILLA], arms[BEST]]
        if all(both):
            cells = [" / ".join(mean_of(runs, name) for runs in both) for name in ("entropy", "kl", "length")]
            changes = [[run["held_out"][1] - run["held_out"][0] for run in of if "held_out" in run] for of in both]
            brier = " / ".join(mean_of(both[1], name) for name in ("brier", "brier_of_the_mean"))
            lines.append([f"`{regime}`", *cells, " / ".join(map(between, changes)), brier])
    head = [f"{what}, vanilla / with replay" for what in [*head, "held-out skill: change (95 %)"]]
    return table(["situation", *head, "Brier score: belief / mean so far"], lines) if lines else ""


def mean_of(runs: list[Record], name: str) -> str:
    return f"{np.mean([run[name] for run in runs]):.3f}"


def look(records: list[Record]) -> str:
    """What varied replay, minus the default with replay and more passes, on the looking seeds."""
    found = {}
    for regime, arms in frozen():
        here = by_arm([record for record in records if record["stage"] == "look"], regime)
        if base := here.get(name := str(arms[BEST][0])):
            found[regime] = {varied(other, name): differences(runs, base, area) for other, runs in here.items()}
    names = [name for of in [*found.values()][:1] for name in of if name]
    lines = [[name, *(between(of[name]) for of in found.values())] for name in names]
    return table(["varied", *(f"`{regime}`: difference (95 %)" for regime in found)], lines) if lines else ""


def varied(arm: str, base: str) -> str:
    """Return in words what tells the name of an arm from that of another one."""
    parts = [part for part in arm.split(", ") if part not in base.split(", ")]
    return "half of the groups" if " x " in "".join(parts) else "".join(parts)


def agreement(records: list[Record]) -> str:
    """Same arm, rate and seeds in the trainer and in the fast loop; only the sampled completions differ."""
    lines = []
    for regime, arms in [each for each in compared(records) if each[0] in IN_TRAINER]:
        trainer = by_arm([record for record in records if record["stage"] == "trainer"], regime)
        for role, runs in arms.items():
            of = trainer.get(runs[0]["arm"], []) if runs else []
            gains = differences(of, runs, area)
            if len(gains) > 1:
                cells = [f"{np.mean([area(run) for run in of]):.3f}", between(gains)]
                lines.append(
                    [f"`{regime}`", role, len(gains), *cells, f"{np.mean([run['seconds'] for run in of]):.0f}"]
                )
    head = ["situation", "arm", "seeds", "area, trainer: mean", "trainer - fast loop (95 %)", "seconds: mean"]
    return table(head, lines) if lines else ""


TABLES: dict[str, tuple[str, Callable[[list[Record]], str]]] = {
    "short": ("What VADE gains over vanilla GRPO, all of them tuned", short),
    "main": ("Difference of the area to vanilla GRPO, tuned; paired by seed", main_arms),
    "choices": ("What the choice alone gains, both arms with the same reuse of rollouts", choices),
    "costs": ("Spent until vanilla GRPO's final score", costs),
    "tuned": ("What was tuned", tuned),
    "look": ("Looks: difference of the area to the default with replay and more passes", look),
    "answers": ("Do the answers collapse, and is the belief right?", answers),
    "trainer": ("Through VADEGRPOTrainer, beside the fast loop", agreement),
}
"""By the name that a page marks it with, the title and the maker of each table."""


def frozen() -> Iterable[tuple[str, dict[str, tuple[Arm, float]]]]:
    """Yield the regimes whose arms are frozen, with these."""
    for regime in PLANS:
        try:
            yield regime, frozen_arms(regime)
        except ValueError:
            continue


def compared(records: list[Record]) -> list[tuple[str, dict[str, list[Record]]]]:
    """Return the runs by regime and role, of those that have two runs of vanilla GRPO."""
    found = []
    for regime, arms in frozen():
        runs = by_arm([record for record in records if record["stage"] == "runs"], regime)
        of = {
            role: [run for run in runs.get(str(arm), []) if run["learning_rate"] == rate]
            for role, (arm, rate) in arms.items()
        }
        if len(of[VANILLA]) > 1:
            found.append((regime, of))
    return found


def titled(regime: str) -> str:
    return f"`{regime}`: {TITLES[regime][1]}"


def between(values: list[float]) -> str:
    """Return the mean and its 95 % interval, which takes two values at least."""
    if len(values) < 2:
        return "-"
    mean, low, high = interval(values)
    return f"{mean:+.3f} ({low:+.3f} to {high:+.3f})"


def shown(share: float, low: float, high: float) -> str:
    ends: list[Any] = ["never" if np.isinf(end) else f"{end:.2f}" for end in (share, low, high)]
    return "-" if np.isnan(share) else f"{ends[0]} ({ends[1]} to {ends[2]})"
