"""Rows that ask another row's question in another way; `id`, `kind` and a column with that row's id tie them to it."""

import logging
from typing import Any

import numpy as np
from datasets import Dataset
from numpy.typing import NDArray

from trl_vade.errors import ConfigurationError, abbreviated

from .columns import TEXTS
from .row_keys import CONTENT, content_keys

logger = logging.getLogger(__name__)

ANSWERS = ("answer", "answer_type", "solution", "ground_truth", "reference", "label", "target", "choices")


def with_known_originals(rows: Dataset, column: str) -> Dataset:
    """Return `rows` without variants of an original that is not there, or refuse rows without the columns."""
    if not {"id", "kind"} <= {*rows.column_names} or rows.features.get(column) not in TEXTS:
        raise ConfigurationError(
            f"vade_variants={column!r}, and the training set has {rows.column_names}. Set it to the column with "
            "the id of each row's original, a text, beside the columns 'id' and 'kind'."
        )
    known = {*_texts(rows, "id")}
    kept = [place for place, name in enumerate(_texts(rows, column)) if name in known]
    return _select(rows, kept, "train_dataset", "variants of rows that it does not have")


def originals_of(rows: Any, column: str) -> Any:
    """Return the rows of an evaluation that are no variants; the log says how many are left out."""
    if not isinstance(rows, Dataset) or "id" not in rows.column_names or rows.features.get(column) not in TEXTS:
        return rows
    pairs = zip(_texts(rows, "id"), _texts(rows, column), strict=True)
    return _select(rows, [place for place, (name, of) in enumerate(pairs) if name == of], "eval_dataset", "variants")


def read_variants(rows: Dataset, column: str) -> tuple[NDArray[np.int64], list[str]]:
    """Return the row of each row's original, (N,), and the kinds, (N,), of rows of `with_known_originals`.

    An id that occurs twice, or a variant that equals its original or has another answer, is a `ConfigurationError`.
    """
    rows = rows.with_format(None)
    ids, kinds = _texts(rows, "id"), _texts(rows, "kind")
    place = {name: number for number, name in enumerate(ids)}
    of = np.array([place[name] for name in _texts(rows, column)], dtype=np.int64)
    if len(place) < len(ids):
        raise ConfigurationError(
            f"The column 'id' holds {len(place)} values for {len(ids)} rows with vade_variants={column!r}. Give each "
            "row an id of its own, because variants name their original by its id."
        )
    content = [name for name in CONTENT if name in rows.column_names]
    keys = content_keys(rows, content) if content else np.arange(len(rows))
    if (same := np.flatnonzero((keys[of] == keys) & (of != np.arange(len(of))))).size:
        raise ConfigurationError(
            f"{len(same)} variants have the prompt and the images of their original; the first is {ids[same[0]]!r}. "
            "They would count as other questions. Remove these rows."
        )
    for name in (name for name in ANSWERS if name in rows.column_names):
        answers = rows[name][:]
        if other := [row for row, original in enumerate(of.tolist()) if answers[row] != answers[original]]:
            raise ConfigurationError(
                f"{len(other)} variants have another {name!r} than their original; the first is {ids[other[0]]!r}: "
                f"{abbreviated(answers[other[0]])} and {abbreviated(answers[of[other[0]]])}. All variants of a "
                "question have its answer. Correct these rows, or remove them."
            )
    return of, kinds


def _texts(rows: Dataset, column: str) -> list[str]:
    return [*map(str, rows.with_format(None).select_columns([column])[column])]


def _select(rows: Dataset, kept: list[int], name: str, others: str) -> Dataset:
    if len(kept) == len(rows):
        return rows
    logger.warning(f"{name}: {len(rows) - len(kept)} of {len(rows)} rows are left out: they are {others}.")
    return rows.select(kept)
