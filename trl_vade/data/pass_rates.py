"""A column of pass rates, which many data sets carry: how often some policy has solved each row."""

import re

import numpy as np
from datasets import Dataset
from numpy.typing import NDArray

from trl_vade.errors import ConfigurationError, abbreviated

_NAME = re.compile(r"(?P<column>.+?)(?:/(?P<whole>\d+(?:\.\d+)?))?")


def pass_rates(rows: Dataset, named: str) -> NDArray[np.float64]:
    """Return the pass rate of each row, (N,), in [0, 1]; NaN where the column has none.

    Args:
        rows: the data set.
        named: "NAME" of a column of fractions, or "NAME/M" of one of M-ths: "/100" of percent, "/16" of the successes
            among 16 answers. Values are numbers, or texts of numbers.

    Raises:
        ConfigurationError: there is no such column, a value is no number, or it is outside [0, M]. A column of whole
            numbers needs "/M": nothing tells successes from percent.
    """
    column, whole = _NAME.fullmatch(named).groups()  # type: ignore[union-attr]
    if named in rows.column_names:
        column, whole = named, None
    if column not in rows.column_names:
        raise ConfigurationError(
            f"vade_posterior_init='column:{named}': the training set has no column {column!r}, but {rows.column_names}"
        )
    values = rows.with_format(None)[column][:]
    found = np.array([_number(value, row, named) for row, value in enumerate(values)])
    known = found[~np.isnan(found)]
    counts = whole is None and any(isinstance(value, int) and not isinstance(value, bool) for value in values)
    wrong = np.flatnonzero((found < 0.0) | (found > float(whole or 1.0)))
    if counts or wrong.size or not known.size:
        row = int(wrong[0]) if wrong.size else 0
        raise ConfigurationError(
            f"vade_posterior_init='column:{named}': row {row} has {abbreviated(values[row])}, and {known.size} of "
            f"{len(values)} rows have a number, up to {known.max(initial=0.0):g}. Values must be fractions in [0, 1], "
            f"or the name must tell the whole: 'column:{column}/100' for percent, 'column:{column}/16' for successes "
            "among 16 answers."
        )
    return found / float(whole or 1.0)


def _number(value: object, row: int, named: str) -> float:
    """Return the number that a cell holds, NaN for none."""
    try:
        return np.nan if value is None else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise ConfigurationError(
            f"vade_posterior_init='column:{named}': row {row} has {abbreviated(value)}, which is no number. Name a "
            "column of pass rates, with None where a row has none."
        ) from None
