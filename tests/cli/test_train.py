"""`trl-vade train` and its script: their arguments, and runs of both, cut short, under the slow marker."""

import inspect
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from trl.rewards import think_format_reward

from tests.support.checkpoints import without_later
from tests.support.refusals import refused
from tests.support.scripts import run, start
from trl_vade import VADEGRPOConfig
from trl_vade.cli import train, training
from trl_vade.cli.parsing import Parser, VADEScriptArguments, read_command
from trl_vade.cli.recipes import recipe_file
from trl_vade.errors import ConfigurationError
from trl_vade.evaluation.callback import planned
from trl_vade.evaluation.settings import Evaluation
from trl_vade.testbed import exact_answer_reward
from trl_vade.trainer.grpo_config import VADE_DEFAULTS


def test_without_a_recipe_model_or_data_set_of_the_users_own_the_quickstart_runs():
    for words in ([], ["--vade_sampler", "uniform"], ["--model-name-or-path", "testbed"], ["--dataset_name=testbed"]):
        assert train.with_quickstart(words) == ["--recipe", "quickstart", *words]
    for own in ("--config", "--recipe", "--recipe=mine", "--model_name_or_path", "--dataset-name=mine"):
        assert train.with_quickstart([own, "x"]) == [own, "x"]


def test_flags_go_before_the_values_of_the_recipe(tmp_path):
    flags = ["--vade_sampler", "uniform", "--seed", "7", "--output_dir", str(tmp_path)]
    script, args, model = Parser().read(read_command(train.with_quickstart(flags))[1])
    assert type(args) is VADEGRPOConfig
    assert (args.vade_sampler, args.seed, args.max_steps) == ("uniform", 7, 100)
    assert model.model_name_or_path == script.dataset_name == "testbed"


def test_the_commands_own_flags_are_found_among_those_of_the_run():
    of_the_run = ["--learning_rate", "1e-6", "--beta=0", "--beta", "-0.0", "--reward_funcs", "a", "b", "--config", "x"]
    found, rest = read_command(["--num-processes=7", *of_the_run[:5], "--plan", *of_the_run[5:]])
    assert (found.plan, found.num_processes) == (True, 7)
    assert rest == of_the_run
    assert read_command(["--num_process", "7"])[0].num_processes is None


def test_the_quickstart_recipe_states_the_defaults():
    recipe = yaml.safe_load(recipe_file("quickstart").read_text())
    stated = {name: value for name, value in recipe.items() if name.startswith("vade_")}
    assert stated == {name: VADE_DEFAULTS[name] for name in stated}
    assert {*stated} == {"vade_preset"}  # what is stated beside it, a preset could not change


def test_a_reward_is_found_by_its_name_or_its_import_path():
    assert training.load_reward("think_format_reward") is think_format_reward
    assert training.load_reward("trl_vade.testbed.rewards.exact_answer_reward") is exact_answer_reward


def test_the_options_of_the_benchmarks_are_those_of_the_callback():
    assert VADEScriptArguments("d").lmms_options() == {}
    given = {"lmms_tasks": ["mixture"], "lmms_steps": 5, "lmms_data": ["mixture=a=b"], "lmms_instruction": "mixture"}
    options = VADEScriptArguments("d", **given).lmms_options()
    assert options.keys() <= inspect.signature(planned).parameters.keys() | Evaluation.__dataclass_fields__.keys()
    assert options["data"] == {"mixture": Path("a=b")}
    assert (options["every_steps"], options["limit"]) == (5, 64)


def test_what_the_quickstart_switches_on_can_be_switched_off(tmp_path, monkeypatch):
    class Data(Exception):
        pass

    def load_splits(self):
        raise Data

    monkeypatch.setattr(VADEScriptArguments, "load_splits", load_splits)
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
        with pytest.raises(Data):
            train.run(["--output_dir", str(tmp_path), *flags.split()])


def test_what_trl_refuses_while_the_trainer_is_made_is_one_message_with_its_place(monkeypatch, tmp_path):
    def fails(*arguments):
        raise ValueError("what TRL says")

    monkeypatch.setattr(training, "make_trainer", fails)
    with refused(ConfigurationError, ["what TRL says", "ValueError", __file__]):
        train.run(["--output_dir", str(tmp_path)])


def test_an_error_of_a_reward_function_keeps_its_traceback(monkeypatch, tmp_path):
    def fails(resume_from_checkpoint):
        raise FileNotFoundError("answers.json")

    monkeypatch.setattr(training, "make_trainer", lambda *arguments: SimpleNamespace(train=fails))
    with pytest.raises(RuntimeError) as raised:
        train.run(["--output_dir", str(tmp_path)])
    assert isinstance(raised.value.__cause__, FileNotFoundError)


@pytest.mark.slow
def test_the_quickstart_without_evaluation_trains(tmp_path):
    flags = ["--max_steps", "1", "--per_device_train_batch_size", "64", "--eval_strategy", "no"]
    flags += ["--disable_tqdm", "true"]
    train.run([*flags, "--output_dir", str(tmp_path)])
    assert json.loads((tmp_path / "vade_summary.json").read_text())["validation"] == []


@pytest.mark.slow
def test_a_quickstart_of_each_sampler_has_a_folder_of_its_own_which_a_second_run_must_not_touch(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flags = ["--max_steps", "2", "--save_steps", "1", "--eval_strategy", "no"]
    flags += ["--per_device_train_batch_size", "64", "--disable_tqdm", "true"]
    # In this process: more of their own would import everything once more.
    train.run(flags)
    train.run([*flags, "--vade_sampler", "uniform"])
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

    train.run([*flags, "--max_steps", "3", "--resume_from_checkpoint", "auto"])
    assert (tmp_path / "vade-quickstart-thompson" / "checkpoint-3").is_dir()


@pytest.mark.slow
def test_the_quickstart_runs_as_vanilla_grpo_and_resumes(tmp_path):
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
    train.run([*map(str, flags), "--resume_from_checkpoint", without_later(tmp_path / "checkpoint-2")])
    resumed = json.loads((tmp_path / "vade_summary.json").read_text())
    for name in ("rollouts", "effective_gradient_ratio", "validation"):
        assert resumed[name] == whole[name]
