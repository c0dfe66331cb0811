"""Each completion has its row's values to itself, as in stock TRL, whose loader decodes the row once for each."""

import numpy as np
import pytest

from tests.support.agents import Board, board_rows
from tests.support.as_stock import Situation, assert_as_stock, play
from tests.support.marks import slow_but
from tests.support.rows import text_of
from tests.support.situations.vision import one_image


def scores(completions, numbers):
    """Rewards that differ inside a group, and follow from what was seen."""
    return [float((len(text_of(each)) + number) % 2) for each, number in zip(completions, numbers, strict=True)]


def with_boards(side):
    """An environment that keeps the row's list, and whose tool takes pieces off it."""

    def pieces(environments, completions, **columns):
        side.seen.append([len(each.board) + each.moves for each in environments])
        return scores(completions, [len(each.board) for each in environments])

    return {"reward_funcs": pieces, "environment_factory": Board}


def with_second_turn(side):
    """A rollout function that plays on in the prompts that it was handed."""

    def rollout(prompts, trainer):
        prompt_ids = trainer._tokenize_prompts(prompts)[0]
        completion_ids, _ = trainer._generate_single_turn(prompt_ids, None, {}, trainer.num_generations)
        for prompt in prompts:
            prompt.append({"role": "user", "content": "say"})
        side.seen.append([len(prompt) for prompt in prompts])
        logprobs = [[0.0] * len(ids) for ids in completion_ids]
        return {"prompt_ids": prompt_ids, "completion_ids": completion_ids, "logprobs": logprobs}

    return {"rollout_func": rollout, "reward_funcs": lambda completions, **columns: scores(completions, side.seen[-1])}


def with_judge(side):
    """A judge that writes each completion behind its prompt."""

    def judge(prompts, completions, **columns):
        for prompt, completion in zip(prompts, completions, strict=True):
            prompt += completion
        side.seen.append([len(prompt) for prompt in prompts])
        return scores(completions, side.seen[-1])

    return {"reward_funcs": judge}


def with_drawing(draw):
    """A reward that draws into the picture and counts the marks that it finds there."""

    def given(side):
        def count_marks(completions, image, **columns):
            for number, each in enumerate(image):
                draw(each, number)
            marks = [int((np.asarray(each) == (1, 2, 3)).all(-1).sum()) for each in image]
            side.seen.append(marks)
            return scores(completions, marks)

        return {"reward_funcs": count_marks}

    return given


def by_load(image, number):
    image.load()[number, 0] = (1, 2, 3)


SITUATIONS = {  # with the number that each completion sees if its values are its own
    "an environment keeps the row's list": (
        Situation({"max_completion_length": 12}, with_boards, board_rows, "agent_model_path"),
        4,
    ),
    "a rollout function appends to the prompts": (Situation({}, with_second_turn), 2),
    "a judge appends to the prompts": (Situation({}, with_judge), 2),
    "a reward draws by load": (Situation({}, with_drawing(by_load), one_image, "vision_model_path"), 1),
}
QUICK = ["an environment keeps the row's list", "a reward draws by load"]


@pytest.fixture
def played(request, tmp_path):
    """`play` of a situation, by name, on a side of this name."""

    def one_side(name, **options):
        situation = SITUATIONS[name][0]
        path = request.getfixturevalue(situation.model)
        return play(situation, path, tmp_path / str(options), **options)

    return one_side


@pytest.mark.parametrize("name", slow_but(QUICK, SITUATIONS))
def test_whoever_changes_a_value_in_place_sees_and_trains_what_stock_does(played, name):
    stock = played(name, stock=True)
    assert {number for batch in stock[1] for number in batch} == {SITUATIONS[name][1]}
    assert any(entry.get("grad_norm") for entry in stock[0].state.log_history)
    assert_as_stock(played(name), stock)


@pytest.mark.parametrize("name", slow_but(["a rollout function appends to the prompts"], SITUATIONS))
def test_a_sampler_that_chooses_gives_each_completion_its_own_values_too(played, name):
    seen = played(name, vade_sampler="thompson")[1]
    assert len(seen) == 2
    assert {number for batch in seen for number in batch} == {SITUATIONS[name][1]}
