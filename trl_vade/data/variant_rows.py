"""Variants as rows: rows of a data set that ask an original question in another way.

The columns `id`, `of` and `kind` tie them together. `of` is the id of a row's original, and an original is its own.
"""

import logging

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset, DatasetInfo, Features, Value
from numpy.typing import NDArray

from trl_vade.errors import ConfigurationError, abbreviated

from .row_keys import content_keys, sample_keys

logger = logging.getLogger(__name__)

ORIGINAL = "original"
ANSWERS = ("answer", "answer_type", "solution", "ground_truth", "reference", "label", "target", "choices")
"""Usual names of the columns that tell a right answer."""
CONTENT = ("prompt", "image", "images")
_WAY_OUT = (
    "Set vade_variants to a column that holds a list of {'kind', 'prompt', 'images'} for each row, or to the column "
    "with the id of each row's original, beside the columns 'id' and 'kind', as `trl-vade variants` writes them."
)


def with_variants_as_rows(rows: Dataset, column: str) -> Dataset:
    """Return `rows` with a row for each variant in the lists of `column`, after all originals.

    Each variant has a `kind`, and a `prompt`, an `image` or `images` of its own. It takes all other columns from its
    original. Rows whose `column` names their originals are returned without variants of a missing original, and the
    log says how many these are.

    Raises:
        ConfigurationError: the data set lacks the column, or its values do not describe variants.
    """
    if column not in rows.column_names:
        raise ConfigurationError(
            f"vade_variants={column!r} is not a column of the training set, which has {rows.column_names}. {_WAY_OUT}"
        )
    kind = rows.data.schema.field(column).type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        form = rows.format
        expanded = _expanded(rows.with_format(None), column)
        return expanded.with_format(form["type"], **form["format_kwargs"])
    missing = [name for name in ("id", "kind") if name not in rows.column_names]
    if missing or not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        reason = f"the training set has no column {' and '.join(missing)}" if missing else f"it holds {kind}"
        raise ConfigurationError(f"vade_variants={column!r} names the original of each row, but {reason}. {_WAY_OUT}")
    ids, of = _texts(rows, "id"), _texts(rows, column)
    known = {*ids}
    kept = [place for place, name in enumerate(of) if name in known]
    if len(kept) == len(rows):
        return rows
    logger.warning(
        f"{len(rows) - len(kept)} of {len(rows)} rows are left out: they are variants of rows that the training set "
        "does not have."
    )
    return rows.select(kept)


def originals_of(rows: Dataset, column: str) -> Dataset:
    """Return the rows that are no variants."""
    if not {"id", column} <= {*rows.column_names} or rows.features[column] != Value("string"):
        return rows
    pairs = zip(_texts(rows, "id"), _texts(rows, column), strict=True)
    kept = [place for place, (name, of) in enumerate(pairs) if name == of]
    return rows if len(kept) == len(rows) else rows.select(kept)


def read_variants(rows: Dataset, column: str) -> tuple[NDArray[np.int64], list[str]]:
    """Return the row of each row's original, (N,), and the kinds, (N,), of rows of `with_variants_as_rows`.

    Raises:
        ConfigurationError: an id occurs twice, or a variant equals its original or has another answer.
    """
    rows = rows.with_format(None)
    ids, kinds = _texts(rows, "id"), _texts(rows, "kind")
    place = {name: number for number, name in enumerate(ids)}
    of = np.array([place[name] for name in _texts(rows, column)], dtype=np.int64)
    if len(place) < len(ids):
        raise ConfigurationError(
            f"The column 'id' holds {len(place)} different values for {len(ids)} rows with vade_variants={column!r}. "
            "Give each row an id of its own, because variants name their original by its id."
        )
    _refuse_same_content(rows, of, ids)
    _refuse_other_answers(rows, of, ids)
    return of, kinds


def _texts(rows: Dataset, column: str) -> list[str]:
    return [*map(str, rows.with_format(None).select_columns([column])[column])]


def _expanded(rows: Dataset, column: str) -> Dataset:
    table: pa.Table = rows.with_format("arrow")[:]
    lists, others = table[column].combine_chunks(), table.drop_columns([column])
    each, parents = pc.list_flatten(lists), pc.list_parent_indices(lists).to_numpy()
    fields = [field.name for field in each.type] if pa.types.is_struct(each.type) else []
    changed = [name for name in fields if name != "kind"]
    there = {*others.column_names}
    if "kind" not in fields or not {*changed} <= {*CONTENT} & there or there & {"of", "kind"}:
        raise ConfigurationError(
            f"vade_variants={column!r} holds lists of {abbreviated(str(each.type))}, and the training set has "
            f"{rows.column_names}. A variant is a dictionary with its 'kind' and the columns it changes: 'prompt', "
            f"'image' or 'images', as the training set names them. Columns 'of' and 'kind' are made here. {_WAY_OUT}"
        )
    variants = others.take(pa.array(parents))
    for name in changed:
        kept, given = variants[name].combine_chunks(), pc.struct_field(each, name)
        places = np.arange(len(given)) + np.where(given.is_null(), 0, len(given))
        both = pa.chunked_array([kept, given.cast(kept.type)])
        variants = variants.set_column(variants.column_names.index(name), name, both.take(pa.array(places)))
    originals, kinds = rows.remove_columns(column), pc.struct_field(each, "kind").to_pylist()
    keys = sample_keys(originals)[0].astype(np.int64).view(np.uint64)
    ids = _texts(originals, "id") if "id" in others.column_names else [f"{key:016x}" for key in keys]
    named = {
        "id": [*ids, *(f"{ids[parent]}/{kind}" for parent, kind in zip(parents, kinds, strict=True))],
        "of": [*ids, *(ids[parent] for parent in parents)],
        "kind": [ORIGINAL] * len(ids) + kinds,
    }
    table = pa.concat_tables([others, variants])
    table = table.drop_columns([name for name in named if name in table.column_names])
    for name, values in named.items():
        table = table.append_column(name, pa.array(values, pa.string()))
    features = Features({**originals.features, **dict.fromkeys(named, Value("string"))})
    features = Features({name: features[name] for name in table.column_names})
    return Dataset(table.cast(features.arrow_schema), info=DatasetInfo(features=features))


def _refuse_same_content(rows: Dataset, of: NDArray[np.int64], ids: list[str]) -> None:
    """Refuse a variant with the prompt and the images of its original: it would be counted as another question."""
    columns = [name for name in CONTENT if name in rows.column_names]
    keys = content_keys(rows, columns) if columns else np.zeros(len(rows))
    same = np.flatnonzero((keys[of] == keys) & (of != np.arange(len(of))))
    if len(same):
        raise ConfigurationError(
            f"{len(same)} variants have the prompt and the images of their original; the first is {ids[same[0]]!r}. "
            "They would count as other questions. Remove these rows."
        )


def _refuse_other_answers(rows: Dataset, of: NDArray[np.int64], ids: list[str]) -> None:
    for name in ANSWERS:
        if name not in rows.column_names:
            continue
        answers = rows.select_columns([name])[name][:]
        other = [row for row, original in enumerate(of.tolist()) if answers[row] != answers[original]]
        if other:
            raise ConfigurationError(
                f"{len(other)} variants have another {name!r} than their original; the first is {ids[other[0]]!r}: "
                f"{abbreviated(answers[other[0]])} and {abbreviated(answers[of[other[0]]])}. All variants of a "
                "question have its answer. Correct these rows, or remove them."
            )
