"""The rounds of a generation batch: the rows chosen for it and, with dynamic sampling, those of each refill."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trl_vade.samplers.base import PosteriorSampler
from trl_vade.samplers.information import mixed_group_probability, spread_group_probability

from .outcomes import GroupOutcomes


@dataclass(frozen=True)
class InFlight:
    """The K rows of a round between their choice and their scores."""

    sample_index: NDArray[np.int64]  # (K,)
    posterior_mean: NDArray[np.float64]  # (K,) expected pass rate, or spread, before the rollouts
    predicted_gradient: NDArray[np.float64]  # (K,) probability that the group has one, before the rollouts
    posterior_step: int  # rounds in the posterior when the rows were chosen
    initialising: bool = False  # Algorithm 1, lines 1-4: collected, and observed together as one step
    refill: int = 0  # which refill of its generation batch it is, from 1; 0 is the batch itself

    @classmethod
    def of(
        cls,
        sample_index: NDArray[np.int64],
        sampler: PosteriorSampler,
        num_generations: int,
        *,
        spread: bool = False,
        **more: Any,
    ) -> "InFlight":
        """The rows with what `sampler` believes of them now, pass rates or spreads; `more` are further fields."""
        a, b = sampler.belief(sample_index)
        predicted = (spread_group_probability if spread else mixed_group_probability)(a, b, num_generations)
        return cls(sample_index, a / (a + b), predicted, sampler.posterior.step, **more)


def batch_metrics(rounds: Sequence[tuple[InFlight, GroupOutcomes]]) -> dict[str, float]:
    """What was believed of all groups that were generated for a batch, kept or not, and what came of them."""
    mean = np.concatenate([in_flight.posterior_mean for in_flight, _ in rounds])
    predicted = np.concatenate([in_flight.predicted_gradient for in_flight, _ in rounds])
    pass_rate, has_gradient = _outcomes(rounds)
    scored = ~np.isnan(pass_rate)
    unknown = float("nan")
    return {
        "effective_gradient_ratio": float(has_gradient[scored].mean()) if scored.any() else unknown,
        "predicted_effective_ratio": float(predicted.mean()),
        "brier": float(np.mean((mean - pass_rate)[scored] ** 2)) if scored.any() else unknown,
        "selected_pass_rate": float(pass_rate[scored].mean()) if scored.any() else unknown,
        "refills": float(len(rounds) - 1),
    }


MOST_STRATA = 100
"""With more, nothing is logged of each: four figures of 2,000 sources a step would make trainer_state.json, which is
written with every checkpoint, hundreds of megabytes long."""


class StratumMetrics:
    """The figures of a batch for each stratum, named `<figure>/<label>`.

    Args:
        labels: (N,) of the rows: texts or whole numbers.
    """

    def __init__(self, labels: ArrayLike):
        values, self._stratum = np.unique(np.asarray(labels), return_inverse=True)
        self.names = [str(value) for value in values.tolist()]

    def of(self, rounds: Sequence[tuple[InFlight, GroupOutcomes]], sampler: PosteriorSampler) -> dict[str, float]:
        """Of all groups that were generated for a batch: which share of them each stratum has, and what came of them.

        What is not known, since no group of a stratum was scored, is left out; everything is with more strata than
        `MOST_STRATA`.

        Args:
            rounds: of the batch.
            sampler: what is now expected of the rows.
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
        with np.errstate(invalid="ignore"):  # 0 / 0 is what is not known
            metrics["effective_gradient_ratio"] = self._sum(of_group[scored], has_gradient[scored]) / num_scored
            metrics["selected_pass_rate"] = self._sum(of_group[scored], pass_rate[scored]) / num_scored
        return {
            f"{figure}/{name}": value
            for figure, values in metrics.items()
            for name, value in zip(self.names, values.tolist(), strict=True)
            if not math.isnan(value)
        }

    def _sum(self, stratum: NDArray[np.int64], values: NDArray[Any] | None = None) -> NDArray[np.float64]:
        """(S,) the sum of `values` over each stratum, or how often it is there."""
        return np.bincount(stratum, weights=values, minlength=len(self.names)).astype(np.float64)


def _outcomes(rounds: Sequence[tuple[InFlight, GroupOutcomes]]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Pass rates, NaN where no completion was scored, and whether there is a gradient, of all groups of the rounds."""
    pass_rate = np.concatenate([outcomes.pass_rate for _, outcomes in rounds])
    return pass_rate, np.concatenate([outcomes.has_gradient for _, outcomes in rounds])


def log_metrics(metrics: dict[str, float], to: dict[str, list[float]]) -> None:
    """Add what `OnTimeSelection.record` returned to the metrics of the trainer, under `vade/`.

    TRL averages over the logging window; of a running total the last value is the one that counts. Those of a refill
    are about its whole generation batch, and replace what was known of that before.

    A batch has one place in all lists, so that a refill can tell its batch's value from that of an earlier batch where
    some batches have none (a stratum without a group). Those count for nothing: TRL 1.16 leaves a NaN out of its mean,
    and a list with no other value is not begun, which it would log as None.
    """
    if not metrics:
        return
    place = max(len(to.get("vade/refills", [])) - bool(metrics["refills"]), 0)
    for name, value in metrics.items():
        before = to.get(f"vade/{name}", [])[:place]
        to[f"vade/{name}"] = [*before, *[math.nan] * (place - len(before)), value]
    to["vade/rollouts"] = [metrics["rollouts"]]
