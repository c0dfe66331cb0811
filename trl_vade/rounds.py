"""The rounds of a generation batch: the rows chosen for it and, with dynamic sampling, those of each refill."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .feedback import GroupOutcomes
from .information import mixed_group_probability
from .posterior_sampler import PosteriorSampler


@dataclass(frozen=True)
class InFlight:
    """The K rows of a round between their choice and their scores."""

    sample_index: NDArray[np.int64]  # (K,)
    posterior_mean: NDArray[np.float64]  # (K,) belief before the rollouts
    predicted_gradient: NDArray[np.float64]  # (K,) probability that the group has one, before the rollouts
    posterior_step: int  # rounds in the posterior when the rows were chosen
    initialising: bool = False  # Algorithm 1, lines 1-4: collected, and observed together as one step
    refill: int = 0  # which refill of its generation batch it is, from 1; 0 is the batch itself

    @classmethod
    def of(
        cls, sample_index: NDArray[np.int64], sampler: PosteriorSampler, num_generations: int, **more: Any
    ) -> "InFlight":
        """The rows with what `sampler` believes of them now; `more` are further fields."""
        a, b = sampler.belief(sample_index)
        predicted = mixed_group_probability(a, b, num_generations)
        return cls(sample_index, a / (a + b), predicted, sampler.posterior.step, **more)


def batch_metrics(rounds: Sequence[tuple[InFlight, GroupOutcomes]]) -> dict[str, float]:
    """What was believed of all groups that were generated for a batch, kept or not, and what came of them."""
    mean = np.concatenate([in_flight.posterior_mean for in_flight, _ in rounds])
    predicted = np.concatenate([in_flight.predicted_gradient for in_flight, _ in rounds])
    pass_rate = np.concatenate([outcomes.pass_rate for _, outcomes in rounds])
    has_gradient = np.concatenate([outcomes.has_gradient for _, outcomes in rounds])
    scored = ~np.isnan(pass_rate)
    unknown = float("nan")
    return {
        "effective_gradient_ratio": float(has_gradient[scored].mean()) if scored.any() else unknown,
        "predicted_effective_ratio": float(predicted.mean()),
        "brier": float(np.mean((mean - pass_rate)[scored] ** 2)) if scored.any() else unknown,
        "selected_pass_rate": float(pass_rate[scored].mean()) if scored.any() else unknown,
        "refills": float(len(rounds) - 1),
    }


def log_metrics(metrics: dict[str, float], to: dict[str, list[float]]) -> None:
    """Add what `OnTimeSelection.record` returned to the metrics of the trainer, under `vade/`.

    TRL averages over the logging window; of a running total the last value is the one that counts. Those of a refill
    are about its whole generation batch, and replace what was known of that before.
    """
    for name, value in metrics.items():
        last = 0 if name == "rollouts" else -1 if metrics["refills"] else None
        to[f"vade/{name}"] = [*to[f"vade/{name}"][:last], value]
