"""Training on a part of each generation batch: without rows that have no gradient, or on D3S's choice.

TRL 1.16 runs every forward and backward pass over all rows, those with an advantage of 0 included. Here the passes
before the loss (old and reference log-probabilities) take the rows with a gradient alone. As many micro-batches as
before are made again from the kept rows, with the padding cut. Completions of one image may come side by side.

The sampler's feedback is of all rows. So are TRL's logs, but for the means that the loss logs, such as the entropy.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from accelerate.logging import get_logger
from numpy.typing import NDArray
from trl.trainer.utils import split_pixel_values_by_grid, split_tensor_dict, unsplit_pixel_values_by_grid

from trl_vade.selection.on_time import enough_for

from .batch_rows import (
    Batch,
    cut_padding,
    first_of,
    images_to_move,
    joined,
    loss_mask,
    most_varied,
    row_advantages,
    side_by_side,
    spread,
    taken,
    with_pixels_counted,
)
from .callbacks import TrainedCounts, callback_of
from .config_checks import down_sampling, reason_against_lossless, refuse_lossless, schedule
from .logs import OF_TRAINED_ROWS, of_trained_rows
from .presets import is_adaptive
from .replay import Replay
from .seams import arguments_of, own_views

logger = get_logger(__name__)

# Of a batch: (B,) the place of each row before TRL's shuffle; () kept rows over all rows, a factor of the loss.
PLACE, ROW_SHARE = "vade_place", "vade_row_share"
MEAN_OVER_ROWS = ("grpo", "dr_grpo", "luspo", "sapo")  # losses over a micro-batch's rows, not `num_items_in_batch`


class Thinning:
    """The rows and tokens that one trainer trains on, by its `mode`; see `vade_down_sampling` of `VADEGRPOConfig`."""

    def __init__(self, trainer: Any):
        self._trainer, args = trainer, trainer.args
        reason = reason_against_lossless(args)
        if trainer.aux_loss_enabled:
            reason = "the router loss of this mixture-of-experts model acts on every row"
        refuse_lossless(args, reason)
        reason = reason or own_views(trainer)
        off = args.vade_down_sampling is None and reason
        self.mode = "none" if off else down_sampling(args)
        if off and is_adaptive(args):
            logger.warning(f"Rows without an advantage are trained on, too: {reason}. See vade_down_sampling.")
        self._size: int | None = None  # B, while TRL prepares a batch
        # From then until `thin`, by the place of a row in the order drawn:
        self._live: NDArray[np.bool_] | None = None  # (B,) has a gradient
        self._scored: NDArray[np.int64] | None = None  # places of the rows with old and reference log-probabilities
        self._advantages: torch.Tensor | None = None  # (B,) of TRL
        # While a loss is computed:
        self._micro_batch: Batch | None = None
        self._chosen: torch.Tensor | None = None  # tokens chosen in it
        self.replay = Replay(trainer, self.mode)
        trainer.add_callback(TrainedCounts(self.mode != "none"))

    @contextmanager
    def preparing(self, size: int, live: NDArray[np.bool_] | None) -> Iterator[None]:
        """Leave out the rows that are not `live`, (B,), of the log-probabilities of the block; None: not known yet."""
        self._size, self._live, self._scored = size, live, None
        if live is not None and self.mode != "none":
            self._scored = first_of(live, self._most(int(live.sum())))
        try:
            yield
        finally:
            self._size = None

    def placed(self, batch: Batch) -> Batch:
        """Return a prepared batch with each row's place, by which `thin` knows the rows again."""
        self._advantages = batch["advantages"].cpu()
        return self.replay.numbered(batch) | {PLACE: torch.arange(len(self._advantages))}

    def thin(self, micro_batches: list[Batch], last: Any) -> list[Batch]:
        """Return micro-batches of the rows to train on, and log what was kept. `last`: see `Replay.last_update`."""
        whole = joined([split_pixel_values_by_grid(each) for each in micro_batches])
        shuffled_place = torch.argsort(whole.pop(PLACE)).numpy()  # (B,) where TRL's shuffle has put each row
        nothing = {name: None for name, value in whole.items() if value is None}
        advantages = row_advantages(whole)[shuffled_place]
        if self._live is None or not torch.equal(whole["advantages"].cpu()[shuffled_place], self._advantages):
            self._live = advantages != 0.0
            self._scored = first_of(self._live, self._most(int(self._live.sum())))
        advantages = np.where(self._live, advantages, 0.0)
        kept, older = self._kept(advantages, len(micro_batches)), 0
        if self.replay.batches:
            whole, older = self.replay.add_to(whole, shuffled_place[~self._live], *last)
            kept = first_of(self._live, self._most(int(self._live.sum()) + older) - older)
        self._log(advantages, kept)
        self._live = self._scored = self._advantages = None
        grouped = self._trainer._images.grouped
        if self.mode == "none" and not grouped:
            return [{name: value for name, value in each.items() if name != PLACE} for each in micro_batches]
        live = np.concatenate([advantages[kept] != 0.0, np.ones(older, dtype=bool)])
        taken_from = np.concatenate([shuffled_place[kept], len(shuffled_place) + np.arange(older)])
        in_trls_order = spread(shuffled_place[kept], older)  # with the older rows evenly in between
        if grouped:
            steps = len(micro_batches) // self._trainer.args.gradient_accumulation_steps
            alone = self._trainer.accelerator.num_processes == 1
            if images := images_to_move(taken(whole, taken_from[in_trls_order]), alone=alone):
                window = len(in_trls_order) // max(steps, 1)
                in_trls_order = in_trls_order[side_by_side(images, window)]
        batch = taken(whole, taken_from[in_trls_order])
        if self.mode != "none" and not live.all():
            # Rows that only fill up a micro-batch are attended to and not trained on.
            trained = torch.from_numpy(live[in_trls_order]).to(batch["completion_mask"].device)[:, None]
            batch["tool_mask"] = batch.get("tool_mask", torch.ones_like(batch["completion_mask"])) * trained
            # TRL's metrics of whole sequences know no mask; see `_of_trained_rows`.
            whole_rows = trained if batch["advantages"].dim() > 1 else trained[:, 0]
            batch["advantages"] = batch["advantages"].where(whole_rows, 0.0)
            if "importance_sampling_ratio" in batch:
                batch["importance_sampling_ratio"] = batch["importance_sampling_ratio"].where(trained, 1.0)
        if self.mode in ("rows", "d3s"):
            tokens = self._trainer.accelerator.gather(loss_mask(batch).sum()).sum()
            batch["num_items_in_batch"] = tokens
        elif self._trainer.loss_type in MEAN_OVER_ROWS:
            batch[ROW_SHARE] = torch.tensor(len(taken_from) / len(advantages), device=batch["completion_mask"].device)
        multiple = self._trainer.pad_to_multiple_of or 1
        parts = split_tensor_dict(batch, len(micro_batches))
        return [unsplit_pixel_values_by_grid(cut_padding(part, multiple)) | nothing for part in parts]

    def logps(self, forward: Callable[..., Any], *positional: Any, **named: Any) -> Any:
        """Return what `forward`, TRL's `_get_per_token_logps_and_entropies`, returns, for the rows and tokens needed.

        Before the loss, rows without a gradient get NaN. In the loss, D3S's unchosen tokens get no gradient.
        """
        if self._size is not None and self._scored is not None and len(self._scored) < self._size:
            # By the stock method's names: a mix-in between may take its arguments as they come.
            call = arguments_of("_get_per_token_logps_and_entropies", positional, named)
            # TRL 1.16 asks for names, and would split by a `num_tiles` of None.
            given = with_pixels_counted({name: value for name, value in call.items() if value is not None})
            rows = taken(split_pixel_values_by_grid(given), self._scored)
            logps, *more = forward(**unsplit_pixel_values_by_grid(rows))
            whole = logps.new_full((self._size, logps.shape[1]), torch.nan)
            whole[torch.from_numpy(self._scored).to(logps.device)] = logps
            return whole, *more
        logps, entropies, *more = forward(*positional, **with_pixels_counted(named))
        if self._micro_batch is not None:
            self.replay.fill_in(self._micro_batch, logps)
        if self.mode != "none" and self._micro_batch is not None:
            entropies = entropies * loss_mask(self._micro_batch).any(1, keepdim=True)
        if self.mode == "d3s" and self._micro_batch is not None:
            logps = self._choose_tokens(logps, entropies)
        return logps, entropies, *more

    @contextmanager
    def loss_of(self, micro_batch: Batch) -> Iterator[None]:
        """Count the rows and tokens of the micro-batch whose loss the block computes."""
        trainer, self._micro_batch, self._chosen = self._trainer, micro_batch, None
        metrics = trainer._metrics["train"]
        before = {name: len(values) for name, values in metrics.items()}
        try:
            yield
            mask = loss_mask(micro_batch)
            tokens, rows = mask.sum(), torch.full_like(mask.sum(), len(mask))
            averaged = rows if mask.shape[1] == 1 else tokens  # over what TRL takes a mean of tokens
            chosen = tokens if self._chosen is None else self._chosen
            figures = torch.stack([rows, tokens, chosen, mask.any(1).sum(), averaged, *self.replay.counts.to(rows)])
            figures = trainer.accelerator.reduce(figures, "sum")
        finally:
            self._micro_batch = None
        rows, tokens, chosen, trained, averaged, clipped, older = figures.tolist()
        if self.mode != "none":
            new = [name for name in OF_TRAINED_ROWS if len(metrics.get(name, ())) > before.get(name, 0)]
            in_rows = trainer.importance_sampling_level == "sequence"
            of_trained_rows(metrics, new, in_rows, rows=rows, tokens=tokens, trained=trained, averaged=averaged)
        counts: Any = callback_of(trainer, TrainedCounts)
        counts.completions, counts.tokens = counts.completions + int(rows), counts.tokens + int(chosen)
        metrics["vade/trained_completions"], metrics["vade/trained_tokens"] = [counts.completions], [counts.tokens]
        if older:
            metrics["vade/replay_clip_ratio"].append(clipped / older)
        if self.mode == "d3s":
            metrics["vade/kept_tokens_share"].append(chosen / max(tokens, 1))

    def _most(self, rows: int) -> int:
        """Return the rows that hold so many of this process, and those of any other, in whole micro-batches."""
        accelerator = self._trainer.accelerator
        rows = enough_for(rows, self._trainer.args.steps_per_generation)
        return int(accelerator.gather(torch.tensor([rows], device=accelerator.device)).max())

    def _kept(self, advantages: NDArray[np.float64], parts: int) -> NDArray[np.int64]:
        """Return the places of the rows to train on, as many on every process."""
        if self.mode == "none":
            return np.arange(len(advantages))
        if self.mode in ("lossless", "live"):
            return self._scored
        n = round(len(advantages) * self._share("vade_keep_rollouts") / parts)
        n = min(max(n, 1) * parts, len(self._scored))
        places = most_varied(advantages, n)
        live = places[advantages[places] != 0.0]
        # The rows without a gradient that fill up the others must have their log-probabilities.
        fill = np.setdiff1d(self._scored, live)
        fill = fill[np.argsort(advantages[fill] != 0.0, kind="stable")]
        return np.sort(np.concatenate([live, fill[: n - len(live)]]))

    def _share(self, setting: str) -> float:
        (first, last), state = schedule(self._trainer.args, setting), self._trainer.state
        progress = state.global_step / max(state.max_steps, 1)
        return (1.0 - progress) * first + progress * last  # D3S, section 3.3

    def _log(self, advantages: NDArray[np.float64], kept: NDArray[np.int64]) -> None:
        accelerator, metrics = self._trainer.accelerator, self._trainer._metrics["train"]
        sums = [
            figure
            for values in (advantages, advantages[kept])
            for figure in (len(values), values.sum(), (values**2).sum(), (values != 0.0).sum())
        ]
        sums = accelerator.reduce(torch.tensor(sums, dtype=torch.float32, device=accelerator.device), "sum").tolist()
        for name, (rows, total, squares) in (("advantage", sums[:3]), ("kept_advantage", sums[4:7])):
            rows = max(rows, 1)  # all may be older ones
            metrics[f"vade/{name}_variance"].append(squares / rows - (total / rows) ** 2)
        metrics["vade/kept_rollouts"].append(sums[4])
        metrics["vade/useful_share"].append(sums[7] / max(sums[4], 1))

    def _choose_tokens(self, logps: torch.Tensor, entropies: torch.Tensor) -> torch.Tensor:
        """Detach the tokens outside the share with the largest |advantage| x entropy (D3S, section 3.2)."""
        batch, advantages = self._micro_batch, self._micro_batch["advantages"]
        key = (advantages if advantages.dim() > 1 else advantages[:, None]).abs() * entropies.detach()
        chosen = self._trainer.get_high_entropy_mask(key, loss_mask(batch), 1.0 - self._share("vade_keep_tokens"))
        self._chosen = (chosen & (key > 0)).sum()
        return torch.where(chosen, logps, logps.detach())
