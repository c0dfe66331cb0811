"""The columns that TRL reads, checked before a model is loaded."""

from typing import Any

from datasets import Image, LargeList, List, Value

from trl_vade.errors import ConfigurationError, abbreviated

from .row_views import ANSWERS

TEXTS = (Value("string"), Value("large_string"))
QUESTIONS = ("problem", "question", "query", "instruction", "conversations", "messages")  # usual names of `prompt`


def refuse_columns(name: str, rows: Any, *, prompts_come_later: bool = False) -> None:
    """Refuse rows without a prompt, a text beside pictures, and pictures that `datasets` would not decode.

    A transform may make other columns, so rows with one are left to TRL. So are streams without known columns.
    `name` is that of the trainer's argument. With an environment the prompts may come later. The `ConfigurationError`
    has the line that makes the column.
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
            f"{name} has texts in the column 'prompt' beside pictures in {pictures[0]!r}, but TRL needs messages "
            f"there. {_with_messages(features)}"
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
    if (column == "images" or inside is not feature) and _is_picture(inside):  # one for several, or several for one
        return f'remove_columns("{column}")' if other in features else f'rename_column("{column}", "{other}")'
    return f'cast_column("{column}", {kind})'


def _is_picture(feature: Any) -> bool:
    return isinstance(feature, Image | dict) or feature in (*TEXTS, Value("binary"), Value("large_binary"))


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
