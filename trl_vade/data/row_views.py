"""Rows as a person reads them: name and task, question, right answer and a small picture."""

import base64
import io
from collections.abc import Iterator
from typing import Any

from datasets import ClassLabel, Dataset, Value
from PIL import Image

from trl_vade.checks import IntArray

MOST_SIGNS = 600  # of a text; a longer one is cut
SIDE = 160  # pixels of the longer side of a picture; a smaller one keeps its size
ANSWERS = ("answer", "solution", "ground_truth", "reference", "label", "target")  # usual names of the right answer


def describe_row(rows: Dataset, number: int, *, picture: bool = True) -> dict[str, str]:
    """Return `id`, `question`, `answer` and `picture` of a row, as far as it has them; no transform is called.

    The texts are cut after `MOST_SIGNS` characters. The picture is the first of the row, as a data URL of a few kB.
    """
    wanted = {"id", "prompt", *ANSWERS, *(("images", "image") if picture else ())}
    columns = [name for name in rows.column_names if name in wanted]
    row = rows.with_format(None).select_columns(columns)[number] if columns else {}
    answer = next((row[name] for name in ANSWERS if row.get(name) is not None), None)
    texts = {"id": row.get("id"), "question": plain_text(row.get("prompt")) or None, "answer": answer}
    described = {name: str(value) for name, value in texts.items() if value is not None}
    described |= {name: f"{text[: MOST_SIGNS - 3]}..." for name, text in described.items() if len(text) > MOST_SIGNS}
    image = next(iter(row.get("images") or []), None) or row.get("image")
    if isinstance(image, Image.Image):
        described["picture"] = data_url(image)
    return described


def plain_text(messages: Any) -> str:
    """Return the text of a prompt: a string, or messages, of which a question at the end is all that counts."""
    if isinstance(messages, str) or not messages:
        return messages or ""
    asked = messages[-1:] if messages[-1].get("role") == "user" else messages
    return "\n".join(filter(None, (_content(message.get("content")) for message in asked)))


def prompt_texts(rows: Dataset) -> Iterator[str]:
    """Yield the `plain_text` of each row's prompt, empty without that column, and decode and transform nothing."""
    if "prompt" not in rows.column_names:
        yield from [""] * len(rows)
        return
    for batch in rows.select_columns(["prompt"]).with_format("arrow").iter(1024):
        yield from map(plain_text, batch["prompt"].to_pylist())


def _content(content: Any) -> str:
    if isinstance(content, list):
        return " ".join(part["text"] for part in content if part.get("text"))
    return content or ""


def data_url(image: Image.Image) -> str:
    """Return a small copy of the picture on white ground, as a data URL."""
    is_small = max(image.size) <= SIDE
    copy = image.convert("RGBA")
    copy.thumbnail((SIDE, SIDE))
    ground = Image.new("RGBA", copy.size, "white")
    kind = "png" if is_small else "jpeg"  # drawings of a few pixels must stay sharp
    buffer = io.BytesIO()
    Image.alpha_composite(ground, copy).convert("RGB").save(buffer, kind, quality=80)
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"


def names_and_tasks(dataset: Dataset, keys: IntArray, rows: IntArray, task_column: str) -> dict[str, Any]:
    """Return the arguments `sample_id`, an `id` or else a key, and `task`, if known, for `posterior_table`, (V,)."""
    feature = dataset.features.get("id")
    has_text = isinstance(feature, Value) and "binary" not in feature.dtype
    ids = _values(dataset, "id", rows) if has_text else [None] * len(rows)
    names = [key_text(key) if one is None else str(one) for one, key in zip(ids, keys[rows].tolist(), strict=True)]
    tasks = row_labels(dataset, task_column, rows) if task_column in dataset.features else None
    return {"sample_id": names, "task": tasks}


def key_text(key: int) -> str:
    """Return a key of `row_keys.sample_keys` as 16 hexadecimal digits."""
    return f"{key & (2**64 - 1):016x}"


def row_labels(dataset: Dataset, column: str, rows: IntArray) -> list[str | None]:
    """Return the labels of the rows as texts; None for a missing label. A `ClassLabel` gives the name of the class."""
    feature, values = dataset.features[column], _values(dataset, column, rows)
    if not isinstance(feature, ClassLabel):
        return [None if value is None else str(value) for value in values]
    # datasets writes -1 for a missing label, as in the hidden labels of a test split.
    return [None if value is None or value < 0 else feature.int2str(value) for value in values]


def _values(dataset: Dataset, column: str, rows: IntArray) -> list[Any]:
    plain, values = dataset.select_columns([column]).with_format("arrow"), list[Any]()
    for start in range(0, len(rows), 10_000):  # Arrow makes a table for each row that does not follow the one before
        values += plain[rows[start : start + 10_000].tolist()][column].to_pylist()
    return values
