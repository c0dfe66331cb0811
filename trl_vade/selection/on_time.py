"""On-time selection: rows are chosen and loaded when a generation batch is needed, and scored before the next choice.

A torch `Sampler` cannot be on time under TRL: accelerate's loader fetches one batch ahead and the Trainer pulls a
whole accumulation window before its first step, so batch k+1 would be chosen before batch k is scored, and a resume
would replay the loader without feedback. So the loader carries only tickets, and this module does the choosing.
"""

import functools
from collections.abc import Iterator

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.logging import get_logger
from accelerate.utils import broadcast
from datasets import Dataset
from numpy.typing import NDArray

from trl_vade.data.decoding import Rows
from trl_vade.data.loading import RowLoader
from trl_vade.data.row_keys import dataset_fingerprint, sample_keys
from trl_vade.data.workers import Workers

from .batch_metrics import MOST_STRATA, InFlight
from .feedback import Feedback
from .notices import TRANSFORM_NOTICE, pool_notices
from .outcomes import GroupOutcomes

logger = get_logger(__name__)


class OnTimeSelection:
    """Chooses the rows of each generation batch, loads this process's share, and hands the scores to `Feedback`.

    Every process holds a replica of the sampler. Process 0's choice is broadcast; the scores arrive gathered, so the
    replicas stay equal without a further message.

    Args:
        feedback: the way back to the sampler, with the log of the choices and the running totals.
        dataset: N training rows.
        num_groups: K, rows in a generation batch.
        accelerator: of the trainer.
        workers: processes that load rows; see `RowDecoder`.
    """

    def __init__(
        self,
        feedback: Feedback,
        dataset: Dataset,
        *,
        num_groups: int,
        accelerator: Accelerator,
        workers: Workers | None = None,
    ):
        self.feedback, self.sampler = feedback, feedback.sampler
        self.dataset, self.num_groups, self.accelerator = dataset, num_groups, accelerator
        self.num_generations = feedback.num_generations
        self.loader = RowLoader(
            dataset, num_generations=self.num_generations, accelerator=accelerator, workers=workers
        )
        self._in_flight: InFlight | None = None
        self._seconds_before = 0.0  # spent on selection before the last generation batch was chosen

    def describe_loading(self) -> None:
        """Say where rows are loaded otherwise than stock TRL would."""
        if self.loader.decoder.has_transform:
            logger.warning(TRANSFORM_NOTICE)

    def describe_rows(self) -> None:
        """Say what there is to say of the data set for a sampler that chooses, before it is trained on."""
        for notice in pool_notices(len(self.dataset), self.num_groups, self.sample_keys[1]):
            logger.warning(notice)
        strata = self.feedback.strata
        if strata and len(strata.names) > MOST_STRATA:
            logger.warning(
                f"vade_stratify_by: each of {len(strata.names)} strata has its share of the generation batches, "
                f"but the log has figures of each one only up to {MOST_STRATA}."
            )

    def choose(self) -> Rows:
        """Draw K rows from the posterior as it is now; return this process's share, one item a completion."""
        self._seconds_before = self.feedback.seconds["selection"]
        return self._draw(self.num_groups)

    def prefetch(self) -> None:
        """Begin to decode the rows that `choose` would draw now, in the background: nothing else comes of it."""
        if self.loader.decoder.is_ahead:
            with self.feedback.timed("selection"):
                self.loader.prefetch(self.sampler.peek(self.num_groups).sample_index, self.sampler.posterior.step)

    def refill(self, missing: int) -> Rows | None:
        """Draw `missing` rows more for the batch that was scored last, none a second time, from the posterior as it is
        now; some more where their completions would not divide among the processes. The share is as in `choose`.

        None where the data set has too few other rows, and in a reward outage, in which no row would have a gradient.
        """
        rounds, size = self.feedback.rounds, self._divisible(missing)
        drawn = np.concatenate([in_flight.sample_index for in_flight, _ in rounds])
        if self.feedback.outage or size > len(self.dataset) - len(drawn):
            return None
        return self._draw(size, refill=len(rounds), exclude=drawn)

    def initial_batches(self) -> Iterator[Rows]:
        """Every row once (Algorithm 1, lines 1-4), K at a time.

        The last batch is filled up from the first rows where the completions would not divide among the processes;
        the outcomes of those rows are added up, so no rollout is thrown away.
        """
        num_rows = len(self.dataset)
        for start in range(0, num_rows, self.num_groups):
            size = self._divisible(min(self.num_groups, num_rows - start))
            sample_index = np.arange(start, start + size, dtype=np.int64) % num_rows
            self._in_flight = self.feedback.in_flight(sample_index, initialising=True)
            yield self.loader.load(sample_index, self.sampler.posterior.step)

    def record(self, outcomes: GroupOutcomes, global_step: int) -> dict[str, float]:
        """Feed the scores of the rows in flight back; return what is to be logged of their batch, refills included."""
        in_flight, self._in_flight = self.in_flight, None
        with self.feedback.timed("selection"):
            metrics = self.feedback.observe(in_flight, outcomes, global_step)
        seconds = self.feedback.seconds["selection"] - self._seconds_before
        return metrics | {"selection_seconds": seconds} if metrics else {}

    @functools.cached_property
    def sample_keys(self) -> tuple[NDArray[np.int64], int]:
        """See `row_keys.sample_keys`; made once, since it costs a pass over the rows."""
        return sample_keys(self.dataset)

    @property
    def fingerprint(self) -> str:
        """Of the data set's rows in their order."""
        return dataset_fingerprint(self.sample_keys[0])

    @property
    def in_flight(self) -> InFlight:
        """The rows that were chosen and have no scores yet."""
        if self._in_flight is None:
            raise RuntimeError(
                "Rewards arrived for a generation batch that nobody chose: this is a defect of trl_vade."
            )
        return self._in_flight

    def _draw(self, size: int, *, refill: int = 0, exclude: NDArray[np.int64] | None = None) -> Rows:
        with self.feedback.timed("selection"):
            draw = self.sampler.draw(size, exclude=exclude)
            sample_index = self._from_main_process(draw.sample_index)
            self._in_flight = self.feedback.in_flight(sample_index, refill=refill)
            return self.loader.load(sample_index, self.sampler.posterior.step)

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
