"""A sampler of a user's own: any object with the five verbs of `PromptSampler`."""

import copy
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from trl_vade.checks import check_fields, check_outcomes, check_same
from trl_vade.errors import ConfigurationError, ObservationError, abbreviated

from .base import Draw, PosteriorSampler, PromptSampler
from .information import information_gain
from .posterior import BetaPosterior


class OwnSampler(PosteriorSampler):
    """A sampler that leaves the choice to such an object; the posterior learns beside it for log, report and files."""

    def __init__(self, chooser: PromptSampler, posterior: BetaPosterior, seed: int = 0) -> None:
        super().__init__(posterior, seed, {}, {})
        self.kind = path_of(type(chooser))  # type: ignore[misc]
        self._chooser = chooser
        self._recall()  # a state that cannot be saved is refused now, and not at the first checkpoint

    def draw(self, k: int, *, exclude: ArrayLike | None = None) -> Draw:
        """Return the choice of the object, its rows alone or a `Draw`; a wrong one is a `ConfigurationError`."""
        k, excluded = self._check_draw(k, exclude)
        drawn: Any = self._chooser.draw(k, exclude=excluded)
        try:
            rows = self.posterior.check_rows(getattr(drawn, "sample_index", drawn))
        except ObservationError:
            rows = np.empty(0, dtype=np.int64)
        if not rows.size == np.setdiff1d(rows, excluded).size == k:
            raise ConfigurationError(
                f"draw({k}) of vade_sampler={self.kind!r} returned {abbreviated(drawn)}. It must return {k} distinct "
                f"whole numbers in [0, {self.posterior.num_samples}), without {abbreviated(excluded.tolist())}."
            )
        a, b = self.belief(rows)
        mean = a / (a + b)
        return Draw(rows, mean.copy(), information_gain(mean), mean)

    def peek(self, k: int) -> Draw:
        """Return the result of `draw(k)`, and take the object back to its state before."""
        before = self._recall()
        try:
            return self.draw(k)
        finally:
            self._chooser.load_state_dict(before)

    def observe(
        self, sample_index: ArrayLike, successes: ArrayLike, trials: ArrayLike, mixed: ArrayLike | None = None
    ) -> None:
        """Take one step of the posterior, which checks the numbers, and pass them on to the object, as arrays."""
        super().observe(sample_index, successes, trials, mixed)
        rows, scores = self.posterior.check_rows(sample_index), check_outcomes(successes, trials)
        self._chooser.observe(rows, *scores, None if mixed is None else np.asarray(mixed))

    def metrics(self) -> dict[str, float]:
        """Return the metrics of the object, and those of the posterior."""
        return {**self._chooser.metrics(), **super().metrics()}

    def state_dict(self) -> dict[str, Any]:
        """Return the state of `PosteriorSampler`, and that of the object under `own`."""
        return {**super().state_dict(), "own": self._recall()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the result of `state_dict`; see `PosteriorSampler.load_state_dict`. An error of the object passes."""
        before = super().state_dict()
        check_same("sampler", state, {"kind": self.kind})  # first: the state of another class has other fields
        check_fields("sampler", state, [*before, "own"])
        super().load_state_dict({name: value for name, value in state.items() if name != "own"})
        try:  # last: with another seed or other rows the object's state is another
            self._chooser.load_state_dict(copy.deepcopy(state["own"]))
        except Exception:
            super().load_state_dict(before)
            raise

    def _recall(self) -> Any:
        state = self._chooser.state_dict()
        with suppress(TypeError, ValueError):
            read = json.loads(json.dumps(state, allow_nan=False))
            if isinstance(state, dict) and read == state:
                return read
        raise ConfigurationError(
            f"state_dict() of vade_sampler={self.kind!r} returned {abbreviated(state)}. It must return a dictionary "
            "that JSON gives back as it was. Use .tolist() for an array, and lists for tuples and sets."
        )


def path_of(named: Any) -> str:
    """Return the import path of a class or function."""
    return f"{getattr(named, '__module__', '')}:{getattr(named, '__qualname__', type(named).__qualname__)}"
