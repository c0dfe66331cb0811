"""What cannot work is refused before a model is loaded, with the way out."""

import pytest
from conftest import always_half, says_a_digit
from trl import GRPOConfig

from trl_vade import VADEGRPOTrainer
from trl_vade.errors import ConfigurationError


def refused(*arguments, **named):
    with pytest.raises(ConfigurationError) as caught:
        VADEGRPOTrainer("no/such-model: refused before it is looked up", *arguments, **named)
    return str(caught.value)


def test_a_stream_is_refused_by_a_sampler_that_chooses(text_rows, make_args):
    message = refused(says_a_digit, make_args(), text_rows.to_iterable_dataset())
    assert "IterableDataset" in message
    assert "vade_sampler='uniform'" in message


def test_fewer_rows_than_a_generation_batch_are_refused(text_rows, make_args):
    message = refused(says_a_digit, make_args(), text_rows.select(range(3)))
    assert "3 rows" in message
    assert "4 distinct" in message


def test_several_rewards_without_a_success_signal_are_refused(text_rows, make_args):
    message = refused([says_a_digit, always_half], make_args(), text_rows)
    assert "says_a_digit, always_half" in message
    assert "vade_success_reward" in message


@pytest.mark.parametrize("sampler", ["thompson", "uniform"])
def test_an_unknown_success_reward_is_refused(text_rows, make_args, sampler):
    args = make_args(vade_success_reward="accuracy", vade_sampler=sampler)
    assert "'accuracy' is the name of 0" in refused([says_a_digit, always_half], args, text_rows)


def reset_and_answer():
    return None


@pytest.mark.parametrize("name", ["tools", "environment_factory", "rollout_func"])
def test_dynamic_sampling_is_refused_where_a_batch_cannot_be_put_together_again(text_rows, make_args, name):
    args = make_args(vade_dynamic_sampling=True)
    value = [reset_and_answer] if name == "tools" else reset_and_answer
    message = refused(says_a_digit, args, text_rows, **{name: value})
    assert f"vade_dynamic_sampling=True with {name}" in message
    assert "Set vade_dynamic_sampling=False" in message


@pytest.mark.parametrize(
    "changes",
    [{"shuffle_dataset": False}, {"accelerator_config": {"dispatch_batches": True}}, "stream", "two rewards"],
)
def test_dynamic_sampling_is_refused_where_uniform_is_the_stock_trainer(text_rows, make_args, changes):
    settings = changes if isinstance(changes, dict) else {}
    args = make_args(vade_dynamic_sampling=True, vade_sampler="uniform", **settings)
    rows = text_rows.to_iterable_dataset() if changes == "stream" else text_rows
    rewards = [says_a_digit, always_half] if changes == "two rewards" else says_a_digit
    message = refused(rewards, args, rows)
    assert "nobody could draw the rows of a refill" in message
    assert "Set" in message or "set" in message


def test_plain_config_that_cannot_work_is_refused_too(text_rows, make_args):
    assert "shuffle_dataset=False" in refused(says_a_digit, make_args(GRPOConfig, shuffle_dataset=False), text_rows)
