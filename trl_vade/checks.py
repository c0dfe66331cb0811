"""Checks of arguments and saved values that several modules share."""

import operator
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import (
    ConfigurationError,
    ObservationError,
    SnapshotCorruptError,
    SnapshotMismatchError,
    VADEError,
    abbreviated,
)

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

MOST_TRIALS = 2.0**53  # The largest count. Up to here a float64 holds every whole number.


def check_whole_number(
    name: str,
    value: Any,
    *,
    minimum: int,
    maximum: int | None = None,
    advice: str,
    error: type[VADEError] = ConfigurationError,
) -> int:
    """Return `value` as an `int`, or raise `error` unless it is a whole number in [minimum, maximum].

    `True` and `3.0` are refused as likely mistakes. `advice` is the end of the message: the reason and the remedy.
    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or number < minimum or (maximum is not None and number > maximum):
        rule = f"at least {minimum}" if maximum is None else f"from {minimum} to {maximum}"
        raise error(f"{name} is {abbreviated(value)}; it must be a whole number {rule}. {advice}")
    return number


def check_fields(what: str, saved: Any, expected: Iterable[str]) -> None:
    """Raise a `SnapshotError` unless `saved`, the state of `what`, is a mapping of the fields `expected`."""
    if not isinstance(saved, Mapping):
        raise SnapshotCorruptError(
            f"The saved {what} is a {type(saved).__name__}; it must be a mapping of field names to values, a result "
            "of state_dict, or the sampler_state that load_snapshot read."
        )
    expected = set(expected)
    if saved.keys() != expected:
        missing, unknown = sorted(expected - saved.keys()), sorted(map(str, saved.keys() - expected))
        raise SnapshotMismatchError(
            f"The saved {what} has the fields {sorted(map(str, saved))} and this one has {sorted(expected)} (missing: "
            f"{missing}, unknown: {unknown}). Load it with the release of trl_vade that saved it."
        )


def check_same(what: str, saved: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """Raise `SnapshotMismatchError` unless `saved`, the state of `what`, holds every value of `here`."""
    # Types are compared first: 1 == True, and an array has no single truth value. Texts come last: 0.0 == -0.0.
    differences = [
        f"{name} is {abbreviated(saved.get(name))} in the saved state and {value!r} here"
        for name, value in here.items()
        if type(saved.get(name)) is not type(value) or saved[name] != value or str(saved[name]) != str(value)
    ]
    if differences:
        raise SnapshotMismatchError(
            f"The saved state does not belong to this {what}: {'; '.join(differences)}. The saved counts and draws "
            f"depend on these values. Build the {what} with them, or start without the saved state."
        )


def check_outcomes(successes: ArrayLike, trials: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return both as float64, (K,), or raise `ObservationError` unless 0 <= successes <= trials <= `MOST_TRIALS`."""
    successes = as_vector("successes", successes, kinds="biuf").astype(np.float64)
    trials = as_vector("trials", trials, kinds="biuf").astype(np.float64)
    if successes.shape != trials.shape:
        raise ObservationError(
            f"successes has shape {successes.shape} and trials {trials.shape}; they must be equal, one entry a group."
        )
    sound = (successes >= 0) & (successes <= trials) & (trials <= MOST_TRIALS)  # false for NaN
    if not sound.all():
        first = int(np.flatnonzero(~sound)[0])
        raise ObservationError(
            f"Entry {first} has successes {successes[first]} and trials {trials[first]}; the rule is 0 <= successes "
            "<= trials <= 2**53, all finite. Both count completions of one group, without those that have no score."
        )
    return successes, trials


def as_vector(name: str, values: ArrayLike, *, kinds: str) -> NDArray[Any]:
    """Return `values` as a vector with a dtype of `kinds` (numpy's letters), or raise `ObservationError`."""
    try:
        vector = np.asarray(values)
    except (TypeError, ValueError) as error:
        raise ObservationError(f"{name} cannot be read as an array ({error}); pass one flat list or array.") from error
    # numpy makes an empty list float64. K = 0, a step without groups, is allowed with any dtype.
    if vector.ndim != 1 or (vector.size and vector.dtype.kind not in kinds):
        wanted = "integers" if kinds == "iu" else "numbers"
        raise ObservationError(
            f"{name} has shape {vector.shape} and dtype {vector.dtype}; it must be a vector of {wanted}, one a row."
        )
    return vector


def check_bool(name: str, value: bool) -> bool:
    """Return `value`, or raise `ConfigurationError` unless it is True or False."""
    if not isinstance(value, bool):
        raise ConfigurationError(f"{name} is {abbreviated(value)}; it must be True or False.")
    return value


def check_share(name: str, value: float, advice: str = "It is a share of a whole.") -> float:
    """Return `value` as a float, or raise `ConfigurationError` unless it is a number in [0, 1]."""
    is_number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= 1:
        raise ConfigurationError(f"{name} is {abbreviated(value)}; it must be a number in [0, 1]. {advice}")
    return float(value)


def check_labels(name: str, values: ArrayLike, num_samples: int) -> IntArray:
    """Return the position of each label among the sorted distinct labels, (N,), or raise `ConfigurationError`."""
    labels = np.asarray(values)
    if labels.shape != (num_samples,) or labels.dtype.kind not in "iubUS":
        raise ConfigurationError(
            f"{name} has shape {labels.shape} and dtype {labels.dtype}; it must hold one label, a text or a whole "
            f"number, for each of the {num_samples} rows. Pass a column of the data set as a list."
        )
    return np.unique(labels, return_inverse=True)[1].astype(np.int64)
