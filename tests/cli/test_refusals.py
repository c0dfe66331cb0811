"""What a training command refuses: by one message, exit code 2, and before a model is loaded."""

from pathlib import Path

import pytest

import trl_vade
from tests.support.checkpoints import write_checkpoint
from tests.support.commands import run, said
from trl_vade.cli.parsing import VADEScriptArguments

ROOT = Path(trl_vade.__file__).parents[1]
REFUSED = {
    "--vade_samplr uniform": ["--vade_samplr", "--vade_sampler"],
    "--vade-samplr=uniform": ["--vade-samplr", "--vade_sampler"],
    "--vade_sampler thomson": ["vade_sampler", "'thomson'", "thompson", "package.module:Class"],
    "--seed x": ["--seed", "'x'"],
    "--config nosuch.yaml": ["nosuch.yaml"],
    "--config": ["--config"],
    "--conf mine.yaml": ["--conf", "--config"],
    "--plan": ["--plan"],
    "--recipe quickstrat": ["--recipe", "quickstrat", "quickstart"],
    "--recipe quickstart --config mine.yaml": ["--recipe", "--config"],
    "--config one.yaml --config two.yaml": ["--config"],
    "--reward_funcs my.reward": ["--reward_funcs", "my.reward", "trl.rewards"],
    "--reward_funcs acuracy_reward": ["acuracy_reward", "accuracy_reward"],
    "--num_generations 7": ["num_generations", "7", "512"],
    "--reward_funcs trl_vade.testbed.rewards.nothing": ["--reward_funcs", "nothing"],
    "--vade_cooldown 2": ["vade_cooldown=2.0", "[0, 1)"],
    "--resume_from_checkpoint true": ["resume_from_checkpoint", "output_dir"],
    "--resume_from_checkpoint checkpoint-7": ["checkpoint-7"],
    "--dataset_name mine": ["model_name_or_path", "dataset_name='mine'", "--recipe"],
    "--model_name_or_path no/such/model --dataset_name mine": ["model_name_or_path='no/such/model'", "user/name"],
    "--accelerate_config fdsp2": ["fdsp2", "fsdp2"],
    "--accelerate_config fsdp2 --num_machins 8": ["--num_machins", "--num_machines"],
    "--accelerate_config fsdp2 -x": ["-x"],
    "stray": ["stray"],
}


def test_what_cannot_work_is_one_message_with_the_way_out_before_anything_is_loaded(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    monkeypatch.setattr(VADEScriptArguments, "load_splits", None)
    for words, named in REFUSED.items():
        place = [] if words.endswith("--config") else ["--output_dir", "out", "--use_cpu", "true"]
        text = said(run("train", *words.split(), *place), 2, *named)
        text = text.removeprefix("loading PyTorch, transformers and TRL ...\n")
        assert text.startswith("Error: "), words
        assert text.count("\n") == 1, words


def test_a_recipe_that_cannot_be_read_is_refused_by_key_or_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    for recipe, words in {
        "vade_samplr: uniform": ["vade_samplr", "vade_sampler"],
        "{vade_sampler: thomson, use_cpu: true}": ["vade_sampler", "'thomson'", "thompson"],
        "learning_rate: fast": ["--learning_rate", "'fast'"],
        "accelerate_config: fsdp2": ["--accelerate_config"],  # it is read before the recipe, and would be passed over
        "config: other.yaml": ["config='other.yaml'"],
        "{num_generations: [1], dataset_name: x, model_name_or_path: x, use_cpu: true}": ["int", "list"],
        "[a list]": ["recipe.yaml"],
        "a: [": ["recipe.yaml", "line"],
        "{reward_funcs: no_reward, dataset_name: x/y, model_name_or_path: x/y, use_cpu: true}": ["no_reward"],
    }.items():
        Path("recipe.yaml").write_text(recipe)
        said(run("train", "--config", "recipe.yaml", "--output_dir", "out"), 2, *words)
        if "no_reward" not in words:  # which a plan does not load
            said(run("plan", "--config", "recipe.yaml", "--plan_rows", 9), 2, *words)


@pytest.mark.parametrize("option", ["dataset_train_split", "dataset_test_split"])
def test_a_split_that_is_not_there_is_refused_with_those_that_are(tmp_path, monkeypatch, option):
    monkeypatch.setattr(VADEScriptArguments, "load_splits", lambda self: {"train": [], "validation": []})
    monkeypatch.setattr("trl_vade.testbed.load_testbed_model", lambda seed: "/no/model")
    result = run("train", "--output_dir", tmp_path, f"--{option}", "nosuch")
    said(result, 2, f"--{option}", "nosuch", "train", "validation")


def test_a_folder_with_checkpoints_is_refused_unless_their_run_goes_on(tmp_path):
    write_checkpoint(tmp_path, 3)
    said(run("train", "--output_dir", tmp_path), 2, tmp_path, "checkpoint-3", "resume_from_checkpoint='auto'")


def test_of_launched_processes_only_the_main_one_says_why(monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "1")
    result = run("train", "--vade_samplr", "uniform")
    assert (result.exit_code, result.output) == (2, "")
