"""What the peers share: the frame of a draw, an order for each epoch, and a memory beside the posterior.

Axis letters, here and in the peers: N rows of the data set, K rows drawn, M rows that a draw leaves out.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trl_vade.checks import FloatArray, IntArray, check_fields
from trl_vade.errors import ConfigurationError, SnapshotCorruptError, SnapshotError, abbreviated

from ..base import Draw, PosteriorSampler
from ..information import information_gain
from ..posterior import BetaPosterior


def mean_absolute_advantage(successes: FloatArray, trials: FloatArray) -> FloatArray:
    """Return the mean |A| of groups whose rewards are 1 for a success and else 0.

    TRL 1.16 takes A = (r - mean) / (s + 1e-4) with the sample standard deviation, the unbiased one. For the share
    p = successes / trials, the mean of |r - mean| is 2 p (1 - p), and s^2 is p (1 - p) trials / (trials - 1).

    Args:
        successes: (K,) in [0, trials].
        trials: (K,) completions that got a score.

    Returns:
        (K,) in [0, 1); 0 where fewer than two completions were scored, which leaves nothing to compare.
    """
    several = trials > 1.0
    p = successes / np.where(several, trials, 1.0)
    spread = np.where(several, p * (1.0 - p), 0.0)
    deviation = np.sqrt(spread * trials / np.where(several, trials - 1.0, 1.0))
    return 2.0 * spread / (deviation + 1e-4)


def saved_numbers(
    name: str, values: Any, kind: type[int] | type[float], *, low: float, high: float, size: int
) -> list[Any]:
    """Return a saved list, or raise `SnapshotCorruptError` unless it holds `size` numbers of `kind` in [low, high]."""
    sound = isinstance(values, list) and len(values) == size
    if not sound or not all(type(value) is kind and low <= value <= high for value in values):
        raise SnapshotCorruptError(
            f"The saved {name} is {abbreviated(values)}; it must be a list of {size} numbers of type {kind.__name__} "
            f"in [{low}, {high}]. The file was damaged or edited; load an earlier snapshot."
        )
    return list(values)


def check_positive(name: str, value: float) -> float:
    """Return `value` as a float, or raise `ConfigurationError` unless it is a finite number above 0."""
    number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not number or not 0 < value < np.inf:
        raise ConfigurationError(
            f"{name} is {abbreviated(value)}; it must be a finite number above 0, since it divides. Set 1 for no "
            "scaling."
        )
    return float(value)


BoolArray = NDArray[np.bool_]


class PeerSampler(PosteriorSampler):
    """A sampler that says in `_choose` which rows it takes, and in `_recall` and `_remember` what else it knows.

    A draw is a pure function of the seed, the number of draws made before and the state, for one release of numpy.
    Where a rule names no gain of its own, `Draw.information_gain` is the asymmetric one of the pass rate assumed, so
    that the figures of all samplers can stand side by side.
    """

    def __init__(
        self, posterior: BetaPosterior, seed: int, settings: dict[str, Any], *, in_epochs: bool = False
    ) -> None:
        limits = {"num_draws": 2**63 - 1}
        if in_epochs:
            limits |= {"epoch": 2**63 - 1, "position": posterior.num_samples}
        super().__init__(posterior, seed, settings, limits)
        # Without the decays, which follow from the kind and the rest; the posterior compares its own at loading.
        self._settings = dict(settings)
        self._cached_order: tuple[int, IntArray] = (-1, np.empty(0, dtype=np.int64))  # epoch, (N,)

    def draw(self, k: int, *, exclude: ArrayLike | None = None) -> Draw:
        """Return `k` rows, chosen as the class says; arguments and errors are those of `ThompsonSampler.draw`."""
        k, excluded = self._check_draw(k, exclude)
        free = np.ones(self.posterior.num_samples, dtype=np.bool_)
        free[excluded] = False
        rows, pass_rate = self._choose(k, free, self._generator(self._progress["num_draws"]))
        self._progress["num_draws"] += 1
        return Draw(rows, pass_rate, self._gain(pass_rate), self._expected(rows))

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state: that of a `PosteriorSampler`, and `memory`, a dict of JSON values."""
        return {**super().state_dict(), "memory": self._recall()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `PosteriorSampler.load_state_dict`."""
        before = super().state_dict()
        if not isinstance(state, Mapping) or "memory" not in state:
            check_fields("sampler", state, [*before, "memory"])
        super().load_state_dict({name: value for name, value in state.items() if name != "memory"})
        try:  # now: a sampler with other settings has another memory, and its settings make the better message
            check_fields("memory of the sampler", state["memory"], self._recall())
            self._remember(state["memory"])
        except SnapshotError:
            super().load_state_dict(before)
            raise

    def _choose(self, k: int, free: BoolArray, generator: np.random.Generator) -> tuple[IntArray, FloatArray]:
        """Return (K,) rows among those that are `free`, (N,) bool, and (K,) the pass rates that the choice assumes."""
        raise NotImplementedError

    def _gain(self, pass_rate: FloatArray) -> FloatArray:
        return information_gain(pass_rate)

    def _recall(self) -> dict[str, Any]:
        """Return what the next draw depends on beside the posterior, as JSON values."""
        return {}

    def _remember(self, memory: Mapping[str, Any]) -> None:
        """Take over what `_recall` returned, or raise a `SnapshotError` and change nothing."""

    def _expected(self, rows: IntArray) -> FloatArray:
        """(K,) the expected pass rates of the rows, a new array."""
        a, b = self.belief(rows)
        return a / (a + b)

    def _order(self, epoch: int) -> IntArray:
        """(N,) the rows as a shuffled loader would hand them out in this epoch."""
        if self._cached_order[0] != epoch:
            # The counter starts where no draw gets to: epoch e and draw e have one key, and no bit in common.
            key = np.array([self._seed, epoch], dtype=np.uint64)
            philox = np.random.Philox(key=key, counter=np.array([0, 0, 0, 1], dtype=np.uint64))
            order = np.random.Generator(philox).permutation(self.posterior.num_samples)
            self._cached_order = (epoch, order.astype(np.int64))
        return self._cached_order[1]
