"""Reward functions in TRL's shape: one for right answers, one for their form; and the columns that they would misread.

    VADEGRPOTrainer(model, [accuracy_reward, format_reward], VADEGRPOConfig(reward_weights=[0.9, 0.1]), dataset)

The columns are those of `scripts/prepare_data.py`. Your own data set needs only `answer`.
"""

import ast
import json
import re
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from string import ascii_uppercase
from typing import Any

from trl_vade.errors import ConfigurationError, abbreviated
from trl_vade.files import packaged

from .answers import find_answer
from .expressions import WORKERS, has_math_verify, require_math_verify
from .verifiers import ANSWER_TYPES, judge, needs_math_verify, told_type

INSTRUCTION = """\
Think about the question first, inside <think></think>. \
Then give the final answer alone inside <answer></answer>."""

RELAXED_SOURCES = ("ChartQA",)  # of the column `source`: numbers count as right within 5 %, as in their benchmark

Completion = str | list[dict[str, Any]]

_FORM = re.compile(r"\s*<think>\s*\S.*</think>\s*<answer>\s*\S.*</answer>\s*", re.DOTALL)
_TAGS = ("<think>", "</think>", "<answer>", "</answer>")


def accuracy_reward(
    completions: list[Completion],
    answer: list[str | None],
    answer_type: list[str | None] | None = None,
    choices: list[Sequence[str] | None] | None = None,
    source: list[str | None] | None = None,
    log_extra: Callable[[str, list[Any]], None] | None = None,
    **columns: Any,
) -> list[float | None]:
    r"""Return 1.0 for a right answer, 0.0 for a wrong one, and None if the row's reference cannot be read.

    The answer is read from `<answer>`, `\boxed{}` or the last line, and compared by `verifiers.judge`.

    Args:
        completions: (B,) texts, or TRL's lists of messages.
        answer: (B,) references.
        answer_type: (B,) "choice", "number", "text" or "expression"; None to infer it from the reference.
        choices: (B,) texts of the choices.
        source: (B,) sources of the rows. Numbers from `RELAXED_SOURCES` are right within 5 %.
        log_extra: TRL's function that adds the answers read and the references to its table of completions.
        **columns: all other columns of the data set; ignored.

    Raises:
        ConfigurationError: a type is unknown, or an expression needs math-verify and it is not installed.
    """
    unknown = [None] * len(completions)
    texts = [text_of(completion) for completion in completions]
    relaxed = [name in RELAXED_SOURCES for name in source or unknown]
    rows = zip(texts, answer, answer_type or unknown, choices or unknown, relaxed, strict=True)
    with ThreadPoolExecutor(WORKERS) as threads:  # they wait for the processes that compare expressions
        rewards = list(threads.map(lambda row: judge(*row[:-1], relaxed=row[-1]), rows))
    if log_extra is not None:
        log_extra("reference", list(answer))
        log_extra("answer_read", [next(iter(find_answer(text)), "") for text in texts])
    unread = sorted({abbreviated(one) for one, reward in zip(answer, rewards, strict=True) if reward is None})
    if unread:
        warnings.warn(  # Python shows it once
            f"{len(unread)} references of this batch do not fit their answer_type, such as {unread[0]}. Their rows "
            "are not scored, so neither the model nor the sampler learns from them. Fix or drop these rows.",
            stacklevel=3,
        )
    return rewards


def relaxed_accuracy_reward(completions: list[Completion], **columns: Any) -> list[float | None]:
    """Return `accuracy_reward` with numbers of all rows right within 5 %, as in ChartQA (arXiv 2203.10244)."""
    return accuracy_reward(completions, **{**columns, "source": [*RELAXED_SOURCES] * len(completions)})


def format_reward(completions: list[Completion], **columns: Any) -> list[float]:
    """Return 1.0 for `<think>...</think><answer>...</answer>` with each tag once and both parts filled, else 0.0."""
    texts = [text_of(completion) for completion in completions]
    return [float(all(text.count(tag) == 1 for tag in _TAGS) and _FORM.fullmatch(text) is not None) for text in texts]


def text_of(completion: Completion) -> str:
    """Return a completion as text: what the assistant says, without the turns of tools and users."""
    if isinstance(completion, str):
        return completion
    said = [turn.get("content") or "" for turn in completion if turn.get("role", "assistant") == "assistant"]
    parts = [[{"text": content}] if isinstance(content, str) else content for content in said]
    return "\n".join(part.get("text") or "" for message in parts for part in message)


def refuse_rows(reward_funcs: Any, *data_sets: Any) -> None:
    """Refuse columns that `accuracy_reward` would misread, and expressions where math-verify is not installed.

    `reward_funcs` is a trainer's argument. Each of `data_sets` is a `Dataset` or a dictionary of these; a stream, and
    rows that a transform makes, are looked at when they are drawn. The `ConfigurationError` names the row's number.
    """
    given = reward_funcs if isinstance(reward_funcs, list) else [reward_funcs]
    reads_answers = any(getattr(one, "func", one) in (accuracy_reward, relaxed_accuracy_reward) for one in given)
    if not reads_answers:
        return
    for rows in (one for each in data_sets for one in (each.values() if isinstance(each, dict) else [each])):
        columns = {"answer", "answer_type", "choices"} & set(getattr(rows, "column_names", None) or ())
        if not hasattr(rows, "__len__") or "answer" not in columns or rows.format["type"] == "custom":
            continue
        refuse_misread(rows)
        if has_math_verify():
            continue
        for number, row in enumerate(rows.with_format(None).select_columns(sorted(columns))):
            if needs_math_verify(**row):
                require_math_verify(f"row {number} has answer={abbreviated(row['answer'])}")


def metric_path(name: str) -> str:
    """Return the folder of a metric that counts as a reward function does: `evaluate.load(metric_path(name))`.

    Args:
        name: "vade_accuracy" (as `accuracy_reward`) or "vade_format" (as `format_reward`).

    Raises:
        FileNotFoundError: there is no such metric.
    """
    return str(packaged(f"eval/metrics/{name}"))


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
        read = "[*one.values()]" if by_letter else f'{cell}["{field}"]'
        why, code = "its fields are not texts", f"{cell} and {read}"
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
    asked = [one for one in asked if told_type(one[1].get("answer_type")) in (None, "choice") and one[2] <= one[3]]
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
