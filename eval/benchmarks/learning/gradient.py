"""The gradient of GRPO's loss on trees of completions, as TRL's `dapo` has it, and the divergence of two policies."""

from typing import Any

import torch

from .packing import CompletionTree, grow_tree
from .rollouts import Rollouts
from .thinning import Chosen, most_informative


def add_gradient(
    policy: Any, rollouts: Rollouts, chosen: Chosen, reference: Any = None, *, skip_dead_groups: bool = True
) -> tuple[float, int]:
    """Add the gradient of the loss to the parameters; return the loss and the number of tokens that it teaches.

        loss = 1/M sum over completions i and their tokens t of beta * KL_it - A_i * ratio_it,   M tokens kept

    On-policy every ratio is 1 and its gradient is that of the token's log-probability. Groups without a spread have
    A_i = 0: they count in M, and are skipped otherwise. As in TRL, the log-probabilities are over the whole
    vocabulary, suppressed tokens included, and KL_it is the estimate exp(d) - d - 1 of the token, d the
    log-probability of `reference` less the policy's.

    Args:
        policy: A `FastPolicy`.
        rollouts: Its completions, K groups of G.
        chosen: What of them is trained on.
        reference: The policy of the KL term.
        skip_dead_groups: Leave groups out that have no gradient.
    """
    mask, advantages = rollouts.completion_mask, chosen.advantages
    num_tokens = mask[chosen.kept].sum().clamp(min=1)
    loss = -(advantages * mask.sum(2)).sum() / num_tokens
    weights = advantages[..., None] * mask  # (K, G, T)
    groups = ((advantages != 0) | chosen.with_kl).any(1) if skip_dead_groups else torch.ones(len(mask)).bool()
    if groups.any():
        part = rollouts.take(groups.nonzero()[:, 0])
        tree = grow_tree(part.completion_ids, part.completion_mask)
        every = policy.edge_logps(part, tree)  # (E, V)
        logps = every.gather(1, tree.edge_token[:, None])[:, 0]
        if chosen.tokens < 1:
            key = torch.zeros_like(weights)
            key[groups] = weights[groups].abs() * _entropy(every.detach())[tree.edge_of]
            weights = weights * most_informative(key, mask & chosen.kept[..., None], chosen.tokens)
        # One edge serves all completions that pass through it: its weight is the sum of theirs.
        total = -(_sum_by_edge(tree, weights[groups]) * logps).sum()
        if chosen.with_kl.any():
            with torch.no_grad():
                base = reference.edge_logps(part, tree).gather(1, tree.edge_token[:, None])[:, 0]
            passing = _sum_by_edge(tree, chosen.with_kl[groups][..., None] * part.completion_mask.float())
            apart = base - logps
            kl = chosen.beta * (passing * (apart.exp() - apart - 1)).sum()
            total, loss = total + kl, loss + kl.detach() / num_tokens
        (total / num_tokens).backward()
    return float(loss), int((weights != 0).sum())


@torch.no_grad()
def divergence(policy: Any, reference: Any, rollouts: Rollouts) -> float:
    """Return the mean over the completions' tokens of the exact KL divergence of the policy from `reference`."""
    tree = grow_tree(rollouts.completion_ids, rollouts.completion_mask)
    ours, theirs = (each.edge_logps(rollouts, tree) for each in (policy, reference))
    return float((ours.exp() * (ours - theirs)).sum(1)[tree.edge_of[rollouts.completion_mask]].mean())


def _sum_by_edge(tree: CompletionTree, weights: torch.Tensor) -> torch.Tensor:
    """Return (E,) the sums of the weights (K, G, T) of the tokens that one edge serves."""
    present = tree.edge_of >= 0
    return torch.zeros(len(tree.edge_token)).index_add_(0, tree.edge_of[present], weights[present])


def _entropy(logps: torch.Tensor) -> torch.Tensor:
    return -(logps.exp() * logps).sum(-1)
