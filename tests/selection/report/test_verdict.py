"""The two sentences about a run."""

import pytest

from trl_vade.selection.report.summary import verdict


def summary(*scores, error=None, **changes):
    ratios = {"first": 0.53, "last": 0.78}
    evaluations = [{"step": 10 * i, "score": score, "standard_error": error} for i, score in enumerate(scores)]
    found = {f"effective_gradient_ratio_{name}_quarter": ratio for name, ratio in ratios.items()}
    return found | {"even_draw_ratio_last_quarter": 0.54, "validation": evaluations} | changes


def test_useful_groups_stand_beside_an_even_draw_that_is_called_an_estimate():
    [groups, _] = verdict(summary(0.5))
    for figure in ("78 %", "53 %", "54 %", "estimate"):
        assert figure in groups


@pytest.mark.parametrize(
    ("after", "error", "said"),
    [
        (0.53, 0.0156, "within noise"),
        (0.6, 0.0156, "more than noise"),
        (0.4, 0.0156, "more than noise"),
        (0.6, None, "not known"),
    ],
)
def test_a_change_of_the_validation_score_is_held_against_its_error(after, error, said):
    [_, validation] = verdict(summary(0.5, 0.9, after, error=error))
    assert said in validation
    assert f"{100 * (after - 0.5):+.1f}" in validation
    assert ("±1.6" in validation) == (error is not None)


@pytest.mark.parametrize("scores", [(), (0.5,)])
def test_a_run_with_fewer_than_two_validations_claims_no_change(scores):
    [_, validation] = verdict(summary(*scores))
    assert "noise" not in validation


def test_a_run_without_rewards_has_a_sentence_too():
    [groups, _] = verdict(summary(effective_gradient_ratio_first_quarter=None))
    assert "not known" in groups
