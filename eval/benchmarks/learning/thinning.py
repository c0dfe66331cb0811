"""What of a generation batch is trained on: all rollouts, or those with the most varied advantages, and which tokens.

D3S is arXiv 2509.22115, PODS arXiv 2504.13818. The sampler sees every rollout in any case.
"""

from dataclasses import dataclass
from typing import Any

import torch

from trl_vade.selection.rollouts import in_parts, most_varied, scheduled

from .rollouts import Rollouts, group_advantages

Share = float | tuple[float, float]
COUNTS = ("tokens", "trained_completions", "trained_tokens", "kept_completions", "live_completions")
COUNTS += ("advantage_variance", "kept_advantage_variance")


@dataclass(frozen=True)
class Thinning:
    """How a run trains on its rollouts.

    Attributes:
        scope: Where the most varied advantages are looked for: `all` keeps every rollout, `batch` is D3S's choice over
            the whole batch, `live` its choice within each group with a gradient, `group` within every group.
        rollouts: Share that is kept, a constant or the first and the last of a run.
        tokens: Share of the kept rollouts' tokens with a gradient: those with the largest |A| times entropy.
        renormalised: Advantages are computed anew among the rollouts that a group keeps, as in PODS.
        beta: Weight of the KL term to the base policy.
        kl_on: Rollouts with a KL term: `all`, or those with a `live` advantage.
    """

    scope: str = "all"
    rollouts: Share = 1.0
    tokens: Share = 1.0
    renormalised: bool = False
    beta: float = 0.0
    kl_on: str = "all"


@dataclass(frozen=True)
class Chosen:
    """What of one generation batch is trained on; K groups, G completions of each."""

    advantages: torch.Tensor  # (K, G), 0 where a completion is not kept
    kept: torch.Tensor  # (K, G) bool, completions whose tokens the loss is averaged over
    tokens: float  # share of their tokens with a gradient
    beta: float
    with_kl: torch.Tensor  # (K, G) bool


def choose(rollouts: Rollouts, thinning: Thinning | None = None, progress: float = 0.0) -> Chosen:
    """Choose what is trained on.

    Args:
        rollouts: The generation batch.
        thinning: None: everything, without a KL term.
        progress: Share of the steps that are done, in [0, 1].
    """
    thinning = thinning or Thinning()
    alive = torch.from_numpy(rollouts.has_spread)[:, None]
    advantages = group_advantages(rollouts.rewards) * alive
    live = advantages != 0
    share, kept = scheduled(thinning.rollouts, progress), torch.zeros_like(live)
    if thinning.scope == "all":
        kept[:] = True
    elif thinning.scope == "batch":
        n = min(in_parts(share * kept.numel(), 1), int(live.sum()))
        kept.view(-1)[most_varied(advantages.flatten(), n)] = True
    else:
        n = in_parts(share * kept.shape[1], 1)
        for row in range(len(kept)) if thinning.scope == "group" else alive[:, 0].nonzero()[:, 0].tolist():
            kept[row, most_varied(advantages[row], n)] = True
    if thinning.renormalised:
        for row in alive[:, 0].nonzero()[:, 0].tolist():
            advantages[row, kept[row]] = group_advantages(rollouts.rewards[row, kept[row]][None])[0]
    with_kl = torch.full_like(live, bool(thinning.beta)) & (live | (thinning.kl_on == "all"))
    return Chosen(advantages * kept, kept, scheduled(thinning.tokens, progress), thinning.beta, with_kl)


def most_informative(key: torch.Tensor, mask: torch.Tensor, share: float) -> torch.Tensor:
    """Return a bool mask of the tokens in `mask` with the largest keys, as TRL chooses tokens by their entropy.

    Args:
        key: |A| times entropy, any shape.
        mask: bool of the same shape, the tokens to choose among; at least one.
        share: (0, 1].
    """
    return mask & (key >= torch.quantile(key[mask], 1.0 - share))


def figures(rollouts: Rollouts, chosen: Chosen, trained_tokens: int) -> dict[str, Any]:
    """Return `COUNTS`, what was trained on; without a choice the rollouts with a gradient count as kept.

    Returns:
        `tokens`: of all rollouts.
        `trained_completions`, `trained_tokens`: with a gradient of the policy loss.
        `kept_completions`: kept, also those without a gradient.
        `live_completions`: with an advantage, kept or not.
        `advantage_variance`, `kept_advantage_variance`: over all and over the kept, 0 if there are none.
    """
    advantages = choose(rollouts).advantages
    useful = chosen.advantages != 0
    kept = useful if bool(chosen.kept.all()) else chosen.kept
    return {
        "tokens": int(rollouts.completion_mask.sum()),
        "trained_completions": int(useful.sum()),
        "trained_tokens": trained_tokens,
        "kept_completions": int(kept.sum()),
        "live_completions": int((advantages != 0).sum()),
        "advantage_variance": float(advantages.var(correction=0)),
        "kept_advantage_variance": float(chosen.advantages[kept].var(correction=0)) if kept.any() else 0.0,
    }
