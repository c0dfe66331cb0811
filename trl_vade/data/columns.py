"""The columns that TRL reads, checked before a model is loaded."""

from typing import Any

from datasets import Image, LargeList, List, Value

from trl_vade.errors import ConfigurationError, abbreviated

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
            f"{name} has no column 'prompt', which TRL reads; it has {[*features]}. {_with_messages(name, features)}"
        )
    pictures = [column for column in ("image", "images") if column in features]
    if pictures and features.get("prompt") in TEXTS:
        raise ConfigurationError(
            f"{name} has texts in the column 'prompt' beside pictures in {pictures[0]!r}, but TRL needs messages "
            f"there. {_with_messages(name, ['prompt'])}"
        )
    for column in pictures:
        kind = "List(Image())" if column == "images" else "Image()"
        if not _are_pictures(features[column], listed=column == "images"):
            raise ConfigurationError(
                f"{name} has {abbreviated(features[column])} in the column {column!r} in place of {kind}, so no "
                f"picture would be decoded. Write, with Image and List of datasets:\n"
                f'rows = rows.cast_column("{column}", {kind})'
            )


def _with_messages(name: str, columns: Any) -> str:
    found = next((each for each in ("prompt", *QUESTIONS) if each in columns), "the column with the question")
    text = f'row["{found}"]'
    if found == "conversations":  # of LLaVA
        text += '[0]["value"].replace("<image>", "").strip()'
    line = f'rows = rows.map(lambda row: {{"prompt": [{{"role": "user", "content": {text}}}]}})'
    return "Write:\n" + ('rows = rows.rename_column("messages", "prompt")' if found == "messages" else line)


def _are_pictures(feature: Any, *, listed: bool) -> bool:
    """Return whether TRL gets pictures, or texts (paths, which transformers opens), or nothing at all."""
    if listed and isinstance(feature, List | LargeList):
        return _are_pictures(feature.feature, listed=False)
    if isinstance(feature, Image):
        return feature.decode and not listed
    return feature in TEXTS or feature == Value("null")
