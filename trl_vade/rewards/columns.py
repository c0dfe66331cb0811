"""Columns that the packaged rewards would misread, each refused with the line of code that mends it."""

import ast
import json
from collections.abc import Callable
from contextlib import suppress
from string import ascii_uppercase
from typing import Any

from trl_vade.errors import ConfigurationError, abbreviated

from .verifiers import ANSWER_TYPES, judge, told_type

FIELDS = ("text", "answer", "choice", "option", "value", "content")  # usual names of the text in a struct
READERS = {"json.loads": json.loads, "ast.literal_eval": ast.literal_eval}  # of choices as one text


def refuse_misread(rows: Any) -> None:
    """Refuse columns of a `Dataset` that `judge` would misread; the `ConfigurationError` has a line that mends one."""
    for name in ("choices", "answer_type", "answer"):
        if name in rows.features and (found := _misread(name, rows.with_format(None))):
            why, code = found
            plain = ".with_format(None)" if rows.format["type"] else ""
            cells = f'.add_column("{name}", [{code} for one in rows{plain}["{name}"]])' if code else ""
            imported = f"import {code.partition('.')[0]}; " * code.startswith((*READERS,))
            raise ConfigurationError(
                f"The column {name!r} of {len(rows)} rows ({abbreviated(rows.features[name])}) is misread: {why}. "
                f'Write:\n{imported}rows = rows.remove_columns("{name}"){cells}'
            )


def _misread(name: str, rows: Any) -> tuple[str, str] | None:
    """Return why a column would be misread and code of a right one from its cell `one`, "" to go without; or None."""
    feature, choices = rows.features[name], getattr(rows.features.get("choices"), "feature", None)
    inside, cell = (feature.feature, "each") if hasattr(feature, "feature") else (feature, "one")
    if hasattr(inside, "int2str"):
        if name == "answer" and inside.names == [*ascii_uppercase[: inside.num_classes]] and _is_text(choices):
            return None  # the place of the right choice, as in MMLU
        of = f'rows.features["{name}"]{".feature" * (cell == "each")}'
        why, code = "its numbers are read, not the names", f"None if {cell} in (None, -1) else {of}.int2str({cell})"
    elif name == "answer_type":
        foreign = ((row, one) for row, one in enumerate(rows[name][:]) if told_type(one) not in (None, *ANSWER_TYPES))
        why = next((f"row {row} has {abbreviated(one)}, no type; None infers one" for row, one in foreign), "")
        return (why, f"one if one in {ANSWER_TYPES} else None") if why else None
    elif isinstance(inside, dict):
        field = next(one for one in (*FIELDS, *inside) if one in inside)
        by_letter = name == "choices" and cell == "one" and field not in FIELDS and all(map(_is_text, inside.values()))
        why, code = (
            "its fields are not texts",
            f"{cell} and " + ("[*one.values()]" if by_letter else f'{cell}["{field}"]'),
        )
    elif name == "choices" and cell == "one" and getattr(feature, "dtype", "null") != "null":
        texts = {*rows[name][:]} - {None, ""} if _is_text(feature) else set()
        code = next((name for name in READERS if texts and all(_is_list(READERS[name], one) for one in texts)), "")
        why = f"{abbreviated(min(texts, default=feature))} is no list" + ", so letters alone are read" * (not code)
        return why, code and f"{code}(one) if one else None"
    else:
        return _place(rows) if name == "answer" and _is_text(feature) and choices is not None else None
    return why, code if cell == "one" else f"one and [{code} for each in one]"


def _place(rows: Any) -> tuple[str, str] | None:
    """Look for digits beside choices without them: places that were saved as texts, from 0 or from 1."""
    answers, columns = rows["answer"][:], {"answer", "answer_type", "choices"} & {*rows.features}
    at = [row for row, one in enumerate(answers) if one in [*"0123456789"]][:500]  # enough to tell
    cells = zip(at, rows.select_columns([*columns]).select(at), strict=True)
    asked = [(row, one, int(one["answer"]), len(one["choices"] or ())) for row, one in cells]
    asked = [
        each for each in asked if told_type(each[1].get("answer_type")) in (None, "choice") and each[2] <= each[3]
    ]
    apart = [row for row, one, _, _ in asked if judge(one["answer"], **one) is None]
    if 2 * len(apart) <= len(asked):  # most are texts of choices
        return None
    lettered, ends = not {*answers}.isdisjoint(ascii_uppercase), any(place == count for *_, place, count in asked)
    from_1 = (lettered or ends) and all(place for *_, place, _ in asked)
    why = f"row {apart[0]} has a place, counted from {int(from_1)}, as a text"
    return why, f'chr({65 - from_1} + int(one)) if one in [*"0123456789"] else one'


def _is_list(read: Callable[[str], Any], one: str) -> bool:
    with suppress(ValueError, SyntaxError):
        return isinstance(read(one), list | tuple)
    return False


def _is_text(feature: Any) -> bool:
    return "string" in getattr(feature, "dtype", "")
