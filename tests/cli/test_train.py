"""`trl-vade train` and its script: their arguments, and runs of both, cut short, under the slow marker."""

import json
from types import SimpleNamespace

import pytest
from trl.rewards import think_format_reward

from tests.support.refusals import refused
from tests.support.scripts import start
from trl_vade import VADEGRPOConfig
from trl_vade.cli import train, train_with_torch
from trl_vade.cli.parsing import Parser, VADEScriptArguments, read_command
from trl_vade.errors import ConfigurationError
from trl_vade.testbed import exact_answer_reward


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
    found, rest = read_command(["--num-processes=7", *of_the_run])
    assert found.num_processes == 7
    assert rest == of_the_run
    assert read_command(["--num_process", "7"])[0].num_processes is None


def test_a_reward_is_found_by_its_name_or_its_import_path():
    assert train_with_torch.load_reward("think_format_reward") is think_format_reward
    assert train_with_torch.load_reward("trl_vade.testbed.rewards.exact_answer_reward") is exact_answer_reward


def test_what_the_quickstart_switches_on_can_be_switched_off(tmp_path, monkeypatch):
    monkeypatch.setattr(VADEScriptArguments, "load_splits", lambda self: 1 / 0)  # all was accepted then
    for flags in (
        *("--eval_strategy=no", "--eval_strategy no --eval_on_start false", "--save_strategy no --eval_strategy no"),
        *("--logging_strategy no", "--log_completions true", "--load_best_model_at_end true"),
        *("--save_total_limit 0", "--vade_sampler uniform"),
    ):
        with pytest.raises(ZeroDivisionError):
            train.run(["--output_dir", str(tmp_path), *flags.split()])


def test_what_trl_refuses_while_the_trainer_is_made_is_one_message_with_its_place(monkeypatch, tmp_path):
    def fails(*arguments):
        raise ValueError("what TRL says")

    monkeypatch.setattr(train_with_torch, "make_trainer", fails)
    with refused(ConfigurationError, ["what TRL says", "ValueError", __file__]):
        train.run(["--output_dir", str(tmp_path)])


def test_an_error_of_a_reward_function_keeps_its_traceback(monkeypatch, tmp_path):
    def fails(resume_from_checkpoint):
        raise FileNotFoundError("answers.json")

    monkeypatch.setattr(train_with_torch, "make_trainer", lambda *arguments: SimpleNamespace(train=fails))
    with pytest.raises(RuntimeError) as raised:
        train.run(["--output_dir", str(tmp_path)])
    assert isinstance(raised.value.__cause__, FileNotFoundError)


def test_ctrl_c_ends_it_without_a_traceback(monkeypatch):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(train_with_torch, "train", interrupt)
    with pytest.raises(SystemExit, match="130"):
        train.run([])


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
