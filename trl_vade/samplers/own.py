"""A sampler of a user's own: any object with the five verbs of `PromptSampler`, or the import path of its class."""

import copy
import importlib
import json
import re
import sys
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

_VERBS = ("draw", "observe", "state_dict", "load_state_dict", "metrics")
VERBS = f"{', '.join(_VERBS[:-1])} and {_VERBS[-1]}"
SAMPLERS = ("thompson", "greedy", "uniform")
_PATH = re.compile(r"[^\W\d]\w*(\.\w+)*:[^\W\d]\w*(\.\w+)*")


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


class PathOf(str):
    """The import path of a sampler's class in the place of the sampler, which is `given`.

    transformers logs, copies and saves all settings. They see a text, and no object that JSON or pickle cannot hold.
    """

    given: Any
    first: Any = None  # the state of `given` before its first run: a later run of the same settings starts there

    def __deepcopy__(self, memo: Any) -> "PathOf":
        return self

    def __reduce__(self) -> Any:
        return str, (str(self),)


def as_text(sampler: Any) -> Any:
    """Return a `PathOf` for a sampler, or for a class or function that makes one; a text or None as it is."""
    if isinstance(sampler, str) or sampler is None:
        return sampler
    if not (isinstance(sampler, PromptSampler) or callable(sampler)):
        lacking = ", ".join(verb for verb in _VERBS if not hasattr(sampler, verb))
        raise ConfigurationError(
            f"vade_sampler={abbreviated(sampler)} lacks {lacking}. A sampler of your own has the verbs {VERBS}."
        )
    path = PathOf(path_of(sampler if _makes(sampler) else type(sampler)))
    path.given = sampler
    return path


def check_sampler(value: Any) -> None:
    """Raise `ConfigurationError` unless `value`, a result of `as_text`, names a sampler or is None. Import nothing."""
    named = isinstance(value, str) and (value in SAMPLERS or _PATH.fullmatch(value))
    if not (value is None or isinstance(value, PathOf) or named):
        raise ConfigurationError(
            f"vade_sampler={abbreviated(value)} is not known. Set it to one of {', '.join(SAMPLERS)}, to the import "
            f"path of a sampler of your own, 'package.module:Class', or to an object with the verbs {VERBS}."
        )


def find_sampler(value: str) -> Any:
    """Return what `value` stands for, or what is at its path (user's code), or raise `ConfigurationError`."""
    if isinstance(value, PathOf):
        return value.given
    module, _, name = value.partition(":")
    sys.path.insert(0, "")  # the user's working directory, as for reward functions
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
        if not callable(found) or not _makes(found):
            raise TypeError(f"it is a {type(found).__name__}, no class or function")
    except (ImportError, AttributeError, TypeError) as error:
        raise ConfigurationError(
            f"vade_sampler={value!r} cannot be imported: {error}. Set it to the path of a class or function that is "
            f"called with the number of rows and seed=, 'package.module:Class', or to one of {', '.join(SAMPLERS)}."
        ) from error
    finally:
        sys.path.pop(0)
    return found


def make_own(value: str, num_samples: int, *, seed: int, **decays: Any) -> PosteriorSampler:
    """Return the user's sampler for N = `num_samples` rows, with these `decays`, or raise `ConfigurationError`."""
    found = find_sampler(value)
    try:
        made = found(num_samples, seed=seed) if _makes(found) else found
        if not isinstance(made, PromptSampler):
            raise TypeError(f"it gave a {type(made).__name__}, which lacks a verb")
    except TypeError as error:
        raise ConfigurationError(
            f"vade_sampler={value!r} is called as {value.partition(':')[2]}({num_samples}, seed={seed}), which "
            f"failed: {error}. It must return a sampler with the verbs {VERBS}. Or pass one that is made."
        ) from error
    sampler = made
    if not isinstance(sampler, PosteriorSampler):
        sampler = OwnSampler(made, BetaPosterior(num_samples, **decays), seed)
    if sampler.posterior.num_samples != num_samples:
        raise ConfigurationError(
            f"vade_sampler={value!r} is for {sampler.posterior.num_samples} rows, and the training set has "
            f"{num_samples}. Make it for that number, or give its import path."
        )
    if "kind" not in vars(type(sampler)) | vars(sampler):  # a subclass chooses in another way than its parent
        sampler.kind = path_of(type(sampler))  # type: ignore[misc]
    if isinstance(value, PathOf) and made is found:
        if value.first is None:
            value.first = copy.deepcopy(made.state_dict())
        else:
            made.load_state_dict(copy.deepcopy(value.first))
    return sampler


def _makes(found: Any) -> bool:
    return isinstance(found, type) or not isinstance(found, PromptSampler)
