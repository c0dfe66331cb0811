"""The metrics of a run whose rows have variants: of each kind, of the originals, and of whole problems."""

from collections.abc import Sequence

import numpy as np

from trl_vade.samplers.base import PosteriorSampler
from trl_vade.samplers.problems import VariantRows

from .advantages import posterior_difficulty
from .batch_metrics import InFlight, StratumMetrics
from .outcomes import SAME_REWARD, GroupOutcomes


class VariantMetrics(StratumMetrics):
    """The metrics of each kind, as those of a stratum, and of originals and problems.

    Args:
        variants: the N rows.
        groups: the variants beside each original in a generation batch; 0 if rows are chosen by themselves.
    """

    def __init__(self, variants: VariantRows, groups: int):
        super().__init__(np.array(variants.kinds)[variants.kind])
        self._variants, self._together = variants, 1 + groups

    def of(self, rounds: Sequence[tuple[InFlight, GroupOutcomes]], sampler: PosteriorSampler) -> dict[str, float]:
        """Return the metrics of all groups generated for a batch.

        `original_reward` is the mean reward of the originals: it compares with the `reward` of a run without variants.
        `dead_problems` is the share of problems whose completions all have one reward.
        """
        rows = np.concatenate([outcomes.sample_index for _, outcomes in rounds])
        totals = np.concatenate([outcomes.total for _, outcomes in rounds if outcomes.total is not None])
        level = posterior_difficulty(np.concatenate([in_flight.posterior_mean for in_flight, _ in rounds]))
        original = self._variants.kind[rows] == 0
        scored = ~np.isnan(totals)
        metrics = super().of(rounds, sampler)
        if original.any():
            metrics["mean_difficulty"] = float(level[original].mean())
        if scored[original].any():
            metrics["original_reward"] = float(totals[original][scored[original]].mean())
        problems = totals.reshape(-1, self._together * totals.shape[1])
        known = problems[~np.isnan(problems).all(axis=1)]
        if self._together > 1 and len(known):
            same = np.nanmax(known, axis=1) - np.nanmin(known, axis=1) <= SAME_REWARD
            metrics["dead_problems"] = float(same.mean())
        return metrics
