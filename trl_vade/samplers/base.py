"""What samplers share: a posterior that takes in every outcome, a state to resume from, streams of random numbers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from trl_vade.checks import FloatArray, IntArray, check_fields, check_same, check_whole_number
from trl_vade.errors import SnapshotCorruptError

from .posterior import BetaPosterior
from .prior import FLAT, Prior


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

    def observe(
        self,
        sample_index: ArrayLike,
        successes: ArrayLike,
        trials: ArrayLike,
        mixed: ArrayLike | None = None,
    ) -> None:
        """Learn from the scores of one generation batch; arrays (K,)."""

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state, sharing no array with the sampler."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a state, or raise and change nothing."""

    def metrics(self) -> dict[str, float]:
        """Return figures worth logging, by plain names."""


NOTHING = np.empty(0, dtype=np.int64)
_PHILOX = {
    "bit_generator": "Philox",
    "buffer": np.zeros(4, dtype=np.uint64),
    "buffer_pos": 4,  # it is used up
    "has_uint32": 0,
    "uinteger": 0,
}
"""The state of a fresh Philox generator, without its counter and its key."""


class PosteriorSampler:
    """A seed, a posterior that takes in every outcome, and the state.

    Args:
        posterior: what is known of the N rows.
        seed: in [0, 2**63).
        settings: JSON values that a saved state must share with the sampler that loads it.
        progress_limits: how far the random stream can be used: names, and the largest whole number each can reach.
    """

    kind: ClassVar[str]

    def __init__(
        self, posterior: BetaPosterior, seed: int, settings: dict[str, Any], progress_limits: dict[str, int]
    ) -> None:
        self.posterior = posterior
        self._seed = check_whole_number(
            "seed",
            seed,
            minimum=0,
            maximum=2**63 - 1,
            advice="It is the key of the random numbers; any number in that range will do.",
        )
        self._chance = np.random.Generator(np.random.Philox(0))
        self._settings = {**settings, **posterior.decays}
        # How far the random stream has been used, in whole numbers that start at 0.
        self._progress_limits = progress_limits
        self._progress = dict.fromkeys(progress_limits, 0)

    def draw(self, k: int, *, exclude: ArrayLike | None = None) -> Draw:
        """Choose `k` distinct rows, none of them in `exclude`, (M,); the classes say how."""
        raise NotImplementedError

    def peek(self, k: int) -> Draw:
        """Return what `draw(k)` would return now, bit for bit, and leave the sampler as it is.

        What a draw changes is `_progress` alone; the rest that it depends on, only `observe` changes.
        """
        before = dict(self._progress)
        try:
            return self.draw(k)
        finally:
            self._progress = before

    def observe(
        self,
        sample_index: ArrayLike,
        successes: ArrayLike,
        trials: ArrayLike,
        mixed: ArrayLike | None = None,
    ) -> None:
        """Take one step of the posterior; see `BetaPosterior.observe`."""
        self.posterior.observe(sample_index, successes, trials, mixed)

    def take_over(self, sample_index: ArrayLike, successes: ArrayLike, trials: ArrayLike) -> None:
        """Take one step of the posterior from evidence of another run, see `observe`: no row was trained on."""
        self.observe(sample_index, successes, trials)

    def use_spreads(self) -> None:
        """Take the outcomes from now on for spreads, the share of pairs of completions whose rewards differ."""

    def prior(self) -> Prior:
        """Return the belief about rows without evidence, as it is now."""
        return FLAT

    def belief(self, sample_index: ArrayLike | None = None) -> tuple[FloatArray, FloatArray]:
        """Return (a, b) of the belief Beta(a, b) about the rows named, (K,) each, or about all rows, (N,) each."""
        rows = None if sample_index is None else self.posterior.check_rows(sample_index)
        (alpha, beta), (a, b) = self.posterior.counts(rows), self.prior().of(rows)
        alpha += a
        beta += b
        return alpha, beta

    def mean_pass_rates(self, stratum: IntArray | None = None, num_strata: int = 1) -> FloatArray:
        """Return (S,) the expected pass rate, averaged over the rows of each stratum, or over all N, (1,).

        The rows without evidence are counted, not visited: where there are no strata this is O(V).

        Args:
            stratum: (N,) number of each row's stratum, from 0; each of [0, S) occurs.
            num_strata: S.
        """
        prior, visited = self.prior(), self.posterior.visited
        (alpha, beta), (a, b) = self.posterior.visited_counts(), prior.of(visited)
        alpha += a
        mean, kinds = alpha / (beta + b + alpha), len(prior.table)
        kind = None if stratum is None else stratum * kinds  # a stratum here, and one of the prior
        if prior.stratum is not None:
            kind = prior.stratum + (0 if kind is None else kind)
        if kind is None:
            every, seen = np.array([self.posterior.num_samples]), np.array([visited.size])
        else:
            every, seen = (np.bincount(of, minlength=num_strata * kinds) for of in (kind, kind[visited]))
        fresh = (every - seen).reshape(num_strata, kinds) @ (prior.table[:, 0] / prior.table.sum(axis=1))
        total = fresh + (mean.sum() if stratum is None else np.bincount(stratum[visited], mean, num_strata))
        means: FloatArray = total / every.reshape(num_strata, kinds).sum(axis=1)
        return means

    def metrics(self) -> dict[str, float]:
        """Return `coverage`, the share of rows visited, and `mean_pass_rate`, the expected one averaged over N."""
        return {
            "coverage": self.posterior.visited.size / self.posterior.num_samples,
            "mean_pass_rate": float(self.mean_pass_rates()[0]),
        }

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state; `type(sampler)(num_samples, seed=seed, **settings)` is one that can load it.

        (Where a setting is an array, as `strata`, the state has a digest of it, and the array has to be given again.)
        """
        return {
            "kind": self.kind,
            "seed": self._seed,
            **self._progress,
            "settings": dict(self._settings),
            "posterior": self.posterior.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned: the next draws are bit-identical. On an error nothing changes.

        The seed is compared and not taken over: a run that asks for seed 1 and goes on with 0 would surprise.

        Raises:
            SnapshotMismatchError: another kind of sampler, seed, setting, N or set of fields; both sides are named.
            SnapshotCorruptError: numbers that no run can have saved.
        """
        # The kind goes first. The fields follow from it, and would make the worse message.
        if isinstance(state, Mapping) and "kind" in state:
            check_same("sampler", state, {"kind": self.kind})
        check_fields("sampler", state, ["kind", "seed", *self._progress, "settings", "posterior"])
        check_fields("settings of the sampler", state["settings"], self._settings)
        check_same("sampler", {"seed": state["seed"], **state["settings"]}, {"seed": self._seed, **self._settings})
        progress = {
            name: check_whole_number(
                f"The saved {name}",
                state[name],
                minimum=0,
                maximum=limit,
                advice="The file was damaged or edited; load an earlier snapshot.",
                error=SnapshotCorruptError,
            )
            for name, limit in self._progress_limits.items()
        }
        self.posterior.load_state_dict(state["posterior"])  # the last step that can fail, and it is all or nothing
        self._progress = progress

    def _check_draw(self, k: int, exclude: ArrayLike | None) -> tuple[int, IntArray]:
        """Return `k` and the distinct rows in `exclude`, or raise `ConfigurationError` where too few rows are left."""
        excluded = NOTHING if exclude is None else np.unique(self.posterior.check_rows(exclude))
        left = self.posterior.num_samples - excluded.size
        number = check_whole_number(
            "k",
            k,
            minimum=1,
            maximum=left,
            advice=f"The rows of a generation batch are distinct and the data set has {left} to choose from: make the "
            "batch smaller or the data set larger.",
        )
        return number, excluded

    def _generator(self, number: int) -> np.random.Generator:
        """A stream of its own for the draw of this number, until the next call: Philox is counter-based, so no state
        needs to be kept."""
        # Philox(key=...) is the same stream, but first asks the system for random bits that it then does not use.
        self._chance.bit_generator.state = _PHILOX | {
            "state": {"counter": np.zeros(4, dtype=np.uint64), "key": np.array([self._seed, number], dtype=np.uint64)}
        }
        return self._chance
