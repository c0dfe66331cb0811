"""The memory of a generation batch, part by part."""

import copy
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
import trl.trainer.grpo_trainer
from torch import Tensor

from ..step.meters import Meter, pixels_buffered

HELD = ("weights", "optimiser state", "reference model", "gradients", "images of the generation batch")
"""Parts that are tensors between two micro-batches."""
IMAGES_SCORED = "images of this and the last generation batch"
KEPT, WHOLE = "activations kept, with the attention mask", "all of it"
UPDATE = ("update", "optimise", "forward", "head", "blocks")


@contextmanager
def reference_in_memory(model: torch.nn.Module) -> Iterator[None]:
    """Let TRL 1.16 copy `model` for its reference model, which it would load from a folder."""

    def copied(*_: Any, **__: Any) -> torch.nn.Module:
        reference = copy.deepcopy(model)
        reference.__dict__.pop("forward", None)  # the fused head: TRL puts one on the reference, too
        return reference

    with patch.object(trl.trainer.grpo_trainer, "create_model_from_path", copied):
        yield


class MeasuredParts:
    """Bytes of the parts of a trainer's memory, from hooks around the passes of each micro-batch.

    The phases of the meter that are added are `forward N`, `head N` (from the end of the decoder to the gradient of
    its output) and `blocks N` (the rest of the backward pass) of micro-batch N.
    """

    def __init__(self) -> None:
        self.held: dict[str, int] = dict.fromkeys([*HELD, IMAGES_SCORED], 0)
        self.lengths = {"prompt": 0, "image": 0, "completion": 0}  # tokens of a row, at most
        # By micro-batch: bytes at the start and at the end of the forward pass, and whether there were gradients.
        self._marks: dict[int, tuple[int, int, bool]] = {}
        self._before_scoring, self._hooks = 0, []

    def watch(self, trainer: Any, meter: Meter) -> None:
        """Add the hooks, to a fresh trainer. Its model keeps them until `leave`."""
        memory, number, backward = meter.memory_now, iter(range(10**9)), trainer.accelerator.backward
        current = {}

        def before(module: Any, args: Any) -> None:
            if torch.is_grad_enabled():
                there = next(module.parameters()).grad is not None
                current.update(number=next(number), start=memory.allocated(), gradients=there)
                self._note_held(trainer)
                meter.enter(f"forward {current['number']}")

        def after(module: Any, args: Any, output: Any) -> None:
            if torch.is_grad_enabled():
                meter.leave()
                self._marks[current["number"]] = (current["start"], memory.allocated(), current["gradients"])
                meter.enter(f"head {current['number']}")
                output.last_hidden_state.register_hook(head_is_done)

        def head_is_done(gradient: Tensor) -> None:
            meter.leave()
            meter.enter(f"blocks {current['number']}")

        def backward_and_leave(*args: Any, **kwargs: Any) -> None:
            backward(*args, **kwargs)
            meter.leave()

        def before_scoring(*args: Any, pixel_values: Any = None, **kwargs: Any) -> None:
            if not torch.is_grad_enabled():
                self._before_scoring = memory.allocated()
                pixels = [*pixels_buffered(trainer), pixel_values]
                self.held[IMAGES_SCORED] = max(self.held[IMAGES_SCORED], size(pixels))

        decoder = trainer.model.base_model
        self._hooks = [decoder.register_forward_pre_hook(before), decoder.register_forward_hook(after)]
        trainer.accelerator.backward = backward_and_leave
        meter.tally(trainer, "_get_per_token_logps_and_entropies", before_scoring)

    def leave(self) -> None:
        """Take the hooks from the model."""
        for hook in self._hooks:
            hook.remove()

    def _note_held(self, trainer: Any) -> None:
        states = [value for state in trainer.optimizer.state.values() for value in state.values()]
        weights = list(trainer.model.parameters())
        reference = [] if trainer.ref_model is None else trainer.ref_model.parameters()
        found = (weights, states, reference, [weight.grad for weight in weights], pixels_buffered(trainer))
        for name, tensors in zip(HELD, found, strict=True):
            self.held[name] = max(self.held[name], size(tensors))
        merged = trainer.model.config.vision_config.spatial_merge_size**2
        for batch in trainer._buffered_inputs:
            of_batch = {
                "prompt": batch["prompt_ids"].size(1),
                "image": max(int(grid.prod()) // merged for grid in batch["image_grid_thw"]),
                "completion": batch["completion_ids"].size(1),
            }
            self.lengths = {name: max(most, of_batch[name]) for name, most in self.lengths.items()}

    def table(self, memory: dict[str, dict[str, int]]) -> list[dict[str, Any]]:
        """Lines of a table, phase, part and bytes, from the peaks of a generation batch by phase."""
        peaks = {phase: each["allocated"] for phase, each in memory.items()}
        of_update = [peak for phase, peak in peaks.items() if phase.split()[0] in UPDATE]
        # The first backward pass of an update also makes the gradients, which are a part of their own.
        marks = {n: mark for n, mark in self._marks.items() if mark[2] and f"blocks {n}" in peaks}

        def above(phase: str) -> int:
            return max(peaks[f"{phase} {number}"] - end for number, (_, end, _) in marks.items())

        held = {name: self.held[name] for name in HELD}
        phases = {
            "training": held
            | {
                KEPT: max(end - start for start, end, _ in marks.values()),
                "one block's activations": above("blocks"),
                "log-probabilities": above("head"),
                WHOLE: max(of_update),
            },
            "scoring": {name: held[name] for name in HELD[:3]}
            | {
                IMAGES_SCORED: self.held[IMAGES_SCORED],
                "one block's forward pass": peaks["score"] - self._before_scoring,
                WHOLE: peaks["score"],
            },
        }
        return [
            {"phase": phase, "part": part, "bytes": number}
            for phase, parts in phases.items()
            for part, number in parts.items()
        ]


def size(tensors: Iterable[Any]) -> int:
    """Bytes of those that are tensors, each once."""
    found = {id(each): each.nbytes for each in tensors if isinstance(each, Tensor)}
    return sum(found.values())
