"""What a generation batch costs, by phase: seconds, peak memory, FLOPs, counts. Methods are wrapped from outside."""

import functools
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import datasets
import torch
from transformers import Qwen2VLImageProcessor, TrainerCallback
from transformers.image_utils import make_flat_list_of_images
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VisionTransformerPretrainedModel

from .memory import GpuMemory, ProcessMemory, TensorMemory


class Meter:
    """Seconds, memory, FLOPs and counts of the generation batch that is going on.

    Phases nest, and time is the innermost one's alone, so they add up to the whole. With CUDA each boundary waits for
    the GPU. The peak since the last boundary is the innermost phase's, too. `flops` says how many there were so far.
    """

    def __init__(
        self,
        memory: GpuMemory | ProcessMemory | TensorMemory | None = None,
        flops: Callable[[], int] = lambda: 0,
        clock: Callable[[], float] = time.perf_counter,
    ):
        self.phases, self.batches, self._lock = ["other"], [], threading.Lock()
        self._cuda = torch.cuda.is_available()
        self.memory_now, self._flops_now, self._clock = memory or (GpuMemory() if self._cuda else None), flops, clock
        self.clear()
        self._last, self._last_flops = clock(), flops()

    def __enter__(self) -> "Meter":
        if self.memory_now is not None:
            self.memory_now.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        if self.memory_now is not None:
            self.memory_now.__exit__(*error)

    def clear(self) -> None:
        self.seconds, self.flops, self.counts = defaultdict(float), Counter(), Counter()
        self.memory = defaultdict(Counter)

    def close_batch(self) -> None:
        """End the generation batch, keep what it cost, and begin the next one."""
        self._boundary()
        kinds = ("seconds", "flops", "counts", "memory")
        self.batches.append({kind: dict(getattr(self, kind)) for kind in kinds})
        self.clear()

    def enter(self, phase: str) -> None:
        self._boundary()
        self.phases.append(phase)

    def leave(self) -> None:
        self._boundary()
        self.phases.pop()

    def count(self, what: str, number: int = 1) -> None:
        with self._lock:  # images are decoded, and requests are sent, in threads
            self.counts[what] += number

    def wrap(self, owner: Any, name: str, phase: str, when: Callable[[], bool] = lambda: True) -> None:
        """Let `owner.name` be the phase `phase` from now on, where `when()` is true as it is called."""
        original = getattr(owner, name)

        @functools.wraps(original)
        def timed(*args, **kwargs):
            if not when():
                return original(*args, **kwargs)
            self.enter(phase)
            try:
                return original(*args, **kwargs)
            finally:
                self.leave()

        setattr(owner, name, timed)

    def tally(self, owner: Any, name: str, note: Callable[..., None]) -> None:
        """Call `note` with the arguments of each call of `owner.name`, before it."""
        original = getattr(owner, name)

        @functools.wraps(original)
        def noted(*args, **kwargs):
            note(*args, **kwargs)
            return original(*args, **kwargs)

        setattr(owner, name, noted)

    def _boundary(self) -> None:
        if self._cuda:
            torch.cuda.synchronize()
        now, flops, phase = self._clock(), self._flops_now(), self.phases[-1]
        self.seconds[phase] += now - self._last
        self.flops[phase] += flops - self._last_flops
        self._last, self._last_flops = now, flops
        if self.memory_now is not None:
            self.memory[phase] |= self.memory_now.peaks()


class EachBatch(TrainerCallback):
    """Closes a generation batch with the last of its optimiser steps, and ends the run after `batches` of them.

    The Trainer is told of one batch more than that: ours decodes the images of the batch to come while this one is
    trained on, and the stock loader reads one item ahead, so the last batch that counts is like the others.
    """

    def __init__(self, meter: Meter, updates: int, batches: int):
        self.meter, self.updates, self.batches = meter, updates, batches

    def on_train_begin(self, args, state, control, **kwargs):
        self.meter.enter("other")

    def on_pre_optimizer_step(self, args, state, control, **kwargs):
        self.meter.enter("optimise")

    def on_optimizer_step(self, args, state, control, **kwargs):
        self.meter.leave()

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step % self.updates == 0:
            self.meter.close_batch()
            control.should_training_stop = len(self.meter.batches) == self.batches


def watch(trainer: Any, meter: Meter) -> None:
    """Let `meter` follow the phases of `trainer`, stock or ours, and note the bytes of the images that it keeps."""
    meter.wrap(trainer, "get_batch_samples", "rows")
    if (selection := getattr(trainer, "selection", None)) is not None:
        meter.wrap(selection, "choose", "rows")
        meter.wrap(selection, "prefetch", "rows")
        meter.wrap(selection, "record", "observe")
    meter.wrap(trainer, "_tokenize_prompts", "tokenise")
    meter.wrap(trainer, "_generate_single_turn", "generate")
    meter.wrap(trainer, "_calculate_rewards", "rewards")
    meter.wrap(trainer, "_prepare_inputs", "inputs")
    meter.wrap(trainer, "_get_per_token_logps_and_entropies", "score", when=lambda: not torch.is_grad_enabled())
    meter.wrap(trainer, "training_step", "update")
    if trainer.use_vllm:
        meter.wrap(trainer.vllm_generation, "sync_weights", "sync")

    def note_kept(*args: Any, **kwargs: Any) -> None:
        images = getattr(trainer, "_images", None)
        meter.counts["buffered"] = sum(pixels.nbytes for pixels in pixels_buffered(trainer))
        stored = images.store.tensors.values() if images is not None else ()
        meter.counts["stored"] = sum(pixels.nbytes for pixels in stored)

    meter.tally(trainer, "compute_loss", note_kept)


def pixels_buffered(trainer: Any) -> list[torch.Tensor]:
    """The pixels of the generation batch that TRL keeps, or our numbers in their place; none where there is none."""
    return [batch["pixel_values"] for batch in trainer._buffered_inputs or []]


def count(trainer: Any, meter: Meter) -> None:
    """Let `meter` count requests, whichever engine `trainer` generates with, and the images that vLLM encodes here."""
    if not trainer.use_vllm:
        meter.tally(trainer.model, "generate", lambda *args, **kwargs: meter.count("requests"))
        return

    def encodes(module, args, kwargs):
        meter.count("encoded by the engine", len(kwargs.get("grid_thw", args[1] if len(args) > 1 else None)))

    llm = trainer.vllm_generation.llm
    worker = llm.llm_engine.model_executor.driver_worker
    worker.model_runner.get_model().visual.register_forward_pre_hook(encodes, with_kwargs=True)
    meter.tally(llm.llm_engine, "add_request", lambda *args, **kwargs: meter.count("requests"))
    generate = llm.generate

    def noting_prompts(*args, **kwargs):
        outputs = generate(*args, **kwargs)
        meter.count("calls")
        meter.count("prompt tokens in the engine", sum(len(output.prompt_token_ids) for output in outputs))
        return outputs

    llm.generate = noting_prompts


@contextmanager
def images_counted(meter: Meter) -> Iterator[None]:
    """Count images decoded, put through an image processor, and encoded by transformers, wherever in this process."""

    def encodes(tower: Any, pixels: torch.Tensor, grid_thw: torch.Tensor, **kwargs: Any) -> None:
        meter.count("encoded by the engine" if "generate" in meter.phases else "encoded by the trainer", len(grid_thw))

    notes = [
        (datasets.Image, "decode_example", lambda *args, **kwargs: meter.count("decoded")),
        (
            Qwen2VLImageProcessor,
            "preprocess",
            lambda self, images, *args, **kwargs: meter.count("processed", len(make_flat_list_of_images(images))),
        ),
        (Qwen2_5_VisionTransformerPretrainedModel, "forward", encodes),
    ]
    originals = [getattr(owner, name) for owner, name, _ in notes]
    for each in notes:
        meter.tally(*each)
    try:
        yield
    finally:
        for (owner, name, _), original in zip(notes, originals, strict=True):
            setattr(owner, name, original)
