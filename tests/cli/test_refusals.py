"""What a training command refuses: by one message, exit code 2, and before a model is loaded."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import trl_vade
from tests.support.checkpoints import write_checkpoint
from tests.support.commands import run, said
from tests.support.refusals import says

ROOT = Path(trl_vade.__file__).parents[1]
REFUSED = {
    "--vade_samplr uniform": ["--vade_samplr", "--vade_sampler"],
    "--vade-samplr=uniform": ["--vade-samplr", "--vade_sampler"],
    "--vade_sampler thomson": ["vade_sampler", "'thomson'", "thompson", "package.module:Class"],
    "--lr_scheduler_type constnt": ["lr_scheduler_type", "'constnt'", "constant"],
    "--seed x": ["--seed", "'x'"],
    "--config nosuch.yaml": ["nosuch.yaml"],
    "--config": ["--config", "path"],
    "--recipe quickstrat": ["quickstrat", "quickstart"],
    "--reward_funcs my.reward": ["--reward_funcs", "my.reward", "trl.rewards"],
    "--reward_funcs acuracy_reward": ["acuracy_reward", "accuracy_reward"],
    "--num_generations 7": ["7", "512"],
    "--vade_cooldown 2": ["vade_cooldown=2.0", "[0, 1)"],
    "--vade_success_threshold high": ["vade_success_threshold", "'high'", "auto"],
    "--vade_sampler uniform --vade_stratify_by task": ["vade_stratify_by", "'uniform'"],
    "--resume_from_checkpoint true": ["resume_from_checkpoint", "output_dir"],
    "--resume_from_checkpoint checkpoint-7": ["checkpoint-7"],
    "--dataset_name mine": ["model_name_or_path", "dataset_name='mine'", "--recipe"],
    "--model_name_or_path no/such/model --dataset_name mine": ["model_name_or_path='no/such/model'", "user/name"],
    "--accelerate_config fdsp2": ["fdsp2", "fsdp2"],
    "--accelerate_config fsdp2 --num_machins 8": ["--num_machins", "--num_machines"],
    "stray": ["stray"],
}


def test_what_cannot_work_is_one_message_with_the_way_out(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    for words, named in REFUSED.items():
        place = [] if "--config" in words else ["--output_dir", "out", "--use_cpu", "true"]
        text = said(run("train", *words.split(), *place), 2, *named)
        text = text.removeprefix("loading PyTorch, transformers and TRL ...\n")
        assert text.startswith("Error: "), words
        assert text.count("\n") == 1, words


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        ({"vade_samplr": "uniform"}, ["vade_samplr", "vade_sampler"]),
        ({"vade_sampler": "thomson", "use_cpu": True}, ["vade_sampler", "'thomson'", "thompson"]),
        ({"learning_rate": "fast"}, ["--learning_rate", "'fast'"]),
        ({"plan": True, "use_cpu": True}, ["plan=True", "--plan"]),
        ({"num_generations": [1], "dataset_name": "x", "model_name_or_path": "x", "use_cpu": True}, ["int", "list"]),
        (["a list"], ["recipe.yaml"]),
        ("a: [", ["recipe.yaml", "line"]),
        (
            "{reward_funcs: nosuch_reward, dataset_name: x/y, model_name_or_path: x/y, use_cpu: true}",
            ["nosuch_reward"],
        ),
    ],
)
def test_a_recipe_that_cannot_be_read_is_refused_by_key_or_line(recipe, words, tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text(recipe if isinstance(recipe, str) else yaml.safe_dump(recipe))
    said(run("train", "--config", path, "--output_dir", tmp_path / "out"), 2, *words)
    if "nosuch_reward" not in words:  # which a plan does not load
        said(run("plan", "--config", path, "--plan_rows", 9), 2, *words)


def test_a_folder_with_checkpoints_is_refused_unless_their_run_goes_on(tmp_path):
    write_checkpoint(tmp_path, 3)
    said(run("train", "--output_dir", tmp_path), 2, tmp_path, "checkpoint-3", "resume_from_checkpoint='auto'")


def test_the_script_refuses_as_the_command_and_only_the_main_process_says_why(monkeypatch):
    command = [sys.executable, str(ROOT / "scripts" / "train_vade.py"), "--vade_samplr", "uniform"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert says(done.stderr, "--vade_sampler")
    monkeypatch.setenv("LOCAL_RANK", "1")
    result = run("train", *command[2:])
    assert (result.exit_code, result.output) == (2, "")
