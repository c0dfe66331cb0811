"""The memory estimate: its certain parts against hand counts, its coefficients against what autograd saves."""

from types import SimpleNamespace

import pytest
import torch
from transformers import Qwen2_5_VLForConditionalGeneration, Qwen2Config
from trl.kernels.chunked_logprob import TOKEN_CHUNK_SIZE
from trl.trainer.utils import _CHUNKED_LOGPROB_CHUNK_SIZE, _ChunkedLogProbFunction

from eval.benchmarks.step.memory import TensorMemory
from tests.support.refusals import refused
from tests.support.shapes import PARAMETERS
from trl_vade import VADEGRPOConfig
from trl_vade.cli.plan import memory_formulas as parts
from trl_vade.cli.plan.memory import GIB, MemoryEstimate, estimate_memory, why_no_estimate
from trl_vade.cli.plan.memory_formulas import Lengths, NumberSizes, Part
from trl_vade.cli.plan.model_shape import ModelShape, Tower, model_shape, read_model_shape
from trl_vade.cli.recipes import Launch
from trl_vade.errors import ConfigurationError
from trl_vade.testbed.shapes import qwen2_5_vl_config

# A model of round numbers: a million parameters, of which three blocks have 0.2 million each.
SHAPE = ModelShape(
    parameters=1_000_000,
    block_parameters=600_000,
    largest_block=200_000,
    text=Tower(layers=3, hidden=100, intermediate=400),
    kv_heads=2,
    head_dim=10,
    vocabulary=1000,
    dtype=torch.bfloat16,
    vision=Tower(layers=2, hidden=50, intermediate=100),
    patches_per_token=4,
    patch_values=1176,
)
FSDP2 = Launch(4, "fsdp2", "bf16")
LENGTHS = Lengths(prompt=60, image=10, completion=40)


@pytest.fixture
def make_args(tmp_path):
    def make(**changes):
        settings = {"output_dir": str(tmp_path), "use_cpu": True, "bf16": True, "beta": 0.01, "num_generations": 2}
        settings |= {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4}
        return VADEGRPOConfig(**settings | changes)

    return make


def bytes_by_name(listed):
    return {part.name: part.bytes for part in listed}


# -------------------------------------------------------------------------------------------------------------- shapes


@pytest.mark.parametrize("size", ["3b", "7b"])
def test_a_shape_is_counted_from_the_configuration_alone(size):
    shape = model_shape(qwen2_5_vl_config(size))
    assert shape.parameters == PARAMETERS[size]
    assert shape.head_dim == 128
    assert (shape.patches_per_token, shape.patch_values) == (4, 3 * 2 * 14 * 14)
    assert shape.dtype == torch.bfloat16
    layers = {"3b": 36 * 77_076_992, "7b": 28 * 233_057_792}[size]
    assert shape.block_parameters == layers + 32 * 19_702_200


def test_a_shape_is_that_of_the_model_that_is_then_loaded(vision_model_path):
    model = Qwen2_5_VLForConditionalGeneration.from_pretrained(vision_model_path)
    shape = read_model_shape(vision_model_path)
    assert shape.parameters == sum(weight.numel() for weight in model.parameters())


def test_a_text_model_has_no_vision_tower():
    shape = model_shape(Qwen2Config(architectures=["Qwen2ForCausalLM"], num_hidden_layers=2, vocab_size=100))
    assert shape.vision is None
    assert shape.dtype == torch.float32


@pytest.mark.parametrize(
    ("config", "name"),
    [(Qwen2Config(architectures=["NotInTransformers"]), "'NotInTransformers'"), (Qwen2Config(), "None")],
)
def test_a_model_of_an_unknown_kind_is_refused(config, name):
    with refused(ConfigurationError, ["Qwen2Config", name]):
        model_shape(config)


def test_a_missing_configuration_is_refused_with_the_way_out(tmp_path):
    with refused(ConfigurationError, ["model_name_or_path", tmp_path, "config.json"], ["--model_name_or_path"]):
        read_model_shape(str(tmp_path))


# ------------------------------------------------------------------------------------------------------- certain parts


@pytest.mark.parametrize(
    ("launch", "dtype", "weights", "optimiser", "reference", "gradients"),
    [
        # bytes a parameter: plain, float32 weights under bf16 autocast; then bf16 weights
        (Launch(1), "float32", 4, 8, 4, 4),
        (Launch(2), "float32", 4, 8, 4, 8),  # and DDP's buckets
        (Launch(2), "bfloat16", 2, 4, 2, 4),
        # 1/4 of float32 master weights and moments; whole bf16 gradients while they accumulate
        (Launch(4, "fsdp2", "bf16"), "float32", 1, 2, 1, 1 + 2),
        (Launch(4, "fsdp2", "bf16"), "bfloat16", 1, 2, 0.5, 1 + 2),
        (Launch(4, "fsdp2", "no"), "float32", 1, 2, 1, 1 + 4),
        # bf16 weights, 1/4 of float32 master weights and two moments
        (Launch(4, "zero2", "bf16"), "float32", 2, 3, 2, 0.5),
        (Launch(4, "zero3", "bf16"), "float32", 0.5, 3, 0.5, 0.5),
        (Launch(4, "fsdp2", "bf16"), "auto", 1, 2, 0.5, 1 + 2),  # auto: the configuration's bf16
        (Launch(4, "fsdp2", "bf16"), None, 1, 2, 0.5, 1 + 2),
    ],
)
def test_each_sharding_holds_its_bytes_a_parameter(make_args, launch, dtype, weights, optimiser, reference, gradients):
    args = make_args()
    size = parts.number_sizes(args, launch, SHAPE, dtype)
    held = bytes_by_name(parts.held(args, SHAPE, launch, size))
    million = 1_000_000
    assert held == {
        "weights": weights * million,
        "optimiser state": optimiser * million,
        "reference model": reference * million,
    }
    assert parts.gradients(args, SHAPE, launch, size).bytes == gradients * million


def test_without_a_kl_term_there_is_no_reference_model(make_args):
    args = make_args(beta=0.0)
    size = parts.number_sizes(args, FSDP2, SHAPE, "float32")
    assert bytes_by_name(parts.held(args, SHAPE, FSDP2, size))["reference model"] == 0
    assert parts.gathered_reference(args, SHAPE, FSDP2, size).bytes == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"accelerator_config": {"gradient_accumulation_kwargs": {"sync_each_batch": True}}},
        {"gradient_accumulation_steps": 1},
    ],
)
def test_gradients_are_never_whole_where_each_batch_is_reduced(make_args, changes):
    args = make_args(**changes)
    assert parts.gradients(args, SHAPE, FSDP2, NumberSizes(4, 2, 4)).bytes == 1_000_000


@pytest.mark.parametrize(("size", "bytes_a_token"), [("3b", 2 * 36 * 1 * 128 * 2), ("7b", 2 * 28 * 2 * 128 * 2)])
def test_the_engines_cache_holds_what_its_weights_leave(make_args, size, bytes_a_token):
    shape = model_shape(qwen2_5_vl_config(size))
    args = make_args(use_vllm=True, vllm_tensor_parallel_size=2, vllm_gpu_memory_utilization=0.5)
    [share], tokens = parts.engine(args, shape, 100 * GIB)
    assert share == Part("vLLM's share", 50 * GIB, certain=True)
    assert tokens == (50 * GIB - PARAMETERS[size]) // bytes_a_token  # 2 bytes a parameter on 2 GPUs


def test_a_server_or_no_engine_takes_nothing_of_the_trainers_gpu(make_args):
    assert parts.engine(make_args(use_vllm=True, vllm_mode="server"), SHAPE, GIB) == ([], None)
    assert parts.engine(make_args(), SHAPE, GIB) == ([], None)


def estimate(args, launch=FSDP2, gpu=GIB, **changes):
    settings = {"dtype": "float32", "flash": False} | changes
    return estimate_memory(args, SHAPE, launch, LENGTHS, gpu=gpu, **settings)


def test_asleep_an_engine_takes_turns_with_training_and_awake_it_is_always_there(make_args):
    colocated = {"use_vllm": True, "vllm_gpu_memory_utilization": 0.5}
    asleep = estimate(make_args(**colocated, vllm_enable_sleep_mode=True))
    awake = estimate(make_args(**colocated))
    for phase in ("training", "scoring"):
        assert awake.total(phase) - asleep.total(phase) == GIB // 2
    assert awake.total("generation") == asleep.total("generation")


def test_what_is_certainly_too_much_is_refused_with_its_parts_and_the_way_out(make_args):
    colocated = {"use_vllm": True, "vllm_gpu_memory_utilization": 0.9}
    offers = ["--accelerate_config fsdp2", "vllm_enable_sleep_mode=True", "beta=0"]
    with refused(ConfigurationError, ["weights", "vLLM's share"], offers):
        estimate(make_args(**colocated), gpu=20_000_000).refuse_what_cannot_fit()
    with refused(ConfigurationError, ["weights"], offers):
        estimate(make_args(), gpu=1_000_000).refuse_what_cannot_fit()


def test_estimated_parts_refuse_nothing():
    phases = {"training": [Part("weights", 5, certain=True), Part("activations kept", 50)]}
    over = MemoryEstimate(phases, gpu=10)
    over.refuse_what_cannot_fit()
    assert not over.fits
    assert (over.total("training"), over.total("training", certain=True)) == (55, 5)


# ----------------------------------------------------------------------------------------------------- estimated parts


def saved_bytes(block, *inputs, **arguments):
    """Bytes that autograd keeps for the block's backward pass, beside its weights and inputs."""
    seen = {}

    def note(tensor):
        seen[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        block(*inputs, **arguments)
    there = [*block.parameters(), *inputs, *(arguments.get("position_embeddings") or ())]
    there += [each for each in arguments.values() if isinstance(each, torch.Tensor)]
    return sum(seen[key] for key in seen.keys() - {each.untyped_storage().data_ptr() for each in there})


@pytest.fixture(scope="module")
def narrow():
    """Qwen2.5-VL-3B with one block of a quarter of the width in each tower, in bf16."""
    config = qwen2_5_vl_config("3b")
    text, vision = config.text_config, config.vision_config
    text.update({"hidden_size": 512, "intermediate_size": 2752, "num_attention_heads": 4, "num_key_value_heads": 1})
    text.update({"num_hidden_layers": 1, "layer_types": ["full_attention"], "vocab_size": 64})
    text.update({"bos_token_id": None, "eos_token_id": None})
    vision.update({"depth": 1, "hidden_size": 320, "intermediate_size": 856, "num_heads": 4, "out_hidden_size": 512})
    config._attn_implementation = "sdpa"
    return Qwen2_5_VLForConditionalGeneration(config).to(torch.bfloat16).train()


def test_a_decoder_block_saves_what_the_formula_says(narrow):
    decoder, rows, length = narrow.model.language_model, 2, 128
    hidden = torch.randn(rows, length, 512, dtype=torch.bfloat16, requires_grad=True)
    rotary = decoder.rotary_emb(hidden, torch.arange(length).expand(3, rows, length))
    mask = torch.ones(rows, 1, length, length, dtype=torch.bool).tril()
    saved = saved_bytes(decoder.layers[0], hidden, attention_mask=mask, position_embeddings=rotary)
    of_hidden, of_intermediate = parts.SAVED["text"]
    assert saved / (rows * length) == pytest.approx(of_hidden * 512 + of_intermediate * 2752, rel=0.05)


def test_a_vision_block_saves_what_the_formula_says(narrow):
    length = 128
    hidden = torch.randn(length, 320, dtype=torch.bfloat16, requires_grad=True)
    rotary = (torch.randn(length, 80), torch.randn(length, 80))
    bounds = torch.tensor([0, length], dtype=torch.int32)
    saved = saved_bytes(narrow.model.visual.blocks[0], hidden, cu_seqlens=bounds, position_embeddings=rotary)
    of_hidden, of_intermediate = parts.SAVED["vision"]
    assert saved / length == pytest.approx(of_hidden * 320 + of_intermediate * 856, rel=0.05)


def test_checkpointing_keeps_the_input_of_every_block_and_runs_one_again(make_args):
    tokens, patches, size = 2 * 100, 2 * 10 * 4, NumberSizes(4, 2, 4)
    found = bytes_by_name(parts.activations(make_args(), SHAPE, FSDP2, LENGTHS, size, flash=False))
    assert found["activations kept"] == 3 * tokens * 100 * 2 + 2 * patches * 50 * 2
    assert found["one block's activations"] == tokens * (28 * 100 + 12 * 400)
    assert found["attention mask"] == 2 * 100 * 100 * (1 + 2)
    without = parts.activations(make_args(gradient_checkpointing=False), SHAPE, FSDP2, LENGTHS, size, flash=True)
    found = bytes_by_name(without)
    assert found["activations kept"] == 3 * tokens * (28 * 100 + 12 * 400) + 2 * patches * (34 * 50 + 12 * 100)
    assert found["one block's activations"] == found["attention mask"] == 0


def test_the_sum_of_residuals_is_in_the_weights_dtype_under_plain_autocast(make_args):
    size = NumberSizes(4, 2, 4)
    kept = {
        sharding: bytes_by_name(
            parts.activations(make_args(), SHAPE, Launch(4, sharding, "bf16"), LENGTHS, size, flash=True)
        )["activations kept"]
        for sharding in ("none", "fsdp2")
    }
    assert kept["none"] == 2 * kept["fsdp2"]


def test_no_logits_of_a_whole_micro_batch_are_counted_since_there_are_none(make_args):
    """TRL 1.16 projects in tiles: with a vocabulary of 152,000 the head takes far less than scored x vocabulary."""
    shape = model_shape(qwen2_5_vl_config("3b"))
    args = make_args(per_device_train_batch_size=16)
    head = parts.log_probabilities(args, shape, Lengths(8192, 1024, 2048), NumberSizes(4, 2, 4))
    assert head < 16 * 2048 * shape.vocabulary * 4 / 5


def test_trls_tile_is_of_the_size_that_is_assumed():
    assert (TOKEN_CHUNK_SIZE, _CHUNKED_LOGPROB_CHUNK_SIZE) == parts.TILE


def test_a_small_vocabulary_takes_a_whole_tile(make_args):
    """TRL 1.16 allocates the tile's width, whatever the vocabulary."""
    args, scored = make_args(), 2 * LENGTHS.completion
    numbers = torch.ones(scored, SHAPE.text.hidden), torch.ones(SHAPE.vocabulary, SHAPE.text.hidden)
    with TensorMemory() as memory:
        _ChunkedLogProbFunction.apply(*numbers, None, torch.zeros(scored).long(), 1.0, _CHUNKED_LOGPROB_CHUNK_SIZE)
    estimate = parts.log_probabilities(args, SHAPE, LENGTHS, NumberSizes(4, 4, 4))
    taken = memory.peaks()["allocated"] - sum(each.nbytes for each in numbers)
    assert estimate == pytest.approx(taken, rel=0.2)


PIXELS = 10 * 4 * 1176 * 4  # bytes of a row's image


def test_images_are_counted_once_a_row_and_their_numbers_once_a_completion(make_args):
    settings = {"steps_per_generation": 8, "num_generations": 4}
    found = parts.images(make_args(**settings), SHAPE, LENGTHS)
    assert found == parts.Images(buffered=16 * 10 * 4 * 4, store=4 * PIXELS, taken=2 * PIXELS)
    assert parts.images(make_args(**settings, vade_images_once=False), SHAPE, LENGTHS) == parts.Images(16 * PIXELS)
    assert parts.images(make_args(**settings), SHAPE, Lengths(60, 0, 40)) == parts.Images(0)


@pytest.mark.parametrize("changes", [{}, {"vade_images_once": False}])
def test_the_store_of_images_lies_in_one_place_and_in_every_phase(make_args, changes):
    """2 x 4 completions: 8 rows' pixels in TRL's way, and 4 rows' pixels in the store."""
    found = estimate(make_args(use_vllm=True, **changes))
    numbers, once = 8 * 10 * 4 * 4, not changes
    assert found.host_bytes == (4 * PIXELS if once else 0)
    phases = {
        phase: sum(size for name, size in bytes_by_name(listed).items() if name.startswith("images"))
        for phase, listed in found.phases.items()
    }
    if once:
        taken = 2 * PIXELS  # of a micro-batch
        assert phases == {
            "training": numbers + taken,
            "scoring": 2 * numbers + taken,
            "generation": numbers,
        }
    else:
        assert phases == {"training": 8 * PIXELS, "scoring": 16 * PIXELS, "generation": 8 * PIXELS}


def test_without_vllm_the_tower_takes_the_images_of_every_row_to_generate(make_args):
    found = bytes_by_name(estimate(make_args()).phases["generation"])
    assert found["images to generate for"] == 4 * PIXELS


def test_without_vllm_generation_has_a_cache_of_transformers(make_args):
    found = bytes_by_name(estimate(make_args()).phases["generation"])
    assert found["KV cache of transformers"] == 2 * 4 * 100 * (2 * 3 * 2 * 10 * 2)


def test_every_phase_names_each_part_once_and_none_is_empty(make_args):
    for launch in (Launch(1), Launch(4, "zero2", "bf16"), Launch(4, "zero3", "bf16"), FSDP2):
        for parts_of_phase in estimate(make_args(), launch).phases.values():
            assert all(part.bytes > 0 for part in parts_of_phase)
            assert len(bytes_by_name(parts_of_phase)) == len(parts_of_phase)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"use_peft": True}, "use_peft"),
        ({"load_in_8bit": True}, "quantised"),
        ({}, None),
    ],
)
def test_settings_that_the_formulas_know_nothing_of_are_named(make_args, changes, says):
    model_args = SimpleNamespace(**{"use_peft": False, "load_in_4bit": False, "load_in_8bit": False} | changes)
    reason = why_no_estimate(make_args(), model_args)
    assert reason is None if says is None else says in reason
