"""A run as its pictures need it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .record import Run


class Belief(NamedTuple):
    """The belief after a line of the selection log."""

    line: int
    pass_rates: NDArray[np.float64]  # posterior means of the rows with a visit; the others are at the prior's 1/2
    visits: NDArray[np.int64]  # (N,)


@dataclass(frozen=True)
class View:
    """What the panels show. Figures that several of them need are worked out once."""

    run: Run
    strata: Sequence[str] | None = None  # (N,) a label of each training row

    @cached_property
    def batches(self) -> list[dict[str, Any]]:
        """The lines of generation batches, without refills."""
        return [line for line in self.run.selections if "refill" not in line]

    @cached_property
    def even_draw(self) -> list[tuple[int, float]]:
        """See `Run.even_draw`."""
        return self.run.even_draw()

    @cached_property
    def beliefs(self) -> dict[str, Belief]:
        """The beliefs at the start (a tenth), in the middle and at the end of the run."""
        last = len(self.run.lines)
        lines = [max(last // 10, 1), max(last // 2, 1), last]
        found = [
            Belief(line, posterior.posterior_mean[posterior.visits > 0], posterior.visits.copy())
            for line, posterior in zip(lines, self.run.posteriors(lines), strict=True)
        ]
        return dict(zip(("start", "middle", "end"), found, strict=True))

    @property
    def title(self) -> str:
        """Sampler, generation batches, rows and refills."""
        refills = f", {self.run.refills} refills" if self.run.refills else ""
        rows = len(self.batches[-1]["sample_index"])
        return f"{self.run.sampler} sampler: {len(self.batches)} generation batches of {rows} rows{refills}"
