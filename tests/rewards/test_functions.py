"""Reward functions in TRL's shape, from texts to a real training run."""

import numpy as np
import pytest

from tests.support.refusals import refused
from trl_vade.errors import ConfigurationError
from trl_vade.rewards.functions import accuracy_reward, format_reward, relaxed_accuracy_reward

RIGHT = "<think>Six times seven.</think><answer>42</answer>"


def test_completions_may_be_texts_or_messages_and_only_what_the_assistant_says_is_read():
    messages = [{"role": "assistant", "content": RIGHT}]
    parts = [{"role": "assistant", "content": [{"type": "text", "text": RIGHT}]}]
    assert accuracy_reward([RIGHT, messages, parts], ["42"] * 3) == [1.0] * 3
    assert format_reward([RIGHT, messages, parts]) == [1.0] * 3
    calls = [{"role": "assistant", "content": None}, {"role": "tool", "content": "x"}]
    assert accuracy_reward([[*calls, {"content": "<answer>42</answer>"}]], ["42"]) == [1.0]
    for role in ("tool", "user", "system"):
        for said in ("", "calling", "<answer>41</answer>"):
            for heard in ("42", "<answer>42</answer>", "The answer is 42."):
                turns = [{"role": "assistant", "content": said}, {"role": role, "content": heard}]
                assert accuracy_reward([turns], ["42"]) == [0.0]
                assert accuracy_reward([turns], ["41"]) == [float("41" in said)]


REFERENCES = [  # of any type, with a right and a wrong answer
    *((0, "0", "1"), (7, "seven", "8"), (-4, "-4", "4"), (2.5, "5/2", "25"), (np.float32(0.1).item(), "0.1", "0.2")),
    *((np.int64(3), "3", "4"), (True, "Yes", "No"), (False, "false", "true"), ([3, "three or so"], "3", "4")),
    (["teal", "turquoise"], "Turquoise", "green"),
]


def test_a_reference_of_any_type_is_read_as_what_it_is_and_none_is_no_trial():
    for answer, right, wrong in REFERENCES:
        completions = [f"<answer>{text}</answer>" for text in (right, wrong, "")]
        assert accuracy_reward(completions, [answer] * 3) == [1.0, 0.0, 0.0], answer
    with pytest.warns(UserWarning, match="'about many'"):
        assert accuracy_reward(["42", "42"], ["42", "about many"], ["number"] * 2) == [1.0, None]
    for answer in (None, "", " ", [], [None], float("nan")):
        with pytest.warns(UserWarning, match="do not fit"):
            assert accuracy_reward(["<answer>5</answer>"], [answer], ["number"]) == [None]


def test_each_row_is_judged_by_its_own_columns():
    rewards = accuracy_reward(
        [f"<answer>{said}</answer>" for said in ("B", "B", "b", "104", "104")],
        answer=["B", "A", "B", "100", "100"],
        answer_type=["choice", "choice", "text", "number", "number"],
        choices=[["x", "y"], ["x", "y"], None, None, None],
        source=["ai2d", "ai2d", "ai2d", "ChartQA", "geo3k"],
    )
    assert rewards == [1.0, 0.0, 1.0, 1.0, 0.0]
    relaxed = {"answer": ["100", "100", "cat"], "source": ["geo3k"] * 3}
    assert relaxed_accuracy_reward(["104", "106", "Cat"], **relaxed) == [1.0, 0.0, 1.0]
    with refused(ConfigurationError, names=["answer_type", "integer"], offers=["choice", "expression"]):
        accuracy_reward(["42"], ["42"], ["integer"])


def test_trls_table_of_completions_shows_what_was_read_and_other_columns_do_no_harm():
    table = {}
    columns = {"prompts": ["?"] * 2, "task": ["t"] * 2, "trainer_state": None, "log_metric": print}
    accuracy_reward([RIGHT, "<answer>4"], ["42", "7"], log_extra=table.__setitem__, **columns)
    assert table == {"reference": ["42", "7"], "answer_read": ["42", ""]}
    assert format_reward([RIGHT], answer=["42"], **columns) == [1.0]
