"""The exact-answer reward, on strings and on conversations."""

import pytest

from trl_vade.testbed import exact_answer_reward


def test_only_the_first_answer_between_tags_counts():
    right = [("<answer>7</answer>", "7"), ("so <answer> 7\n</answer> it is", "7")]
    right += [("<answer>red blue</answer>", "red blue")]
    wrong = [("<answer>blue red</answer>", "red blue"), ("<answer>17</answer>", "7"), ("<answer>7", "7"), ("7", "7")]
    wrong += [("<answer>3</answer><answer>7</answer>", "7"), ("<answer></answer>", "7"), ("", "7")]
    texts, answers = zip(*right, *wrong, strict=True)
    conversations = [[{"role": "assistant", "content": text}] for text in texts]
    blocks = [[{"role": "assistant", "content": [{"type": "text", "text": text}]}] for text in texts]
    for completions in (texts, conversations, blocks):
        assert exact_answer_reward(completions, answers, task=["count"] * 10) == [1.0] * 3 + [0.0] * 7
    with pytest.raises(ValueError, match="zip"):
        exact_answer_reward(["<answer>1</answer>", "<answer>1</answer>"], ["1"])
