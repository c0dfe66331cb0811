"""The launch configurations of the package, as accelerate reads them."""

import pytest
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils import DistributedType
from accelerate.utils.launch import prepare_multi_gpu_env
from transformers import Qwen2_5_VLForConditionalGeneration

from trl_vade.cli.recipes import ACCELERATE

NAMES = ["deepspeed_zero2", "deepspeed_zero3", "fsdp2", "fsdp2_multi_node"]


def load(name):
    return load_config_from_file(str(ACCELERATE / f"{name}.yaml"))


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_is_one_that_the_launcher_knows_and_computes_in_bf16(name):
    """accelerate 1.15 takes an unknown key of a section without a word."""
    assert sorted(path.stem for path in ACCELERATE.iterdir()) == NAMES
    configuration = load(name)
    settings = configuration.fsdp_config | configuration.deepspeed_config
    assert settings
    assert settings.keys() <= vars(launch_command_parser().parse_args(["train.py"])).keys()
    assert (configuration.mixed_precision, configuration.use_cpu) == ("bf16", False)
    if name != "fsdp2_multi_node":
        assert (configuration.num_machines, configuration.num_processes) == (1, 4)


def test_fsdp2_shards_each_block_and_saves_whole_checkpoints():
    configuration = load("fsdp2")
    assert configuration.distributed_type == DistributedType.FSDP
    expected = {
        **{"fsdp_version": 2, "fsdp_reshard_after_forward": True, "fsdp_state_dict_type": "FULL_STATE_DICT"},
        **{"fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "fsdp_offload_params": False},
        # With `true` transformers before 5.18 gives a reference model of zeros to all but one process.
        "fsdp_cpu_ram_efficient_loading": False,
    }
    assert {key: configuration.fsdp_config.get(key) for key in expected} == expected
    # The blocks are left to the model. Those of Qwen2.5-VL include the vision blocks.
    assert "fsdp_transformer_layer_cls_to_wrap" not in configuration.fsdp_config
    blocks = {*Qwen2_5_VLForConditionalGeneration._no_split_modules}
    assert blocks == {"Qwen2_5_VLDecoderLayer", "Qwen2_5_VLVisionBlock"}
    assert load("fsdp2_multi_node").fsdp_config == configuration.fsdp_config


@pytest.mark.parametrize("stage", [2, 3])
def test_deepspeed_offloads_nothing_and_leaves_accumulation_and_clipping_to_the_recipe(stage):
    configuration = load(f"deepspeed_zero{stage}")
    settings = configuration.deepspeed_config
    assert configuration.distributed_type == DistributedType.DEEPSPEED
    assert (settings["zero_stage"], settings["offload_optimizer_device"]) == (stage, "none")
    assert not {"gradient_accumulation_steps", "gradient_clipping"} & settings.keys()
    if stage == 3:  # weights are gathered for every save
        assert (settings["zero3_save_16bit_model"], settings["offload_param_device"]) == (True, "none")


def test_several_machines_take_their_rank_and_the_main_address_from_the_launcher():
    flags = ["--machine_rank", "2", "--num_machines", "3", "--num_processes", "12", "--main_process_ip", "node-2"]
    command = ["--config_file", str(ACCELERATE / "fsdp2_multi_node.yaml"), *flags, "train.py"]
    arguments, *_ = _validate_launch_command(launch_command_parser().parse_args(command))
    environment = prepare_multi_gpu_env(arguments)
    assert (arguments.nnodes, arguments.nproc_per_node, arguments.node_rank) == ("3", "4", 2)
    assert (arguments.rdzv_backend, arguments.rdzv_endpoint) == ("static", "node-2:29500")
    assert environment["FSDP_VERSION"] == "2"
