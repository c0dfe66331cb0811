"""The parts of a GPU's memory that `memory` adds up, each a formula over the model's shape and the recipe.

**Certain** parts follow from counts: weights, gradients, optimiser state, reference model, vLLM's share. Bytes for
each parameter on N processes (accelerate 1.15; for ZeRO arXiv 1910.02054, section 3.1; AdamW):

    |       | weights | gradients                      | optimiser | reference |
    | none  | w       | w, and w in DDP's buckets      | 2w        | w         |
    | fsdp2 | m/N     | m/N, and c while accumulating  | 2m/N      | w/N       |
    | zero2 | c       | c/N                            | 12/N      | c         |
    | zero3 | c/N     | c/N                            | 12/N      | c/N       |

w: bytes of the dtype that the weights are loaded in (TRL's default: float32, 4); c: of the dtype that they compute in
(2 under bf16 or fp16, else w); m: 4 under mixed precision, for which accelerate keeps float32 master weights, else w.
Without `sync_each_batch` FSDP2 keeps whole gradients until the last micro-batch of an update.

**Estimated** parts depend on lengths, and are for a micro-batch that is padded to the longest prompt and completion.
"""

from dataclasses import dataclass
from typing import Any

import torch

from ..recipes import Launch
from .model_shape import ModelShape, Tower

TILE = (4096, 32768)
"""Tokens and words of a tile of logits. TRL 1.16 projects onto the vocabulary in these (`TOKEN_CHUNK_SIZE`,
`_CHUNKED_LOGPROB_CHUNK_SIZE`), so the logits of a whole micro-batch never exist. The width is the same for a small
vocabulary."""
SAVED = {"text": (24, 8), "vision": (30, 8)}
"""Bytes that autograd saves in a block for each token, a number of its hidden and of its intermediate size, computing
in 16 bits. A test counts them. The vision tower's rotary embedding computes in float32."""
IN_FLIGHT = (4, 4)
"""The same for gradients of activations, which live while a block runs backward: two of each size."""
LIVE_PARAMETERS = 1_000_000_000
"""Parameters that DeepSpeed's ZeRO-3 gathers at most by default (`stage3_max_live_parameters`)."""


@dataclass(frozen=True)
class Part:
    """A share of one GPU's memory."""

    name: str
    bytes: int
    certain: bool = False


@dataclass(frozen=True)
class Lengths:
    """What the estimated parts are for."""

    prompt: int  # tokens of the longest prompt, those of its images included
    image: int  # image tokens of a row, on average
    completion: int  # tokens of the longest completion


@dataclass(frozen=True)
class Images:
    """Bytes of the images of a process's generation batch."""

    buffered: int  # on the GPU: the pixels of every completion; with `vade_images_once` int32 numbers of its patches
    store: int = 0  # with `vade_images_once`: the pixels of every row, on the GPU or in host memory
    taken: int = 0  # from there to the GPU for a micro-batch whose completions are all of different rows


@dataclass(frozen=True)
class NumberSizes:
    """Bytes of one number: of weights as they are loaded, of what is computed in, and of the optimiser's weights."""

    loaded: int
    computed: int
    master: int


def number_sizes(args: Any, launch: Launch, shape: ModelShape, dtype: str | None) -> NumberSizes:
    """Return w, c and m of the module's table.

    Args:
        args: with `bf16` and `fp16`, which an FSDP configuration's own mixed precision overrules.
        launch: processes and sharding.
        shape: its dtype holds where `dtype` is None or "auto", as in `from_pretrained` of transformers 5.
        dtype: as in `--dtype`.
    """
    loaded = (shape.dtype if dtype in (None, "auto") else getattr(torch, dtype)).itemsize
    precision = launch.mixed_precision if launch.sharding == "fsdp2" else None
    half = precision in ("bf16", "fp16") if precision is not None else bool(args.bf16 or args.fp16)
    return NumberSizes(loaded, 2 if half else loaded, 4 if half else loaded)


def held(args: Any, shape: ModelShape, launch: Launch, size: NumberSizes) -> list[Part]:
    """Return the parts of every phase: weights, optimiser state and, for a KL term, the reference model."""
    weights, optimiser, reference = {
        "none": (size.loaded, 2 * size.loaded, size.loaded),
        "fsdp2": (size.master / launch.processes, 2 * size.master / launch.processes, size.loaded / launch.processes),
        "zero2": (size.computed, 12 / launch.processes, size.computed),
        "zero3": (size.computed / launch.processes, 12 / launch.processes, size.computed / launch.processes),
    }[launch.sharding]
    each = {"weights": weights, "optimiser state": optimiser, "reference model": reference if args.beta else 0}
    return [Part(name, int(shape.parameters * bytes_each), certain=True) for name, bytes_each in each.items()]


def gradients(args: Any, shape: ModelShape, launch: Launch, size: NumberSizes) -> Part:
    """Gradients from the first micro-batch of an update to its step."""
    options = args.accelerator_config.gradient_accumulation_kwargs or {}
    whole = args.gradient_accumulation_steps > 1 and not options.get("sync_each_batch", False)
    each = {
        "none": size.loaded * (2 if launch.processes > 1 else 1),
        "fsdp2": size.master / launch.processes + (size.computed if whole else 0),
        "zero2": size.computed / launch.processes,
        "zero3": size.computed / launch.processes,
    }[launch.sharding]
    return Part("gradients", int(shape.parameters * each), certain=True)


def engine(args: Any, shape: ModelShape, gpu: int) -> tuple[list[Part], int | None]:
    """Return a colocated vLLM's share of a GPU, and the tokens of KV cache that fit beside its weights.

    vLLM loads the weights in the configuration's dtype, split over `vllm_tensor_parallel_size` processes. A process
    keeps at least one head of keys and one of values.
    """
    if not args.use_vllm or args.vllm_mode != "colocate":
        return [], None
    parallel = args.vllm_tensor_parallel_size
    share = int(args.vllm_gpu_memory_utilization * gpu)
    weights = shape.parameters * shape.dtype.itemsize // parallel
    heads = max(shape.kv_heads // parallel, 1)
    tokens = max(share - weights, 0) // kv_bytes(shape, heads, shape.dtype.itemsize)
    return [Part("vLLM's share", share, certain=True)], tokens


def kv_bytes(shape: ModelShape, heads: int, number: int) -> int:
    """Bytes of one token's keys and values in all layers, for so many heads of each."""
    return 2 * shape.text.layers * heads * shape.head_dim * number


def images(args: Any, shape: ModelShape, lengths: Lengths) -> Images:
    """Count the images of a process's generation batch; pixels are in float32.

    TRL 1.16 keeps them on the GPU until the next generation batch (`GRPOTrainer._buffered_inputs`).
    """
    completions = args.per_device_train_batch_size * args.steps_per_generation
    patches_of_row = lengths.image * shape.patches_per_token
    pixels_of_row = patches_of_row * shape.patch_values * 4
    if not args.vade_images_once:
        return Images(completions * pixels_of_row)
    rows = -(-completions // args.num_generations)
    return Images(
        buffered=completions * patches_of_row * 4,
        store=rows * pixels_of_row,
        taken=args.per_device_train_batch_size * pixels_of_row,
    )


def gathered(shape: ModelShape, launch: Launch, size: NumberSizes) -> Part:
    """Weights that are made whole, or cast, to compute with: all outside of blocks, and two blocks."""
    blocks = shape.parameters - shape.block_parameters + 2 * shape.largest_block
    parameters = {
        "none": shape.parameters if size.computed < size.loaded else 0,  # autocast keeps its copies for a forward pass
        "fsdp2": blocks,
        "zero2": 0,
        "zero3": min(shape.parameters, LIVE_PARAMETERS),
    }[launch.sharding]
    return Part("weights gathered or cast to compute", parameters * size.computed)


def gathered_reference(args: Any, shape: ModelShape, launch: Launch, size: NumberSizes) -> Part:
    """TRL 1.16 shards the reference model under FSDP2 as one unit: it is gathered whole, and copied out of that."""
    whole = launch.sharding == "fsdp2" and args.beta
    return Part("reference model gathered", 2 * shape.parameters * size.computed if whole else 0)


def activations(
    args: Any, shape: ModelShape, launch: Launch, lengths: Lengths, size: NumberSizes, *, flash: bool
) -> list[Part]:
    """Return the parts that a micro-batch's forward pass leaves for its backward pass.

    With gradient checkpointing the input of every block is kept, and one block at a time is run again. The vision
    tower's turn comes when the decoder's inputs are gone, and its blocks take less.
    """
    residual = size.loaded if launch.sharding == "none" else size.computed  # autocast adds up in the weights' dtype
    text, vision = tokens(args, lengths), patches(args, shape, lengths)
    block = text * block_bytes(shape.text, "text", size)
    boundary = text * shape.text.hidden * residual
    tower = shape.vision or Tower(layers=0, hidden=0, intermediate=0)
    vision_block = vision * block_bytes(tower, "vision", size)
    if args.gradient_checkpointing:
        kept = shape.text.layers * boundary + tower.layers * vision * tower.hidden * residual
        again = max(block, vision_block - shape.text.layers * boundary)
    else:
        kept = shape.text.layers * block + tower.layers * vision_block
        again = 0
    length = lengths.prompt + lengths.completion
    mask = 0 if flash else args.per_device_train_batch_size * length**2 * (1 + size.computed)  # bool, and as numbers
    return [
        Part("activations kept", kept),
        Part("one block's activations", again),
        Part("attention mask", mask),
        Part("log-probabilities", log_probabilities(args, shape, lengths, size)),
    ]


def log_probabilities(args: Any, shape: ModelShape, lengths: Lengths, size: NumberSizes) -> int:
    """Count the bytes of TRL 1.16's fused head.

    It holds hidden states and their float32 gradients, a tile of logits, and float32 copies of the head's weight and
    of its gradient.
    """
    scored = args.per_device_train_batch_size * lengths.completion
    hidden = scored * shape.text.hidden * (size.computed + 4)
    tile = min(scored, TILE[0]) * TILE[1] * size.computed
    return hidden + 2 * shape.vocabulary * shape.text.hidden * 4 + tile


def forward_only(args: Any, shape: ModelShape, lengths: Lengths, size: NumberSizes) -> Part:
    """One block's forward pass without gradients: four tensors of hidden size, three of intermediate size."""
    each = 4 * shape.text.hidden + 3 * shape.text.intermediate
    return Part("one block's forward pass", tokens(args, lengths) * each * size.computed)


def generation(args: Any, shape: ModelShape, launch: Launch, lengths: Lengths, size: NumberSizes) -> list[Part]:
    """Return the parts beside the engine: a weight on its way to it, or the KV cache of transformers."""
    if args.use_vllm:
        return [Part("largest weight on its way to vLLM", shape.vocabulary * shape.text.hidden * size.master)]
    rows = args.per_device_train_batch_size * args.steps_per_generation
    cache = rows * (lengths.prompt + lengths.completion) * kv_bytes(shape, shape.kv_heads, size.computed)
    whole = shape.parameters * size.computed if launch.sharding == "zero3" else 0  # ds3_gather_for_generation
    return [Part("KV cache of transformers", cache), Part("weights gathered or cast to compute", whole)]


def tokens(args: Any, lengths: Lengths) -> int:
    """Tokens of a padded micro-batch of one process."""
    return args.per_device_train_batch_size * (lengths.prompt + lengths.completion)


def patches(args: Any, shape: ModelShape, lengths: Lengths) -> int:
    """Patches of a micro-batch's images; these are not padded."""
    return args.per_device_train_batch_size * lengths.image * shape.patches_per_token


def block_bytes(tower: Tower, kind: str, size: NumberSizes) -> int:
    """Bytes that a block's backward pass takes for each token: saved by autograd, and gradients in flight."""
    hidden, intermediate = (saved + flight for saved, flight in zip(SAVED[kind], IN_FLIGHT, strict=True))
    return (hidden * tower.hidden + intermediate * tower.intermediate) * size.computed // 2
