"""What cannot work is refused before a model is loaded, with the way out."""

import importlib.util
from functools import partial

import pytest
from datasets import ClassLabel
from trl import GRPOConfig

from tests.support.own_samplers import OWN
from tests.support.refusals import refused
from tests.support.rows import numbered_rows, picture
from tests.support.runs import says_a_digit
from trl_vade import VADEGRPOConfig, VADEGRPOTrainer
from trl_vade.errors import ConfigurationError
from trl_vade.rewards import accuracy_reward, relaxed_accuracy_reward
from trl_vade.trainer.preflight import check_stratify_by, look_over
from trl_vade.trainer.presets import setting


def make_trainer(*arguments, **named):
    return VADEGRPOTrainer("no/such-model: refused before it is looked up", *arguments, **named)


class InOrder(VADEGRPOTrainer):
    def _get_train_sampler(self, dataset=None):
        return range(24)


UNCHOSEN = {
    "stream": ({}, lambda rows: rows.to_iterable_dataset(), "IterableDataset"),
    "few": ({}, lambda rows: rows.select(range(3)), "3 rows"),
    "ordered": ({"shuffle_dataset": False}, lambda rows: rows, "shuffle_dataset=False"),
    **{
        name: ({"accelerator_config": {name: True}}, lambda rows: rows, f"accelerator_config.{name}=True")
        for name in ("dispatch_batches", "split_batches")
    },
    "own": ({}, lambda rows: rows, "InOrder._get_train_sampler"),
}


@pytest.mark.parametrize("name", UNCHOSEN)
@pytest.mark.parametrize("config", [VADEGRPOConfig, GRPOConfig])
def test_where_no_sampler_can_choose_the_default_is_uniform_with_one_line_and_a_choice_asked_for_is_refused(
    text_rows, make_args, caplog, name, config
):
    settings, rows_of, reason = UNCHOSEN[name]
    kind = InOrder if name == "own" else VADEGRPOTrainer
    args, rows = make_args(config, **settings), rows_of(text_rows)
    given = {"model": "no/model", "reward_funcs": says_a_digit, "args": args, "train_dataset": rows}
    assert not look_over(given, kind)
    assert (setting(args, "sampler"), caplog.text.count("This run is plain GRPO")) == ("uniform", 1)
    assert reason in caplog.text
    if not settings and name != "own":  # the next trainer with these settings chooses
        assert look_over(given | {"train_dataset": text_rows}, kind)
    for sampler in ("thompson", "greedy", OWN):
        with refused(ConfigurationError, [f"vade_sampler={sampler!r}", reason], ["vade_sampler='uniform'"]):
            look_over(given | {"args": make_args(vade_sampler=sampler, **settings)}, kind)


@pytest.mark.parametrize("changes", [{"vade_dynamic_sampling": True}, {"vade_stratify_by": "limit"}], ids=str)
def test_what_needs_a_posterior_is_refused_where_no_sampler_can_choose(text_rows, make_args, changes):
    with refused(ConfigurationError, [*changes]):
        make_trainer(says_a_digit, make_args(**changes), text_rows.to_iterable_dataset())


@pytest.mark.parametrize(
    "reward", [accuracy_reward, [accuracy_reward], partial(relaxed_accuracy_reward)], ids=["one", "list", "partial"]
)
def test_expressions_without_math_verify_are_refused_before_a_model_is_loaded(make_args, monkeypatch, reward):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    rows = numbered_rows(8).map(lambda row, i: {"answer": "2x+1" if i == 5 else "7"}, with_indices=True)
    with refused(ConfigurationError, ["math-verify", "row 5", "'2x+1'"], ["trl-vade[rewards]", "drop"]):
        make_trainer(reward, make_args(), rows)


def reset_and_answer():
    return None


@pytest.mark.parametrize("name", ["tools", "environment_factory", "rollout_func"])
def test_dynamic_sampling_is_refused_where_a_batch_cannot_be_put_together_again(text_rows, make_args, name):
    args = make_args(vade_dynamic_sampling=True)
    value = [reset_and_answer] if name == "tools" else reset_and_answer
    with refused(ConfigurationError, ["vade_dynamic_sampling=True", name], ["vade_dynamic_sampling=False"]):
        make_trainer(says_a_digit, args, text_rows, **{name: value})


# ----------------------------------------------------------------------------------------------------------- strata


NO_STRATA = {
    "no column": None,
    "one label": ["algebra"] * 24,
    "ids": [f"row {i}" for i in range(24)],
    "13 labels for 24 rows": [i % 13 for i in range(24)],
    "texts with a hole": ["algebra", None, "logic"] * 8,
    "numbers with a hole": [1, None, 2] * 8,
    "an empty text": ["algebra", "", "logic"] * 8,
    "fractions": [0.5, 1.5] * 12,
    "lists": [["algebra"], ["logic"]] * 12,
}


@pytest.mark.parametrize("name", NO_STRATA)
def test_a_column_that_gives_no_strata_is_refused(text_rows, make_args, name):
    rows = text_rows if NO_STRATA[name] is None else text_rows.add_column("task", NO_STRATA[name])
    with refused(ConfigurationError, ["vade_stratify_by='task'"]):
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
    check_stratify_by(make_args(vade_stratify_by="task"), rows.with_format(form))
