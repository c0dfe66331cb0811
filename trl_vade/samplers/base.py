"""The parts that all samplers share: the posterior, the state to resume from, and streams of random numbers."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from trl_vade.checks import FloatArray, IntArray, check_fields, check_same, check_whole_number

from .posterior import BetaPosterior, saved_number
from .priors import FLAT, Belief
from .problems import Problems


@dataclass(frozen=True, slots=True, eq=False)
class Draw:
    """The rows of one generation batch, with the sampler's belief about them at the draw."""

    sample_index: IntArray  # (K,) distinct rows in [0, N), in the order of choice
    sampled_pass_rate: FloatArray  # (K,) in [0, 1], the pass rate that the choice assumed
    information_gain: FloatArray  # (K,) the gain of `sampled_pass_rate`
    posterior_mean: FloatArray  # (K,) in (0, 1), the expected pass rate


@runtime_checkable
class PromptSampler(Protocol):
    """The interface of a sampler: it chooses rows and learns from their outcomes.

    A fresh sampler that loads the result of `state_dict`, random stream included, draws the same rows.
    """

    def draw(self, k: int, *, exclude: ArrayLike | None = None) -> Draw:
        """Choose `k` distinct rows that are not in `exclude`, (M,)."""

    def observe(
        self, sample_index: ArrayLike, successes: ArrayLike, trials: ArrayLike, mixed: ArrayLike | None = None
    ) -> None:
        """Learn from the scores of one generation batch; see `BetaPosterior.observe`."""

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of the whole state."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a state, or raise and leave the sampler unchanged."""

    def metrics(self) -> dict[str, float]:
        """Return the metrics to log, without a prefix in their names."""


class PosteriorSampler:
    """The base of all samplers here: a seed, a posterior that learns from every outcome, and the state.

    Args:
        posterior: the belief about the N rows.
        seed: the key of the random numbers, in [0, 2**63).
        settings: JSON values that a saved state records.
        progress_limits: the counters of the random stream by name, each with the largest value it can reach.
        problems: the problems that a draw chooses; None: it chooses rows.

    Attributes:
        progress: the counters of the random stream. With the posterior they determine the next draw.
    """

    # By row: the step of its last draw, and the draws since a score.
    unscored: Mapping[int, tuple[int, int]] = MappingProxyType({})
    kind: ClassVar[str]
    bound: ClassVar[tuple[str, ...]] = ()  # settings that a saved state is about; the others are rules of the run

    def __init__(
        self,
        posterior: BetaPosterior,
        seed: int,
        settings: dict[str, Any],
        progress_limits: dict[str, int],
        problems: Problems | None = None,
    ) -> None:
        self.posterior = posterior
        self._problems = problems
        self._seed = check_whole_number("seed", seed, minimum=0, maximum=2**63 - 1, advice="Any such number works.")
        self._settings = {**settings, **posterior.decays}
        self._progress_limits = progress_limits
        self.progress = dict.fromkeys(progress_limits, 0)

    def draw(self, k: int, *, exclude: ArrayLike | None = None) -> Draw:
        """Choose `k` distinct rows that are not in `exclude`, (M,). Each subclass documents its rule."""
        raise NotImplementedError

    def peek(self, k: int) -> Draw:
        """Return the result of `draw(k)` without changing the sampler."""
        before = dict(self.progress)  # a draw changes nothing else
        try:
            return self.draw(k)
        finally:
            self.progress = before

    def observe(
        self, sample_index: ArrayLike, successes: ArrayLike, trials: ArrayLike, mixed: ArrayLike | None = None
    ) -> None:
        """Take one step of the posterior; see `BetaPosterior.observe`."""
        self.posterior.observe(sample_index, successes, trials, mixed)

    def take_over(self, sample_index: ArrayLike, successes: ArrayLike, trials: ArrayLike) -> None:
        """Take one step of the posterior from evidence of another run; the arguments are those of `observe`."""
        self.observe(sample_index, successes, trials)

    def use_spreads(self) -> None:
        """Treat later outcomes as spreads: the share of pairs of completions with different rewards."""

    def prior(self) -> Belief:
        """Return a and b of the present belief Beta(a, b) about rows without evidence, (N,) each or one number."""
        return FLAT

    def belief(self, sample_index: ArrayLike | None = None) -> tuple[FloatArray, FloatArray]:
        """Return a and b of the belief Beta(a, b) about the given rows, (K,) each, or about all rows, (N,) each."""
        rows = slice(None) if sample_index is None else self.posterior.check_rows(sample_index)
        (alpha, beta), size = self.posterior.counts(sample_index), self.posterior.num_samples
        a, b = (np.broadcast_to(prior, size)[rows] for prior in self.prior())
        return alpha + a, beta + b

    def mean_pass_rates(self, stratum: IntArray) -> FloatArray:
        """Return the mean expected pass rate of each stratum, (S,), for the stratum in [0, S) of each row, (N,)."""
        a, b = self.belief()
        mean: FloatArray = np.bincount(stratum, a / (a + b)) / np.bincount(stratum)
        return mean

    def metrics(self) -> dict[str, float]:
        """Return `coverage`, the share of rows visited, and `mean_pass_rate`, the mean expected one of all rows."""
        coverage = float(np.mean(self.posterior.visits > 0))
        mean = self.mean_pass_rates(np.zeros(self.posterior.num_samples, dtype=np.int64))
        return {"coverage": coverage, "mean_pass_rate": float(mean[0])}

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state."""
        return {
            "kind": self.kind,
            "seed": self._seed,
            **self.progress,
            "settings": dict(self._settings),
            "posterior": self.posterior.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the evidence of `state_dict`: counts, visits and random stream. On an error do nothing.

        The rules of a draw (gain, rest, decays, prior, strata) stay this sampler's own. With the saved rules the next
        draws are bit-identical. Another kind of sampler, seed, setting in `bound` or N is a `SnapshotMismatchError`.
        """
        check_same("sampler", state, {"kind": self.kind})  # first: the fields follow from it
        check_fields("sampler", state, ["kind", "seed", *self.progress, "settings", "posterior"])
        check_fields("settings of the sampler", state["settings"], state["settings"])  # they need only be a mapping
        theirs, ours = ({name: all_.get(name) for name in self.bound} for all_ in (state["settings"], self._settings))
        check_same("sampler", {"seed": state["seed"], **theirs}, {"seed": self._seed, **ours})
        limits = self._progress_limits.items()
        progress = {name: saved_number(name, state[name], maximum=limit) for name, limit in limits}
        self.posterior.load_state_dict(state["posterior"])  # the last step that can fail; it is all or nothing
        self.progress = progress

    def changed_rules(self, state: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
        """Return by name the rules of a saved state that differ from this sampler's: theirs and ours."""
        theirs, ours = state["settings"], self._settings
        both = {name: (theirs.get(name), ours.get(name)) for name in sorted({*theirs, *ours})}
        return {name: rules for name, rules in both.items() if rules[0] != rules[1]}

    def _check_draw(self, k: int, exclude: ArrayLike | None) -> tuple[int, IntArray]:
        """Return `k` and the distinct rows in `exclude`, or with problems the numbers and places of these."""
        excluded = np.unique(self.posterior.check_rows([] if exclude is None else exclude))
        if self._problems is not None:
            return self._problems.check_draw(k, excluded)
        left = self.posterior.num_samples - excluded.size
        advice = f"A batch has distinct rows, and {left} can be chosen. Use a smaller batch or a larger data set."
        return check_whole_number("k", k, minimum=1, maximum=left, advice=advice), excluded

    def _generator(self, number: int) -> np.random.Generator:
        """Return the random stream of draw `number`. Philox is counter-based: the seed and the number determine it."""
        return np.random.Generator(np.random.Philox(key=np.array([self._seed, number], dtype=np.uint64)))
