"""The rounds of a generation batch and their metrics; with dynamic sampling each refill is a round of its own."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trl_vade.samplers.base import PosteriorSampler
from trl_vade.samplers.problems import VariantRows

from .advantages import posterior_difficulty
from .outcomes import SAME_REWARD, GroupOutcomes

MOST_STRATA = 100  # with metrics; those of thousands would make each trainer_state.json hundreds of megabytes long


@dataclass(frozen=True)
class InFlight:
    """The K rows of a round between their choice and their scores."""

    sample_index: NDArray[np.int64]  # (K,)
    posterior_mean: NDArray[np.float64]  # (K,) expected pass rate or spread, before the rollouts
    predicted_gradient: NDArray[np.float64]  # (K,) probability of a gradient, before the rollouts
    posterior_step: int  # the step of the posterior at the choice
    initialising: bool = False  # Algorithm 1, lines 1-4: all initial rounds are observed as one step
    refill: int = 0  # the number of the refill, from 1; 0 is the batch itself


Rounds = Sequence[tuple[InFlight, GroupOutcomes]]  # of one generation batch


def batch_metrics(rounds: Rounds) -> dict[str, float]:
    """Return the metrics of all groups generated for a batch, kept or not: predicted and measured."""
    mean = np.concatenate([in_flight.posterior_mean for in_flight, _ in rounds])
    predicted = np.concatenate([in_flight.predicted_gradient for in_flight, _ in rounds])
    pass_rate, has_gradient = _outcomes(rounds)
    scored = ~np.isnan(pass_rate)
    return {
        "effective_gradient_ratio": float(has_gradient.mean()),
        "predicted_effective_ratio": float(predicted.mean()),
        "brier": float(np.mean((mean - pass_rate)[scored] ** 2)) if scored.any() else math.nan,
        "selected_pass_rate": float(pass_rate[scored].mean()) if scored.any() else math.nan,
        "refills": float(len(rounds) - 1),
    }


class StratumMetrics:
    """The metrics of a batch for each stratum, named `<metric>/<label>`, from the labels of the rows, (N,)."""

    def __init__(self, labels: ArrayLike):
        values, self._stratum = np.unique(np.asarray(labels), return_inverse=True)
        self.names = [str(value) for value in values.tolist()]

    def of(self, rounds: Rounds, sampler: PosteriorSampler) -> dict[str, float]:
        """Return the known figures of each stratum among all groups generated for a batch, up to `MOST_STRATA`."""
        if len(self.names) > MOST_STRATA:
            return {}
        of_group = self._stratum[np.concatenate([outcomes.sample_index for _, outcomes in rounds])]
        pass_rate, has_gradient = _outcomes(rounds)
        scored = ~np.isnan(pass_rate)
        metrics = {
            "selected_share": self._sum(of_group) / of_group.size,
            "mean_pass_rate": sampler.mean_pass_rates(self._stratum),
        }
        with np.errstate(invalid="ignore"):  # 0 / 0 is NaN: unknown
            metrics["effective_gradient_ratio"] = self._sum(of_group, has_gradient) / self._sum(of_group)
            sums, counts = self._sum(of_group[scored], pass_rate[scored]), self._sum(of_group[scored])
            metrics["selected_pass_rate"] = sums / counts
        return {
            f"{figure}/{name}": value
            for figure, values in metrics.items()
            for name, value in zip(self.names, values.tolist(), strict=True)
            if not math.isnan(value)
        }

    def _sum(self, stratum: NDArray[np.int64], values: NDArray[Any] | None = None) -> NDArray[np.float64]:
        """Return the sum of `values` over each stratum, or its number of entries, (S,)."""
        return np.bincount(stratum, weights=values, minlength=len(self.names)).astype(np.float64)


class VariantMetrics(StratumMetrics):
    """The metrics of each kind of variants as those of a stratum, and of originals and problems.

    `groups` is the number of variants beside each original in a generation batch.
    """

    def __init__(self, variants: VariantRows, groups: int):
        super().__init__(np.array(variants.kinds)[variants.kind])
        self._variants, self._together = variants, 1 + groups

    def of(self, rounds: Rounds, sampler: PosteriorSampler) -> dict[str, float]:
        """Return the metrics; `dead_problems` is the share of problems whose completions all have one reward."""
        rows = np.concatenate([outcomes.sample_index for _, outcomes in rounds])
        totals = np.concatenate([outcomes.total for _, outcomes in rounds if outcomes.total is not None])
        level = posterior_difficulty(np.concatenate([in_flight.posterior_mean for in_flight, _ in rounds]))
        original = self._variants.kind[rows] == 0
        scored = ~np.isnan(totals)
        metrics = super().of(rounds, sampler)
        if original.any():
            metrics["mean_difficulty"] = float(level[original].mean())
        if scored[original].any():
            # It compares with the `reward` of a run without variants.
            metrics["original_reward"] = float(totals[original][scored[original]].mean())
        problems = totals.reshape(-1, self._together * totals.shape[1])
        known = problems[~np.isnan(problems).all(axis=1)]
        if self._together > 1 and len(known):
            same = np.nanmax(known, axis=1) - np.nanmin(known, axis=1) <= SAME_REWARD
            metrics["dead_problems"] = float(same.mean())
        return metrics


def _outcomes(rounds: Rounds) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the pass rates (NaN without a scored completion) and the gradient mask of all groups of the rounds."""
    pass_rate = np.concatenate([outcomes.pass_rate for _, outcomes in rounds])
    return pass_rate, np.concatenate([outcomes.has_gradient for _, outcomes in rounds])


def log_metrics(metrics: dict[str, float], to: dict[str, list[float]]) -> None:
    """Add the metrics of `OnTimeSelection.record` to those of the trainer, under `vade/`.

    TRL averages each list over the logging window. Every batch has the same place in all lists, and its refill
    replaces its values. A batch without a value is padded with NaN, which TRL 1.16 leaves out. A list of NaN alone is
    not started: TRL would log it as None.
    """
    if not metrics:
        return
    place = max(len(to.get("vade/refills", [])) - bool(metrics["refills"]), 0)
    for name, value in metrics.items():
        before = to.get(f"vade/{name}", [])[:place]
        to[f"vade/{name}"] = [*before, *[math.nan] * (place - len(before)), value]
    to["vade/rollouts"] = [metrics["rollouts"]]  # a running total
