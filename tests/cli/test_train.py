"""`trl-vade train` and its script: their arguments, and runs of both, cut short, under the slow marker."""

import json

import pytest
import yaml

from tests.support.checkpoints import without_later
from tests.support.refusals import refused
from tests.support.scripts import run, start
from trl_vade.cli.parsing import Parser, read_command
from trl_vade.cli.recipes import recipe_file
from trl_vade.errors import CheckpointIncompleteError, ConfigurationError, HubError
from trl_vade.testbed import exact_answer_reward


@pytest.fixture(scope="module")
def train_vade():
    from trl_vade.cli import train

    return train


@pytest.fixture(scope="module")
def training():
    from trl_vade.cli import training

    return training


def test_without_a_recipe_model_or_data_set_the_quickstart_runs(train_vade):
    quickstart = ["--recipe", "quickstart"]
    assert train_vade.with_quickstart([]) == quickstart
    assert train_vade.with_quickstart(["--vade_sampler", "uniform"]) == [*quickstart, "--vade_sampler", "uniform"]


def test_a_quickstart_without_evaluation_evaluates_nothing_at_its_start_either(train_vade):
    for flags in (["--eval_strategy", "no"], ["--eval-strategy", "no"], ["--eval_strategy=no"]):
        assert train_vade.with_quickstart(flags)[2:] == [*flags, "--eval_on_start", "false"]
        asked = ["--recipe", "quickstart", *flags]
        assert train_vade.with_quickstart(asked) == [*asked, "--eval_on_start", "false"]


def test_the_quickstart_stays_out_of_a_run_of_the_users_own_but_not_of_the_testbeds(train_vade):
    for own in ("--config", "--recipe", "--recipe=mine", "--model_name_or_path", "--dataset-name=mine"):
        assert train_vade.with_quickstart([own, "x"]) == [own, "x"]
    for words in (["--model-name-or-path", "testbed"], ["--dataset_name=testbed"]):
        assert train_vade.with_quickstart(words) == ["--recipe", "quickstart", *words]


def test_flags_go_before_the_values_of_the_recipe(train_vade, tmp_path):
    flags = ["--vade_sampler", "uniform", "--seed", "7", "--output_dir", str(tmp_path)]
    script, training, model = Parser().read(read_command(train_vade.with_quickstart(flags))[1])
    assert (training.vade_sampler, training.seed, training.max_steps) == ("uniform", 7, 100)
    assert model.model_name_or_path == script.dataset_name == "testbed"


def test_the_quickstart_recipe_states_the_defaults():
    from trl_vade.trainer.grpo_config import VADE_DEFAULTS

    recipe = yaml.safe_load(recipe_file("quickstart").read_text())
    stated = {name: value for name, value in recipe.items() if name.startswith("vade_")}
    assert stated == {name: VADE_DEFAULTS[name] for name in stated}
    assert {*stated} == {"vade_preset", "vade_sampler"}  # what is stated beside them, a preset could not change


def test_a_reward_is_found_by_its_name_or_its_import_path(training):
    from trl.rewards import think_format_reward

    assert training.load_reward("think_format_reward") is think_format_reward
    assert training.load_reward("trl_vade.testbed.rewards.exact_answer_reward") is exact_answer_reward


def test_a_reward_that_does_not_exist_is_refused_by_name(training):
    for name in ("no_such_reward", "no_such_module.reward", "trl_vade.testbed.rewards.nothing"):
        with refused(ValueError, ["--reward_funcs", name]):
            training.load_reward(name)


def test_a_benchmark_that_cannot_work_is_refused_before_a_model_is_loaded(train_vade, training, tmp_path, monkeypatch):
    monkeypatch.setattr(training, "load_splits", None)  # what comes next would call it
    flags = ["--use_cpu", "true", "--output_dir", str(tmp_path)]
    with refused(ConfigurationError, ["--lmms_tasks", "mathvistas"], ["mathvista", "chartqa"]):
        train_vade.run([*flags, "--lmms_tasks", "mathvistas"])
    with refused(ConfigurationError, ["--lmms_steps", "every_steps", "0"], ["1"]):
        train_vade.run([*flags, "--lmms_tasks", "chartqa", "--lmms_steps", "0"])
    with refused(ConfigurationError, ["mathvistas"], ["mathvista", "chartqa"]):
        train_vade.run([*flags, "--lmms_tasks", "mathvistas", "--plan"])


def test_a_checkpoint_to_resume_from_is_looked_for_before_a_model_is_loaded(
    train_vade, training, tmp_path, monkeypatch
):
    monkeypatch.setattr(training, "load_splits", None)  # what comes next would call it
    with refused(CheckpointIncompleteError, [tmp_path], ["resume_from_checkpoint"]):
        train_vade.run(["--output_dir", str(tmp_path), "--resume_from_checkpoint", "true"])


@pytest.fixture
def stops_at_the_data(train_vade, training, tmp_path, monkeypatch):
    """A function that runs the script with these flags up to where the data is loaded."""

    class Data(Exception):
        pass

    def load_splits(arguments):
        raise Data

    def start(*flags):
        with pytest.raises(Data):
            train_vade.run(["--output_dir", str(tmp_path), *flags])

    monkeypatch.setattr(training, "load_splits", load_splits)
    return start


def test_options_that_cannot_work_end_in_one_message_before_anything_is_loaded(
    train_vade, stops_at_the_data, tmp_path
):
    for flags, name in {
        "--load_best_model_at_end true --eval_strategy no": "load_best_model_at_end",
        "--logging_steps 0": "logging_steps",
        "--num_generations 7": "num_generations",
        "--vade_cooldown 2": "vade_cooldown",
        "--per_device_eval_batch_size 6": "6",
        "--reward_funcs my.reward": "--reward_funcs",
        "--config /no/such.yaml": "/no/such.yaml",
        "--vade_samplr uniform": "--vade_samplr",
    }.items():
        with refused(ConfigurationError, [name]):
            train_vade.run(["--output_dir", str(tmp_path), *flags.split()])


def test_what_the_quickstart_switches_on_can_be_switched_off(stops_at_the_data):
    for flags in (
        "--eval_strategy=no",
        "--eval_strategy no --eval_on_start false",
        "--save_strategy no --eval_strategy no",
        "--logging_strategy no",
        "--log_completions true",
        "--load_best_model_at_end true",
        "--save_total_limit 0",
        "--vade_sampler uniform",
    ):
        stops_at_the_data(*flags.split())


def test_what_trl_refuses_while_the_trainer_is_made_is_one_message_with_its_place(training):
    with refused(ConfigurationError, ["what TRL says", "ValueError", __file__]), training.refusals():
        raise ValueError("what TRL says")
    with pytest.raises(CheckpointIncompleteError), training.refusals():
        raise CheckpointIncompleteError("ours")


def test_an_error_of_a_reward_function_keeps_its_traceback_and_ours_their_kind(training):
    with pytest.raises(RuntimeError) as raised, training.whole_errors():
        raise FileNotFoundError("answers.json")
    assert isinstance(raised.value.__cause__, FileNotFoundError)
    with pytest.raises(HubError), training.whole_errors():
        raise HubError("ours")


@pytest.mark.parametrize("option", ["dataset_train_split", "dataset_test_split"])
def test_a_split_that_is_not_there_is_refused_with_those_that_are(train_vade, training, tmp_path, monkeypatch, option):
    monkeypatch.setattr(training, "load_splits", lambda arguments: {"train": [], "validation": []})
    monkeypatch.setattr("trl_vade.testbed.load_testbed_model", lambda seed: "/no/model")
    with refused(ConfigurationError, [f"--{option}", "nosuch"], ["train", "validation"]):
        train_vade.run(["--output_dir", str(tmp_path), f"--{option}", "nosuch"])


@pytest.mark.slow
def test_the_quickstart_without_evaluation_trains(train_vade, tmp_path):
    flags = [
        "--max_steps",
        "1",
        "--per_device_train_batch_size",
        "64",
        "--eval_strategy",
        "no",
        "--disable_tqdm",
        "true",
    ]
    train_vade.run([*flags, "--output_dir", str(tmp_path)])
    assert json.loads((tmp_path / "vade_summary.json").read_text())["validation"] == []


@pytest.mark.slow
def test_a_quickstart_of_each_sampler_has_a_folder_of_its_own_which_a_second_run_must_not_touch(
    train_vade, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    flags = ["--max_steps", "2", "--save_steps", "1", "--eval_strategy", "no"]
    flags += ["--per_device_train_batch_size", "64", "--disable_tqdm", "true"]
    # In this process: more of their own would import everything once more.
    train_vade.run(flags)
    train_vade.run([*flags, "--vade_sampler", "uniform"])
    for sampler in ("thompson", "uniform"):
        folder = tmp_path / f"vade-quickstart-{sampler}"
        assert json.loads((folder / "vade_summary.json").read_text())["sampler"] == sampler
        assert {path.name for path in folder.glob("checkpoint-*")} == {"checkpoint-1", "checkpoint-2"}

    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    again = start("train_vade.py", *flags)
    assert again.returncode == 2
    assert "Traceback" not in again.stderr
    assert again.stderr.count("vade-quickstart-thompson holds checkpoint-1, checkpoint-2") == 1  # one message
    assert again.stderr.count("resume_from_checkpoint='auto'") == 1
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before

    train_vade.run([*flags, "--max_steps", "3", "--resume_from_checkpoint", "auto"])
    assert (tmp_path / "vade-quickstart-thompson" / "checkpoint-3").is_dir()


@pytest.mark.slow
def test_the_quickstart_runs_as_vanilla_grpo_and_resumes(train_vade, tmp_path):
    flags = ["--vade_sampler", "uniform", "--max_steps", 4, "--save_steps", 2, "--eval_steps", 4]
    flags += ["--per_device_train_batch_size", 64, "--output_dir", tmp_path, "--disable_tqdm", "true"]
    flags += ["--eval_on_start", "false"]  # the resumed run would evaluate once more, at its own start
    table = run("train_vade.py", *flags)
    assert "uniform" in table
    whole = json.loads((tmp_path / "vade_summary.json").read_text())
    assert whole["steps"] == whole["generation_batches"] == 4
    assert [evaluation["rollouts"] for evaluation in whole["validation"]] == [4 * 64]
    (tmp_path / "vade_summary.json").unlink()
    # In this process: a second one of its own would import everything once more.
    train_vade.run([*map(str, flags), "--resume_from_checkpoint", without_later(tmp_path / "checkpoint-2")])
    resumed = json.loads((tmp_path / "vade_summary.json").read_text())
    for name in ("rollouts", "effective_gradient_ratio", "validation"):
        assert resumed[name] == whole[name]
