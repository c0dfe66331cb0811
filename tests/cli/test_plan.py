"""The plan of a run, against what real runs count, and the command that prints it."""

import json
from pathlib import Path

import pytest
import yaml

from tests.support.commands import run, said
from tests.support.marks import slow_but
from tests.support.rows import make_text_rows
from tests.support.runs import train
from trl_vade.cli.parsing import VADEScriptArguments
from trl_vade.cli.plan import make_plan, planned_config
from trl_vade.cli.recipes import ACCELERATE, RECIPES

ONE_EPOCH = {"max_steps": -1, "num_train_epochs": 1}


def rows(count):
    return make_text_rows().select(range(count))


# Small runs of 4 completions a row. With 4 a micro-batch, steps_per_generation 4 is a generation batch of 4 rows.
QUARTERS = {"per_device_train_batch_size": 4, "steps_per_generation": 4, "gradient_accumulation_steps": 2}
RUNS = {
    "more steps than rows": (24, {"max_steps": 8}),
    "half an epoch more": (22, {"max_steps": -1, "num_train_epochs": 1.5}),
    "an update that ends inside a generation batch, and an epoch that ends inside an update": (
        22,
        QUARTERS | {"max_steps": -1, "num_train_epochs": 2, "gradient_accumulation_steps": 3},
    ),
    "a generation batch used twice, cut short": (24, {"max_steps": 5, "num_iterations": 2}),
    "rollouts of every row first": (22, {"max_steps": 2, "vade_posterior_init": "rollout"}),
    "two updates a generation batch": (24, ONE_EPOCH | QUARTERS),
    "two generation batches an update": (
        23,
        ONE_EPOCH | QUARTERS | {"gradient_accumulation_steps": 4, "steps_per_generation": 2},
    ),
    "vanilla": (23, ONE_EPOCH | {"vade_sampler": "uniform"}),
}


@pytest.mark.parametrize("name", slow_but(tuple(RUNS)[:3], RUNS))
def test_a_plan_counts_what_the_run_then_counts(name, text_model_path, make_args):
    count, settings = RUNS[name]
    args = make_args(**settings)
    plan = make_plan(args, count)
    trainer = train(text_model_path, rows(count), args)
    assert plan.updates == trainer.state.global_step == trainer.state.max_steps
    assert plan.epochs == pytest.approx(trainer.state.epoch)
    assert plan.rollouts == plan.most_rollouts == trainer.selection.feedback.rollouts
    draws = trainer.selection.sampler.posterior.step - (plan.initial_rollouts > 0)
    assert plan.generation_batches == draws
    assert plan.rows_per_generation_batch == trainer.selection.num_groups


def test_refills_stay_below_what_the_plan_says_at_most(text_model_path, make_args):
    args = make_args(max_steps=3, vade_dynamic_sampling=True)
    plan = make_plan(args, 24)
    trainer = train(text_model_path, rows(24), args)
    assert plan.updates == trainer.state.global_step
    assert plan.rollouts == 3 * 16
    assert plan.rollouts < trainer.selection.feedback.rollouts <= plan.most_rollouts == 3 * 11 * 16


def test_the_initial_rollouts_are_filled_up_until_they_divide_among_processes(tmp_path):
    args = planned_config(3)(
        output_dir=str(tmp_path), per_device_train_batch_size=8, num_generations=4, vade_posterior_init="rollout"
    )
    assert make_plan(args, 12).initial_rollouts == 12 * 4
    assert make_plan(args, 13).initial_rollouts == 15 * 4


@pytest.fixture(autouse=True)
def recipe(tmp_path, monkeypatch):
    """A recipe in the working directory, and no launcher around the command."""
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.chdir(tmp_path)
    settings = {"output_dir": "out", "use_cpu": True, "num_generations": 4, "dataset_name": "you/rows"}
    settings |= {"per_device_train_batch_size": 16, "num_train_epochs": 2}
    Path("recipe.yaml").write_text(yaml.safe_dump(settings))


def printed(*flags):
    """What a plan of the recipe prints."""
    result = run("plan", "--config", "recipe.yaml", *flags)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_number_of_processes_is_that_of_the_command_the_launch_or_the_recipe():
    assert "4 rows x 4 = 16" in printed("--plan_rows", 22, "--beta", "-0.0")
    assert "up to 3 batches old" in printed("--plan_rows", 22, "--beta", 0.0, "--vade_replay", 3)
    assert "16 rows x 4 = 64" in printed("--plan_rows", 22, "--accelerate_config", "fsdp2")
    assert "8 rows x 4 = 32" in printed("--plan_rows", 22, "--accelerate_config", "fsdp2", "--num_processes", 2)
    for flags in (["--plan_processes", 2], ["--plan-processes=2"]):
        assert "8 rows x 4 = 32" in printed("--plan_rows", 22, *flags)
    for path in ACCELERATE.glob("*.yaml"):
        told = json.loads(printed("--plan_rows", 99, "--accelerate_config", path.stem, "--json"))
        assert told["processes"] == yaml.safe_load(path.read_text())["num_processes"]


@pytest.mark.parametrize("recipe", [path.stem for path in RECIPES.glob("*.yaml")])
def test_every_recipe_has_a_plan_in_a_fresh_clone_quietly(recipe, monkeypatch):
    monkeypatch.setattr(VADEScriptArguments, "load_splits", lambda self: {"train": range(1024)})
    result = run("plan", "--recipe", recipe)
    ours = "replay" in recipe or "lora" in recipe
    batch = "64 rows x 8 = 512" if recipe == "quickstart" else "128 rows x 4 = 512" if ours else "512 rows x 8 = 4,096"
    assert batch in result.stdout
    assert result.stderr == "loading PyTorch, transformers and TRL ...\n"


def test_flags_that_leave_nothing_to_count_are_refused():
    Path("rows").mkdir()
    Path("rows", "train.jsonl").write_text('{"prompt": "one"}\n{"prompt": "two"}')
    Path("bad").mkdir()
    Path("bad", "train.jsonl").write_text('{"prompt": "one"}\n{oops')
    Path("list.yaml").write_text("- a list")
    Path("broken.yaml").write_text("a: {")
    for flags, words in {
        "": ["dataset_name", "'you/rows'", "--plan_rows"],  # a plan downloads nothing
        "--dataset_name . --dataset_streaming true": ["dataset_name", "--plan_rows"],
        "--plan_rows 22 --num_generations 7": ["num_generations"],
        "--plan_rows 3": ["3 rows", "per_device_train_batch_size 16", "Add rows", "steps_per_generation"],
        "--dataset_name rows --dataset_train_split foo": ["--dataset_train_split", "'foo'", "'train'"],
        "--dataset_name bad": ["'bad'", "JSON parse error"],
        "--accelerate_config list.yaml": ["list.yaml", "num_processes"],
        "--accelerate_config broken.yaml": ["broken.yaml", "num_processes"],
        "--config none.yaml": ["--config"],
    }.items():
        result = run("plan", "--config", "recipe.yaml", *flags.split())
        said(result, 2, *words)
        assert result.stdout == "", flags
    said(run("plan", "--config", "none.yaml"), 2, "none.yaml")


def test_the_rows_of_a_local_data_set_are_counted_as_files_and_as_saved_to_disk():
    Path("rows").mkdir()
    Path("rows", "train.jsonl").write_text('{"prompt": "one"}\n' * 9)
    rows(9).save_to_disk("saved")
    for folder in ("rows", "saved"):
        assert "4 (2 an epoch)" in printed("--dataset_name", folder)
