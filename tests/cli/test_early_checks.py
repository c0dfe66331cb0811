"""What is refused before torch is imported, by a message and exit code 2; and that nothing else is."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import trl_vade
from tests.support.checkpoints import write_checkpoint
from tests.support.commands import run, said
from tests.support.refusals import says
from trl_vade.cli.early_checks import refuse_early
from trl_vade.cli.launching import launcher_options
from trl_vade.cli.recipes import RECIPES
from trl_vade.cli.train import with_quickstart
from trl_vade.cli.training_arguments import read_command

ROOT = Path(trl_vade.__file__).parents[1]


def refuse(*words):
    refuse_early(*read_command(with_quickstart([str(word) for word in words])))


REFUSED = {
    "--vade_samplr uniform": ["--vade_samplr", "--vade_sampler"],
    "--vade-samplr=uniform": ["--vade-samplr", "--vade_sampler"],
    "--vade_sampler thomson": ["vade_sampler", "'thomson'", "thompson", "package.module:Class"],
    "--lr_scheduler_type constnt": ["lr_scheduler_type", "'constnt'", "constant"],
    "--seed x": ["--seed", "'x'"],
    "--config nosuch.yaml": ["--config", "nosuch.yaml", "--recipe"],
    "--config": ["--config", "path"],
    "--recipe quickstrat": ["quickstrat", "quickstart"],
    "--reward_funcs my.reward": ["--reward_funcs", "my.reward", "trl.rewards"],
    "--reward_funcs acuracy_reward": ["acuracy_reward", "accuracy_reward"],
    "--num_generations 7": ["num_generations=7", "512"],
    "--vade_cooldown 2": ["vade_cooldown=2.0", "[0, 1)"],
    "--vade_success_threshold high": ["vade_success_threshold", "'high'", "auto"],
    "--vade_sampler uniform --vade_stratify_by task": ["vade_stratify_by", "'uniform'"],
    "--resume_from_checkpoint true": ["resume_from_checkpoint", "output_dir"],
    "--resume_from_checkpoint checkpoint-7": ["checkpoint-7"],
    "--dataset_name mine": ["model_name_or_path", "dataset_name='mine'", "--recipe"],
    "--model_name_or_path no/such/model --dataset_name mine": ["model_name_or_path='no/such/model'", "user/name"],
    "--accelerate_config fdsp2": ["fdsp2", "fsdp2"],
    "--accelerate_config fsdp2 --num_proceses 8": ["--num_proceses", "--num_processes"],
    "stray": ["stray"],
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_cannot_work_is_one_message_with_the_way_out(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = said(run("train", *words.split()), 2, *REFUSED[words])
    assert text.startswith("Error: ")
    assert text.count("\n") == 1


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        ({"vade_samplr": "uniform"}, ["vade_samplr", "vade_sampler"]),
        ({"vade_sampler": "thomson"}, ["vade_sampler", "'thomson'", "thompson"]),
        ({"learning_rate": "fast"}, ["--learning_rate", "'fast'"]),
        ({"plan_rows": 7}, ["plan_rows", "--plan_rows"]),
        ({"num_generations": [1], "dataset_name": "x", "model_name_or_path": "x", "use_cpu": True}, ["int", "list"]),
        (["a list"], ["recipe.yaml"]),
        ("a: [", ["recipe.yaml", "line"]),
    ],
)
def test_a_recipe_that_cannot_be_read_is_refused_by_key_or_line(recipe, words, tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text(recipe if isinstance(recipe, str) else yaml.safe_dump(recipe))
    said(run("train", "--config", path), 2, *words)
    said(run("plan", "--config", path, "--plan_rows", 9), 2, *words)


def test_a_recipe_may_name_one_reward_without_brackets(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text("{reward_funcs: nosuch_reward, dataset_name: x, model_name_or_path: x}")
    said(run("train", "--config", path), 2, "--reward_funcs nosuch_reward")


def test_a_folder_with_checkpoints_is_refused_unless_their_run_goes_on(tmp_path):
    write_checkpoint(tmp_path, 3)
    said(run("train", "--output_dir", tmp_path), 2, tmp_path, "checkpoint-3", "resume_from_checkpoint='auto'")
    refuse("--output_dir", tmp_path, "--resume_from_checkpoint", "auto")
    refuse("--output_dir", tmp_path / "new", "--resume_from_checkpoint", "auto")


@pytest.mark.parametrize(
    "words",
    [
        *(f"--recipe {path.stem} --reward_funcs accuracy_reward" for path in RECIPES.glob("*.yaml")),
        *(f"--recipe {path.stem} --plan --plan_rows 9" for path in RECIPES.glob("*_vade.yaml")),
        "",
        "--model_name_or_path testbed",
        "--vade-sampler uniform --vade_cooldown 0.5",
        "--no_shuffle_dataset --vade_sampler=uniform",
        "--beta -0.0 --seed=-1",
        "--vade_keep_rollouts 0.25 1 --vade_down_sampling rows",
        "--vade_sampler my_package.rules:Mine",
        "--vade_success_threshold none",
        "--reward_funcs tests.support.runs.no_such_name think_format_reward",
        "--lr_scheduler_type cosine --debug underflow_overflow",
        "--log_level debug",
        "--vade_prese paper",  # argparse completes it
        "--num_generations 7 --per_device_train_batch_size 7",
        "--accelerate_config fsdp2 --num_processes 3 --machine-rank=1 --num_generations 7",
    ],
)
def test_what_may_work_is_left_to_the_training(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    refuse(*words.split())


@pytest.mark.parametrize("variable", ["WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"])
def test_the_processes_of_a_launcher_count(variable, monkeypatch, tmp_path):
    monkeypatch.setenv(variable, "7")
    refuse("--num_generations", 7, "--output_dir", tmp_path)


def test_the_options_of_the_launcher_are_those_of_accelerate():
    from accelerate.commands.launch import launch_command_parser

    options = [option for action in launch_command_parser()._actions for option in action.option_strings]
    assert {option[2:].replace("-", "_") for option in options if option.startswith("--")} == {*launcher_options()}


def test_the_script_refuses_as_the_command_and_only_the_main_process_says_why(monkeypatch):
    command = [sys.executable, str(ROOT / "scripts" / "train_vade.py"), "--vade_samplr", "uniform"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert says(done.stderr, "--vade_sampler")
    monkeypatch.setenv("LOCAL_RANK", "1")
    result = run("train", *command[2:])
    assert (result.exit_code, result.output) == (2, "")
