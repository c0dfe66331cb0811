"""DAPO's dynamic sampling (arXiv 2503.14476): refill a generation batch until every group has a gradient.

A batch is made in rounds. The first round has the rows of the batch, each further round the rows of a refill. The rows
of a refill are chosen when the round before is scored. Every round is observed and counted, whether its groups are
kept or dropped. `outcomes.groups_with_gradient` defines which groups have a gradient.

TRL 1.16 generates, computes log-probabilities and scores in one method, `_generate_and_score_completions`. A round
enters this method, generates and scores, and leaves it by an exception, so dropped groups cost no forward pass. After
the last round, the whole method runs once on the accepted rows and reuses the completions and rewards of the rounds.
Images, masks, log-probabilities, advantages and logs are therefore TRL's own, and each completion is scored once.
"""

import copy
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from accelerate.logging import get_logger
from accelerate.utils import gather_object
from numpy.typing import NDArray
from trl import GRPOTrainer

from trl_vade.data.decoding import Rows
from trl_vade.selection.outcomes import accepted_groups, groups_with_gradient

from .batch_rows import ended
from .seams import by_name, definition, returned_names

logger = get_logger(__name__)


ON_ITS_OWN = (
    "A subclass or a patch of the trainer generates on its own. Let _generate and _generate_single_turn call super(), "
    "or set vade_dynamic_sampling=False."
)


@dataclass(frozen=True)
class Rollout:
    """One completion of this process."""

    turn: dict[str, Any]  # what `_generate_single_turn` returned for it, by name; None for what the engine lacks
    extra: dict[str, Any]  # values that reward functions logged for it (`log_extra`)
    row: dict[str, Any] | None  # the row that a transform made for this completion


@dataclass(frozen=True)
class Round:
    """K scored rows."""

    sample_index: NDArray[np.int64]  # (K,)
    has_gradient: NDArray[np.bool_]  # (K,)
    rewards: torch.Tensor  # (K*G, F), of all processes
    rollouts: list[Rollout]  # (K*G / processes,) of this process


@dataclass(frozen=True)
class Replay:
    """Completions and rewards that replace generation and scoring when the accepted groups are prepared."""

    rollouts: list[Rollout]  # of this process
    rewards: torch.Tensor  # (K*G, F), of all processes

    def turn(self) -> tuple[list[Any] | None, ...]:
        """Return the completions as `_generate_single_turn` does."""
        values = zip(*(rollout.turn.values() for rollout in self.rollouts), strict=True)
        return tuple(None if None in each else [*map(copy.copy, each)] for each in values)

    def rewards_of(self, completion_ids: list[list[int]]) -> torch.Tensor:
        """Return the rewards as `_calculate_rewards` does; raise unless `completion_ids` were scored."""
        if completion_ids != [rollout.turn["completion_ids"] for rollout in self.rollouts]:
            raise RuntimeError(
                "vade_dynamic_sampling=True trains on completions that were scored before, but the batch holds "
                f"others. {ON_ITS_OWN}"
            )
        return self.rewards


class _Scored(Exception):
    """Signal, not an error: leaves `_generate_and_score_completions` with the scored round."""

    def __init__(self, scored: Round):
        self.round = scored


class Refill:
    """Maker of the generation batches of one trainer with dynamic sampling.

    Attributes:
        replay: the completions and rewards to reuse now, or None.
    """

    def __init__(self, trainer: Any):
        self._trainer = trainer
        trainer.selection.loader.keeps = True
        self._unfilled = 0  # generation batches that could not be filled
        self._rows: Rows | None = None  # of the present round
        self._metrics: dict[str, list[float]] = {}  # the batch's metrics, kept aside during a round
        self._turn: dict[str, Any] = {}  # what `_generate_single_turn` returned in the present round
        self.replay: Replay | None = None

    @property
    def in_round(self) -> bool:
        """Return whether a round is generating now."""
        return self._rows is not None

    def complete(self, rows: Rows, prepare: Callable[[Rows], dict[str, Any]]) -> dict[str, Any]:
        """Refill the batch and return this process's share of it, prepared for training.

        A batch that could not be filled is logged as a warning.

        Args:
            rows: this process's share of the chosen rows.
            prepare: TRL's `_generate_and_score_completions`.
        """
        trainer, selection = self._trainer, self._trainer.selection
        rounds, drawn, missing = [], rows, selection.num_groups
        while drawn is not None:
            rounds.append(self._score(drawn, prepare))
            missing -= int(rounds[-1].has_gradient.sum())
            enough = missing <= 0 or len(rounds) > trainer.args.vade_max_refills
            drawn = None if enough else selection.refill(missing)
        if missing > 0:
            self._warn_of_unfilled(missing, rounds)
        accepted = accepted_groups(np.concatenate([each.has_gradient for each in rounds]), selection.num_groups)
        replay = self._deal(rounds, accepted)
        if len(rounds) > 1:
            chosen = np.concatenate([each.sample_index for each in rounds])[accepted]
            with selection.feedback.timed("selection"):
                rows = selection.loader.load_again(chosen, [rollout.row for rollout in replay.rollouts])
            trainer.log_multimodal = trainer.args.log_multimodal and selection.loader.images_on_all_processes
        return self._prepare(rows, replay, prepare)

    def turn(self, generate: Callable[[], tuple[Any, ...]]) -> tuple[Any, ...]:
        """Return the completions to reuse now, or else what `generate`, TRL's `_generate_single_turn`, returns."""
        if self.replay is not None:
            return self.replay.turn()
        output = generate()
        self._turn = by_name(GRPOTrainer, "_generate_single_turn", output)
        return output

    def finish_round(self, prompts: list[Any], output: dict[str, Any]) -> None:
        """Score the completions of a round, and leave TRL's method by an exception.

        Args:
            prompts: the prompts, as TRL passes them to reward functions.
            output: of `_generate`, by name.

        Raises:
            _Scored: always, with the round.
        """
        trainer = self._trainer
        completion_ids, turn = output["completion_ids"], self._turn
        if completion_ids != turn.get("completion_ids"):  # of a subclass, which must then repeat them
            names = returned_names(definition(GRPOTrainer, "_generate_single_turn"))
            turn = {name: output.get(name) for name in names}
        trainer._metrics["train"] = self._metrics  # scoring logs into the batch's metrics again
        sample_index = trainer.selection.in_flight.sample_index
        rewards = trainer._calculate_rewards(self._rows, prompts, output["completions"], completion_ids)
        num_groups, trained = len(sample_index), None
        if trainer.mask_truncated_completions:
            mine = torch.from_numpy(ended(trainer, completion_ids)).to(trainer.accelerator.device)
            trained = trainer.accelerator.gather(mine).cpu().numpy().reshape(num_groups, -1)
        has_gradient = groups_with_gradient(
            rewards.double().cpu().numpy().reshape(num_groups, -1, rewards.shape[1]),
            trainer.reward_weights.double().cpu().numpy(),
            normalise=trainer.multi_objective_aggregation == "normalize_then_sum",
            trained=trained,
        )
        columns, number = trainer._pending_extra_logs, len(completion_ids)
        extra = [{name: values[i] for name, values in columns.items() if i < len(values)} for i in range(number)]
        columns.clear()  # `_prepare` restores those of the accepted groups
        turns = [{name: each and each[i] for name, each in turn.items()} for i in range(number)]
        made = trainer.selection.loader.made or [None] * number
        rollouts = [Rollout(*each) for each in zip(turns, extra, made, strict=True)]
        raise _Scored(Round(sample_index, has_gradient, trainer._raw_rewards, rollouts))

    def _score(self, rows: Rows, prepare: Callable[[Rows], dict[str, Any]]) -> Round:
        # TRL logs the lengths of completions as it generates. They are logged for the whole batch, in `_prepare`.
        self._rows, self._metrics, self._turn = rows, self._trainer._metrics["train"], {}
        self._trainer._metrics["train"] = defaultdict(list)
        try:
            prepare(rows)
        except _Scored as scored:
            return scored.round
        finally:
            self._rows, self._trainer._metrics["train"] = None, self._metrics
        raise RuntimeError(
            "vade_dynamic_sampling=True, but the completions of a round did not pass VADEGRPOTrainer._generate. "
            f"{ON_ITS_OWN}"
        )

    def _deal(self, rounds: list[Round], accepted: NDArray[np.int64]) -> Replay:
        """Gather the rollouts of the accepted groups from all processes, and return this process's share in order."""
        accelerator, size = self._trainer.accelerator, self._trainer.num_generations
        place = {group: number for number, group in enumerate(accepted.tolist())}
        mine, groups_before = [], 0
        for each in rounds:
            first = accelerator.process_index * len(each.rollouts)
            for i, rollout in enumerate(each.rollouts, start=first):
                if (group := groups_before + i // size) in place:
                    mine.append((place[group] * size + i % size, rollout))
            groups_before += len(each.sample_index)
        rollouts = [rollout for _, rollout in sorted(gather_object(mine), key=lambda pair: pair[0])]
        share = len(rollouts) // accelerator.num_processes
        first = accelerator.process_index * share
        rewards = torch.cat([each.rewards for each in rounds])
        rewards = rewards.view(groups_before, size, -1)[torch.as_tensor(accepted, device=rewards.device)].flatten(0, 1)
        return Replay(rollouts[first : first + share], rewards)

    def _prepare(self, rows: Rows, replay: Replay, prepare: Callable[[Rows], dict[str, Any]]) -> dict[str, Any]:
        trainer = self._trainer
        for name in {name: None for rollout in replay.rollouts for name in rollout.extra}:
            trainer._pending_extra_logs[name] = [rollout.extra.get(name) for rollout in replay.rollouts]
        tokens_seen = trainer.state.num_input_tokens_seen
        self.replay = replay
        try:
            prepared = prepare(rows)
        finally:
            self.replay = None
        # `_generate` has counted the tokens of the accepted groups twice (TRL 1.16).
        trainer.state.num_input_tokens_seen = tokens_seen
        trainer._metrics["train"]["num_tokens"] = [tokens_seen]
        return prepared

    def _warn_of_unfilled(self, missing: int, rounds: list[Round]) -> None:
        """Log a warning about a batch with `missing` groups without a gradient: the 1st, 10th, 100th, and so on."""
        self._unfilled += 1
        if str(self._unfilled).rstrip("0") != "1":
            return
        trainer = self._trainer
        size, refills = trainer.selection.num_groups, len(rounds) - 1
        groups = sum(len(each.sample_index) for each in rounds)
        if refills >= trainer.args.vade_max_refills:
            reason = "vade_max_refills allows no further refill"
        elif trainer.selection.feedback.outage:
            reason = "there are no refills during a reward outage"
        else:
            reason = f"too few other rows of the {len(trainer.selection.dataset)} are left for another refill"
        logger.warning(
            f"vade_dynamic_sampling: {size - missing} of the {size} groups of a generation batch have a gradient "
            f"after {refills} refills ({groups} groups, {groups * trainer.num_generations} rollouts), and {reason}. "
            f"Training continues; the other {missing} groups have an advantage of 0 (batches of this kind so far: "
            f"{self._unfilled}). If it happens often, the rows are too easy or too hard for this policy, or "
            "num_generations is too small. A larger vade_max_refills allows more refills, at the cost of rollouts."
        )
