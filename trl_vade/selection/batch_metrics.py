"""The rounds of a generation batch and their metrics; with dynamic sampling each refill is a round of its own."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trl_vade.samplers.base import PosteriorSampler

from .outcomes import GroupOutcomes


@dataclass(frozen=True)
class InFlight:
    """The K rows of a round between their choice and their scores."""

    sample_index: NDArray[np.int64]  # (K,)
    posterior_mean: NDArray[np.float64]  # (K,) expected pass rate or spread, before the rollouts
    predicted_gradient: NDArray[np.float64]  # (K,) probability of a gradient, before the rollouts
    posterior_step: int  # the step of the posterior at the choice
    initialising: bool = False  # Algorithm 1, lines 1-4: all initial rounds are observed as one step
    refill: int = 0  # the number of the refill, from 1; 0 is the batch itself


def batch_metrics(rounds: Sequence[tuple[InFlight, GroupOutcomes]]) -> dict[str, float]:
    """Return the metrics of all groups generated for a batch, kept or not: predicted and measured."""
    mean = np.concatenate([in_flight.posterior_mean for in_flight, _ in rounds])
    predicted = np.concatenate([in_flight.predicted_gradient for in_flight, _ in rounds])
    pass_rate, has_gradient = _outcomes(rounds)
    scored = ~np.isnan(pass_rate)
    unknown = float("nan")
    return {
        "effective_gradient_ratio": float(has_gradient.mean()),
        "predicted_effective_ratio": float(predicted.mean()),
        "brier": float(np.mean((mean - pass_rate)[scored] ** 2)) if scored.any() else unknown,
        "selected_pass_rate": float(pass_rate[scored].mean()) if scored.any() else unknown,
        "refills": float(len(rounds) - 1),
    }


MOST_STRATA = 100
"""The largest number of strata with metrics. Every checkpoint writes trainer_state.json, and four metrics of 2,000
strata a step would make it hundreds of megabytes long."""


class StratumMetrics:
    """The metrics of a batch for each stratum, named `<metric>/<label>`, from the labels of the rows, (N,)."""

    def __init__(self, labels: ArrayLike):
        values, self._stratum = np.unique(np.asarray(labels), return_inverse=True)
        self.names = [str(value) for value in values.tolist()]

    def of(self, rounds: Sequence[tuple[InFlight, GroupOutcomes]], sampler: PosteriorSampler) -> dict[str, float]:
        """Return the share and the outcomes of each stratum among all groups generated for a batch.

        Unknown figures are left out: without a group, and pass rates without a scored one. With more than
        `MOST_STRATA` strata all are.
        """
        if len(self.names) > MOST_STRATA:
            return {}
        of_group = self._stratum[np.concatenate([outcomes.sample_index for _, outcomes in rounds])]
        pass_rate, has_gradient = _outcomes(rounds)
        scored = ~np.isnan(pass_rate)
        num_scored = self._sum(of_group[scored])
        metrics = {
            "selected_share": self._sum(of_group) / of_group.size,
            "mean_pass_rate": sampler.mean_pass_rates(self._stratum, len(self.names)),
        }
        with np.errstate(invalid="ignore"):  # 0 / 0 is NaN: unknown
            metrics["effective_gradient_ratio"] = self._sum(of_group, has_gradient) / self._sum(of_group)
            metrics["selected_pass_rate"] = self._sum(of_group[scored], pass_rate[scored]) / num_scored
        return {
            f"{figure}/{name}": value
            for figure, values in metrics.items()
            for name, value in zip(self.names, values.tolist(), strict=True)
            if not math.isnan(value)
        }

    def _sum(self, stratum: NDArray[np.int64], values: NDArray[Any] | None = None) -> NDArray[np.float64]:
        """Return the sum of `values` over each stratum, or its number of entries, (S,)."""
        return np.bincount(stratum, weights=values, minlength=len(self.names)).astype(np.float64)


def _outcomes(rounds: Sequence[tuple[InFlight, GroupOutcomes]]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the pass rates (NaN without a scored completion) and the gradient mask of all groups of the rounds."""
    pass_rate = np.concatenate([outcomes.pass_rate for _, outcomes in rounds])
    return pass_rate, np.concatenate([outcomes.has_gradient for _, outcomes in rounds])


def log_metrics(metrics: dict[str, float], to: dict[str, list[float]]) -> None:
    """Add the metrics of `OnTimeSelection.record` to those of the trainer, under `vade/`.

    TRL averages each list over the logging window. Of a running total only the last value is kept. Metrics of a refill
    cover its whole generation batch and replace the earlier ones.

    Every batch has the same place in all lists, so that a refill replaces the value of its own batch. A batch without
    a value (a stratum without a group) is padded with NaN, which TRL 1.16 leaves out of its mean. A list of NaN alone
    is not started, because TRL would log it as None.
    """
    if not metrics:
        return
    place = max(len(to.get("vade/refills", [])) - bool(metrics["refills"]), 0)
    for name, value in metrics.items():
        before = to.get(f"vade/{name}", [])[:place]
        to[f"vade/{name}"] = [*before, *[math.nan] * (place - len(before)), value]
    to["vade/rollouts"] = [metrics["rollouts"]]
