"""The scores of a run's validations, and how sure they are."""

import numpy as np
import pytest

from trl_vade.selection.report.validation import change_of, standard_error, validations, with_error


def evaluation(step, score, name="", **more):
    return {"step": step, "eval_reward": score, f"eval_{name}_runtime" if name else "eval_runtime": 1.0} | more


def test_validation_sets_with_names_are_told_apart_and_the_first_is_the_runs():
    history = [{"loss": 1.0, "step": 1}]
    history += [evaluation(step, score, name) for step in (0, 2) for name, score in (("easy", 0.9), ("hard", 0.1))]
    answers = {"easy": 100, "hard": 25}
    assert [found["score"] for found in validations(history, None, answers)] == [0.9, 0.9]
    hard = validations(history, None, answers, "hard")
    assert [(found["step"], found["score"]) for found in hard] == [(0, 0.1), (2, 0.1)]
    assert hard[0]["standard_error"] == pytest.approx(0.06)  # sqrt(.1 * .9 / 25)


def test_the_reward_that_says_success_is_the_score_where_there_is_one():
    history = [evaluation(0, 1.7, **{"eval_rewards/right/mean": 0.5, "eval_rewards/right/std": 0.4})]
    [found] = validations(history, "right", 100)
    assert (found["score"], found["standard_error"]) == (0.5, pytest.approx(0.05))


def test_the_error_is_not_smaller_than_the_spread_of_repeated_validations():
    """256 questions of very different difficulty, four answers each, scored 2,000 times in batches of 64 rows."""
    random = np.random.default_rng(0)
    rates = random.beta(0.5, 0.5, 256)
    answers = random.random((2000, 256, 4)) < rates[:, None]
    scores, spreads = answers.mean((1, 2)), answers.reshape(2000, 4, 256).std(2).mean(1)
    errors = [standard_error(score, spread, 1024) for score, spread in zip(scores, spreads, strict=True)]
    assert scores.std() < np.mean(errors) < 3 * scores.std()


@pytest.mark.parametrize(
    ("scores", "shown"), [((0.495, 0.547), ("49.5 ±1.6 %", "+5.2 points")), ((-1.0, 1.5), ("-1 ±0.016", "+2.5"))]
)
def test_only_shares_are_said_in_per_cent(scores, shown):
    first, last = ({"score": score, "standard_error": 0.016} for score in scores)
    assert (with_error(first), change_of(first, last)[0]) == shown
