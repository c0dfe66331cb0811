"""The recipes of the paper's runs: that they say what the paper says, and differ only where they should."""

import re

import pytest
import yaml
from trl import ModelConfig, TrlParser, get_peft_config

from scripts.mixture import command
from tests.support.families import write_family
from tests.support.runs import first_letter, rows_with_images
from trl_vade import VADEGRPOTrainer
from trl_vade.cli.parsing import VADEScriptArguments
from trl_vade.cli.plan import make_plan, planned_config
from trl_vade.cli.recipes import RECIPES
from trl_vade.cli.train_with_torch import load_reward
from trl_vade.rewards import functions as rewards
from trl_vade.trainer.config_checks import down_sampling
from trl_vade.trainer.presets import setting

SIZES, ALGORITHMS, ARMS = ("3b", "7b"), ("grpo", "gspo"), ("vade", "vanilla")
NAMES = [f"qwen2_5_vl_{size}_{algorithm}_{arm}" for size in SIZES for algorithm in ALGORITHMS for arm in ARMS]
OURS = {"qwen2_5_vl_3b_grpo_replay": 4, "qwen3_vl_2b_lora_vade": 1, "qwen3_vl_4b_lora_vade": 1}  # processes


def text_of(name):
    return (RECIPES / f"{name}.yaml").read_text(encoding="utf-8")


def settings_of(name):
    return yaml.safe_load(text_of(name))


@pytest.fixture(scope="module")
def parsed():
    """The recipe as `trl-vade train` would parse it on each of four processes."""

    def parse(name, processes=4):
        parser = TrlParser((VADEScriptArguments, planned_config(processes), ModelConfig))
        return parser.parse_args_and_config(["--config", str(RECIPES / f"{name}.yaml")])

    return parse


def test_there_is_a_recipe_for_each_run_of_the_papers_main_table_but_dapo_and_some_of_ours():
    found = {path.stem for path in (RECIPES).glob("*.yaml")}
    assert found == {*NAMES, *OURS, "quickstart"}


@pytest.mark.parametrize("name", NAMES)
def test_every_key_is_a_real_setting_and_arrives_as_it_stands(name, parsed):
    """TrlParser refuses a key that no dataclass has; a number that YAML reads as a text would arrive as another."""
    arguments = parsed(name)
    for key, value in settings_of(name).items():
        [holder] = [each for each in arguments if hasattr(each, key)]
        arrived = getattr(holder, key)
        if key == "accelerator_config":
            assert arrived.gradient_accumulation_kwargs == value["gradient_accumulation_kwargs"]
        elif key == "report_to":
            assert (value, arrived) == ("none", [])
        else:
            assert arrived == value, key
            assert not (isinstance(value, str) and re.fullmatch(r"[\d.e+-]+", value)), key


@pytest.mark.parametrize("name", NAMES)
def test_the_papers_table_is_followed_on_four_processes(name, parsed):
    _, args, _ = parsed(name)
    plan = make_plan(args, 8524)
    assert (plan.completions_per_generation_batch, plan.rows_per_generation_batch) == (4096, 512)
    assert (plan.completions_per_update, plan.updates_per_generation_batch, plan.epochs) == (1024, 4, 15)
    assert args.save_steps % plan.updates_per_generation_batch == 0  # checkpoints fall between generation batches
    expected = {
        **{"num_generations": 8, "max_completion_length": 2048, "learning_rate": 1e-6, "beta": 0.01, "use_vllm": True},
        **{"vllm_tensor_parallel_size": 2, "vllm_max_model_length": 8192 + 2048, "vade_max_prompt_length": 8192},
        "dataset_name": command.parse([]).output_dir,  # as prepare_data makes it
        **{"dataset_test_split": "validation", "reward_weights": [0.9, 0.1], "vade_success_reward": "accuracy_reward"},
    }
    if "gspo" in name:
        expected |= {"importance_sampling_level": "sequence", "epsilon": 3e-4, "epsilon_high": 4e-4}
        expected |= {"loss_type": "grpo"}
    settings = settings_of(name)
    assert {key: settings.get(key) for key in expected} == expected
    found = [load_reward(reward) for reward in settings["reward_funcs"]]
    assert found == [rewards.accuracy_reward, rewards.format_reward]


@pytest.mark.parametrize("name", NAMES)
def test_variants_differ_only_where_they_should(name):
    """YAML recipes cannot include one another: what is common is held together here."""
    _, _, _, size, algorithm, arm = name.split("_")
    base = settings_of("qwen2_5_vl_3b_grpo_vanilla")
    of_size = {"model_name_or_path"}
    of_algorithm = {"importance_sampling_level", "epsilon", "epsilon_high", "loss_type"}
    of_arm = {"vade_sampler", "vade_preset", "vade_posterior_init"}
    allowed = {"output_dir"}
    allowed |= of_size if size != "3b" else set()
    allowed |= of_algorithm if algorithm != "grpo" else set()
    allowed |= of_arm if arm != "vanilla" else set()
    settings = settings_of(name)
    differing = {key for key in base.keys() | settings.keys() if base.get(key) != settings.get(key)}
    assert differing <= allowed
    assert settings["output_dir"] == f"qwen2.5-vl-{size}-{algorithm}-{arm}"
    assert settings["model_name_or_path"] == f"Qwen/Qwen2.5-VL-{size.upper()}-Instruct"
    assert f"trl-vade train --recipe {name} --accelerate_config fsdp2\n" in text_of(name)


@pytest.mark.parametrize("name", NAMES)
def test_the_arm_is_the_papers_rule_or_vanilla(name, parsed):
    _, args, _ = parsed(name)
    if name.endswith("vanilla"):
        assert args.vade_sampler == "uniform"
        ours = [key for key in settings_of(name) if key.startswith("vade_")]
        assert ours == ["vade_max_prompt_length", "vade_success_reward", "vade_sampler"]
        return
    assert (args.vade_sampler, args.vade_preset) == ("thompson", "paper")
    assert setting(args, "information_gain") == "asymmetric"
    assert (setting(args, "signal_aware_decay"), setting(args, "cooldown")) == (False, 0.0)
    assert (setting(args, "decay_sampled"), setting(args, "decay_unsampled")) == (0.2, 0.999)


@pytest.mark.parametrize("name", OURS)
def test_our_recipes_have_the_batch_the_passes_and_the_replay_that_the_results_advise(name, parsed):
    script, args, model = parsed(name, OURS[name])
    plan = make_plan(args, script.plan_rows)
    assert (plan.rows_per_generation_batch, plan.updates_per_generation_batch) == (128, 2)
    assert (args.num_generations, args.vade_replay, setting(args, "preset")) == (4, 4, "balanced")
    assert (down_sampling(args), model.use_peft) == ("lossless", "lora" in name)
    assert args.save_steps % 2 == 0  # checkpoints fall between generation batches


@pytest.mark.slow
def test_the_adapter_of_the_recipe_trains_the_tiny_model_of_that_family(parsed, tmp_path, make_args):
    _, _, model = parsed("qwen3_vl_2b_lora_vade", 1)
    folder = write_family("qwen3_vl", tmp_path)
    args = make_args(max_steps=1, vade_down_sampling="lossless")
    trainer = VADEGRPOTrainer(folder, first_letter, args, rows_with_images(), peft_config=get_peft_config(model))
    trainer.train()
    assert trainer.state.global_step == 1
