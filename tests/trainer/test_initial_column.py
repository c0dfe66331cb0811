"""`vade_posterior_init="column:NAME"`: a column of the training set is where the posterior starts."""

import numpy as np
import pytest

from tests.support.refusals import refused
from tests.support.runs import StopAfter, assert_same_end, says_a_digit, train
from trl_vade import VADEGRPOTrainer
from trl_vade.errors import ConfigurationError
from trl_vade.trainer.initial_posterior import initial_posterior_facts

RATES = [None if row % 6 == 5 else (row % 6) / 4 for row in range(24)]


@pytest.fixture
def rated(text_rows):
    return text_rows.add_column("solve_rate", RATES)


def test_each_row_starts_from_its_pass_rate_and_the_others_from_the_prior(text_model_path, rated, make_args, caplog):
    args = make_args(vade_posterior_init="column:solve_rate", vade_sampler="greedy", max_steps=1)
    trainer = train(text_model_path, rated, args)
    first, batch = trainer.selection.feedback.log.read()
    known = [row for row, rate in enumerate(RATES) if rate is not None]
    assert (first["warm_start"], first["sample_index"], first["rollouts"]) == ("column:solve_rate", known, 0)
    assert first["trials"] == pytest.approx([8 * 0.2] * len(known))
    assert first["successes"] == pytest.approx([8 * 0.2 * RATES[row] for row in known])
    assert {RATES[row] for row in batch["sample_index"]} == {0.25}  # nearest to a third, where the gain is largest
    assert "20 of 24 rows" in caplog.text
    facts = {"posterior_init": "column:solve_rate", "warm_start_discount": 0.2}
    assert initial_posterior_facts(args) == facts


def test_a_spread_is_that_of_the_pass_rate(text_model_path, rated, make_args):
    settings = {"vade_posterior_init": "column:solve_rate", "vade_success_threshold": "spread", "max_steps": 1}
    first, _ = train(text_model_path, rated, make_args(**settings)).selection.feedback.log.read()
    p = np.array([RATES[row] for row in first["sample_index"]])
    assert first["successes"] == pytest.approx(8 * 0.2 * 2 * p * (1 - p))


def test_a_resumed_run_is_the_run_that_was_never_stopped(text_model_path, rated, make_args, tmp_path):
    settings = {"vade_posterior_init": "column:solve_rate", "save_strategy": "steps", "save_steps": 1, "max_steps": 3}
    whole = train(text_model_path, rated, make_args(output_dir=str(tmp_path / "whole"), **settings))
    args = make_args(output_dir=str(tmp_path / "parts"), **settings)
    train(text_model_path, rated, args, callbacks=[StopAfter(1)])
    resumed = VADEGRPOTrainer(text_model_path, says_a_digit, args, rated)
    resumed.train(resume_from_checkpoint=True)
    assert_same_end(resumed, whole)


def test_a_column_that_is_none_is_refused_before_the_model_is_loaded(rated, make_args):
    for column in ("solved", "id"):
        with refused(ConfigurationError, [f"column:{column}"]):
            VADEGRPOTrainer("/no/model", says_a_digit, make_args(vade_posterior_init=f"column:{column}"), rated)
    with refused(ConfigurationError, ["vade_posterior_init='column:solve_rate'"]):
        make_args(vade_posterior_init="column:solve_rate", vade_sampler="uniform")
