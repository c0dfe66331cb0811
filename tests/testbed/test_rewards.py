"""The exact-answer reward, on strings and on conversations."""

import pytest

from tests.support.refusals import refused
from trl_vade.testbed import exact_answer_reward


@pytest.mark.parametrize(
    ("text", "answer", "reward"),
    [
        ("<answer>7</answer>", "7", 1.0),
        ("so <answer> 7\n</answer> it is", "7", 1.0),
        ("<answer>red blue</answer>", "red blue", 1.0),
        ("<answer>blue red</answer>", "red blue", 0.0),
        ("<answer>17</answer>", "7", 0.0),
        ("<answer>3</answer><answer>7</answer>", "7", 0.0),
        ("<answer>7", "7", 0.0),
        ("7", "7", 0.0),
        ("<answer></answer>", "7", 0.0),
        ("", "7", 0.0),
    ],
)
def test_only_the_first_answer_between_tags_counts(text, answer, reward):
    conversation = [{"role": "assistant", "content": text}]
    blocks = [{"role": "assistant", "content": [{"type": "text", "text": text}]}]
    for completion in (text, conversation, blocks):
        assert exact_answer_reward([completion], answer=[answer], task=["count"]) == [reward]


def test_a_batch_is_rewarded_row_by_row():
    assert exact_answer_reward(["<answer>1</answer>", "<answer>2</answer>"], ["2", "2"]) == [0.0, 1.0]


def test_unequal_lengths_are_an_error():
    with refused(ValueError, ["zip()"]):
        exact_answer_reward(["<answer>1</answer>", "<answer>1</answer>"], ["1"])
