"""The gradient of GRPO's loss on trees of completions, as TRL's `dapo` has it."""

from typing import Any

import torch

from .packing import grow_tree
from .rollouts import Rollouts, group_advantages


def add_gradient(policy: Any, rollouts: Rollouts, *, skip_dead_groups: bool = True) -> float:
    """Add the gradient of the loss of a `FastPolicy` to its parameters; return the loss.

        loss = 1/M sum over completions i and their tokens t of - A_i * ratio_it,   M tokens

    On-policy every ratio is 1 and its gradient is that of the token's log-probability. Groups without a spread have
    A_i = 0: they count in M, and are skipped otherwise. As in TRL, the log-probabilities are over the whole
    vocabulary, suppressed tokens included.
    """
    mask, spread = rollouts.completion_mask, torch.from_numpy(rollouts.has_spread)
    advantages = group_advantages(rollouts.rewards) * spread[:, None]  # (K, G)
    num_tokens = mask.sum().clamp(min=1)
    loss = -(advantages * mask.sum(2)).sum() / num_tokens
    groups = spread if skip_dead_groups else torch.ones_like(spread)
    if groups.any():
        part = rollouts.take(groups.nonzero()[:, 0])
        tree = grow_tree(part.completion_ids, part.completion_mask)
        logps = policy.edge_logps(part, tree).gather(1, tree.edge_token[:, None])[:, 0]
        # One edge serves all completions that pass through it: its weight is the sum of theirs.
        present, weights = tree.edge_of >= 0, (advantages[..., None] * mask)[groups]
        total = torch.zeros(len(tree.edge_token)).index_add_(0, tree.edge_of[present], weights[present])
        (-(total * logps).sum() / num_tokens).backward()
    return float(loss)
