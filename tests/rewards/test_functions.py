"""Reward functions in TRL's shape, from texts to a real training run."""

import numpy as np
import pytest
from datasets import Dataset

from tests.support.refusals import refused
from tests.support.runs import logged
from trl_vade.errors import ConfigurationError
from trl_vade.rewards.functions import accuracy_reward, format_reward, relaxed_accuracy_reward, text_of

RIGHT = "<think>Six times seven.</think><answer>42</answer>"


def test_completions_may_be_texts_or_messages():
    messages = [{"role": "assistant", "content": RIGHT}]
    parts = [{"role": "assistant", "content": [{"type": "text", "text": RIGHT}]}]
    assert accuracy_reward([RIGHT, messages, parts], ["42"] * 3) == [1.0] * 3
    assert format_reward([RIGHT, messages, parts]) == [1.0] * 3


def test_a_completion_with_tool_calls_is_read_over_its_turns():
    turns = [
        {"role": "assistant", "content": None},
        {"role": "tool", "content": "x"},
        {"content": "<answer>42</answer>"},
    ]
    assert text_of(turns) == "\n<answer>42</answer>"
    assert accuracy_reward([turns], ["42"]) == [1.0]


@pytest.mark.parametrize("role", ["tool", "user", "system"])
@pytest.mark.parametrize("said", ["", "calling", "<answer>41</answer>"])
@pytest.mark.parametrize("heard", ["42", "<answer>42</answer>", "The answer is 42."])
def test_what_others_than_the_assistant_say_is_no_answer(role, said, heard):
    turns = [{"role": "assistant", "content": said}, {"role": role, "content": heard}]
    assert accuracy_reward([turns], ["42"]) == [0.0]
    assert accuracy_reward([turns], ["41"]) == [float("41" in said)]


@pytest.mark.parametrize(
    ("answer", "right", "wrong"),
    [
        (0, "0", "1"),
        (7, "seven", "8"),
        (-4, "-4", "4"),
        (2.5, "5/2", "25"),
        (np.float32(0.1).item(), "0.1", "0.2"),
        (np.int64(3), "3", "4"),
        (True, "Yes", "No"),
        (False, "false", "true"),
        (["teal", "turquoise"], "Turquoise", "green"),
        ([3, "three or so"], "3", "4"),
    ],
    ids=str,
)
def test_answers_of_any_type_are_read_as_what_they_are(answer, right, wrong):
    completions = [f"<answer>{text}</answer>" for text in (right, wrong, "")]
    assert accuracy_reward(completions, [answer] * 3) == [1.0, 0.0, 0.0]


@pytest.mark.parametrize("answer", [None, "", " ", [], [None], float("nan")], ids=repr)
def test_no_answer_is_no_trial(answer):
    with pytest.warns(UserWarning, match="do not fit"):
        assert accuracy_reward(["<answer>5</answer>"], [answer], ["number"]) == [None]


def test_what_is_no_completion_is_refused():
    with refused(ConfigurationError, names=["completion", 7]):
        accuracy_reward([7], ["7"])


def test_each_row_is_judged_by_its_own_columns():
    rewards = accuracy_reward(
        [
            "<answer>B</answer>",
            "<answer>B</answer>",
            "<answer>b</answer>",
            "<answer>104</answer>",
            "<answer>104</answer>",
        ],
        answer=["B", "A", "B", "100", "100"],
        answer_type=["choice", "choice", "text", "number", "number"],
        choices=[["x", "y"], ["x", "y"], None, None, None],
        source=["ai2d", "ai2d", "ai2d", "ChartQA", "geo3k"],
    )
    assert rewards == [1.0, 0.0, 1.0, 1.0, 0.0]


def test_relaxed_accuracy_gives_every_row_its_five_percent():
    assert relaxed_accuracy_reward(["104", "106", "Cat"], ["100", "100", "cat"]) == [1.0, 0.0, 1.0]


def test_a_row_whose_answer_cannot_be_read_is_no_trial_and_is_said():
    with pytest.warns(UserWarning, match="'about many'"):
        rewards = accuracy_reward(["42", "42", "42"], ["42", "about many", None], ["number"] * 3)
    assert rewards == [1.0, None, None]


def test_an_unknown_type_is_refused_by_name():
    with refused(
        ConfigurationError, names=["answer_type", "integer"], offers=["choice", "number", "text", "expression"]
    ):
        accuracy_reward(["42"], ["42"], ["integer"])


def test_trls_table_of_completions_shows_what_was_read():
    table = {}
    accuracy_reward([RIGHT, "<answer>4"], ["42", "7"], log_extra=table.__setitem__)
    assert table == {"reference": ["42", "7"], "answer_read": ["42", ""]}


def test_columns_that_are_not_looked_at_do_no_harm():
    columns = {"prompts": ["?"], "completion_ids": [[1]], "task": ["t"], "trainer_state": None, "log_metric": print}
    assert accuracy_reward([RIGHT], answer=["42"], **columns) == [1.0]
    assert format_reward([RIGHT], answer=["42"], **columns) == [1.0]


def rows():
    """What the tiny text model says at random is a digit now and then."""
    return Dataset.from_list(
        [
            {"prompt": [{"role": "user", "content": "say a digit"}], "id": str(i), "answer": str(i % 10)}
            for i in range(24)
        ]
    )


def test_success_is_accuracy_and_never_the_weighted_sum(text_model_path, make_args):
    """Format, as it is here, is always met: were the sum the signal, each group would be right for 0.1 of it."""
    from trl_vade import VADEGRPOTrainer

    def always_in_form(completions, **columns):
        return [1.0] * len(completions)

    args = make_args(
        reward_weights=[0.9, 0.1], vade_success_reward="accuracy_reward", vade_success_threshold=0.05, max_steps=4
    )
    trainer = VADEGRPOTrainer(text_model_path, [accuracy_reward, always_in_form], args, rows())
    trainer.train()
    assert len(trainer._logs["extra"]["answer_read"]) == len(trainer._logs["completion"])
    accuracy = logged(trainer, "rewards/accuracy_reward/mean")
    assert logged(trainer, "vade/selected_pass_rate") == pytest.approx(accuracy)
    assert logged(trainer, "reward") == pytest.approx([0.9 * mean + 0.1 for mean in accuracy])
    assert 0.0 < max(accuracy) < 1.0
    alpha, beta = trainer.selection.sampler.posterior.counts()
    assert alpha.sum() < beta.sum()
