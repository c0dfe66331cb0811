"""The launch configurations of the package, as accelerate reads them."""

import pytest
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils import DistributedType
from accelerate.utils.launch import prepare_multi_gpu_env
from transformers import Qwen2_5_VLForConditionalGeneration

from trl_vade.cli.recipes import ACCELERATE

ONE_MACHINE = ["deepspeed_zero2", "deepspeed_zero3", "fsdp2"]
NAMES = [*ONE_MACHINE, "fsdp2_multi_node"]


def load(name):
    return load_config_from_file(str(ACCELERATE / f"{name}.yaml"))


def environment_of(name, *flags):
    """What a process is told by `accelerate launch` with the configuration and these flags."""
    command = ["--config_file", str(ACCELERATE / f"{name}.yaml"), *flags, "train.py"]
    arguments, *_ = _validate_launch_command(launch_command_parser().parse_args(command))
    return arguments, prepare_multi_gpu_env(arguments)


def test_there_is_a_configuration_for_each_sharding_and_one_for_several_machines():
    assert sorted(path.stem for path in ACCELERATE.iterdir()) == NAMES


@pytest.mark.parametrize("name", ONE_MACHINE)
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


@pytest.mark.parametrize("name", ["fsdp2", "fsdp2_multi_node"])
def test_every_process_loads_the_weights(name):
    """With `true` transformers before 5.18 gives a reference model of zeros to all but one of them."""
    assert load(name).fsdp_config["fsdp_cpu_ram_efficient_loading"] is False


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


def test_zero2_is_stage_two_and_offloads_nothing():
    configuration = load("deepspeed_zero2")
    assert configuration.distributed_type == DistributedType.DEEPSPEED
    assert configuration.deepspeed_config["zero_stage"] == 2
    assert configuration.deepspeed_config["offload_optimizer_device"] == "none"


@pytest.mark.parametrize("name", ["deepspeed_zero2", "deepspeed_zero3"])
def test_deepspeed_leaves_accumulation_and_clipping_to_the_recipe(name):
    assert not {"gradient_accumulation_steps", "gradient_clipping"} & load(name).deepspeed_config.keys()


def test_several_machines_shard_as_one_does():
    assert load("fsdp2_multi_node").fsdp_config == load("fsdp2").fsdp_config
    assert load("fsdp2_multi_node").mixed_precision == load("fsdp2").mixed_precision


def test_several_machines_take_their_rank_and_the_main_address_from_the_launcher():
    flags = ["--machine_rank", "2", "--num_machines", "3", "--num_processes", "12", "--main_process_ip", "node-2"]
    arguments, environment = environment_of("fsdp2_multi_node", *flags)
    assert (arguments.nnodes, arguments.nproc_per_node, arguments.node_rank) == ("3", "4", 2)
    assert (arguments.rdzv_backend, arguments.rdzv_endpoint) == ("static", "node-2:29500")
    assert environment["FSDP_VERSION"] == "2"


def test_the_launched_processes_are_told_what_fsdp2_yaml_says():
    arguments, environment = environment_of("fsdp2", "--main_process_port", "0", "--num_processes", "2")
    assert arguments.num_processes == 2
    assert environment["ACCELERATE_USE_FSDP"] == "true"
    assert environment["FSDP_VERSION"] == "2"
    assert environment["FSDP_STATE_DICT_TYPE"] == "FULL_STATE_DICT"
    assert environment["ACCELERATE_MIXED_PRECISION"] == "bf16"
