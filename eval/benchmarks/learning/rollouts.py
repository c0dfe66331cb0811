"""What a policy has sampled: completions in groups of one prompt each, their rewards and their advantages."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True)
class Rollouts:
    """Completions of K prompts and their rewards."""

    sample_index: NDArray[np.int64]  # (K,) rows in [0, N)
    completion_ids: torch.Tensor  # (K, G, T) token ids, padded on the right
    completion_mask: torch.Tensor  # (K, G, T) bool, True at tokens, the end-of-turn token included
    token_logps: torch.Tensor  # (K, G, T) float32, log-probability with which each was sampled; 0 past the end
    rewards: torch.Tensor  # (K, G) float32, 0 or 1, or shares of 1
    written_logps: torch.Tensor  # (K, G, T) float32, of the policy that wrote them, as the loss has them; NaN: not yet

    @property
    def has_spread(self) -> NDArray[np.bool_]:
        """(K,) True where the rewards of a group differ: only there has GRPO a gradient."""
        return (self.rewards.amax(1) != self.rewards.amin(1)).numpy()

    @property
    def successes(self) -> NDArray[np.float64]:
        """(K,) right answers of each group, 0 to G."""
        return self.rewards.sum(1).double().numpy()

    @property
    def trials(self) -> NDArray[np.float64]:
        """(K,) completions of each group."""
        return np.full(len(self.rewards), self.rewards.shape[1], dtype=np.float64)

    def take(self, groups: ArrayLike) -> "Rollouts":
        """Return the groups at these places, in this order."""
        at = torch.as_tensor(np.asarray(groups, dtype=np.int64))
        return Rollouts(self.sample_index[at.numpy()], *(getattr(self, name)[at] for name in TENSORS))

    @staticmethod
    def concatenate(parts: Sequence["Rollouts"]) -> "Rollouts":
        """Return the groups of all parts, in order."""
        return Rollouts(
            np.concatenate([part.sample_index for part in parts]),
            *(torch.cat([getattr(part, name) for part in parts]) for name in TENSORS),
        )


TENSORS = tuple(each.name for each in fields(Rollouts))[1:]


def group_advantages(rewards: torch.Tensor) -> torch.Tensor:
    """Return TRL's advantages (K, G) with `scale_rewards="group"`: centred, over the standard deviation (G - 1)."""
    centred = rewards - rewards.mean(1, keepdim=True)
    deviation = (centred.square().sum(1, keepdim=True) / (rewards.shape[1] - 1)).sqrt()
    return centred / (deviation + 1e-4)
