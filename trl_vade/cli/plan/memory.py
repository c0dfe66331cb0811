"""An estimate of the GPU memory that a recipe needs: bytes on one GPU, part by part, in three phases.

Left out: fragmentation, the CUDA context (about half a GiB a process), NCCL's and DeepSpeed's communication buffers,
reward models, and what vLLM needs of its share beside weights and KV cache (its activations, CUDA graphs).
"""

from dataclasses import dataclass
from typing import Any

from trl_vade.errors import ConfigurationError

from ..recipes import Launch
from . import memory_formulas as parts
from .memory_formulas import Lengths, Part
from .model_shape import ModelShape

GIB = 2**30


@dataclass(frozen=True)
class MemoryEstimate:
    """The parts of each phase, and what vLLM's share holds."""

    phases: dict[str, list[Part]]  # training, scoring, generation
    gpu: int  # bytes of one GPU
    kv_cache_tokens: int | None = None  # of one colocated engine; None without one
    parallel_sequences: int | None = None  # of a longest prompt and completion each, that these hold at a time
    host_bytes: int = 0  # of pinned host memory for each process: the images of its generation batch

    def total(self, phase: str, *, certain: bool = False) -> int:
        """Bytes of a phase: of all its parts, or only of the certain ones."""
        return sum(part.bytes for part in self.phases[phase] if part.certain or not certain)

    @property
    def fits(self) -> bool:
        """Whether every phase fits with its estimated parts, too."""
        return all(self.total(phase) <= self.gpu for phase in self.phases)

    def refuse_what_cannot_fit(self) -> None:
        """Raise `ConfigurationError` where the certain parts alone do not fit; the estimated ones refuse nothing."""
        for phase in self.phases:
            needed = self.total(phase, certain=True)
            if needed > self.gpu:
                shown = ", ".join(f"{part.name} {gib(part.bytes)}" for part in self.phases[phase] if part.certain)
                raise ConfigurationError(
                    f"This recipe's {phase} takes at least {gib(needed)} on each GPU, which has {gib(self.gpu)}: "
                    f"{shown}. Shard over more processes (--accelerate_config fsdp2), set "
                    "vllm_enable_sleep_mode=True, which lets training and vLLM take turns, lower "
                    "vllm_gpu_memory_utilization, or set beta=0, which needs no reference model."
                )
        if self.parallel_sequences == 0:
            raise ConfigurationError(
                f"vLLM's share of a GPU has room for {self.kv_cache_tokens:,} tokens of KV cache beside its weights, "
                "less than one prompt with its completion, and vLLM would not start. Raise "
                "vllm_gpu_memory_utilization or vllm_tensor_parallel_size, or lower vllm_max_model_length."
            )


def estimate_memory(
    args: Any, shape: ModelShape, launch: Launch, lengths: Lengths, *, gpu: int, dtype: str | None, flash: bool
) -> MemoryEstimate:
    """Estimate what one GPU holds while it trains, scores a fresh generation batch (log-probabilities), and generates.

    Args:
        args: the `GRPOConfig`, made for `launch.processes`.
        shape: of the policy; all of its weights are trained.
        launch: processes and sharding.
        lengths: in tokens.
        gpu: bytes of one GPU.
        dtype: that the weights are loaded in, as in `--dtype`.
        flash: whether attention goes without a mask of tokens x tokens (`flash_attention_2`).
    """
    size = parts.number_sizes(args, launch, shape, dtype)
    held = parts.held(args, shape, launch, size)
    engine, kv_tokens = parts.engine(args, shape, gpu)
    awake = [] if args.vllm_enable_sleep_mode else engine  # asleep it has neither weights nor KV cache (level 2)
    images = parts.images(args, shape, lengths)
    taken = Part("images of a micro-batch", images.taken)
    gathered = parts.gathered(shape, launch, size)
    phases = {
        "training": [
            *held,
            parts.gradients(args, shape, launch, size),
            *awake,
            Part("images of the generation batch", images.buffered),
            taken,
            gathered,
            *parts.activations(args, shape, launch, lengths, size, flash=flash),
        ],
        "scoring": [
            *held,
            *awake,
            # The last one's numbers are still there, and its store is not.
            Part("images of this and the last generation batch", 2 * images.buffered),
            taken,
            gathered,
            parts.gathered_reference(args, shape, launch, size),
            parts.forward_only(args, shape, lengths, size),
        ],
        "generation": [
            *held,
            *engine,
            Part("images of the last generation batch", images.buffered),
            # The tower of transformers takes those of all rows at once.
            Part("images to generate for", 0 if args.use_vllm else images.store),
            *parts.generation(args, shape, launch, lengths, size),
        ],
    }
    phases = {name: [part for part in listed if part.bytes] for name, listed in phases.items()}
    sequences = None if kv_tokens is None else kv_tokens // (lengths.prompt + lengths.completion)
    return MemoryEstimate(phases, gpu, kv_tokens, sequences, images.store)


def why_no_estimate(args: Any, model_args: Any) -> str | None:
    """Say which setting of `GRPOConfig` or `ModelConfig` the formulas know nothing of; None where they know all."""
    if model_args.use_peft:
        return "use_peft is set, and gradients and optimiser state are then those of adapters"
    if model_args.load_in_4bit or model_args.load_in_8bit:
        return "the model is quantised"
    if not str(getattr(args.optim, "value", args.optim)).startswith("adamw_torch"):
        return f"optim={getattr(args.optim, 'value', args.optim)!r} is not AdamW of torch, whose state is known"
    return None


def gib(number: int) -> str:
    """Return a number of bytes as text, in GiB."""
    return f"{number / GIB:.1f} GiB"
