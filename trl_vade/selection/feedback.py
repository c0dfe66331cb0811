"""The feedback of a run, without a trainer: outcomes of rollouts go to the sampler, the log and the metrics."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trl_vade.checks import FloatArray
from trl_vade.errors import abbreviated
from trl_vade.samplers.base import PosteriorSampler
from trl_vade.samplers.information import mixed_group_probability, spread_group_probability
from trl_vade.samplers.priors import FEWEST_ROWS

from .batch_metrics import InFlight, StratumMetrics, VariantMetrics, batch_metrics, joined
from .log import SelectionLog
from .outcomes import GroupOutcomes
from .success import RewardSignal
from .watch import GradientWatch, OutageGuard

logger = logging.getLogger(__name__)  # accelerate's logger would need its process state
LAST_GROUPS, MOST_ROWS = 512.0, 2**14  # that correct the estimate of an even draw; that stand for all
AS_EXPECTED = [8.0, 8.0]  # of these groups, those with a gradient, predicted and found, before any was seen


class Feedback:
    """The connection from the outcomes of rollouts back to the sampler, with running totals.

    `sampler` is the replica of this process. One process alone `writes` the log, and the warnings by `say`.
    `stratify`, (N,), are labels for metrics of each stratum. Without a `signal` rewards are pass rates.
    """

    def __init__(
        self,
        sampler: PosteriorSampler,
        *,
        num_generations: int,
        log: SelectionLog,
        writes: bool = True,
        stratify: ArrayLike | None = None,
        variants: VariantMetrics | None = None,
        signal: RewardSignal | None = None,
        say: Callable[[str], Any] = logger.warning,
    ):
        self.signal = signal or RewardSignal("reward", ["reward"], threshold=0.5)
        self.sampler, self.num_generations, self.log = sampler, num_generations, log
        strata = None if stratify is None else StratumMetrics(stratify)
        self._parts = [part for part in (strata, variants) if part is not None]
        self.rollouts = 0  # completions scored so far
        self.seconds = {"selection": 0.0, "generation": 0.0, "step": 0.0}  # wall time so far
        self.rounds: list[tuple[InFlight, GroupOutcomes]] = []  # of the last batch; a refill is a round of its own
        self._guard, self._watch = OutageGuard(sampler.posterior), GradientWatch()
        self.writes, self._warn, self._said_unscored = writes, say, False
        self._initial: list[GroupOutcomes] = []
        self._lately, size = AS_EXPECTED, sampler.posterior.num_samples
        self._some = np.arange(size) if size <= MOST_ROWS else np.random.default_rng(0).integers(0, size, MOST_ROWS)

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Add the wall time of the block, without selection inside it, to `seconds[what]`."""
        start, selection = time.perf_counter(), self.seconds["selection"]
        yield
        self.seconds[what] += time.perf_counter() - start - (self.seconds["selection"] - selection)

    def in_flight(self, sample_index: NDArray[np.int64], **more: Any) -> InFlight:
        """Return the rows with the present belief about them; `more` are further fields of `InFlight`."""
        a, b = self.sampler.belief(sample_index)
        return InFlight(sample_index, a / (a + b), self._chances(a, b), self.sampler.posterior.step, **more)

    @property
    def outage(self) -> bool:
        """Whether a reward outage is on."""
        return self._guard.active

    def observe(self, in_flight: InFlight, outcomes: GroupOutcomes, global_step: int) -> dict[str, float]:
        """Pass the outcomes of a round to the sampler and the log; return the metrics of its batch with refills."""
        self.rollouts += len(outcomes.sample_index) * self.num_generations
        if self.signal.is_spread:
            self.sampler.use_spreads()
        if in_flight.initialising:
            self._initial.append(outcomes)
            return {}
        staleness = self.sampler.posterior.step - in_flight.posterior_step
        even_draw = self._observe(in_flight, outcomes, global_step)
        self.rounds = [*(self.rounds if in_flight.refill else []), (in_flight, outcomes)]
        batch, metrics = joined(self.rounds), self.sampler.metrics()
        metrics |= batch_metrics(*batch)
        for part in self._parts:
            metrics |= part.of(*batch, self.sampler)
        if self.signal.is_spread:
            metrics = {name.replace("pass_rate", "spread"): value for name, value in metrics.items()}
        totals = {"outage": self.outage, "staleness": staleness, "rollouts": self.rollouts}
        return metrics | {name: float(total) for name, total in totals.items()} | {"even_draw_ratio": even_draw}

    def finish_initialisation(self) -> None:
        """Take over the outcomes of all initial rounds as one step; nothing was trained on, so no row need rest."""
        rows = np.arange(self.sampler.posterior.num_samples, dtype=np.int64)
        (successes, trials), has_gradient = np.zeros((2, rows.size)), np.zeros(rows.size, bool)
        for outcomes in self._initial:
            np.add.at(successes, outcomes.sample_index, outcomes.successes)
            np.add.at(trials, outcomes.sample_index, outcomes.trials)
            has_gradient[outcomes.sample_index[outcomes.has_gradient]] = True
        self._initial, in_flight = [], self.in_flight(rows, initialising=True)
        self._observe(in_flight, GroupOutcomes(rows, successes, trials, has_gradient), 0)

    def warm_start(self, evidence: GroupOutcomes, source: str) -> None:
        """Observe the evidence of another run as one step, before the first draw; without rows do nothing."""
        if len(evidence.sample_index):
            self.sampler.take_over(evidence.sample_index, evidence.successes, evidence.trials)
            self._write(evidence, 0, predicted_effective_ratio=None, warm_start=source)

    def adopt_signal(self, metadata: Mapping[str, Any]) -> None:
        """Load the learned signal of a snapshot's `metadata` into the signal and the sampler."""
        self.signal.adopt(metadata, metadata.get("run", {}).get("signal", {}))
        if self.signal.is_spread:
            self.sampler.use_spreads()

    def state_dict(self) -> dict[str, Any]:
        """Return the running totals for the metadata of a snapshot."""
        totals = {"rollouts": self.rollouts, "seconds": dict(self.seconds), "lately": self._lately}
        totals |= {"signal": self.signal.state_dict(), "outage": self._guard.state_dict()}
        return totals | {"log": self.log.position._asdict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load the totals of `state`; for the place in the log see `resume_log`."""
        self.rollouts = int(state["rollouts"])
        self.seconds = {name: float(state["seconds"][name]) for name in self.seconds}
        self._guard.load_state_dict(state["outage"])
        self._lately = [float(groups) for groups in state.get("lately", AS_EXPECTED)]

    def resume_log(self, state: dict[str, Any]) -> None:
        """Continue the log at the place of `state`, or say why that cannot be; see `SelectionLog.resume`."""
        if self.writes:
            self._say(self.log.resume(state["log"]))

    def _observe(self, in_flight: InFlight, outcomes: GroupOutcomes, global_step: int) -> float:
        """Take a step of the sampler and write its line; return the share that an even draw would give."""
        spreads, refill = self.signal.is_spread, in_flight.refill
        if not refill or outcomes.has_gradient.any():  # the watch counts generation batches
            self._say(self._watch.observe(outcomes, spreads=spreads), in_flight)
        self._say(self._guard.judge(outcomes, spreads=spreads), in_flight)
        groups = (outcomes.sample_index, outcomes.successes, outcomes.trials)
        self._compare(outcomes)
        if self.outage:
            self.sampler.observe(*(values[:0] for values in groups))  # a step without evidence
        elif in_flight.initialising:
            self.sampler.take_over(*groups)
        else:
            self.sampler.observe(*groups, outcomes.has_gradient)
        again = [row for row, (_, times) in self.sampler.unscored.items() if times > 1]
        if again and not self._said_unscored:
            self._said_unscored = True
            self._say(
                f"The reward functions returned None for all completions of rows that were drawn twice: "
                f"{abbreviated(again)}. Check their columns, or drop these rows. This is said once."
            )
        of_all, (expected, found) = self._chances(*self.sampler.belief(self._some)), self._lately
        even_draw, predicted = min(float(of_all.mean()) * found / expected, 1.0), in_flight.predicted_gradient
        numbers = {"predicted_effective_ratio": float(predicted.mean()), "even_draw_ratio": even_draw}
        more = ({"refill": refill} if refill else {}) | ({"observed": False} if self.outage else {})
        more |= {"initial": True} if in_flight.initialising else {}
        self._write(outcomes, global_step, **numbers, **more)
        return even_draw

    def _compare(self, outcomes: GroupOutcomes) -> None:
        """Count groups with a gradient and those predicted, which are too many where the policy has become surer."""
        rows = outcomes.sample_index[outcomes.trials > 0]
        if rows.size and not self.outage and self.sampler.posterior.visited.size >= FEWEST_ROWS:
            kept = LAST_GROUPS / (LAST_GROUPS + rows.size)
            new = self._chances(*self.sampler.belief(rows)), outcomes.has_gradient
            self._lately = [kept * old + float(groups.sum()) for old, groups in zip(self._lately, new, strict=True)]

    def _chances(self, a: FloatArray, b: FloatArray) -> FloatArray:
        """Return the probability of a gradient in a group of each row with a belief Beta(a, b), (K,)."""
        of_gradients = spread_group_probability if self.signal.is_spread else mixed_group_probability
        return of_gradients(a, b, self.num_generations)

    def _write(self, outcomes: GroupOutcomes, global_step: int, **more: Any) -> None:
        if self.writes:
            places = {"step": self.sampler.posterior.step, "global_step": global_step, "rollouts": self.rollouts}
            self.log.append(outcomes, **places, **more)

    def _say(self, notice: str | None, about: InFlight | None = None) -> None:
        if notice and self.writes:
            cut = about.clipped if about else 0.0
            length = f" {cut:.0%} of the answers were cut at max_completion_length: raise it." if cut > 0.5 else ""
            self._warn(notice + length)
