"""Columns, checked before a model is loaded: those that TRL reads, and pass rates, which many data sets carry."""

import re
from typing import Any

import numpy as np
from datasets import Dataset, Image, LargeList, List, Value
from numpy.typing import NDArray

from trl_vade.errors import ConfigurationError, abbreviated

from .row_views import ANSWERS

TEXTS = (Value("string"), Value("large_string"))
QUESTIONS = ("problem", "question", "query", "instruction", "conversations", "messages")  # usual names of `prompt`


def refuse_columns(name: str, rows: Any, *, prompts_come_later: bool = False) -> None:
    """Refuse rows without a prompt, a text beside pictures, and pictures that `datasets` would not decode.

    Rows with a transform, which may make other columns, and streams without known ones are left to TRL. `name` is that
    of the trainer's argument. The `ConfigurationError` has the line that makes the column.
    """
    features = getattr(rows, "features", None)
    if not features or getattr(rows, "format", {}).get("type") == "custom":
        return
    if "prompt" not in features and not prompts_come_later:
        raise ConfigurationError(
            f"{name} has no column 'prompt', which TRL reads; it has {[*features]}. {_with_messages(features)}"
        )
    pictures = [column for column in ("image", "images") if column in features]
    if pictures and features.get("prompt") in TEXTS:
        raise ConfigurationError(
            f"{name} has texts in 'prompt' beside pictures in {pictures[0]!r}: TRL needs messages. "
            f"{_with_messages(features)}"
        )
    for column in pictures:
        kind = "List(Image())" if column == "images" else "Image()"
        if not _are_pictures(features[column], listed=column == "images"):
            raise ConfigurationError(
                f"{name} has {abbreviated(features[column])} in the column {column!r} in place of {kind}, so no "
                f"picture would be decoded. Write, with Image and List of datasets:\n"
                f"rows = rows.{_picture_verb(column, features, kind)}"
            )


def _picture_verb(column: str, features: Any, kind: str) -> str:
    feature, other = features[column], {"image": "images", "images": "image"}[column]
    inside = feature.feature if isinstance(feature, List | LargeList) and column == "image" else feature
    is_picture = isinstance(inside, Image | dict) or inside in (*TEXTS, Value("binary"), Value("large_binary"))
    if (column == "images" or inside is not feature) and is_picture:  # one for several, or several for one
        return f'remove_columns("{column}")' if other in features else f'rename_column("{column}", "{other}")'
    return f'cast_column("{column}", {kind})'


def _with_messages(features: Any) -> str:
    usual = [name for name in ("prompt", *QUESTIONS) if name in features]
    texts = [name for name, kind in features.items() if kind in TEXTS and name not in ("id", *ANSWERS)]
    found = next(iter(usual or texts or features))
    inside = getattr(features[found], "feature", None)
    fields = inside if isinstance(inside, dict) else {}
    bare = '.replace("<image>", "").strip()' if {"image", "images"} & {*features} or "from" in fields else ""
    if "role" in fields:
        last = f'-1 if row["{found}"][-1]["role"] == "assistant" else None'  # it has the right answer
        text = f', "content": turn["content"]{bare}' if fields["content"] in TEXTS else ""
        prompt = f'[{{**turn{text}}} for turn in row["{found}"][:{last}]]'
    else:  # of LLaVA
        asked = f'next(turn["value"] for turn in row["{found}"] if turn["from"] in ("human", "user"))'
        text = (asked if "from" in fields else f'row["{found}"]') + bare
        prompt = f'[{{"role": "user", "content": {text}}}]'
    return f'Write:\nrows = rows.map(lambda row: {{"prompt": {prompt}}})'


def _are_pictures(feature: Any, *, listed: bool) -> bool:
    """Return whether TRL gets pictures, or texts (paths, which transformers opens), or nothing at all."""
    if listed and isinstance(feature, List | LargeList):
        return _are_pictures(feature.feature, listed=False)
    if isinstance(feature, Image):
        return feature.decode and not listed
    return (feature in TEXTS and not listed) or feature == Value("null")


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
            f"or the name tells the whole: 'column:{column}/100' for percent, 'column:{column}/16' for 16 answers."
        )
    return found / float(whole or 1.0)


def _number(value: object, row: int, named: str) -> float:
    try:
        return np.nan if value is None else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise ConfigurationError(
            f"vade_posterior_init='column:{named}': row {row} has {abbreviated(value)}, which is no number. Name a "
            "column of pass rates, with None where a row has none."
        ) from None
