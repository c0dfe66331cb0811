"""The plan of a run, against what real runs count, and the command that prints it."""

from pathlib import Path

import pytest
import yaml
from trl import GRPOConfig

from tests.support.marks import slow_but
from tests.support.refusals import refused
from tests.support.rows import make_text_rows
from tests.support.runs import train
from trl_vade import VADEGRPOConfig
from trl_vade.cli import plan as planning
from trl_vade.cli import train as train_vade
from trl_vade.cli.parsing import read_command
from trl_vade.cli.plan import make_plan, planned_config, print_plan
from trl_vade.cli.recipes import ACCELERATE, RECIPES, read_processes
from trl_vade.errors import ConfigurationError
from trl_vade.trainer.grpo_config import with_vade_defaults

ROOT = Path(__file__).parents[2]
ONE_EPOCH = {"max_steps": -1, "num_train_epochs": 1}


def rows(count):
    return make_text_rows().select(range(count))


# Small runs of 4 completions a row. With 4 a micro-batch, steps_per_generation 4 is a generation batch of 4 rows.
RUNS = {
    "more steps than rows": (24, {"max_steps": 8}),
    "rows that do not fill the last batch": (23, ONE_EPOCH),
    "half an epoch more": (22, {"max_steps": -1, "num_train_epochs": 1.5}),
    "accumulation": (24, ONE_EPOCH | {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 4}),
    "two updates a generation batch": (
        24,
        ONE_EPOCH | {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "steps_per_generation": 4},
    ),
    "two generation batches an update": (
        23,
        ONE_EPOCH | {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 4, "steps_per_generation": 2},
    ),
    "an update that ends inside a generation batch, and an epoch that ends inside an update": (
        22,
        {"max_steps": -1, "num_train_epochs": 2}
        | {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 3, "steps_per_generation": 4},
    ),
    "a generation batch used twice": (24, ONE_EPOCH | {"num_iterations": 2}),
    "a generation batch used twice, cut short": (24, {"max_steps": 5, "num_iterations": 2}),
    "rollouts of every row first": (22, {"max_steps": 2, "vade_posterior_init": "rollout"}),
    "vanilla": (23, ONE_EPOCH | {"vade_sampler": "uniform"}),
}


DEFAULT = (
    "more steps than rows",
    "half an epoch more",
    "an update that ends inside a generation batch, and an epoch that ends inside an update",
    "a generation batch used twice, cut short",
    "rollouts of every row first",
)


@pytest.mark.parametrize("name", slow_but(DEFAULT, RUNS))
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
    args = make_args(max_steps=3, vade_dynamic_sampling=True, vade_max_refills=2)
    plan = make_plan(args, 24)
    trainer = train(text_model_path, rows(24), args)
    assert plan.updates == trainer.state.global_step
    assert plan.rollouts == 3 * 16
    assert plan.rollouts < trainer.selection.feedback.rollouts <= plan.most_rollouts == 3 * 3 * 16


def test_the_papers_setting_comes_to_its_256_rounds_or_so(tmp_path):
    """512 rows x 8 from 8,524, fifteen times: TRL leaves the rows out that do not fill a batch."""
    args = planned_config(4)(
        output_dir=str(tmp_path),
        per_device_train_batch_size=16,
        gradient_accumulation_steps=16,
        steps_per_generation=64,
        num_train_epochs=15,
    )
    plan = make_plan(args, 8524)
    assert plan.rows_per_generation_batch == 512
    assert plan.completions_per_generation_batch == 4096
    assert (plan.completions_per_update, plan.rows_per_update) == (1024, 128)
    assert plan.updates_per_generation_batch == 4
    assert (plan.generation_batches, plan.updates, plan.epochs) == (240, 960, 15)
    assert plan.rollouts == 240 * 4096


def test_the_initial_rollouts_are_filled_up_until_they_divide_among_processes(tmp_path):
    args = planned_config(3)(
        output_dir=str(tmp_path), per_device_train_batch_size=8, num_generations=4, vade_posterior_init="rollout"
    )
    assert make_plan(args, 12).initial_rollouts == 12 * 4
    assert make_plan(args, 13).initial_rollouts == 15 * 4


def test_fewer_rows_than_a_generation_batch_are_refused_with_the_way_out(make_args):
    with refused(ConfigurationError, names=[3, 4], offers=["steps_per_generation"]):
        make_plan(make_args(), 3)


def test_engines_that_do_not_divide_the_processes_are_refused(make_args):
    with refused(ConfigurationError, names=["vllm_tensor_parallel_size", 2, 1]):
        make_plan(make_args(use_vllm=True, vllm_tensor_parallel_size=2), 24)
    make_plan(make_args(use_vllm=True, vllm_tensor_parallel_size=2, vllm_mode="server"), 24)


def test_a_plain_configuration_of_trl_has_a_plan_too(make_args):
    plan = make_plan(with_vade_defaults(make_args(config_class=GRPOConfig)), 24)
    assert (plan.updates, plan.rollouts) == (6, 6 * 16)


@pytest.mark.parametrize(
    ("name", "processes"), [("fsdp2", 4), ("fsdp2_multi_node", 8), ("deepspeed_zero2", 4), ("deepspeed_zero3", 4)]
)
def test_the_published_launch_configurations_are_understood(name, processes):
    assert read_processes(name) == read_processes(ACCELERATE / f"{name}.yaml") == processes


@pytest.mark.parametrize(("text", "says"), [("- a list", "sets no num_processes"), ("a: {", "cannot be read")])
def test_what_is_no_launch_configuration_is_refused(tmp_path, text, says):
    (tmp_path / "launch.yaml").write_text(text)
    with refused(ConfigurationError, names=["launch.yaml", says]):
        read_processes(tmp_path / "launch.yaml")


# -------------------------------------------------------------------------------------------------------- the command


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "recipe.yaml"
    settings = {"output_dir": str(tmp_path / "out"), "use_cpu": True, "num_generations": 4, "dataset_name": "you/rows"}
    path.write_text(yaml.safe_dump(settings | {"per_device_train_batch_size": 16, "num_train_epochs": 2}))
    return str(path)


@pytest.fixture
def printed(recipe, capsys):
    """What a plan of the recipe prints."""

    def plan(*flags):
        print_plan(["--config", recipe, *map(str, flags)])
        return capsys.readouterr().out

    return plan


@pytest.fixture
def data_folder(tmp_path, monkeypatch):
    """A folder for a data set, and one for what `datasets` keeps of it."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "rows").mkdir()
    return tmp_path / "rows"


def test_the_commands_own_flags_are_found_among_those_of_the_run():
    of_the_run = ["--learning_rate", "1e-6", "--beta=0", "--beta", "-0.0", "--reward_funcs", "a", "b", "--config", "x"]
    found, rest = read_command(["--num-processes=7", *of_the_run[:5], "--plan", *of_the_run[5:]])
    assert (found.plan, found.num_processes) == (True, 7)
    assert rest == of_the_run
    assert read_command(["--num_process", "7"])[0].num_processes is None


def test_the_number_of_processes_is_that_of_the_configuration_unless_it_is_given(printed):
    assert "16 rows x 4 = 64 completions" in printed("--plan_rows", 22, "--accelerate_config", "fsdp2")
    assert "8 rows x 4 = 32" in printed("--plan_rows", 22, "--accelerate_config", "fsdp2", "--num_processes", 2)


@pytest.mark.parametrize("flags", [["--plan_processes", 2], ["--plan-processes=2"]])
def test_the_processes_that_a_plan_is_for_can_be_given_as_a_flag_as_in_a_recipe(printed, monkeypatch, flags):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert "8 rows x 4 = 32" in printed("--plan_rows", 22, *flags)


@pytest.mark.parametrize("recipe", [path.stem for path in RECIPES.glob("*.yaml")])
def test_every_recipe_has_a_plan_in_a_fresh_clone(recipe, capsys, monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.setattr(planning, "load_splits", lambda script_args: {"train": range(1024)})
    train_vade.run(["--recipe", recipe, "--plan"])
    assert ("64 rows x 8" if recipe == "quickstart" else "512 rows x 8 = 4,096") in capsys.readouterr().out


def test_what_cannot_work_is_one_error_with_the_reason_and_how_it_was_planned(printed):
    too_few, ways_out = ["3 rows", "per_device_train_batch_size 16"], ["Add rows", "steps_per_generation"]
    with refused(ConfigurationError, too_few, [*ways_out, "--accelerate_config fsdp2"]):
        printed("--plan_rows", 3)
    with refused(ConfigurationError, too_few, ways_out) as raised:
        printed("--plan_rows", 3, "--num_processes", 1)
    assert "--accelerate_config" not in str(raised.value)


@pytest.mark.parametrize(
    ("flags", "names", "offers"),
    [
        ([], ["dataset_name", "'you/rows'"], ["--plan_rows"]),  # a plan downloads nothing
        (["--dataset_name", ".", "--dataset_streaming", "true"], ["dataset_name"], ["--plan_rows"]),
        (["--plan_rows", 22, "--num_generations", 7], ["num_generations"], []),
    ],
)
def test_flags_that_leave_nothing_to_count_are_refused(printed, flags, names, offers):
    with refused(ConfigurationError, names, offers):
        printed(*flags)


@pytest.mark.parametrize(
    ("line", "flags", "names", "offers"),
    [
        ('{"prompt": "two"}', ["--dataset_train_split", "foo"], ["dataset_train_split", "'foo'"], ["'train'"]),
        ("{oops", [], ["dataset_name", "JSON parse error"], []),
    ],
)
def test_a_local_data_set_that_cannot_be_counted_is_named(printed, data_folder, flags, line, names, offers):
    (data_folder / "train.jsonl").write_text('{"prompt": "one"}\n' + line)
    with refused(ConfigurationError, [repr(str(data_folder)), *names], offers):
        printed("--dataset_name", data_folder, *flags)


def test_the_rows_of_a_local_data_set_are_counted(printed, data_folder):
    (data_folder / "train.jsonl").write_text('{"prompt": "one"}\n' * 9)
    assert "4 (2 an epoch)" in printed("--dataset_name", data_folder)


def words(line):
    """Without the lines around a table and the width of its columns."""
    return line.replace("│", " ").split()


def test_the_example_in_the_guide_is_what_is_printed(capsys):
    guide = (ROOT / "docs" / "guides" / "recipes.md").read_text(encoding="utf-8")
    example = guide.split("```text\nThe plan\n")[1].split("```\n")[0].splitlines()
    flags = ["--recipe", "qwen2_5_vl_3b_grpo_vade", "--accelerate_config", "fsdp2"]
    train_vade.run(["--plan", *flags])
    lines = [words(line) for line in capsys.readouterr().out.splitlines()]
    assert len(example) == 10
    assert [line for line in example if words(line) not in lines] == []


def test_without_the_flag_nothing_is_planned(monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr("trl_vade.cli.training.main", lambda *parsed: seen.append(parsed))
    flags = ["--dataset_name", "x", "--model_name_or_path", "x", "--use_cpu", "true", "--plan_rows", "3"]
    train_vade.run([*flags, "--output_dir", str(tmp_path)])
    [(_, training_args, _)] = seen
    assert type(training_args) is VADEGRPOConfig


@pytest.mark.parametrize("flags", [[], ["--plan"]])
def test_a_flag_of_the_command_in_a_recipe_is_refused_since_it_would_be_passed_over(recipe, flags):
    with Path(recipe).open("a") as file:
        file.write("num_processes: 2\n")
    with refused(ConfigurationError, ["num_processes=2"], ["--num_processes"]):
        train_vade.run(["--config", recipe, *flags])
