"""Replay: live groups of the last generation batches fill the places that other groups leave in an update.

They are trained on again, newest first and whole, with the advantages and log-probabilities that they were written
with. TRL's loss weighs their tokens by ratio and clips them. An update never holds more rows, nor more padded tokens,
than TRL's. It is selective sample replay (VL-Rethinker, arXiv 2504.08837), with an age limit (arXiv 2606.04560).

What may be replayed stands in the micro-batches of the last update, which TRL holds anyway. Groups that had no place
there are gone, long ones too: newer ones come first in the next. So those micro-batches are what a checkpoint keeps.
"""

from typing import Any

import numpy as np
import torch
from accelerate.logging import get_logger
from numpy.typing import NDArray
from trl.trainer.utils import split_pixel_values_by_grid

from .batch_rows import PIXELS, Batch, has_pixels_by_row, joined, loss_mask, row_advantages, taken
from .images.store import PixelStore
from .loader import generate_every
from .seams import own_views, owner_of

logger = get_logger(__name__)

GROUP, OLD, REFERENCE = "vade_group", "old_per_token_logps", "ref_per_token_logps"
"""Entries of a batch: (B,) the number of each row's group in the run, of which its age follows; (B, T) of TRL."""


class Replay:
    """The groups of one trainer that are trained on again.

    Attributes:
        batches: the generation batches for which a group may be; 0 where none may.
        counts: (2,) tokens of older rows in the loss of a micro-batch: those that are clipped, and all.
    """

    def __init__(self, trainer: Any, mode: str):
        self._trainer = trainer
        self.batches = trainer.args.vade_replay
        if self.batches and (reason := self._reason_against_it(mode)):
            logger.warning(f"No group is trained on again (vade_replay={self.batches}): {reason}.")
            self.batches = 0
        self.counts = torch.zeros(2, dtype=torch.int64)

    def _reason_against_it(self, mode: str) -> str:
        trainer, owner = self._trainer, owner_of(type(self._trainer), "_generate_and_score_completions")
        if trainer.tools or trainer.environment_factories is not None or trainer.rollout_func is not None:
            return "with tools, environments or a rollout_func the rows are not TRL's alone"
        if not owner.__module__.startswith("trl_vade."):
            return f"{owner.__name__}._generate_and_score_completions may give rows what no other batch has"
        if mode not in ("lossless", "live"):
            return f"vade_down_sampling={mode!r} leaves no place of a row without a gradient"
        if trainer._is_vlm and not trainer._images.on:
            return "images are kept once for each completion, and no longer than their batch"
        return own_views(trainer)

    @property
    def _now(self) -> int:
        return int(self._trainer._step // generate_every(self._trainer))  # the generation batch

    def last_update(self) -> tuple[list[Batch] | None, PixelStore | None]:
        """Return the micro-batches of the last update with their pixels; nothing, which holds no pixels, if off."""
        return (self._trainer._buffered_inputs, self._trainer._images.store) if self.batches else (None, None)

    def numbered(self, batch: Batch) -> Batch:
        """Return a prepared batch with the number of each row's group, and places for its log-probabilities."""
        if not self.batches:
            return batch
        (rows, _), size = batch["completion_ids"].shape, self._trainer.num_generations
        nothing_yet = torch.full_like(batch["completion_ids"], torch.nan, dtype=torch.float32)
        number = (self._now * rows + torch.arange(rows)) // size
        return batch | {GROUP: number, OLD: batch.get(OLD, nothing_yet)}

    def add_to(
        self, batch: Batch, free: NDArray[np.int64], last: list[Batch] | None, store: PixelStore | None
    ) -> tuple[Batch, int]:
        """Return the batch, split by row, with older rows at its end, and their number. All processes take part.

        `num_items_in_batch` is as if they stood in the last of the `free` places, (F,), without a gradient. They
        are of the micro-batches of the `last` update, and their pixels of its `store`.
        """
        trainer, metrics = self._trainer, self._trainer._metrics["train"]
        older = self._older(batch, free, last or [], store)
        whole, ages, change = batch, torch.zeros(0), 0
        if older is not None:
            whole, ages = joined([batch, older], trainer._tokenizer.pad_token_id), self._ages(older)
            change = int(loss_mask(older).sum() - loss_mask(batch)[free[len(free) - len(ages) :]].sum())
        sums = torch.tensor([len(ages), int(ages.sum()), change], device=trainer.accelerator.device)
        rows, age, tokens = trainer.accelerator.reduce(sums, "sum").tolist()
        metrics["vade/replayed_rows"].append(rows)
        if rows:
            metrics["vade/replay_age"].append(age / rows)
        return whole | {"num_items_in_batch": batch["num_items_in_batch"] + tokens}, len(ages)

    def _ages(self, rows: Batch) -> torch.Tensor:
        """Return how many generation batches ago each row was written, (B,)."""
        args = self._trainer.args
        per_batch = args.per_device_train_batch_size * args.steps_per_generation // self._trainer.num_generations
        return self._now - rows[GROUP].cpu() // per_batch

    def _older(self, batch: Batch, free: NDArray[np.int64], last: list[Batch], store: Any) -> Batch | None:
        """Return the newest whole groups of the last update for which there is room, None if there is none."""
        if not (last and GROUP in last[0]):
            return None
        rows = joined([split_pixel_values_by_grid(each) for each in last], self._trainer._tokenizer.pad_token_id)
        number, age = rows[GROUP].cpu().numpy(), self._ages(rows).numpy()
        order = np.lexsort((number, age))
        order = order[((row_advantages(rows) != 0.0) & (age <= self.batches))[order]]
        ends = np.flatnonzero(np.diff(number[order], append=-1)) + 1  # of the groups
        # With so many of them the update holds no more rows, nor tokens when padded to its longest row, than TRL's.
        all_rows, parts = len(batch[GROUP]), self._trainer.args.steps_per_generation
        masks = "prompt_mask", "completion_mask"
        fresh, older = (np.stack([each[name].sum(1).cpu() for name in masks]) for each in (batch, rows))
        longest = np.delete(fresh, free, 1).max(1, keepdims=True, initial=0)
        width = np.maximum.accumulate(older[:, order], 1).clip(longest).sum(0)
        size = all_rows - len(free) + 1 + np.arange(len(order))
        fits = (size <= all_rows) & (-(-size // parts) * parts * width <= sum(batch[name].numel() for name in masks))
        order = order[: ends[fits[ends - 1]].max(initial=0)]
        return self._with_pixels(taken(rows, order), batch, store) if len(order) else None

    def _with_pixels(self, rows: Batch, batch: Batch, store: Any) -> Batch | None:
        """Return the rows with the numbers of their pixels in this batch's store; None where the two do not fit."""
        pixels = [each["pixel_values"][0] for each in (rows, batch) if each.get("pixel_values") is not None]
        if any(map(torch.is_floating_point, pixels)) or has_pixels_by_row(rows) != has_pixels_by_row(batch):
            return None
        if "pixel_values" not in rows:
            return rows
        used = torch.cat([numbers.flatten() for numbers in rows["pixel_values"]]).unique()
        kept = {name: value[used.cpu()] for name, value in store.tensors.items()}
        first = self._trainer._images.store.append(kept)
        renumbered = lambda numbers: (first + torch.searchsorted(used, numbers)).to(numbers.dtype)  # noqa: E731
        for name in {*PIXELS} & rows.keys():
            values = rows[name]
            rows[name] = [*map(renumbered, values)] if isinstance(values, list) else renumbered(values)
        return rows

    def fill_in(self, micro_batch: Batch, logps: torch.Tensor) -> None:
        """Write the log-probabilities of a pass where the micro-batch has none, and count the clipped tokens.

        TRL 1.16 reads them after the pass. New rows get a ratio of exactly 1, and what the next updates need.
        """
        self.counts = torch.zeros(2, dtype=torch.int64)
        if GROUP not in micro_batch:
            return
        trainer, logps = self._trainer, logps.detach()
        for name in {OLD, REFERENCE} & micro_batch.keys():
            micro_batch[name] = torch.where(micro_batch[name].isnan(), logps, micro_batch[name])
        older = (self._ages(micro_batch) > 0).to(logps.device)[:, None]
        mask, change = loss_mask(micro_batch) * older, logps - micro_batch[OLD]
        if trainer.importance_sampling_level == "sequence":
            change = ((change * mask).sum(1) / mask.sum(1).clamp(min=1.0))[:, None].expand_as(mask)
        ratio, gains = change.exp(), micro_batch["advantages"].reshape(len(mask), -1) > 0
        low, high = 1 - trainer.epsilon_low, 1 + trainer.epsilon_high
        if trainer.loss_type == "cispo":
            low, high = 0.0, trainer.epsilon_high
        clipped = torch.where(gains, ratio > high, ratio < low)
        self.counts = torch.stack([(clipped * mask).sum(), mask.sum()])
