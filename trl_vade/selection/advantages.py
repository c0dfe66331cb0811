"""Advantages over the variants of a problem, by DIVA-GRPO (arXiv 2603.01106, sections 3.3 and 3.4).

A problem is asked as V variants with k completions each. Its local advantages compare the completions of a variant,
its global ones all completions of the problem. The functions know no trainer.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trl_vade.errors import ConfigurationError, ObservationError, abbreviated

EPSILON = 1e-6


def standardised(values: NDArray[np.float64], axes: int | tuple[int, ...] | None) -> NDArray[np.float64]:
    """Return the values minus their mean, over their sample standard deviation along `axes`; 0 if they are equal."""
    count = values.size if axes is None else np.prod([values.shape[axis] for axis in np.atleast_1d(axes)])
    centred = values - values.mean(axis=axes, keepdims=True)
    return centred / (np.sqrt((centred**2).sum(axis=axes, keepdims=True) / max(count - 1, 1)) + EPSILON)


def local_advantages(rewards: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the advantages (Q, V, k) of rewards (Q, V, k) among the completions of each variant."""
    return standardised(rewards, 2)


def global_advantages(rewards: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the advantages (Q, V, k) of rewards (Q, V, k) among all completions of each problem."""
    return standardised(rewards, (1, 2))


def diva_advantages(rewards: Any, difficulty: Any, weight: float = 0.1, max_reward: float = 1.0) -> Any:
    """Return DIVA's advantages: local plus difficulty-weighted global ones, both rescaled by the range of rewards.

    In order, as in the released code: both kinds are standardised over the batch. The global ones of a variant grow by
    exp(`weight` x (its difficulty - the mean of its problem)) where they are positive, and shrink by the same factor
    where they are negative. Each kind is multiplied by the range of its rewards over `max_reward`.

    Args:
        rewards: (Q, V, k) weighted sums of rewards, of Q problems, V variants and k completions; numpy or torch.
        difficulty: (Q, V) difficulties from 1 to 9.
        weight: the paper's k.
        max_reward: the largest possible reward, above 0.

    Returns:
        (Q, V, k) an array, or a tensor of the dtype and device of `rewards`.

    Raises:
        ConfigurationError: a reward lies above `max_reward`.
        ObservationError: the shapes do not match, or a value is not finite.
    """
    values, levels = (_array(each) for each in (rewards, difficulty))
    shaped = values.ndim == 3 and values.size and levels.shape == values.shape[:2]
    if not shaped or not (np.isfinite(values).all() and np.isfinite(levels).all()):
        raise ObservationError(
            f"The rewards have shape {values.shape} and the difficulties {levels.shape}. They must be finite numbers "
            "of the shapes (problems, variants, completions) and (problems, variants)."
        )
    if not 0 < max_reward < np.inf or values.max() > max_reward:
        raise ConfigurationError(
            f"A reward is {values.max():g}, and max_reward={abbreviated(max_reward)}. Advantages are scaled by "
            "the range of rewards. Set max_reward to the largest sum of weighted rewards."
        )
    local, everything = standardised(local_advantages(values), None), standardised(global_advantages(values), None)
    harder = (levels - levels.mean(axis=1, keepdims=True))[:, :, None]
    everything = everything * np.exp(weight * harder * np.sign(everything))
    scaled = np.ptp(values, axis=2, keepdims=True) * local + np.ptp(values, axis=(1, 2), keepdims=True) * everything
    return rewards.new_tensor(scaled / max_reward) if hasattr(rewards, "new_tensor") else scaled / max_reward


def posterior_difficulty(pass_rate: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the difficulty from 1 (always right) to 9 (never right) of pass rates: 1 + 8(1 - p)."""
    return 1.0 + 8.0 * (1.0 - pass_rate)


def visited_difficulty(difficulty: float, success: float, step: float = 4.0) -> float:
    """Return the difficulty after a visit, as in the paper (section 3.1): it moves by `step` x (0.5 - success).

    Args:
        difficulty: from 1 to 9; a new problem has 5.
        success: share of right answers among all variants, from 0 to 1.
        step: the paper's eta.
    """
    return float(np.clip(difficulty + step * (0.5 - success), 1.0, 9.0))


def _array(values: Any) -> NDArray[np.float64]:
    return np.asarray(values.detach().cpu() if hasattr(values, "detach") else values, dtype=np.float64)
