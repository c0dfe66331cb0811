"""The rounds of a generation batch and their metrics; with dynamic sampling each refill is a round of its own."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trl_vade.samplers.base import PosteriorSampler
from trl_vade.samplers.problems import VariantRows

from .outcomes import SAME_REWARD, GroupOutcomes

STATES = ("rollouts", "coverage", "mean_pass_rate", "mean_spread", "even_draw_ratio", "outage")
"""Metrics of the run so far, and not of a generation batch."""
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
    clipped: float = 0.0  # share of the completions that were cut at the longest length


def joined(rounds: Sequence[tuple[InFlight, GroupOutcomes]]) -> tuple[InFlight, GroupOutcomes]:
    """Return the rounds of a generation batch as one, with the refill of the last."""
    chosen, scored = zip(*rounds, strict=True)

    def of_all(parts: Sequence[Any], name: str) -> NDArray[Any]:
        return np.concatenate([getattr(part, name) for part in parts])

    beliefs = {name: of_all(chosen, name) for name in ("sample_index", "posterior_mean", "predicted_gradient")}
    groups = {name: of_all(scored, name) for name in ("sample_index", "successes", "trials", "has_gradient")}
    total = None if scored[0].total is None else of_all(scored, "total")
    return replace(chosen[-1], **beliefs), GroupOutcomes(**groups, total=total)


def batch_metrics(in_flight: InFlight, outcomes: GroupOutcomes) -> dict[str, float]:
    """Return the metrics of all groups generated for a batch, kept or not: predicted and measured."""
    rate, scored = outcomes.pass_rate, outcomes.trials > 0
    return {
        "effective_gradient_ratio": float(outcomes.has_gradient.mean()),
        "predicted_effective_ratio": float(in_flight.predicted_gradient.mean()),
        "brier": float(np.mean((in_flight.posterior_mean - rate)[scored] ** 2)) if scored.any() else math.nan,
        "selected_pass_rate": float(rate[scored].mean()) if scored.any() else math.nan,
        "refills": float(in_flight.refill),
    }


class StratumMetrics:
    """The metrics of a batch for each stratum, named `<metric>/<label>`, from the labels of the rows, (N,)."""

    def __init__(self, labels: ArrayLike):
        values, self._stratum = np.unique(np.asarray(labels), return_inverse=True)
        self.names = [str(value) for value in values.tolist()]

    def of(self, in_flight: InFlight, outcomes: GroupOutcomes, sampler: PosteriorSampler) -> dict[str, float]:
        """Return the known figures of each stratum among all groups of a batch; none beyond `MOST_STRATA`."""
        if len(self.names) > MOST_STRATA:
            return {}
        stratum, rate, scored = self._stratum[outcomes.sample_index], outcomes.pass_rate, outcomes.trials > 0
        with np.errstate(invalid="ignore"):  # 0 / 0 is NaN: unknown
            metrics = {
                "selected_share": self._sum(stratum) / stratum.size,
                "mean_pass_rate": sampler.mean_pass_rates(self._stratum),
                "effective_gradient_ratio": self._sum(stratum, outcomes.has_gradient) / self._sum(stratum),
                "selected_pass_rate": self._sum(stratum[scored], rate[scored]) / self._sum(stratum[scored]),
            }
        named = {metric: zip(self.names, values.tolist(), strict=True) for metric, values in metrics.items()}
        return {f"{metric}/{name}": x for metric, each in named.items() for name, x in each if not math.isnan(x)}

    def _sum(self, stratum: NDArray[np.int64], values: NDArray[Any] | None = None) -> NDArray[np.float64]:
        return np.bincount(stratum, weights=values, minlength=len(self.names)).astype(np.float64)


class VariantMetrics(StratumMetrics):
    """The metrics of each kind of variants as of a stratum, and of problems: originals with `groups` variants each."""

    def __init__(self, variants: VariantRows, groups: int):
        super().__init__(np.array(variants.kinds)[variants.kind])
        self._kind, self._together = variants.kind, 1 + groups

    def of(self, in_flight: InFlight, outcomes: GroupOutcomes, sampler: PosteriorSampler) -> dict[str, float]:
        """Return the metrics; `dead_problems` is the share of problems whose completions all have one reward."""
        metrics, totals = super().of(in_flight, outcomes, sampler), outcomes.total
        original = self._kind[outcomes.sample_index] == 0
        if (scores := totals[original][~np.isnan(totals[original])]).size:
            metrics["original_reward"] = float(scores.mean())  # comparable to the `reward` of a run without variants
        problems = totals.reshape(-1, self._together * totals.shape[1])
        known = problems[~np.isnan(problems).all(axis=1)]
        if self._together > 1 and len(known):
            same = np.nanmax(known, axis=1) - np.nanmin(known, axis=1) <= SAME_REWARD
            metrics["dead_problems"] = float(same.mean())
        return metrics


def log_metrics(metrics: dict[str, float], to: dict[str, list[float]]) -> None:
    """Add the metrics of `OnTimeSelection.record` to those of the trainer, under `vade/`.

    TRL averages each list over the logging window; of `STATES` it gets the last value. Every batch has the same place
    in all lists, and its refill replaces its values. A batch without a value is padded with NaN, which TRL 1.16 leaves
    out. A list of NaN alone is not started: TRL would log it as None.
    """
    if not metrics:
        return
    place = max(len(to.get("vade/refills", [])) - bool(metrics["refills"]), 0)
    for name, value in metrics.items():
        before = to.get(f"vade/{name}", [])[:place]
        of_all = [*before, *[math.nan] * (place - len(before)), value]
        to[f"vade/{name}"] = [value] if name.partition("/")[0] in STATES else of_all
