"""Advantages over the variants of a problem, by DIVA-GRPO (arXiv 2603.01106, sections 3.3 and 3.4).

Each of Q problems is asked as V variants with k completions each. Its local advantages compare the completions of a
variant, its global ones all completions of the problem.
"""

import numpy as np
from numpy.typing import NDArray

from trl_vade.errors import ConfigurationError

EPSILON = 1e-6
DIFFICULTY_WEIGHT = 0.1  # k of DIVA-GRPO, as in the released code
LIVE = 1e-5  # the smallest advantage; TRL's rewards are float32, and rounding errors of equal ones give no advantage


def problem_advantages(kind: str, rewards: NDArray[np.float64], pass_rate: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the advantages (Q, V, k) of problems.

    Args:
        kind: "local", "global", their sum "local+global", or "diva", see `diva_advantages`.
        rewards: (Q, V, k) weighted sums of rewards. NaN, a completion without a score, gets the advantage 0 and leaves
            no trace in the others.
        pass_rate: (Q, V) expected pass rates before the rollouts, which give the difficulty.
    """
    scored = ~np.isnan(rewards)
    totals = np.where(scored, np.round(rewards, 6), np.nan)
    if kind == "diva":
        values = diva_advantages(totals, posterior_difficulty(pass_rate))
    else:
        values = np.zeros(rewards.shape)
        values += standardised(totals, 2) if "local" in kind else 0.0
        values += standardised(totals, (1, 2)) if "global" in kind else 0.0
    return np.where(scored & (np.abs(values) >= LIVE), values, 0.0)


def diva_advantages(rewards: NDArray[np.float64], difficulty: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return DIVA's advantages: local plus difficulty-weighted global ones, both rescaled by the range of rewards.

    In order, as in the released code: both kinds are standardised over the batch. Positive global ones of a variant
    grow by exp(`DIFFICULTY_WEIGHT` x (its difficulty - the mean of its problem)), negative ones shrink by it. Each
    kind is multiplied by the range of its rewards.

    `rewards`, (Q, V, k), are weighted sums; one above 1 is a `ConfigurationError`. `difficulty`, (Q, V), is 1 to 9.
    """
    if (rewards > 1.0).any():
        raise ConfigurationError(
            f"A weighted sum of rewards is {np.nanmax(rewards):g} with vade_advantage='diva', which scales advantages "
            "by the range of rewards up to 1. Set reward_weights so that no sum of weighted rewards is above 1."
        )
    local, whole = (standardised(standardised(rewards, axes), None) for axes in (2, (1, 2)))
    harder = difficulty - difficulty.mean(axis=1, keepdims=True)
    whole = whole * np.exp(DIFFICULTY_WEIGHT * harder[:, :, None] * np.sign(whole))
    low, high = (np.nan_to_num(rewards, nan=fill) for fill in (np.inf, -np.inf))
    ranges = [np.maximum(high.max(axes, keepdims=True) - low.min(axes, keepdims=True), 0.0) for axes in (2, (1, 2))]
    return ranges[0] * local + ranges[1] * whole


def posterior_difficulty(pass_rate: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the difficulty from 1 (always right) to 9 (never right) of pass rates: 1 + 8(1 - p)."""
    return 1.0 + 8.0 * (1.0 - pass_rate)


def standardised(values: NDArray[np.float64], axes: int | tuple[int, ...] | None) -> NDArray[np.float64]:
    """Return the values minus their mean, over their sample standard deviation along `axes`; NaN is not counted."""
    count = np.isfinite(values).sum(axis=axes, keepdims=True)
    centred = values - np.nansum(values, axis=axes, keepdims=True) / np.maximum(count, 1)
    squares = np.nansum(centred**2, axis=axes, keepdims=True)
    return centred / (np.sqrt(squares / np.maximum(count - 1, 1)) + EPSILON)
