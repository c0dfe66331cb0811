"""What the peers refuse: a saved memory that no run can have left, and arguments that are no rate or no scale."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..checks import FloatArray, as_vector, shown
from ..errors import ConfigurationError, ObservationError, SnapshotCorruptError


def saved_numbers(
    name: str, values: Any, kind: type[int] | type[float], *, low: float, high: float, size: int
) -> list[Any]:
    """Return a saved list, or raise `SnapshotCorruptError` unless it holds `size` numbers of `kind` in [low, high]."""
    sound = isinstance(values, list) and len(values) == size
    if not sound or not all(type(value) is kind and low <= value <= high for value in values):
        raise SnapshotCorruptError(
            f"The saved {name} is {shown(values)}; it must be a list of {size} numbers of type {kind.__name__} in "
            f"[{low}, {high}]. The file was damaged or edited; load an earlier snapshot."
        )
    return list(values)


def check_positive(name: str, value: float) -> float:
    """Return `value` as a float, or raise `ConfigurationError` unless it is a finite number above 0."""
    number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not number or not 0 < value < np.inf:
        raise ConfigurationError(
            f"{name} is {shown(value)}; it must be a finite number above 0, since it divides. Set 1 for no scaling."
        )
    return float(value)


def check_pass_rates(pass_rate: ArrayLike, num_samples: int) -> FloatArray:
    """Return (N,) pass rates as a new array, or raise `ObservationError` unless they are N numbers in [0, 1]."""
    p = as_vector("pass_rate", pass_rate, kinds="biuf").astype(np.float64)
    if p.size != num_samples or not ((p >= 0) & (p <= 1)).all():
        raise ObservationError(
            f"pass_rate is {shown(p.tolist())}; it must hold {num_samples} probabilities in [0, 1], one for each row. "
            "Pass how likely a completion of each row is to be right."
        )
    return p
