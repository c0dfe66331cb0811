"""What it takes to choose rows: five verbs, and the description of a choice."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from numpy.typing import ArrayLike

from .checks import FloatArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Draw:
    """The rows of one generation batch and what the sampler believed of them when it chose."""

    sample_index: IntArray  # (K,) distinct rows in [0, N), in the order they were chosen
    sampled_pass_rate: FloatArray  # (K,) in [0, 1], the pass rate that the choice assumed
    information_gain: FloatArray  # (K,) gain of sampled_pass_rate
    posterior_mean: FloatArray  # (K,) in (0, 1), the expected pass rate


@runtime_checkable
class PromptSampler(Protocol):
    """What chooses rows and learns from their outcomes: five verbs.

    All that the next draw depends on is in `state_dict`, generator included, so a fresh sampler that loads it draws
    the same rows. To be saved to a directory, the state must be a dict of JSON values, among them `posterior`, the
    state of a `BetaPosterior`.
    """

    def draw(self, k: int, *, exclude: ArrayLike | None = None) -> Draw:
        """Choose `k` distinct rows, none of them in `exclude`, (M,)."""

    def observe(self, sample_index: ArrayLike, successes: ArrayLike, trials: ArrayLike) -> None:
        """Learn from the scores of one generation batch; arrays (K,)."""

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state, sharing no array with the sampler."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a state, or raise and change nothing."""

    def metrics(self) -> dict[str, float]:
        """Return figures worth logging, by plain names."""
