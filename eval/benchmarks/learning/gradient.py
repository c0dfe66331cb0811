"""The gradient of GRPO's loss on trees of completions, as TRL's `dapo` has it."""

from dataclasses import replace
from typing import Any

import torch

from .rollouts import Rollouts, group_advantages

EPSILON = 0.2  # TRL's `epsilon`, to both sides


def add_gradient(policy: Any, rollouts: Rollouts) -> tuple[dict[str, float], Rollouts]:
    """Add the gradient of the loss of a `FastPolicy` to its parameters.

        loss = 1/M sum over completions i and their tokens t of - min(A_i r_it, A_i clip(r_it, 0.8, 1.2)), M tokens

    r_it is the token's probability over that with which it was written, 1 for completions of this policy. A clipped
    token has no gradient. Groups without a spread have A_i = 0: they count in M, and are skipped otherwise. As in
    TRL, the log-probabilities are over the whole vocabulary, suppressed tokens included.

    Returns:
        `loss`, and `clipped`, the share of the older tokens with an advantage that are clipped. The rollouts, where
        those of this policy have got the log-probabilities that they were written with.
    """
    mask, groups = rollouts.completion_mask, torch.from_numpy(rollouts.has_spread)
    advantages = group_advantages(rollouts.rewards) * groups[:, None]  # (K, G)
    num_tokens = mask.sum().clamp(min=1)
    if not groups.any():
        return {"loss": 0.0, "clipped": 0.0}, rollouts
    part, written = rollouts.take(groups.nonzero()[:, 0]), rollouts.written_logps.clone()
    tree = policy.tree_of(part, rollouts.completion_ids)
    logps = policy.edge_logps(part, tree).gather(1, tree.edge_token[:, None])[:, 0]
    # One edge serves all completions that pass through it: its weight is the sum of theirs.
    present, weights = tree.edge_of >= 0, (advantages[..., None] * mask)[groups]
    now, before = torch.where(present, logps.detach()[tree.edge_of], 0.0), part.written_logps
    ratio = (now - torch.where(before.isnan(), now, before)).exp()  # (groups, G, T)
    clipped = torch.where(weights > 0, ratio > 1 + EPSILON, (weights < 0) & (ratio < 1 - EPSILON))
    gains = torch.minimum(weights * ratio, weights * ratio.clamp(1 - EPSILON, 1 + EPSILON))
    weights = torch.where(clipped, 0.0, weights * ratio)
    total = torch.zeros(len(tree.edge_token)).index_add_(0, tree.edge_of[present], weights[present])
    (-(total * logps).sum() / num_tokens).backward()
    written[groups] = torch.where(before.isnan(), now, before)
    older = present & ~before.isnan()
    figures = {
        "loss": -float(gains[present].sum() / num_tokens),
        "clipped": float(clipped[older].sum() / older.sum().clamp(min=1)),
    }
    return figures, replace(rollouts, written_logps=written)
