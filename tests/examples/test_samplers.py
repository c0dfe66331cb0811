"""The samplers of `examples/samplers`: each chooses by its rule, and a resumed run is the run that never stopped."""

import importlib
from pathlib import Path

import numpy as np
import pytest

from tests.support.marks import slow_but
from tests.support.runs import StopAfter, assert_same_end, says_a_digit, train
from trl_vade import VADEGRPOTrainer

FOLDER = Path(__file__).parents[2] / "examples" / "samplers"
SAMPLERS = {"fixed_order": "FixedOrder", "band": "Band", "falling_target": "FallingTarget"}


@pytest.fixture(autouse=True)
def on_the_path(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))


def made(name, num_rows, **settings):
    return getattr(importlib.import_module(name), SAMPLERS[name])(num_rows, **settings)


def test_the_order_is_that_of_the_file():
    sampler = made("fixed_order", 5)
    assert [sampler.draw(2).tolist() for _ in range(3)] == [[0, 1], [2, 3], [4, 0]]
    assert sampler.draw(2, exclude=[1, 2]).tolist() == [3, 4]


def test_rows_outside_the_band_fill_up_a_batch():
    sampler = made("band", 6)
    sampler.observe(np.arange(5), np.array([0.0, 1.0, 4.0, 8.0, 0.0]), np.array([8.0, 8.0, 8.0, 8.0, 0.0]))
    assert {*sampler.draw(3).tolist()} == {2, 4, 5}
    assert {*sampler.draw(3, exclude=[5]).tolist()} > {2, 4}


def test_the_target_falls_from_easy_to_hard_rows():
    sampler = made("falling_target", 1000, draws=20)
    rate = np.linspace(0, 1, 1000)
    sampler.observe(np.arange(1000), rate, np.ones(1000))
    means = [rate[sampler.draw(50)].mean() for _ in range(21)]
    assert abs(means[0] - 0.78) < 0.1  # rates end at 1
    assert abs(means[-1] - 0.22) < 0.1
    assert len({*sampler.draw(50).tolist()}) == 50


@pytest.mark.parametrize("name", slow_but(list(SAMPLERS)[:1], SAMPLERS))
def test_a_resumed_run_is_the_run_that_never_stopped(text_model_path, text_rows, make_args, tmp_path, name):
    settings = {"vade_sampler": f"{name}:{SAMPLERS[name]}", "save_strategy": "steps", "save_steps": 1, "max_steps": 4}
    whole = train(text_model_path, text_rows, make_args(output_dir=str(tmp_path / "whole"), **settings))
    args = make_args(output_dir=str(tmp_path / "parts"), **settings)
    train(text_model_path, text_rows, args, callbacks=[StopAfter(2)])
    resumed = VADEGRPOTrainer(text_model_path, says_a_digit, args, text_rows)
    resumed.train(resume_from_checkpoint=True)
    assert_same_end(resumed, whole)
