"""Columns that TRL cannot read are refused before a model is looked up, with a line that makes them readable."""

import datasets
import numpy as np
import pytest
from datasets import Dataset, Image, List

from tests.support.pictures import file_of
from tests.support.refusals import refused
from tests.support.rows import picture
from tests.support.runs import always_half
from trl_vade import VADEGRPOTrainer
from trl_vade.data.columns import pass_rates, refuse_columns
from trl_vade.data.loading import messages_of
from trl_vade.data.row_views import plain_text
from trl_vade.errors import ConfigurationError

MESSAGES = [{"role": "user", "content": "How many?"}]
TURNS = [{"from": "human", "value": "<image>\nHow many?"}, {"from": "gpt", "value": "7"}]
MARKED = {"role": "user", "content": "<image>\nHow many?"}
RIGHT = {"role": "assistant", "content": "7"}
PARTS = {"role": "user", "content": [{"type": "image", "text": None}, {"type": "text", "text": "How many?"}]}
RIGHT_PARTS = {"role": "assistant", "content": [{"type": "text", "text": "7"}]}
IN_TABLE = file_of(picture(1))
UNREADABLE = {  # the rows, and a name in the message
    "a problem": ({"problem": ["How many?"]}, "'prompt'"),
    "conversations": ({"conversations": [TURNS], "image": [IN_TABLE]}, "'prompt'"),
    "messages": ({"messages": [MESSAGES]}, "'prompt'"),
    "a text beside a picture": ({"prompt": ["How many?"], "image": [IN_TABLE]}, "'image'"),
    "an uncast picture": ({"prompt": [MESSAGES], "image": [IN_TABLE]}, "Image()"),
    "uncast pictures": ({"prompt": [MESSAGES], "images": [[IN_TABLE]]}, "List(Image())"),
    "pictures without paths": ({"prompt": [MESSAGES], "images": [[{"bytes": IN_TABLE["bytes"]}]]}, "List(Image())"),
    "a dialogue": ({"messages": [[*MESSAGES, RIGHT]]}, "'prompt'"),
    "a dialogue of a system": ({"messages": [[{"role": "system", "content": ""}, *MESSAGES, RIGHT]]}, "'prompt'"),
    "a dialogue of other names": ({"conversations": [[*MESSAGES, RIGHT]]}, "'prompt'"),
    "a dialogue about a picture": ({"messages": [[MARKED, RIGHT]], "images": [[IN_TABLE]]}, "'prompt'"),
    "a dialogue of parts": ({"messages": [[PARTS, RIGHT_PARTS]], "image": [IN_TABLE]}, "'prompt'"),
    "a system's turn": ({"conversations": [[{"from": "system", "value": "Be brief."}, *TURNS]]}, "'prompt'"),
    "an unusual name": ({"id": ["a"], "answer": ["7"], "ask": ["How many?"]}, "'prompt'"),
    "a marked text beside a picture": ({"prompt": [MARKED["content"]], "image": [IN_TABLE]}, "'image'"),
    "several pictures under the name of one": ({"prompt": [MESSAGES], "image": [[IN_TABLE] * 2]}, "Image()"),
    "a path under the name of several": ({"prompt": [MESSAGES], "images": ["a.png"]}, "List(Image())"),
    "bytes": ({"prompt": [MESSAGES], "image": [IN_TABLE["bytes"]]}, "Image()"),
    "lists of bytes": ({"prompt": [MESSAGES], "images": [[IN_TABLE["bytes"]]]}, "List(Image())"),
    "one picture under the name of several": ({"prompt": [MESSAGES], "images": [IN_TABLE]}, "List(Image())"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_trl_cannot_read_is_refused_and_the_lines_in_the_messages_mend_it(make_args, name):
    columns, word = UNREADABLE[name]
    rows = Dataset.from_dict(columns)
    for given in ({"train_dataset": rows}, {"train_dataset": readable(), "eval_dataset": {"all": rows}}):
        with refused(ConfigurationError, [word, next(reversed(given))], ["rows = rows."]):
            VADEGRPOTrainer("no/such-model: refused before it is looked up", len, make_args(), **given)
    seen = {"rows": rows, "Image": Image, "List": List}
    for _ in range(3):
        try:
            refuse_columns("train_dataset", seen["rows"])
        except ConfigurationError as error:
            exec(str(error).splitlines()[-1], seen)
    refuse_columns("train_dataset", seen["rows"])
    row = seen["rows"][0]
    assert plain_text(row["prompt"]) == "How many?"
    assert [turn["role"] for turn in row["prompt"]][-1] == "user"
    if columns.get("images") != ["a.png"]:
        parts = [part for turn in messages_of(row) for part in turn["content"]]  # as training does
        given = next((columns[name][0] for name in ("image", "images") if name in columns), [])
        pictures = [part["image"].size for part in parts if part["type"] == "image"]
        assert pictures == [(8, 8)] * (len(given) if isinstance(given, list) else 1)


def readable():
    return Dataset.from_dict({"prompt": [MESSAGES] * 24})


def test_what_trl_can_read_or_may_read_later_is_not_refused():
    rows = readable()
    for each in (
        rows,
        rows.add_column("image", [None] * 24),
        rows.add_column("image", [None] * 24).cast_column("image", Image()),
        rows.add_column("images", [[], *[None] * 23]).cast_column("images", List(Image())),
        rows.add_column("image", ["/a.png"] * 24),
        Dataset.from_dict({"problem": ["a"]}).with_transform(lambda batch: {"prompt": batch["problem"]}),
        Dataset.from_dict({"prompt": ["plain"]}),
        rows.to_iterable_dataset(),
        datasets.IterableDataset.from_generator(lambda: iter([{"prompt": "a"}])),
        None,
        [{"prompt": "a"}],
    ):
        refuse_columns("train_dataset", each)
    refuse_columns("train_dataset", Dataset.from_dict({"environment": ["maze"]}), prompts_come_later=True)


def test_replaced_rows_are_looked_at_too(text_model_path, make_args, text_rows):
    trainer = VADEGRPOTrainer(text_model_path, always_half, make_args(), text_rows)
    trainer.train_dataset = text_rows.rename_column("prompt", "question")
    with refused(ConfigurationError, ["'prompt'"], ['row["question"]']):
        trainer.train()


# ------------------------------------------------------------------------------------------------- pass rates

NAN = float("nan")
READ = {
    "fractions with holes": ([0.0, 0.25, 1.0, None, NAN], "rate", [0.0, 0.25, 1.0, NAN, NAN]),
    "texts": (["0.96875", None, "nan"], "rate", [0.96875, NAN, NAN]),
    "percent": ([0.0, 87.5, 100.0], "rate/100", [0.0, 0.875, 1.0]),
    "successes of 16": ([0, 4, 16], "rate/16", [0.0, 0.25, 1.0]),
    "yes and no": ([True, False, None], "rate", [1.0, 0.0, NAN]),
}
REFUSED = {
    "percent or successes": ([0, 4, 16], "rate", "'column:rate/16'"),
    "percent as fractions": ([0.0, 87.5, 100.0], "rate", "row 1 has 87.5"),
    "more than all": ([0, 17, 16], "rate/16", "row 1 has 17"),
    "below nothing": ([0.5, -1.0], "rate", "row 1 has -1.0"),
    "no number": (["0.5", "hard"], "rate", "row 1 has 'hard'"),
    "text of none": (["0.5", "n/a"], "rate", "row 1 has 'n/a'"),
    "a list": ([[0.5], [1.0]], "rate", "row 0 has [0.5]"),
    "nothing at all": ([None, None], "rate", "0 of 2 rows"),
    "another column": ([0.5, 0.5], "solve_rate", "no column 'solve_rate'"),
}


def test_a_column_is_read_as_fractions_of_what_it_names():
    wrong = {}
    for name, (values, column, expected) in READ.items():
        found = pass_rates(Dataset.from_dict({"rate": values}), column)
        if not np.allclose(found, expected, equal_nan=True):
            wrong[name] = found
    assert wrong == {}


@pytest.mark.parametrize("name", REFUSED)
def test_what_nothing_tells_apart_is_refused_with_the_row(name):
    values, column, said = REFUSED[name]
    with pytest.raises(ConfigurationError) as raised:
        pass_rates(Dataset.from_dict({"rate": values}), column)
    assert said in str(raised.value)
    assert column in str(raised.value)


def test_a_name_with_a_slash_is_that_of_the_column_if_there_is_one():
    rows = Dataset.from_dict({"pass/16": [0.5, 1.0]})
    assert pass_rates(rows, "pass/16").tolist() == [0.5, 1.0]
