"""The setting `vade_sampler`: a name, an import path, or a sampler of a user's own."""

import copy
import importlib
import re
import sys
from typing import Any

from trl_vade.errors import ConfigurationError, abbreviated
from trl_vade.samplers.base import PosteriorSampler, PromptSampler
from trl_vade.samplers.own import OwnSampler, path_of
from trl_vade.samplers.posterior import BetaPosterior

VERBS = "draw, observe, state_dict, load_state_dict and metrics"
SAMPLERS = ("thompson", "greedy", "uniform")
_PATH = re.compile(r"[^\W\d]\w*(\.\w+)*:[^\W\d]\w*(\.\w+)*")


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
    """Return a `PathOf` for a sampler, or for a class or function that makes one, and anything else as it is."""
    if isinstance(sampler, str) or not (isinstance(sampler, PromptSampler) or callable(sampler)):
        return sampler
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
    """Return the object that `value` stands for, or the class or function at its path. That runs the user's code.

    Raises:
        ConfigurationError: there is no such class or function.
    """
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
    """Return the user's sampler for N = `num_samples` rows; its posterior has these `decays` if it brings none.

    Raises:
        ConfigurationError: it cannot be made, lacks a verb, or is for another number of rows.
    """
    found = find_sampler(value)
    try:
        made = found(num_samples, seed=seed) if _makes(found) else found
        if not isinstance(made, PromptSampler):
            raise TypeError(f"it gave a {type(made).__name__}, which lacks a verb")
    except TypeError as error:
        raise ConfigurationError(
            f"vade_sampler={value!r} is called as {value.partition(':')[2]}({num_samples}, seed={seed}), which "
            f"failed: {error}. It must take these arguments and return a sampler, which has the verbs {VERBS}. Or "
            "pass a sampler that is made with others."
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
    """Return whether it is a class or function that makes samplers, and no sampler itself."""
    return isinstance(found, type) or not isinstance(found, PromptSampler)
