"""`cli.variants.prompts`: the question is found in a prompt, and all else stays."""

import pytest

from trl_vade.cli.variants.prompts import Question
from trl_vade.rewards.functions import INSTRUCTION

CHOICE_INSTRUCTION = INSTRUCTION.removesuffix(".") + ": the letter of the right choice."


@pytest.mark.parametrize("choices", ["", "Choices:\nA. 12\nB. 24", "(A) 12\n(B) 24", "A. red\nB. blue\nC. both"])
@pytest.mark.parametrize("instruction", ["", INSTRUCTION, CHOICE_INSTRUCTION, "Box the answer."])
def test_a_prompt_is_divided_and_put_together_again(choices, instruction):
    question = "Some context.\nWhat is the area?"
    text = "\n\n".join(filter(None, ["\n".join(filter(None, [question, choices])), instruction]))
    found = Question.of(text, "Box the answer")
    assert (found.text, found.choices, found.instruction) == (question, choices, instruction)
    assert found.with_text(question) == text
    assert found.with_whole(found.whole) == text
    changed = found.with_text("How large is it?")
    assert changed.startswith("How large is it?")
    assert all(part in changed for part in (choices, instruction))


def test_the_users_last_message_is_the_question_and_the_others_stay():
    system, early = {"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello"}
    prompt = [system, early, {"role": "assistant", "content": "Hi"}, {"role": "user", "content": "Why?"}]
    found = Question.of(prompt)
    assert found.text == "Why?"
    assert found.with_text("How so?") == [*prompt[:3], {"role": "user", "content": "How so?"}]
    assert prompt[3]["content"] == "Why?"


def test_parts_without_text_keep_their_place():
    parts = [{"type": "image", "text": None}, {"type": "text", "text": "Why?"}]
    prompt = [{"role": "user", "content": parts}]
    found = Question.of(prompt)
    assert found.with_text("How so?") == [{"role": "user", "content": [parts[0], {"type": "text", "text": "How so?"}]}]


@pytest.mark.parametrize(
    "prompt",
    [
        None,
        "",
        " \n",
        [],
        [{"role": "system", "content": "Why?"}],
        [{"role": "user", "content": None}],
        [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
        7,
    ],
)
def test_a_prompt_without_one_question_has_none(prompt):
    assert Question.of(prompt) is None
