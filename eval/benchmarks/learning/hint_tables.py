"""Tables of the regime `hinted`: whether its hints help, and whether variants pay."""

from collections.abc import Sequence
from concurrent.futures import Executor
from itertools import product, repeat

import numpy as np

from .arms import SAMPLERS
from .chains import DIGITS
from .curves import Record, area, by_arm, paired, score_at, table
from .hints import accepted, all_but_one, by_steps, pass_rates

KIND_FIGURES = ("live", "drawn", "pass_rate")
CLAIMS = {
    "variants as rows pay": ("variants as rows", "none"),
    "pairs pay": ("pairs", "none"),
    "variants of hopeless rows alone pay": ("variants of the hopeless", "none"),
    "pairs beat rows": ("pairs", "variants as rows"),
    "global advantages pay": ("pairs, local+global", "pairs"),
    "the rest of DIVA pays": ("pairs, diva", "pairs, local+global"),
    "the match by posterior pays": ("pairs", "pairs, random"),
    "rows: kinds by steps left pay": ("variants as rows, kinds by steps left", "variants as rows"),
    "pairs: kinds by steps left pay": ("pairs, kinds by steps left", "pairs"),
}
"""Each claim is that the first way to use variants is ahead of the second, with the same sampler."""


def acceptance(regime: str, seeds: Sequence[int], pool: Executor) -> str:
    """Return the pass rate of hopeless originals by the steps that a hint gives, mean (rise by the last step)."""
    rows = []
    for seed, (rates, variants) in zip(seeds, pool.map(pass_rates, seeds, repeat(regime)), strict=True):
        means = by_steps(rates, variants)
        cells = [f"{rate:.3f}" + (f" ({rise:+.3f})" if steps else "") for steps, (_, rate, rise) in enumerate(means)]
        hopeless = means[0, 0] / (variants.kind == 0).sum()
        verdict = "yes" if accepted(rates, variants) else "no"
        rows.append([seed, f"{hopeless:.2f}", *cells, f"{all_but_one(rates, variants):.3f}", verdict])
    return table(["seed", "hopeless", *(f"{steps} steps" for steps in range(DIGITS)), "all but one", "accepted"], rows)


def payoff(chosen: list[Record], here: list[Record]) -> str:
    """Return scores without hints; differences to 64 x 4 without variants are paired by seed."""
    arms, rows = by_arm(chosen, chosen[0]["regime"]), []
    figures = {"half-way": halfway, "final": final, "area": area, "zero rows, end": zero_after}
    for arm in arms:
        runs, control = arms[arm], arms.get(arm.split(" + ")[0] + " + none", [])
        cells = [f"{np.mean([figure(run) for run in runs]):.3f}" for figure in figures.values()]
        for figure in figures.values() if control and runs is not control else ():
            mean, error = paired(runs, control, figure)
            cells.append(f"{mean:+.3f} ± {error:.3f}")
        cells += ["-"] * (2 * len(figures) - len(cells))
        rates = [f"{rate:g}" for rate in sorted({run["learning_rate"] for run in runs})]
        trained = np.mean([run["trained_completions"][-1] for run in runs])
        rows.append([arm, ", ".join(rates), len(runs), *cells, f"{trained:,.0f}"])
    head = ["arm", "lr", "seeds", *figures, *(f"{name} - none" for name in figures), "trained completions"]
    return table(head, rows)


def over_regimes(records: list[Record]) -> list[str]:
    """Return `payoff` and the differences behind `CLAIMS` over all regimes, paired by regime and seed."""
    joined = [{**record, "regime": "all", "seed": (record["regime"], record["seed"])} for record in records]
    arms, rows = by_arm(joined, "all"), []
    for sampler, (claim, ways) in product(SAMPLERS, CLAIMS.items()):
        ours, theirs = (arms.get(f"{sampler} + {way}", []) for way in ways)
        if ours and theirs:
            cells = ["{:+.3f} ± {:.3f}".format(*paired(ours, theirs, figure)) for figure in (final, area, zero_after)]
            rows.append([sampler, claim, len(ours), *cells])
    head = ["sampler", "claim", "pairs", "final", "area", "zero rows, end"]
    title = f"## Variants, over {' and '.join(dict.fromkeys(record['regime'] for record in records))}"
    return [f"{title}\n\n{payoff(joined, joined)}", f"{title}: which part pays?\n\n{table(head, rows)}"]


def liveness(chosen: list[Record], here: list[Record]) -> str:
    """Return shares of live groups, of groups drawn and of right answers: originals, and hints by their steps."""
    arms, rows = by_arm(chosen, chosen[0]["regime"]), []
    for arm in arms:
        runs = arms[arm]
        cells = [f"{np.mean([run[name] for run in runs]):.3f}" for name in ("live_all", "live_problems")]
        for kind in range(DIGITS):
            found = [run for run in runs if str(kind) in run["live"]]
            means = [np.mean([run[name][str(kind)] for run in found]) for name in KIND_FIGURES] if found else []
            cells.append(" / ".join(f"{mean:.2f}" for mean in means) or "-")
        rows.append([arm, *cells])
    head = ["arm", "live groups", "live problems", "originals: live / drawn / right"]
    return table([*head, *(f"hint-{steps}" for steps in range(1, DIGITS))], rows)


def halfway(record: Record) -> float:
    return score_at(record, 0.5)


def final(record: Record) -> float:
    return score_at(record, 1.0)


def zero_after(record: Record) -> float:
    return float(record["zero_after"])
