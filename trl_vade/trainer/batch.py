"""The generation batch: generated and scored first, refilled if that is asked for, then prepared by TRL once.

TRL 1.16 generates, passes over the completions and scores them in `_generate_and_score_completions`. Here a batch is
generated and scored before, and that method's calls of `_generate` and `_calculate_rewards` get these results. Images,
masks, log-probabilities, advantages and logs are TRL's own. The calls of a training step; one inside a generation
batch has the last two alone:

    _prepare_inputs                           chooses rows in place of tickets (`loader.rows_of_batch`)
      _generate_and_score_completions         -> `GenerationBatch.make`, here
        _generate                             completions
        _calculate_rewards                    rewards -> the sampler; with refills both again for further rows
        TRL's _generate_and_score_completions with these answers: log-probabilities, advantages, logs
          _get_per_token_logps_and_entropies  -> `Thinning.logps`: of the rows with a gradient
      `Thinning.thin`                         leaves rows out; `Replay.add_to` fills their places
    _compute_loss                             -> `Thinning.loss_of`: counts
      _get_per_token_logps_and_entropies      -> `Thinning.logps`; `Replay.fill_in` keeps them

DAPO's dynamic sampling (arXiv 2503.14476) makes a batch in rounds: further rows are chosen and generated for until
every group has a gradient. Each round is observed and counted, whether its groups are kept or dropped.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np
import torch
import trl
from accelerate.logging import get_logger
from accelerate.utils import gather_object
from numpy.typing import NDArray
from trl.data_utils import prepare_multimodal_messages

from trl_vade.data.decoding import Rows
from trl_vade.errors import LibraryError
from trl_vade.selection.outcomes import rows_with_gradient
from trl_vade.version import TESTED_TRL

from .batch_rows import Batch, ended, first_of
from .images.once import image_parts
from .seams import owner_of
from .thinning import Thinning
from .variants import own_advantages, replace_advantages

logger = get_logger(__name__)

MAX_REFILLS = 10  # of a generation batch
OF_ROWS = ("prompt_ids", "completion_ids", "tool_mask", "completions", "logprobs")
OUTPUT = (*OF_ROWS, "extra_fields", "images", "tool_images")
"""What `GRPOTrainer._generate` returns (TRL 1.15, 1.16). The first are None, or have an entry for each completion."""


def prompts_of(rows: Rows) -> list[Any]:
    """Return the prompts of rows with their images, as TRL 1.16 makes them (`_generate_and_score_completions`)."""
    images = [row.get("images") or ([] if row.get("image") is None else [row["image"]]) for row in rows]
    if not any(images):
        return [row["prompt"] for row in rows]
    return [prepare_multimodal_messages(row["prompt"], images=each) for row, each in zip(rows, images, strict=True)]


@dataclass(frozen=True)
class Round:
    """K rows that were generated for and scored."""

    output: dict[str, Any]  # of `_generate`, of this process
    rewards: torch.Tensor  # (K*G, F), of all processes
    moves: NDArray[np.bool_]  # (K, G) the completions with a gradient
    advantages: NDArray[np.float64] | None = None  # (K*G,) in place of TRL's
    sample_index: NDArray[np.int64] | None = None  # (K,)
    more: list[dict[str, Any]] | None = None  # with refills, of each completion: what was logged for it, and its row


class GenerationBatch:
    """Maker of the generation batches of one trainer.

    It takes the trainer: TRL's methods are called through it, so that a subclass of the user may override them.

    Attributes:
        thinning: the rows and tokens of the batch to train on.
    """

    def __init__(self, trainer: Any):
        self._trainer, self.thinning = trainer, Thinning(trainer)
        self._refills = trainer.selection is not None and trainer.args.vade_dynamic_sampling
        wanted = self._refills or self.thinning.mode != "none" or trainer.args.vade_advantage != "local"
        rows_change = trainer.tools or trainer.environment_factories is not None or trainer.rollout_func is not None
        owner = owner_of(type(trainer), "_generate_and_score_completions")
        # A subclass may give a row a gradient that had none.
        self._scores_first = wanted and owner.__module__.startswith("trl_vade.") and not rows_change

    def make(self, rows: Rows, prepare: Callable[[Rows], Batch]) -> Batch:
        """Return the batch that `prepare`, TRL's `_generate_and_score_completions`, makes of `rows` and refills."""
        trainer, live, own, known = self._trainer, None, None, {}
        in_flight = trainer.selection and trainer.selection.in_flight
        if in_flight and in_flight.initialising:
            return prepare(rows)  # nothing is trained on
        if self._scores_first:
            known["_generate"] = output = trainer._generate(prompts_of(rows))
            if self._is_known(output):
                rows, scored = self._filled(rows, self._round(rows, output))
                known = {"_generate": (*scored.output.values(),), "_calculate_rewards": scored.rewards}
                first = trainer.accelerator.process_index * len(rows)
                live, own = scored.moves.ravel()[first:][: len(rows)], scored.advantages
        with self.thinning.preparing(len(rows), live), answering(trainer, known):
            batch = prepare(rows)
        replace_advantages(trainer, batch, own)
        return self.thinning.placed(batch)

    def _round(self, rows: Rows, output: tuple[Any, ...]) -> Round:
        trainer, selection, prompts = self._trainer, self._trainer.selection, prompts_of(rows)
        named = dict(zip(OUTPUT, output, strict=True))
        sample_index = selection and selection.in_flight.sample_index
        rewards = trainer._calculate_rewards(rows, prompts, named["completions"], named["completion_ids"])
        own = own_advantages(trainer, rewards)
        if own is not None:
            moves = (own != 0.0).reshape(-1, trainer.num_generations)
        else:
            moves = rows_with_gradient(
                rewards.double().cpu().numpy().reshape(-1, trainer.num_generations, rewards.shape[1]),
                trainer.reward_weights.double().cpu().numpy(),
                normalise=trainer.multi_objective_aggregation == "normalize_then_sum",
            )
        if trainer.mask_truncated_completions:
            mine = torch.from_numpy(ended(trainer, named["completion_ids"])).to(trainer.accelerator.device)
            moves = moves & trainer.accelerator.gather(mine).cpu().numpy().reshape(moves.shape)
        more = self._logged(selection.loader.made or [None] * len(rows)) if self._refills else None
        return Round(named, rewards, moves, own, sample_index, more)

    def _is_known(self, output: tuple[Any, ...]) -> bool:
        """Return whether this TRL returns what is known. If not, say so and score no later batch first."""
        fields = len(output) == len(OUTPUT) and output[OUTPUT.index("extra_fields")]  # TRL hands them to the rewards
        if len(output) == len(OUTPUT) and not fields:
            return True
        kind = "with fields for the rewards" if fields else f"not {len(OUTPUT)}"
        found = f"TRL {trl.__version__} returns {len(output)} values from GRPOTrainer._generate, {kind}"
        if self._refills:
            raise LibraryError(f"{found}, so vade_dynamic_sampling=True does not work. Set it to False.")
        logger.warning(f"{found}. So rows without a gradient are left out only in the loss. Install trl{TESTED_TRL}.")
        self._scores_first = False
        return False

    def _logged(self, made: list[Any]) -> list[dict[str, Any]]:
        """Take what reward functions logged for each completion (`log_extra`) from TRL, beside the rows `made`."""
        columns = self._trainer._pending_extra_logs
        extra = [{name: values[i] for name, values in columns.items() if i < len(values)} for i in range(len(made))]
        columns.clear()
        return [{"extra": values, "row": row} for values, row in zip(extra, made, strict=True)]

    def _filled(self, rows: Rows, first: Round) -> tuple[Rows, Round]:
        """With refills, generate until K groups have a gradient, or no rows or refills are left; return K groups."""
        if not self._refills:
            return rows, first
        trainer, selection, rounds = self._trainer, self._trainer.selection, [first]
        missing = selection.num_groups
        while (missing := missing - int(rounds[-1].moves.any(axis=1).sum())) > 0:
            more = selection.refill(missing) if len(rounds) <= MAX_REFILLS else None
            if more is None:
                logger.warning_once(
                    "vade_dynamic_sampling: a generation batch has groups without a gradient after its last refill "
                    f"({MAX_REFILLS} at most). There are no more in a reward outage, or if too few other rows are "
                    "left. Training continues; these groups have an advantage of 0. If frac_reward_zero_std stays "
                    "above 0, the rows are too easy or too hard, or num_generations is too small. This is said once."
                )
                break
            rounds.append(self._round(more, trainer._generate(prompts_of(more))))
        whole = first
        if len(rounds) > 1:
            _make_one_value_of_each_length(trainer._metrics["train"], [len(each.sample_index) for each in rounds])
            rows, whole = self._accepted(rounds)
        extra = [each["extra"] for each in whole.more]
        for name in {name: None for values in extra for name in values}:
            trainer._pending_extra_logs[name] = [values.get(name) for values in extra]
        return rows, whole

    def _accepted(self, rounds: list[Round]) -> tuple[Rows, Round]:
        """Return this process's share of the rows and of the completions of K groups, with the rewards of all."""
        trainer, selection, size = self._trainer, self._trainer.selection, self._trainer.num_generations
        moves = np.concatenate([each.moves for each in rounds])
        accepted = first_of(moves.any(axis=1), selection.num_groups)
        found = sorted(gather_object([*self._in_places(rounds, accepted)]), key=itemgetter(0))  # of all processes
        share = len(found) // trainer.accelerator.num_processes
        mine = [values for _, values in found[trainer.accelerator.process_index * share :][:share]]
        with selection.feedback.timed("selection"):
            chosen = np.concatenate([each.sample_index for each in rounds])[accepted]
            rows = selection.loader.load_again(chosen, [each["row"] for each in mine])
        trainer.log_multimodal = trainer.args.log_multimodal and selection.loader.images_on_all_processes
        prompts = prompts_of(rows)
        trainer._images.note(prompts)
        images = [[part["image"] for part in image_parts([prompt])] for prompt in prompts]
        output = {name: None if mine[0][name] is None else [each[name] for each in mine] for name in OF_ROWS}
        output |= {"extra_fields": {}, "images": images if any(images) else None, "tool_images": []}
        rewards = torch.cat([each.rewards for each in rounds]).unflatten(0, (-1, size))
        rewards = rewards[torch.as_tensor(accepted, device=rewards.device)].flatten(0, 1)
        return rows, Round(output, rewards, moves[accepted], more=mine)

    def _in_places(self, rounds: list[Round], accepted: NDArray[np.int64]) -> Iterator[tuple[int, dict[str, Any]]]:
        size, index = self._trainer.num_generations, self._trainer.accelerator.process_index
        place, groups_before = {group: number for number, group in enumerate(accepted.tolist())}, 0
        for each in rounds:
            first = index * len(each.more)
            for i, more in enumerate(each.more):
                group, of_group = divmod(first + i, size)
                if (number := place.get(groups_before + group)) is not None:
                    values = {name: each.output[name] and each.output[name][i] for name in OF_ROWS}
                    yield number * size + of_group, values | more
            groups_before += len(each.sample_index)


@contextmanager
def answering(trainer: Any, known: dict[str, Any]) -> Iterator[None]:
    """Let these methods of the trainer return the values in `known` within the block, whoever overrides them."""
    before = {name: value for name, value in vars(trainer).items() if name in known}  # patches of the user's
    vars(trainer).update({name: lambda *_, _answer=value, **__: _answer for name, value in known.items()})
    try:
        yield
    finally:
        for name in known:
            vars(trainer).pop(name, None)
        vars(trainer).update(before)


def _make_one_value_of_each_length(metrics: dict[str, list[float]], groups: list[int]) -> None:
    """Replace what TRL logged of the completions of each round by one value for all, which it averages over steps."""
    for name, values in metrics.items():
        if name.startswith("completions/"):
            new = values[-len(groups) :]
            of_all = min(new) if "/min" in name else max(new) if "/max" in name else np.average(new, weights=groups)
            values[-len(groups) :] = [float(of_all)]
