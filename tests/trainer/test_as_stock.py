"""With the uniform sampler the trainer is stock TRL, to the bit, in whatever situation users bring it into."""

import copy
from dataclasses import replace

import pytest
import torch

from tests.support.as_stock import Situation, assert_as_stock, plain_history, play, tables
from tests.support.runs import assert_equal_weights, weights
from tests.support.situations import SITUATIONS
from trl_vade import VADEReportCallback
from trl_vade.trainer.report import callback_of

# One for most seams of the trainer; `-m slow` has the others.
DEFAULT = ("beta, synced", "two iterations", "a resume", "tools, one call", "an image")


@pytest.fixture(scope="module")
def base(text_model_path, tmp_path_factory):
    return play(Situation(), text_model_path, tmp_path_factory.mktemp("base"), stock=True)


def differ(left, right):
    """Whether the weights of two trainers differ; those of an adapter have other names."""
    try:
        assert_equal_weights(weights(left), weights(right))
    except AssertionError:
        return True
    return False


@pytest.mark.parametrize("name", DEFAULT)
def test_it_is_stock_trl_to_the_bit(request, base, tmp_path, name):
    assert_uniform_is_stock(request, base, tmp_path, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SITUATIONS if name not in DEFAULT])
def test_it_is_stock_trl_to_the_bit_and_a_sampler_that_chooses_logs_all_of_it(request, base, tmp_path, name):
    stock = assert_uniform_is_stock(request, base, tmp_path, name)
    assert_chosen_logs_as_stock(request, tmp_path, name, stock)


@pytest.mark.slow
@pytest.mark.parametrize("name", DEFAULT)
def test_a_sampler_that_chooses_runs_as_long_and_logs_all_that_stock_trl_does(request, tmp_path, name):
    stock, _ = play(SITUATIONS[name], model_of(request, name), tmp_path / "stock", stock=True)
    assert_chosen_logs_as_stock(request, tmp_path, name, stock)


def model_of(request, name):
    return request.getfixturevalue(SITUATIONS[name].model)


def assert_uniform_is_stock(request, base, tmp_path, name):
    """Play both sides, compare them, and return the stock trainer."""
    situation, model = SITUATIONS[name], model_of(request, name)
    stock = play(situation, model, tmp_path / "stock", stock=True)
    assert situation.as_base or differ(stock[0], base[0])  # else the situation acts on nothing
    assert not situation.logs or any(situation.logs in entry for entry in stock[0].state.log_history)
    assert bool(tables(stock[0])) is stock[0].args.log_completions
    ours = play(situation, model, tmp_path / "ours")
    assert (ours[0].selection is not None) is situation.selected
    assert_as_stock(ours, stock)
    assert callback_of(ours[0], VADEReportCallback).active  # no situation is too much for the report
    return stock[0]


def assert_chosen_logs_as_stock(request, tmp_path, name, stock):
    if not SITUATIONS[name].selected:
        return
    ours, _ = play(SITUATIONS[name], model_of(request, name), tmp_path / "chosen", vade_sampler="thompson")
    assert callback_of(ours, VADEReportCallback).active
    if "stop" not in name:
        assert ours.state.global_step == stock.state.global_step
    keys = [{key for entry in trainer.state.log_history for key in entry} for trainer in (stock, ours)]
    missing = keys[0] - keys[1]
    if not any(
        entry.get("vade/effective_gradient_ratio") for entry in ours.state.log_history
    ):  # no row was trained on
        missing = {key for key in missing if not key.startswith(("entropy", "clip_ratio"))}
    assert missing == set()


@pytest.mark.parametrize("first", ["ours", "stock"])
def test_stock_trl_goes_on_from_a_checkpoint_of_either(text_model_path, tmp_path, base, first):
    whole = Situation({"save_strategy": "steps", "save_steps": 1})
    play(whole, text_model_path, tmp_path, stock=first == "stock")

    def resumed(make, side):
        trainer = make()
        trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-1"))
        return trainer

    stock, _ = play(replace(whole, drive=resumed), text_model_path, tmp_path, stock=True)
    assert_equal_weights(weights(stock), weights(base[0]))
    assert plain_history(stock)[:-1] == plain_history(base[0])[:-1]  # a resumed run has another mean loss in the last


# --------------------------------------------------------------------------------------------- would it see a change?


def one_bit_more_in_a_weight(trainer):
    with torch.no_grad():
        weight = next(trainer.model.parameters()).view(-1)[:1]
        weight.copy_(torch.nextafter(weight, weight + 1))


def one_bit_more_in_the_log(trainer):
    trainer.state.log_history[0]["entropy"] += 1e-15


def a_key_less_in_the_log(trainer):
    del trainer.state.log_history[1]["reward_std"]


def an_entry_less_in_the_log(trainer):
    trainer.state.log_history.pop()


CHANGES = [one_bit_more_in_a_weight, one_bit_more_in_the_log, a_key_less_in_the_log, an_entry_less_in_the_log]


def test_the_least_difference_is_seen(text_model_path, tmp_path, base):
    ours = play(Situation(), text_model_path, tmp_path)
    for change in CHANGES:
        before = copy.deepcopy((ours[0].state.log_history, ours[0].model.state_dict()))
        assert_as_stock(ours, base)
        change(ours[0])
        with pytest.raises(AssertionError):
            assert_as_stock(ours, base)
        ours[0].state.log_history = before[0]
        ours[0].model.load_state_dict(before[1])


@pytest.mark.slow
def test_another_seed_is_seen(text_model_path, tmp_path, base):
    with pytest.raises(AssertionError):
        assert_as_stock(play(Situation(), text_model_path, tmp_path, seed=4), base)
