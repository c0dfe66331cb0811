"""On-time selection: rows are chosen and loaded when a generation batch is needed, and scored before the next choice.

A torch `Sampler` cannot be on time under TRL: accelerate's loader fetches one batch ahead and the Trainer pulls a
whole accumulation window before its first step, so batch k+1 would be chosen before batch k is scored, and a resume
would replay the loader without feedback. So the loader carries only tickets, and this module does the choosing.
"""

import functools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.logging import get_logger
from accelerate.utils import broadcast
from datasets import Dataset
from numpy.typing import ArrayLike, NDArray

from trl_vade.data.decoding import Rows
from trl_vade.data.loading import RowLoader
from trl_vade.data.row_keys import dataset_fingerprint, sample_keys
from trl_vade.samplers.base import PosteriorSampler
from trl_vade.samplers.information import mixed_group_probability

from .batch_metrics import MOST_STRATA, InFlight, StratumMetrics, batch_metrics
from .log import SelectionLog
from .notices import GradientWatch, pool_notices
from .outage import OutageGuard
from .outcomes import GroupOutcomes

logger = get_logger(__name__)


class OnTimeSelection:
    """
    Chooses the rows of each generation batch, loads this process's share of them, and feeds their scores back.

    Every process holds a replica of the sampler. Process 0's choice is broadcast; the scores arrive gathered, so the
    replicas stay equal without a further message.

    Args:
        sampler: this process's replica.
        dataset: N training rows.
        num_groups: K, rows in a generation batch.
        num_generations: G, completions of each row.
        accelerator: of the trainer.
        log: where the main process writes down each choice and its outcome.
        outage_guard: whether to keep the counts of before a reward outage; see `outage`.
        stratify: (N,) labels: figures of each stratum are recorded, too. That it has its share is the sampler's work.
    """

    def __init__(
        self,
        sampler: PosteriorSampler,
        dataset: Dataset,
        *,
        num_groups: int,
        num_generations: int,
        accelerator: Accelerator,
        log: SelectionLog,
        outage_guard: bool = True,
        stratify: ArrayLike | None = None,
    ):
        self.sampler = sampler
        self.dataset = dataset
        self.num_groups = num_groups
        self.num_generations = num_generations
        self.accelerator = accelerator
        self.log = log
        self.rollouts = 0
        self.seconds = {"selection": 0.0, "generation": 0.0, "step": 0.0}
        self.loader = RowLoader(dataset, num_generations=num_generations, accelerator=accelerator)
        self._guard = OutageGuard(sampler.posterior) if outage_guard else None
        self._watch = GradientWatch()
        self._strata = None if stratify is None else StratumMetrics(stratify)
        self._in_flight: InFlight | None = None
        self._num_scored = 0
        self._initial: list[GroupOutcomes] = []
        self._rounds: list[tuple[InFlight, GroupOutcomes]] = []  # of the last generation batch
        self._seconds_before = 0.0  # spent on selection before that batch was chosen

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Add the wall seconds of the block to `seconds[what]`, less what was selection inside it."""
        start, selection = time.perf_counter(), self.seconds["selection"]
        yield
        self.seconds[what] += time.perf_counter() - start - (self.seconds["selection"] - selection)

    def describe_rows(self) -> None:
        """Say what there is to say of the data set, before it is trained on."""
        for notice in pool_notices(len(self.dataset), self.num_groups, self.sample_keys[1]):
            logger.warning(notice)
        if self._strata and len(self._strata.names) > MOST_STRATA:
            logger.warning(
                f"vade_stratify_by: each of {len(self._strata.names)} strata has its share of the generation batches, "
                f"but the log has figures of each one only up to {MOST_STRATA}."
            )

    def choose(self) -> Rows:
        """Draw K rows from the posterior as it is now; return this process's share, one item a completion."""
        self._seconds_before = self.seconds["selection"]
        return self._draw(self.num_groups)

    def prefetch(self) -> None:
        """Begin to decode the rows that `choose` would draw now, in the background: nothing else comes of it."""
        if self.loader.decoder.in_threads:
            with self.timed("selection"):
                self.loader.prefetch(self.sampler.peek(self.num_groups).sample_index)

    def refill(self, missing: int) -> Rows | None:
        """Draw `missing` rows more for the batch that was scored last, none a second time, from the posterior as it is
        now; some more where their completions would not divide among the processes. The share is as in `choose`.

        None where the data set has too few other rows, and in a reward outage, in which no row would have a gradient.
        """
        drawn = np.concatenate([in_flight.sample_index for in_flight, _ in self._rounds])
        size = self._divisible(missing)
        if self.outage or size > len(self.dataset) - len(drawn):
            return None
        return self._draw(size, refill=len(self._rounds), exclude=drawn)

    def initial_batches(self) -> Iterator[Rows]:
        """Every row once (Algorithm 1, lines 1-4), K at a time.

        The last batch is filled up from the first rows where the completions would not divide among the processes;
        the outcomes of those rows are added up, so no rollout is thrown away.
        """
        num_rows = len(self.dataset)
        for start in range(0, num_rows, self.num_groups):
            size = self._divisible(min(self.num_groups, num_rows - start))
            sample_index = np.arange(start, start + size, dtype=np.int64) % num_rows
            self._in_flight = InFlight.of(sample_index, self.sampler, self.num_generations, initialising=True)
            yield self.loader.load(sample_index)

    def record(self, outcomes: GroupOutcomes, global_step: int) -> dict[str, float]:
        """Feed the scores of the rows in flight back; return what is to be logged of their batch, refills included."""
        in_flight = self.in_flight
        with self.timed("selection"):
            self.rollouts += len(outcomes.sample_index) * self.num_generations
            self._in_flight = None
            if in_flight.initialising:
                self._initial.append(outcomes)
                return {}
            staleness = self._num_scored - in_flight.posterior_step
            self._observe(outcomes, global_step, float(in_flight.predicted_gradient.mean()), in_flight.refill)
            self._rounds = [*(self._rounds if in_flight.refill else []), (in_flight, outcomes)]
            metrics = self.sampler.metrics() | batch_metrics(self._rounds)
            if self._strata:
                metrics |= self._strata.of(self._rounds, self.sampler)
        return metrics | {
            "outage": float(self.outage),
            "staleness": float(staleness),
            "rollouts": float(self.rollouts),
            "selection_seconds": self.seconds["selection"] - self._seconds_before,
        }

    def finish_initialisation(self) -> None:
        """Observe the outcomes of `initial_batches` as one step: alpha = r, beta = G - r for every row."""
        successes, trials = np.zeros(len(self.dataset)), np.zeros(len(self.dataset))
        has_gradient = np.zeros(len(self.dataset), dtype=bool)
        for outcomes in self._initial:
            np.add.at(successes, outcomes.sample_index, outcomes.successes)
            np.add.at(trials, outcomes.sample_index, outcomes.trials)
            has_gradient[outcomes.sample_index[outcomes.has_gradient]] = True
        self._initial = []
        every_row = np.arange(len(self.dataset), dtype=np.int64)
        predicted = mixed_group_probability(*self.sampler.belief(every_row), self.num_generations).mean()
        self._observe(GroupOutcomes(every_row, successes, trials, has_gradient), 0, float(predicted))

    def warm_start(self, evidence: GroupOutcomes, source: str) -> None:
        """Observe what another run has shown of some rows as one step, before the first draw.

        No group was generated: that the outage guard and the watch for gradients compare with groups, so they are not
        told. Without any row nothing is done.
        """
        if not len(evidence.sample_index):
            return
        self.sampler.take_over(evidence.sample_index, evidence.successes, evidence.trials)
        self._num_scored += 1
        if self.accelerator.is_main_process:
            self.log.append(
                evidence,
                step=self.sampler.posterior.step,
                global_step=0,
                rollouts=self.rollouts,
                predicted_effective_ratio=None,
                warm_start=source,
            )

    @functools.cached_property
    def sample_keys(self) -> tuple[NDArray[np.int64], int]:
        """See `data.sample_keys`; made once, since it costs a pass over the rows."""
        return sample_keys(self.dataset)

    @property
    def fingerprint(self) -> str:
        """Of the data set's rows in their order."""
        return dataset_fingerprint(self.sample_keys[0])

    @property
    def outage(self) -> bool:
        """Whether a reward outage is on."""
        return self._guard is not None and self._guard.active

    @property
    def in_flight(self) -> InFlight:
        """The rows that were chosen and have no scores yet."""
        if self._in_flight is None:
            raise RuntimeError(
                "Rewards arrived for a generation batch that nobody chose: this is a defect of trl_vade."
            )
        return self._in_flight

    def state_dict(self) -> dict[str, Any]:
        """Running totals, for the snapshot's metadata; the sampler's own state is saved beside them."""
        outage = self._guard.state_dict() if self._guard else {}
        return {"rollouts": self.rollouts, "seconds": dict(self.seconds), "outage": outage}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state`, after the sampler's state was loaded; drop what the log holds of later batches."""
        self.rollouts = int(state["rollouts"])
        self.seconds = {name: float(state["seconds"][name]) for name in self.seconds}
        self._num_scored = self.sampler.posterior.step
        if self._guard:
            self._guard.load_state_dict(state["outage"])
        elif state["outage"].get("streak"):
            logger.warning("vade_outage_guard=False: the counts of before the reward outage that was on are given up.")
        if self.accelerator.is_main_process and 0 < (last := self.log.truncate(self._num_scored)) < self._num_scored:
            logger.warning(
                f"{self.log.path} ends at generation batch {last}, and the posterior is that of {self._num_scored}: "
                "the lines between are lost. The run goes on; a replay of this file no longer gives its posterior."
            )

    def _observe(self, outcomes: GroupOutcomes, global_step: int, predicted: float, refill: int = 0) -> None:
        notices, more = [], {"refill": refill} if refill else {}
        if not refill or outcomes.has_gradient.any():  # the watch counts generation batches
            notices.append(self._watch.observe(outcomes))
        groups = (outcomes.sample_index, outcomes.successes, outcomes.trials)
        if self._guard:
            notices.append(self._guard.before_observing(*groups))
            if self._guard.restored_to is not None:
                more["restored_to"] = self._guard.restored_to
        for notice in filter(None, notices):
            logger.warning(notice)
        self.sampler.observe(*groups)
        self._num_scored += 1
        if self.accelerator.is_main_process:
            self.log.append(
                outcomes,
                step=self.sampler.posterior.step,
                global_step=global_step,
                rollouts=self.rollouts,
                predicted_effective_ratio=predicted,
                **more,
            )

    def _draw(self, size: int, *, refill: int = 0, exclude: NDArray[np.int64] | None = None) -> Rows:
        with self.timed("selection"):
            draw = self.sampler.draw(size, exclude=exclude)
            sample_index = self._from_main_process(draw.sample_index)
            self._in_flight = InFlight.of(sample_index, self.sampler, self.num_generations, refill=refill)
            return self.loader.load(sample_index)

    def _divisible(self, size: int) -> int:
        """The least number of rows from `size` on whose completions divide among the processes."""
        while size * self.num_generations % self.accelerator.num_processes:
            size += 1
        return size

    def _from_main_process(self, sample_index: NDArray[np.int64]) -> NDArray[np.int64]:
        """Process 0's choice. The replicas agree, but a libm that rounds differently on another node must not split
        a group over different rows."""
        if self.accelerator.num_processes == 1:
            return sample_index
        chosen = torch.as_tensor(sample_index, device=self.accelerator.device)
        return broadcast(chosen, from_process=0).cpu().numpy()
