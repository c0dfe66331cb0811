"""The plan of a run, against what real runs count, and the command that prints it."""

import subprocess
import sys
from pathlib import Path

import pytest
from trl import GRPOConfig

from tests.support.marks import slow_but
from tests.support.refusals import refused
from tests.support.rows import make_text_rows
from tests.support.runs import train
from trl_vade import VADEGRPOConfig
from trl_vade.cli.plan import command as planning
from trl_vade.cli.plan.counts import make_plan, planned_config
from trl_vade.cli.recipes import ACCELERATE, RECIPES, Launch, read_launch
from trl_vade.errors import ConfigurationError
from trl_vade.testbed.shapes import qwen2_5_vl_config
from trl_vade.trainer.grpo_config import with_vade_defaults

ROOT = Path(__file__).parents[3]
ONE_EPOCH = {"max_steps": -1, "num_train_epochs": 1}


@pytest.fixture(scope="module")
def train_vade():
    from trl_vade.cli import train

    return train


def rows(count):
    return make_text_rows().select(range(count))


# Small runs of 4 completions a row. With 4 a micro-batch, steps_per_generation 4 is a generation batch of 4 rows.
RUNS = {
    "one update a generation batch": (24, {"max_steps": 5}),
    "more steps than rows": (24, {"max_steps": 8}),
    "a whole epoch": (24, ONE_EPOCH),
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


# ----------------------------------------------------------------------------------------------- launch configurations


@pytest.mark.parametrize(
    ("name", "launch"),
    [
        ("fsdp2", Launch(4, "fsdp2", "bf16")),
        ("fsdp2_multi_node", Launch(8, "fsdp2", "bf16")),
        ("deepspeed_zero2", Launch(4, "zero2", "bf16")),
        ("deepspeed_zero3", Launch(4, "zero3", "bf16")),
    ],
)
def test_the_published_launch_configurations_are_understood(name, launch):
    assert read_launch(name) == read_launch(ACCELERATE / f"{name}.yaml") == launch


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("num_processes: 2\ndistributed_type: MULTI_GPU", None),
        ("num_processes: 2\ndistributed_type: FSDP", "FSDP2"),
        ("num_processes: 2\ndistributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 1}", "ZeRO-2 and ZeRO-3"),
        (
            "num_processes: 2\ndistributed_type: FSDP\nfsdp_config: {fsdp_version: 2, fsdp_offload_params: true}",
            "without offloading",
        ),
        ("- a list", "sets no num_processes"),
        ("a: {", "cannot be read"),
    ],
)
def test_what_a_launch_configuration_shares_is_known_or_refused(tmp_path, text, says):
    path = tmp_path / "launch.yaml"
    path.write_text(text)
    if says is None:
        assert read_launch(path) == Launch(2)
        return
    with refused(ConfigurationError, names=[says]):
        read_launch(path)


# -------------------------------------------------------------------------------------------------------- the command


@pytest.fixture(scope="module")
def qwen(tmp_path_factory):
    """A folder with nothing but the configuration of Qwen2.5-VL-3B."""
    folder = tmp_path_factory.mktemp("qwen")
    qwen2_5_vl_config("3b").save_pretrained(folder)
    return folder


RECIPE, FSDP2 = RECIPES / "qwen2_5_vl_3b_grpo_vade.yaml", ACCELERATE / "fsdp2.yaml"


def printed(train_vade, capsys, *flags):
    train_vade.run([str(flag) for flag in ("--plan", *flags)])
    return capsys.readouterr().out


def test_the_command_prints_counts_and_memory_without_weights_or_data(train_vade, qwen, capsys):
    flags = ["--config", RECIPE, "--plan_accelerate", FSDP2, "--plan_rows", 8524, "--model_name_or_path", qwen]
    text = printed(train_vade, capsys, *flags)
    for expected in ("512 rows x 8 = 4,096", "1,024 completions", "240 (16 an epoch)", "960", "983,040"):
        assert expected in text
    for expected in ("TRAINING", "SCORING", "GENERATION", "3,754,622,976 parameters", "it fits, with"):
        assert expected in text
    assert list(qwen.iterdir()) == [qwen / "config.json"]


def test_flags_of_the_command_overrule_the_recipe_and_the_launch_configuration(train_vade, qwen, capsys):
    flags = ["--config", RECIPE, "--plan_accelerate", FSDP2, "--plan_processes", 8, "--model_name_or_path", qwen]
    flags += ["--plan_rows", 8192, "--gradient_accumulation_steps", 32, "--steps_per_generation", 128]
    text = printed(train_vade, capsys, *flags, "--plan_gpu_memory", 20)
    assert "512 rows x 8 = 4,096" in text
    assert "has 20.0 GiB" in text
    assert "does NOT fit" in text


def test_the_quickstart_has_a_plan_of_one_process_on_a_cpu(train_vade, capsys, monkeypatch):
    monkeypatch.setattr(planning, "load_splits", lambda script_args: {"train": range(1024)})
    text = printed(train_vade, capsys)
    assert "64 rows x 8 = 512" in text
    assert "51,200" in text
    assert "No estimate of GPU memory: use_cpu is set." in text


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ([], ["--plan_rows 8524"]),
        (["--plan_rows", 100], [100, 512]),
        (["--plan_rows", 8524, "--plan_processes", 3], ["3 processes"]),
        (["--plan_rows", 8524, "--num_generations", 7], ["num_generations"]),
        (["--plan_rows", 8524, "--plan_accelerate", "none.yaml"], ["none.yaml"]),
        (["--plan_rows", 8524, "--model_name_or_path", "no/such-model"], ["no/such-model", "config.json"]),
        (["--plan_rows", 8524, "--vllm_enable_sleep_mode", "false", "--plan_gpu_memory", 20], ["at least"]),
        (["--plan_rows", 8524, "--vllm_gpu_memory_utilization", 0.026], ["one prompt"]),
    ],
)
def test_what_cannot_work_ends_with_its_message_and_no_traceback(train_vade, qwen, flags, says):
    before = ["--plan", "--config", RECIPE, "--plan_accelerate", FSDP2, "--model_name_or_path", qwen]
    with refused(ConfigurationError, names=says):
        train_vade.run([str(flag) for flag in (*before, *flags)])


def test_a_recipe_for_several_processes_is_refused_on_one_with_the_way_out(train_vade, monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with refused(ConfigurationError, names=["1 processes"], offers=["--plan_accelerate fsdp2"]):
        train_vade.run(["--plan", "--config", str(RECIPE), "--plan_rows", "8524"])


def words(line):
    """Without the lines around a table and the width of its columns."""
    return line.replace("│", " ").split()


def test_the_example_in_the_guide_is_what_is_printed(train_vade, qwen, capsys):
    guide = (ROOT / "docs" / "guides" / "recipes.md").read_text(encoding="utf-8")
    example = guide.split("```text\nThe plan\n")[1].split("```")[0].splitlines()
    flags = ["--config", RECIPE, "--plan_accelerate", FSDP2, "--plan_rows", 8524, "--model_name_or_path", qwen]
    lines = [words(line) for line in printed(train_vade, capsys, *flags).splitlines()]
    assert len(example) > 15
    assert [line for line in example if words(line) not in (*lines, ["..."])] == []


def test_a_recipe_that_is_not_there_is_said_so(train_vade):
    with refused(ConfigurationError, names=["none.yaml"]):
        train_vade.run(["--plan", "--config", "none.yaml"])


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--use_peft", "true"], "use_peft is set"),
        (["--load_in_4bit", "true"], "quantised"),
        (["--optim", "adafactor"], "'adafactor' is not AdamW"),
    ],
)
def test_what_the_estimate_does_not_know_it_does_not_estimate(train_vade, qwen, capsys, flags, says):
    start = ["--config", RECIPE, "--plan_accelerate", FSDP2, "--plan_rows", 8524, "--model_name_or_path", qwen]
    text = printed(train_vade, capsys, *start, *flags)
    assert "983,040" in text
    assert "No estimate of GPU memory: " in text
    assert says in text


def test_a_plan_needs_to_know_the_longest_prompt(train_vade, qwen, capsys, tmp_path):
    flags = ["--model_name_or_path", qwen, "--dataset_name", "x", "--output_dir", tmp_path, "--plan_rows", 64]
    assert "set --plan_prompt_tokens" in printed(train_vade, capsys, *flags)
    assert "prompts of 100 tokens" in printed(train_vade, capsys, *flags, "--plan_prompt_tokens", 100)
    assert "prompts of 90 tokens" in printed(train_vade, capsys, *flags, "--vade_max_prompt_length", 90)


def test_without_the_flag_nothing_is_planned(train_vade, monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr("trl_vade.cli.training.main", lambda *parsed: seen.append(parsed))
    train_vade.run(
        [
            "--dataset_name",
            "x",
            "--model_name_or_path",
            "x",
            "--output_dir",
            str(tmp_path),
            "--use_cpu",
            "true",
            "--plan_rows",
            "3",
        ]
    )
    [(_, training_args, _)] = seen
    assert type(training_args) is VADEGRPOConfig


@pytest.mark.parametrize("flags", [[], ["--plan"]])
def test_a_plans_options_in_a_recipe_are_refused_since_they_would_be_passed_over(train_vade, tmp_path, flags):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(f"output_dir: {tmp_path}\nuse_cpu: true\nplan_processes: 2\n")
    with pytest.raises(ConfigurationError, match=r"sets plan_processes=2.*give --plan_processes"):
        train_vade.run(["--config", str(recipe), *flags])


@pytest.mark.slow
def test_a_plan_loads_no_cuda_and_exits_as_it_says(tmp_path, qwen):
    flags = ["--config", RECIPE, "--plan_accelerate", FSDP2, "--plan_rows", 100, "--model_name_or_path", qwen]
    command = [sys.executable, str(ROOT / "scripts" / "train_vade.py"), "--plan", *map(str, flags)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "has 100 rows" in done.stderr
    assert list(tmp_path.iterdir()) == []
