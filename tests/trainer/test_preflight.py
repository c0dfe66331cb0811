"""What cannot work is refused before a model is loaded, or left to TRL where nobody asked for a choice."""

import importlib.util
from functools import partial

import pytest
from datasets import ClassLabel, DatasetDict
from trl import GRPOConfig

from tests.support.agents import agent_tokenizer, board_rows
from tests.support.own_samplers import OWN
from tests.support.refusals import refused
from tests.support.rows import numbered_rows, picture
from tests.support.runs import says_a_digit
from trl_vade import VADEGRPOConfig, VADEGRPOTrainer
from trl_vade.errors import ConfigurationError
from trl_vade.rewards import accuracy_reward, relaxed_accuracy_reward
from trl_vade.trainer.preflight import check_stratify_by, look_over
from trl_vade.trainer.presets import setting


class InOrder(VADEGRPOTrainer):
    def _get_train_sampler(self, dataset=None):
        return range(24)


class OwnLoader(VADEGRPOTrainer):
    def get_train_dataloader(self):
        return super().get_train_dataloader()


def as_they_are(rows):
    return rows


UNCHOSEN = {  # by the reason that is said: settings, rows, trainer
    "IterableDataset": ({}, lambda rows: rows.to_iterable_dataset(), VADEGRPOTrainer),
    "NoneType": ({}, lambda rows: None, VADEGRPOTrainer),
    "DatasetDict": ({}, lambda rows: DatasetDict({"train": rows}), VADEGRPOTrainer),
    "list": ({}, list, VADEGRPOTrainer),
    "shuffle_dataset=False": ({"shuffle_dataset": False}, as_they_are, VADEGRPOTrainer),
    "InOrder._get_train_sampler": ({}, as_they_are, InOrder),
    "OwnLoader.get_train_dataloader": ({}, as_they_are, OwnLoader),
}
UNCHOSEN |= {
    f"accelerator_config.{name}=True": ({"accelerator_config": {name: True}}, as_they_are, VADEGRPOTrainer)
    for name in ("dispatch_batches", "split_batches")
}


@pytest.mark.parametrize("reason", UNCHOSEN)
@pytest.mark.parametrize("config", [VADEGRPOConfig, GRPOConfig])
def test_where_no_sampler_can_choose_the_default_is_uniform_with_one_line_and_a_choice_asked_for_is_refused(
    text_rows, make_args, caplog, reason, config
):
    settings, rows_of, kind = UNCHOSEN[reason]
    args = make_args(config, **settings)
    given = {"model": "no/model", "reward_funcs": says_a_digit, "args": args, "train_dataset": rows_of(text_rows)}
    assert not look_over(given, kind)
    assert (setting(args, "sampler"), caplog.text.count("This run is plain GRPO")) == ("uniform", 1)
    assert reason in caplog.text
    if not settings:  # the next trainer with these settings chooses
        assert look_over(given | {"train_dataset": text_rows}, VADEGRPOTrainer)
    for sampler in ("thompson", "greedy", OWN):
        with refused(ConfigurationError, [f"vade_sampler={sampler!r}", reason], ["vade_sampler='uniform'"]):
            look_over(given | {"args": make_args(vade_sampler=sampler, **settings)}, kind)
    for name, value in (("vade_dynamic_sampling", True), ("vade_stratify_by", "limit")):  # they need a posterior
        with refused(ConfigurationError, [name]):
            look_over(given | {"args": make_args(**{name: value}, **settings)}, kind)


@pytest.mark.parametrize("sampler", [None, "thompson", "uniform"])
def test_fewer_rows_than_a_generation_batch_are_refused_since_nothing_would_be_trained(text_rows, make_args, sampler):
    rows = text_rows.select(range(3))
    with refused(ConfigurationError, ["3 rows", "takes 4"], ["per_device_train_batch_size", "more rows"]):
        make_trainer(says_a_digit, make_args(vade_sampler=sampler), rows)
    assert not look_over({"args": make_args(), "model": "", "train_dataset": rows}, InOrder)  # it may repeat rows


@pytest.mark.parametrize(("rows", "error"), [(None, ValueError), ([{"prompt": "say"}], TypeError)])
def test_otherwise_the_stock_trainer_says_what_it_needs(text_model_path, make_args, rows, error):
    with pytest.raises(error, match="`train_dataset`"):
        VADEGRPOTrainer(text_model_path, says_a_digit, make_args(), rows)


class Game:
    def reset(self, **row):
        return "say a digit"

    def get_reward(self):
        return 1.0


def test_an_environment_that_owns_its_data_trains_and_tasks_that_share_a_prompt_are_rows_of_their_own(
    agent_model_path, make_args, tmp_path
):
    agent = {"processing_class": agent_tokenizer(agent_model_path), "environment_factory": Game}
    trainer = VADEGRPOTrainer(agent_model_path, None, make_args(max_steps=1), **agent)
    trainer.train()
    assert (trainer.selection, trainer.state.global_step) == (None, 1)
    tasks = board_rows(12).map(lambda row: {"prompt": [{"role": "user", "content": "say 1"}]})
    trainer = VADEGRPOTrainer(agent_model_path, None, make_args(output_dir=str(tmp_path / "rows")), tasks, **agent)
    assert len({*trainer.selection.sample_keys.tolist()}) == 12


def make_trainer(*arguments, **named):
    return VADEGRPOTrainer("no/such-model: refused before it is looked up", *arguments, **named)


@pytest.mark.parametrize(
    "reward", [accuracy_reward, [accuracy_reward], partial(relaxed_accuracy_reward)], ids=["one", "list", "partial"]
)
def test_expressions_without_math_verify_are_refused(make_args, monkeypatch, reward):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    rows = numbered_rows(8).map(lambda row, i: {"answer": "2x+1" if i == 5 else "7"}, with_indices=True)
    with refused(ConfigurationError, ["math-verify", "row 5", "'2x+1'"], ["trl-vade[rewards]", "drop"]):
        make_trainer(reward, make_args(), rows)


def test_reward_functions_that_trl_could_not_call_are_refused_with_the_columns_that_there_are(text_rows, make_args):
    """The commonest mistake of GRPO: it would be found after the load, and after a generation batch."""
    without, other = (lambda completions, limit: [0.0]), (lambda completions, answer, **columns: [0.0])
    for reward, words in ((without, "unexpected keyword argument"), (other, "required argument: 'answer'")):
        for given in ({"train_dataset": text_rows}, {"train_dataset": None, "eval_dataset": {"some": text_rows}}):
            with refused(ConfigurationError, [words, [*given][-1], "limit, id"], ["**kwargs"]):
                VADEGRPOTrainer("no/model", [says_a_digit, reward], make_args(), **given)
    with refused(ConfigurationError, ["vade_success_reward='says_a_digits'", "says_a_digit"]):
        VADEGRPOTrainer("no/model", says_a_digit, make_args(vade_success_reward="says_a_digits"), text_rows)
    looked = {"model": "no/model", "reward_funcs": other, "args": make_args(), "train_dataset": text_rows}
    assert look_over(looked | {"rollout_func": lambda prompts, trainer: {}}, VADEGRPOTrainer)  # it may add the column
    assert look_over(looked | {"train_dataset": text_rows.with_transform(dict)}, VADEGRPOTrainer)  # likewise


def test_a_column_of_videos_which_the_model_does_not_see_is_told_of(text_rows, make_args, caplog):
    given = {"model": "no/model", "reward_funcs": says_a_digit, "args": make_args()}
    for rows in (text_rows, text_rows.add_column("videos", [["a.mp4"]] * 24)):
        look_over(given | {"train_dataset": rows}, VADEGRPOTrainer)
        assert caplog.text.count("train_dataset has a column of videos") == ("videos" in rows.column_names)


@pytest.mark.parametrize("name", ["tools", "environment_factory", "rollout_func"])
def test_dynamic_sampling_is_refused_where_a_batch_cannot_be_put_together_again(text_rows, make_args, name):
    value = [says_a_digit] if name == "tools" else Game
    with refused(ConfigurationError, ["vade_dynamic_sampling=True", name], ["vade_dynamic_sampling=False"]):
        make_trainer(says_a_digit, make_args(vade_dynamic_sampling=True), text_rows, **{name: value})


@pytest.mark.parametrize("path", ["no_such_module:Mine", "tests.support.own_samplers:Mine"])
def test_a_wrong_path_of_a_sampler_is_refused(text_rows, make_args, path):
    with refused(ConfigurationError, [f"vade_sampler={path!r}"], ["thompson", "greedy", "uniform"]):
        make_trainer(says_a_digit, make_args(vade_sampler=path), text_rows)


# ----------------------------------------------------------------------------------------------------------- strata


NO_STRATA = [
    ["algebra"] * 24,
    [f"row {i}" for i in range(24)],
    [i % 13 for i in range(24)],  # 13 labels for 24 rows
    ["algebra", None, "logic"] * 8,
    [1, None, 2] * 8,
    ["algebra", "", "logic"] * 8,
    [0.5, 1.5] * 12,
    [["algebra"], ["logic"]] * 12,
]


def test_a_column_without_strata_is_refused_and_images_are_not_decoded_for_it(text_rows, make_args, decoded_images):
    hidden = text_rows.add_column("task", [0, 1, -1] * 8).cast_column("task", ClassLabel(names=["algebra", "logic"]))
    tables = [text_rows, hidden, numbered_rows(8, task=picture)]
    for rows in [*tables, *(text_rows.add_column("task", labels) for labels in NO_STRATA)]:
        with refused(ConfigurationError, ["vade_stratify_by='task'"]):
            check_stratify_by(make_args(vade_stratify_by="task"), rows)
    assert decoded_images == []


@pytest.mark.parametrize("form", [None, "numpy", "torch"])
def test_whole_numbers_texts_and_classes_are_strata_in_any_format(text_rows, make_args, form):
    """More strata than groups of a batch are no fault: they take turns."""
    classes = text_rows.add_column("task", [0, 1] * 12).cast_column("task", ClassLabel(names=["algebra", "logic"]))
    columns = ([i % 12 for i in range(24)], [True, False] * 12, ["a", "b"] * 12)
    for rows in (classes, *(text_rows.add_column("task", labels) for labels in columns)):
        check_stratify_by(make_args(vade_stratify_by="task"), rows.with_format(form))
