"""Variants of the chains of the regime `hinted`: rows, whether their hints help, and the figures of runs with them."""

from typing import Any

import datasets
import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModelForImageTextToText, AutoProcessor

from trl_vade.data.variants import read_variants
from trl_vade.samplers.problems import ORIGINAL, VariantRows
from trl_vade.selection.advantages import problem_advantages

from .chains import DIGITS, Chain
from .fast_policy import FastPolicy
from .pools import load_regime
from .regimes import REGIMES
from .rollouts import Rollouts

HOPELESS = 0.02  # pass rates below it
HELPED = 0.5  # the pass rate that hints must lift hopeless rows to


def with_hints(rows: datasets.Dataset) -> datasets.Dataset:
    """Return the chains, and after them a row for each hint: the first 1, 2, ... sums, the last one left out."""
    originals = [row | {"of": row["id"], "kind": ORIGINAL} for row in rows]
    hints = [
        row
        | {"id": f"{row['id']}/hint-{steps}", "kind": f"hint-{steps}"}
        | {"prompt": _prompt(row["id"].rsplit("-", 1)[1], row["level"], steps)}
        for row in originals
        for steps in range(1, row["level"])
    ]
    return datasets.Dataset.from_list(originals + hints)


def _prompt(digits: str, level: int, steps: int) -> list[dict[str, str]]:
    return [{"role": "user", "content": Chain(digits, level, steps).question}]


def variants_of(rows: datasets.Dataset) -> VariantRows:
    """Return the original of each row of `with_hints`, and its kind: the number of steps that its hint gives."""
    of, labels = read_variants(rows, "of")
    kinds = (ORIGINAL, *(f"hint-{steps}" for steps in range(1, DIGITS)))
    return VariantRows(of, np.array([kinds.index(label) for label in labels]), kinds)


def pass_rates(seed: int, regime: str = "hinted") -> tuple[NDArray[np.float64], VariantRows]:
    """Return the base policy's pass rates of the pool with hints, (N,), and the variants among its rows."""
    torch.set_num_threads(1)
    directory, pool, _ = load_regime(regime, seed, progress=False)
    rows = with_hints(pool)
    settings = REGIMES[regime]
    policy = FastPolicy(
        AutoModelForImageTextToText.from_pretrained(directory),
        AutoProcessor.from_pretrained(directory),
        rows,
        temperature=settings.temperature,
        max_completion_length=settings.max_completion_length,
    )
    return policy.pass_rates(), variants_of(rows)


def by_steps(rates: NDArray[np.float64], variants: VariantRows) -> NDArray[np.float64]:
    """Return (rows, rate, rise) of hints of 0, 1, ... steps to hopeless originals, (DIGITS, 3).

    `rows` is the number of hopeless originals that have such a hint, and `rate` their mean pass rate with it.
    `rise` is the difference to the same originals with one step less.
    """
    table = np.full((rates.size, DIGITS), np.nan)
    table[variants.of, variants.kind] = rates
    table = table[table[:, 0] < HOPELESS]
    rise = np.diff(table, axis=1, prepend=0.0)
    return np.stack([(~np.isnan(table)).sum(0), np.nanmean(table, 0), np.nanmean(rise, 0)], axis=1)


def all_but_one(rates: NDArray[np.float64], variants: VariantRows) -> float:
    """Return the mean pass rate of hopeless originals with the hint that leaves one step."""
    most = np.zeros(rates.size, dtype=np.int64)
    np.maximum.at(most, variants.of, variants.kind)
    return float(rates[(rates[variants.of] < HOPELESS) & (variants.kind == most[variants.of])].mean())


def accepted(rates: NDArray[np.float64], variants: VariantRows) -> bool:
    """Say whether hopeless originals gain by each further step that a hint gives, and pass `HELPED` in the end."""
    return bool((by_steps(rates, variants)[1:, 2] > 0).all() and all_but_one(rates, variants) > HELPED)


def pair_advantages(
    kind: str, batch: Rollouts, posterior_mean: NDArray[np.float64], *, variant_groups: int
) -> torch.Tensor:
    """Return the advantages (K, G) of problems of 1 + `variant_groups` neighbouring groups, as the trainer's."""
    rewards = batch.rewards.double().numpy()
    problems = (-1, 1 + variant_groups)
    values = problem_advantages(kind, rewards.reshape(*problems, rewards.shape[1]), posterior_mean.reshape(problems))
    return torch.from_numpy(values.reshape(rewards.shape)).float()


def figures(
    history: dict[str, dict[str, list[Any]]], kinds: NDArray[np.int64], num_generations: int, together: int
) -> dict[str, Any]:
    """What is kept of a run with hints.

    Args:
        history: of `fast_grpo.train`.
        kinds: (N,) the steps that each row's hint gives, 0 for originals.
        num_generations: G.
        together: neighbouring groups of a problem.

    Returns:
        `live`, `drawn`, `pass_rate`: of the groups of each kind, the share with a gradient of their own, their share
            of all groups, and the mean success.
        `live_all`, `live_problems`: the share of groups that are live by themselves, and of problems that are live
            among all their rollouts.
        `zero_rows`, `zero_after`, `others_after`: the number of originals that began below `HOPELESS`, their mean pass
            rate at the end, and that of the others.
    """
    steps, at = history["steps"], history["evaluations"]
    kind = kinds[np.concatenate(steps["sample_index"])]
    successes = np.concatenate(steps["successes"])
    alive = np.concatenate(steps["has_spread"])
    sums = successes.reshape(-1, together).sum(1)
    before, after = np.array(at["pool_pass_rates"][0]), np.array(at["pool_pass_rates"][-1])
    zero = before < HOPELESS
    present = np.unique(kind).tolist()

    def by_kind(values: NDArray[Any]) -> dict[str, float]:
        return {str(one): round(float(values[kind == one].mean()), 4) for one in present}

    return {
        "rollouts": at["rollouts"],
        "score": [round(value, 4) for value in at["score"]],
        "greedy": [round(value, 4) for value in at["greedy"]],
        "trained_completions": [int(sum(steps["trained_completions"][:step])) for step in at["step"]],
        "live": by_kind(alive),
        "drawn": {str(one): round(float(np.mean(kind == one)), 4) for one in present},
        "pass_rate": by_kind(successes / num_generations),
        "live_all": round(float(alive.mean()), 4),
        "live_problems": round(float(np.mean((sums > 0) & (sums < together * num_generations))), 4),
        "zero_rows": int(zero.sum()),
        "zero_after": _mean(after[zero]),
        "others_after": _mean(after[~zero]),
    }


def _mean(values: NDArray[np.float64]) -> float | None:
    return round(float(values.mean()), 4) if values.size else None
