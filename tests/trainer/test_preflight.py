"""What cannot work is refused before a model is loaded, with the way out."""

import importlib.util
from functools import partial

import pytest
from datasets import ClassLabel
from trl import GRPOConfig

from tests.support.own_samplers import OWN
from tests.support.refusals import refused
from tests.support.rows import numbered_rows, picture
from tests.support.runs import always_half, says_a_digit
from trl_vade import VADEGRPOTrainer
from trl_vade.errors import ConfigurationError
from trl_vade.rewards import accuracy_reward, relaxed_accuracy_reward
from trl_vade.trainer.preflight import selects_on_time


def make_trainer(*arguments, **named):
    return VADEGRPOTrainer("no/such-model: refused before it is looked up", *arguments, **named)


def test_fewer_rows_than_a_generation_batch_are_refused(text_rows, make_args):
    offers = ["per_device_train_batch_size", "steps_per_generation", "gradient_accumulation_steps"]
    with refused(ConfigurationError, ["train_dataset", "3 rows", "4"], offers):
        make_trainer(says_a_digit, make_args(), text_rows.select(range(3)))


@pytest.mark.parametrize(
    "changes",
    [
        {"vade_sampler": OWN},
        {"vade_information_gain": "symmetric"},
        {"vade_success_threshold": 0.5},
        {"vade_success_threshold": None},
    ],
    ids=str,
)
def test_settings_about_success_are_refused_where_no_reward_says_success(text_rows, make_args, changes):
    names = ["says_a_digit", "always_half", *(f"{name}" for name in changes)]
    with refused(ConfigurationError, names, ["vade_success_reward"]):
        make_trainer([says_a_digit, always_half], make_args(**changes), text_rows)


@pytest.mark.parametrize(
    "reward", [accuracy_reward, [accuracy_reward], partial(relaxed_accuracy_reward)], ids=["one", "list", "partial"]
)
def test_expressions_without_math_verify_are_refused_before_a_model_is_loaded(make_args, monkeypatch, reward):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    rows = numbered_rows(8).map(lambda row, i: {"answer": "2x+1" if i == 5 else "7"}, with_indices=True)
    with refused(ConfigurationError, ["math-verify", "row 5", "'2x+1'"], ["trl-vade[rewards]", "drop"]):
        make_trainer(reward, make_args(), rows)


class Game:
    """An environment with a reward of its own."""

    def reset(self, **row):
        return None

    def get_reward(self):
        return 1.0


@pytest.mark.parametrize("factory", [Game, {"game": Game}], ids=["one", "several"])
def test_the_rewards_of_environments_are_known_before_a_model_is_loaded(text_rows, make_args, factory):
    args = make_args(vade_success_reward="Gmae")
    with refused(ConfigurationError, ["vade_success_reward='Gmae'"], ["says_a_digit", "Game"]):
        make_trainer(says_a_digit, args, text_rows, environment_factory=factory)
    with refused(ConfigurationError, ["vade_sampler", "WorstLast"], ["says_a_digit", "Game"]):
        make_trainer(says_a_digit, make_args(vade_sampler=OWN), text_rows, environment_factory=factory)


@pytest.mark.parametrize("sampler", ["thompson", "uniform"])
def test_an_unknown_success_reward_is_refused(text_rows, make_args, sampler):
    args = make_args(vade_success_reward="accuracy", vade_sampler=sampler)
    with refused(ConfigurationError, ["vade_success_reward='accuracy'"], ["says_a_digit", "always_half"]):
        make_trainer([says_a_digit, always_half], args, text_rows)


def reset_and_answer():
    return None


@pytest.mark.parametrize("name", ["tools", "environment_factory", "rollout_func"])
def test_dynamic_sampling_is_refused_where_a_batch_cannot_be_put_together_again(text_rows, make_args, name):
    args = make_args(vade_dynamic_sampling=True)
    value = [reset_and_answer] if name == "tools" else reset_and_answer
    with refused(ConfigurationError, ["vade_dynamic_sampling=True", name], ["vade_dynamic_sampling=False"]):
        make_trainer(says_a_digit, args, text_rows, **{name: value})


@pytest.mark.parametrize(
    "changes",
    [{"shuffle_dataset": False}, {"accelerator_config": {"dispatch_batches": True}}, "stream"],
)
def test_dynamic_sampling_is_refused_where_uniform_is_the_stock_trainer(text_rows, make_args, changes):
    settings = changes if isinstance(changes, dict) else {}
    args = make_args(vade_dynamic_sampling=True, vade_sampler="uniform", **settings)
    rows = text_rows.to_iterable_dataset() if changes == "stream" else text_rows
    names = ["vade_dynamic_sampling=True", "vade_sampler='uniform'"]
    with refused(ConfigurationError, names, ["vade_dynamic_sampling=False"]):
        make_trainer(says_a_digit, args, rows)


def test_plain_config_that_cannot_work_is_refused_too(text_rows, make_args):
    with refused(ConfigurationError, ["shuffle_dataset=False"], ["shuffle_dataset=True"]):
        make_trainer(says_a_digit, make_args(GRPOConfig, shuffle_dataset=False), text_rows)


# ----------------------------------------------------------------------------------------------------------- strata


@pytest.mark.parametrize(
    ("column", "names"),
    [
        (None, ["'prompt'", "'limit'", "'id'"]),
        (["algebra"] * 24, ["1", "24"]),
        ([f"row {i}" for i in range(24)], ["24 values", "24 rows"]),
        ([i % 13 for i in range(24)], ["13", "24"]),
        (["algebra", None, "logic"] * 8, ["8", "24", "row 1"]),
        ([1, None, 2] * 8, ["8", "24"]),
        (["algebra", "", "logic"] * 8, ["8", "24"]),
        ([0.5, 1.5] * 12, ["Value('float64')"]),
        ([["algebra"], ["logic"]] * 12, ["List"]),
    ],
    ids=str,
)
def test_a_column_that_gives_no_strata_is_refused_with_what_it_is(text_rows, make_args, column, names):
    rows = text_rows if column is None else text_rows.add_column("task", column)
    with refused(ConfigurationError, ["vade_stratify_by='task'", *names]):
        make_trainer(says_a_digit, make_args(vade_stratify_by="task"), rows)


def test_a_column_of_images_is_refused_without_a_look_at_them(make_args, decoded_images):
    rows = numbered_rows(8, photo=picture)
    with refused(ConfigurationError, ["vade_stratify_by='photo'", "Image"]):
        make_trainer(says_a_digit, make_args(vade_stratify_by="photo"), rows)
    assert decoded_images == []


@pytest.mark.parametrize(
    "labels", [[i % 12 for i in range(24)], [True, False] * 12, ["a", "b"] * 12, "class"], ids=str
)
@pytest.mark.parametrize("form", [None, "numpy", "torch"])
def test_whole_numbers_texts_and_classes_are_strata_in_any_format(text_rows, make_args, labels, form):
    """More strata than groups of a batch are no fault: they take turns."""
    rows = text_rows.add_column("task", [0, 1] * 12 if labels == "class" else labels)
    if labels == "class":
        rows = rows.cast_column("task", ClassLabel(names=["algebra", "logic"]))
    assert selects_on_time(make_args(vade_stratify_by="task"), rows.with_format(form))
