"""The launch configurations in scripts/accelerate, as accelerate reads them."""

from pathlib import Path

import pytest
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils import DistributedType
from accelerate.utils.launch import prepare_multi_gpu_env
from transformers import Qwen2_5_VLForConditionalGeneration

CONFIGURATIONS = Path(__file__).parent.parent / "scripts" / "accelerate"
NAMES = ["deepspeed_zero3", "fsdp2"]


def load(name):
    return load_config_from_file(str(CONFIGURATIONS / f"{name}.yaml"))


def test_there_is_a_configuration_for_fsdp2_and_one_for_zero3():
    assert sorted(path.stem for path in CONFIGURATIONS.iterdir()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_four_processes_of_one_machine_compute_in_bf16(name):
    configuration = load(name)
    assert (configuration.num_machines, configuration.num_processes) == (1, 4)
    assert configuration.mixed_precision == "bf16"
    assert not configuration.use_cpu


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_is_one_that_the_launcher_knows(name):
    """accelerate 1.15 takes an unknown key of a section without a word."""
    configuration = load(name)
    known = vars(launch_command_parser().parse_args(["train.py"]))
    settings = configuration.fsdp_config | configuration.deepspeed_config
    assert settings
    assert settings.keys() <= known.keys()


def test_fsdp2_shards_each_block_and_saves_whole_checkpoints():
    configuration = load("fsdp2")
    assert configuration.distributed_type == DistributedType.FSDP
    assert configuration.fsdp_config["fsdp_version"] == 2
    assert configuration.fsdp_config["fsdp_reshard_after_forward"] is True
    assert configuration.fsdp_config["fsdp_state_dict_type"] == "FULL_STATE_DICT"
    assert configuration.fsdp_config["fsdp_auto_wrap_policy"] == "TRANSFORMER_BASED_WRAP"
    assert configuration.fsdp_config["fsdp_offload_params"] is False


def test_the_blocks_left_to_the_model_include_qwen2_5_vls_vision_blocks():
    assert "fsdp_transformer_layer_cls_to_wrap" not in load("fsdp2").fsdp_config
    blocks = set(Qwen2_5_VLForConditionalGeneration._no_split_modules)
    assert blocks == {"Qwen2_5_VLDecoderLayer", "Qwen2_5_VLVisionBlock"}


def test_zero3_gathers_weights_for_every_save_and_offloads_nothing():
    configuration = load("deepspeed_zero3")
    assert configuration.distributed_type == DistributedType.DEEPSPEED
    assert configuration.deepspeed_config["zero_stage"] == 3
    assert configuration.deepspeed_config["zero3_save_16bit_model"] is True
    assert configuration.deepspeed_config["offload_optimizer_device"] == "none"
    assert configuration.deepspeed_config["offload_param_device"] == "none"


def test_zero3_leaves_accumulation_and_clipping_to_the_recipe():
    assert not {"gradient_accumulation_steps", "gradient_clipping"} & load("deepspeed_zero3").deepspeed_config.keys()


def test_the_launched_processes_are_told_what_fsdp2_yaml_says():
    path = str(CONFIGURATIONS / "fsdp2.yaml")
    command = ["--config_file", path, "--main_process_port", "0", "--num_processes", "2", "train.py"]
    arguments, *_ = _validate_launch_command(launch_command_parser().parse_args(command))
    environment = prepare_multi_gpu_env(arguments)
    assert arguments.num_processes == 2
    assert environment["ACCELERATE_USE_FSDP"] == "true"
    assert environment["FSDP_VERSION"] == "2"
    assert environment["FSDP_STATE_DICT_TYPE"] == "FULL_STATE_DICT"
    assert environment["ACCELERATE_MIXED_PRECISION"] == "bf16"
