"""On-time selection: each generation batch is chosen after the previous one was scored.

A torch `Sampler` under TRL chooses too early: accelerate's data loader fetches one batch ahead, and the Trainer pulls
a whole accumulation window before its first step. So the data loader carries only tickets.
"""

import functools
import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.logging import get_logger
from accelerate.utils import broadcast, gather_object
from datasets import Dataset
from numpy.typing import NDArray

from trl_vade.data.decoding import Rows
from trl_vade.data.loading import RowLoader
from trl_vade.data.row_keys import sample_keys
from trl_vade.data.row_views import MOST_SIGNS
from trl_vade.rewards.functions import Completion, text_of

from .batch_metrics import InFlight
from .feedback import Feedback
from .outcomes import GroupOutcomes

logger = get_logger(__name__)

MOST_SAID = 20_000  # completions, of 600 characters at most


def enough_for(live: int, parts: int) -> int:
    """Return the smallest number of rows, at least `live`, that divides into `parts` parts of at least one row."""
    return max(1, -(-live // parts)) * parts


class OnTimeSelection:
    """The selection of a run: it chooses the K = `num_groups` rows of each generation batch, loads and scores them.

    Every process holds a replica of the sampler. The choice of process 0 is broadcast, and the scores arrive gathered.
    """

    def __init__(self, feedback: Feedback, dataset: Dataset, *, num_groups: int, accelerator: Accelerator):
        self.feedback, self.sampler = feedback, feedback.sampler
        self.dataset, self.num_groups, self.accelerator = dataset, num_groups, accelerator
        self.num_generations = feedback.num_generations
        self.loader = RowLoader(dataset, num_generations=self.num_generations, accelerator=accelerator)
        self.in_flight: InFlight | None = None  # the rows that were chosen and have no scores yet
        self.said: dict[int, str] = {}  # by row, the end of its last completion; of the rows that came last
        self._seconds_before = 0.0  # of selection, before the last generation batch was chosen

    def choose(self) -> Rows:
        """Draw K rows, load them, and return this process's share, one item a completion."""
        if self.in_flight is not None:
            logger.warning_once("The sampler got no rewards and learns nothing: let _calculate_rewards call super().")
        self._seconds_before = self.feedback.seconds["selection"]
        return self._draw(self.num_groups)

    def prefetch(self) -> None:
        """Start decoding in the background the rows that `choose` would draw now; the choice is unaffected."""
        if self.loader.decoder.in_threads:
            with self.feedback.timed("selection"):
                self.loader.prefetch(self.sampler.peek(self.num_groups).sample_index)

    def refill(self, missing: int) -> Rows | None:
        """Draw at least `missing` other rows for the batch scored last; None in an outage or if too few are left."""
        rounds, size = self.feedback.rounds, self._divisible(missing)
        drawn = np.concatenate([in_flight.sample_index for in_flight, _ in rounds])
        if self.feedback.outage or size > len(self.dataset) - len(drawn):
            return None
        return self._draw(size, refill=len(rounds), exclude=drawn)

    def initial_batches(self) -> Iterator[Rows]:
        """Yield this process's share of all rows, K at a time (Algorithm 1, lines 1-4); the first fill up the last."""
        num_rows = len(self.dataset)
        for start in range(0, num_rows, self.num_groups):
            size = self._divisible(min(self.num_groups, num_rows - start))
            sample_index = np.arange(start, start + size, dtype=np.int64) % num_rows
            self.in_flight = self.feedback.in_flight(sample_index, initialising=True)
            yield self.loader.load(sample_index)

    def note(self, completions: list[Completion]) -> None:
        """Keep one completion of each row in flight. All processes must take part, each with its share."""
        last = self.accelerator.process_index * len(completions) + 1
        mine = [text_of(each) for place, each in enumerate(completions, last) if place % self.num_generations == 0]
        said = [text if len(text) <= MOST_SIGNS else f"...{text[3 - MOST_SIGNS :]}" for text in mine]
        found = dict(zip(self.in_flight.sample_index.tolist(), gather_object(said), strict=True))
        older = [(row, text) for row, text in self.said.items() if row not in found]
        self.said = dict([*older, *found.items()][-MOST_SAID:])

    def score(
        self, rewards: torch.Tensor, weights: torch.Tensor, global_step: int, *, normalise: bool, clipped: float = 0.0
    ) -> dict[str, float]:
        """Record the rewards (K*G, F) of the rows in flight; `clipped` is the share of answers that were cut."""
        self.in_flight = replace(self.in_flight, clipped=clipped)
        sizes = {"weights": weights.double().cpu().numpy(), "normalise": normalise}
        of_rows = rewards.double().cpu().numpy(), self.in_flight.sample_index
        return self.record(self.feedback.signal.outcomes(*of_rows, **sizes), global_step)

    def record(self, outcomes: GroupOutcomes, global_step: int) -> dict[str, float]:
        """Pass the outcomes of the rows in flight to the sampler; return the metrics of their batch with refills."""
        in_flight, self.in_flight = self.in_flight, None
        with self.feedback.timed("selection"):
            metrics = self.feedback.observe(in_flight, outcomes, global_step)
        seconds = self.feedback.seconds["selection"] - self._seconds_before
        return metrics | {"selection_seconds": seconds} if metrics else {}

    @functools.cached_property
    def sample_keys(self) -> NDArray[np.int64]:
        """The result of `row_keys.sample_keys`, computed once."""
        return sample_keys(self.dataset)

    def _draw(self, size: int, *, refill: int = 0, exclude: NDArray[np.int64] | None = None) -> Rows:
        with self.feedback.timed("selection"):
            sample_index = self.sampler.draw(size, exclude=exclude).sample_index
            if self.accelerator.num_processes > 1:  # another node's libm may round differently and choose other rows
                chosen = torch.as_tensor(sample_index, device=self.accelerator.device)
                sample_index = broadcast(chosen, from_process=0).cpu().numpy()
            self.in_flight = self.feedback.in_flight(sample_index, refill=refill)
            return self.loader.load(sample_index)

    def _divisible(self, size: int) -> int:
        """Return the smallest number of rows, at least `size`, for which completions divide among the processes."""
        processes = self.accelerator.num_processes
        return enough_for(size, processes // math.gcd(processes, self.num_generations))
