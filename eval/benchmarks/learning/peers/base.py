"""The parts that the peers share: the frame of a draw, an order for each epoch, and a memory beside the posterior.

Axis letters, here and in the peers: N rows of the data set, K rows drawn, M excluded rows.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trl_vade.checks import FloatArray, IntArray, check_fields
from trl_vade.errors import SnapshotCorruptError, SnapshotError, abbreviated
from trl_vade.samplers.base import Draw, PosteriorSampler
from trl_vade.samplers.information import information_gain
from trl_vade.samplers.posterior import DAMAGED, BetaPosterior


def mean_absolute_advantage(successes: FloatArray, trials: FloatArray) -> FloatArray:
    """Return the mean |A| of groups with reward 1 for a success and 0 otherwise.

    TRL 1.16 uses A = (r - mean) / (s + 1e-4) with the unbiased standard deviation s. For p = successes / trials the
    mean of |r - mean| is 2 p (1 - p), and s^2 is p (1 - p) trials / (trials - 1).

    Args:
        successes: (K,) in [0, trials].
        trials: (K,) scored completions.

    Returns:
        (K,) in [0, 1); 0 for fewer than two scored completions.
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
            f"in [{low}, {high}]. {DAMAGED}"
        )
    return list(values)


BoolArray = NDArray[np.bool_]


class PeerSampler(PosteriorSampler):
    """The base of the peers: a rule in `_choose`, and a memory in `_recall` and `_remember`.

    The seed, the number of earlier draws and the state determine a draw, for one release of numpy. If a rule has no
    gain, `Draw.information_gain` is the asymmetric gain of the assumed pass rate, so that metrics can be compared.
    """

    def __init__(
        self, posterior: BetaPosterior, seed: int, settings: dict[str, Any], *, in_epochs: bool = False
    ) -> None:
        limits = {"num_draws": 2**63 - 1}
        if in_epochs:
            limits |= {"epoch": 2**63 - 1, "position": posterior.num_samples}
        super().__init__(posterior, seed, settings, limits)
        self._settings = dict(settings)  # without the decays: the posterior compares these at loading
        self._cached_order: tuple[int, IntArray] = (-1, np.empty(0, dtype=np.int64))  # epoch, (N,)

    def draw(self, k: int, *, exclude: ArrayLike | None = None) -> Draw:
        """Choose `k` distinct rows by the rule of the class; see `ThompsonSampler.draw` for arguments and errors."""
        k, excluded = self._check_draw(k, exclude)
        free = np.ones(self.posterior.num_samples, dtype=np.bool_)
        free[excluded] = False
        rows, pass_rate = self._choose(k, free, self._generator(self.progress["num_draws"]))
        self.progress["num_draws"] += 1
        return Draw(rows, pass_rate, self._gain(pass_rate), self._expected(rows))

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state: that of `PosteriorSampler` and `memory`, a dict of JSON values."""
        return {**super().state_dict(), "memory": self._recall()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the result of `state_dict`; see `PosteriorSampler.load_state_dict`."""
        before = super().state_dict()
        if not isinstance(state, Mapping) or "memory" not in state:
            check_fields("sampler", state, [*before, "memory"])
        super().load_state_dict({name: value for name, value in state.items() if name != "memory"})
        try:  # last: other settings mean another memory, and a message about the settings says more
            check_fields("memory of the sampler", state["memory"], self._recall())
            self._remember(state["memory"])
        except SnapshotError:
            super().load_state_dict(before)
            raise

    def _choose(self, k: int, free: BoolArray, generator: np.random.Generator) -> tuple[IntArray, FloatArray]:
        """Return K rows among the `free` ones, (N,) bool, and the pass rates that the choice assumes, (K,) each."""
        raise NotImplementedError

    def _gain(self, pass_rate: FloatArray) -> FloatArray:
        return information_gain(pass_rate)

    def _recall(self) -> dict[str, Any]:
        """Return the state of the rule beside the posterior, as JSON values."""
        return {}

    def _remember(self, memory: Mapping[str, Any]) -> None:
        """Load the result of `_recall`, or raise a `SnapshotError` and change nothing."""

    def _expected(self, rows: IntArray) -> FloatArray:
        """Return the expected pass rates of the rows, (K,), as a new array."""
        a, b = self.belief(rows)
        return a / (a + b)

    def _order(self, epoch: int) -> IntArray:
        """Return the rows, (N,), in the order of a shuffled data loader in this epoch."""
        if self._cached_order[0] != epoch:
            # Epoch e and draw e share a key. The counter starts beyond the reach of any draw, so no bits repeat.
            key = np.array([self._seed, epoch], dtype=np.uint64)
            philox = np.random.Philox(key=key, counter=np.array([0, 0, 0, 1], dtype=np.uint64))
            order = np.random.Generator(philox).permutation(self.posterior.num_samples)
            self._cached_order = (epoch, order.astype(np.int64))
        return self._cached_order[1]
