"""The names and tasks of rows in the tables of published posteriors, for people."""

from typing import Any

import numpy as np
import pyarrow as pa
from datasets import ClassLabel, Dataset
from numpy.typing import NDArray

ROWS_AT_A_TIME = 10_000
"""The rows read at a time. Arrow makes a table of its own for each row that does not follow the one before."""


def names_and_tasks(
    dataset: Dataset, keys: NDArray[np.int64], rows: NDArray[np.int64], task_column: str
) -> dict[str, Any]:
    """Return the arguments `sample_id` and `task` of `posterior_table` for the rows, (V,).

    A name is the text of the row's `id`, or its key if it has none. Without the column of the tasks `task` is None.
    """
    columns = dataset.data.schema
    kind = columns.field("id").type if "id" in columns.names else pa.binary()
    no_text = pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    ids = [None] * len(rows) if no_text else _values(dataset, "id", rows)
    names = [key_text(key) if one is None else str(one) for one, key in zip(ids, keys[rows].tolist(), strict=True)]
    return {
        "sample_id": names,
        "task": row_labels(dataset, task_column, rows) if task_column in columns.names else None,
    }


def key_text(key: int) -> str:
    """Return a key of `row_keys.sample_keys` as 16 hexadecimal digits."""
    return f"{key & (2**64 - 1):016x}"


def row_labels(dataset: Dataset, column: str, rows: NDArray[np.int64]) -> list[str | None]:
    """Return the labels of the rows as texts; None for a missing label. A `ClassLabel` gives the name of the class."""
    feature, values = dataset.features[column], _values(dataset, column, rows)
    if not isinstance(feature, ClassLabel):
        return [None if value is None else str(value) for value in values]
    # datasets writes -1 for a missing label, as in the hidden labels of a test split.
    return [None if value is None or value < 0 else feature.int2str(value) for value in values]


def _values(dataset: Dataset, column: str, rows: NDArray[np.int64]) -> list[Any]:
    plain, values = dataset.select_columns([column]).with_format("arrow"), list[Any]()
    for start in range(0, len(rows), ROWS_AT_A_TIME):
        values += plain[rows[start : start + ROWS_AT_A_TIME].tolist()][column].to_pylist()
    return values
