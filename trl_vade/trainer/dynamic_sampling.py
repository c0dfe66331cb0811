"""DAPO's dynamic sampling (arXiv 2503.14476): a generation batch is refilled until every group has a gradient.

It is made in rounds: the rows of the batch, and those of each refill, which are chosen when the round before is
scored. Every round is observed and counted, kept or not.

TRL 1.16 generates, takes log-probabilities and scores in one method, `_generate_and_score_completions`. A round goes
through it as far as the completions, scores them, and leaves it by an exception: groups that are dropped cost no
forward pass. Then the method runs once, and whole, on the rows that were accepted, with the completions and rewards of
the rounds in place of new ones. So what is trained on (images, masks, log-probabilities, advantages) and what is
logged of it are TRL's own work, and no reward function sees a completion twice.

What counts as a gradient is said in `outcomes.groups_with_gradient`.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from accelerate.logging import get_logger
from accelerate.utils import gather_object
from numpy.typing import NDArray

from trl_vade.data.decoding import Rows
from trl_vade.data.own_values import own_values_or_same
from trl_vade.selection.outcomes import accepted_groups, groups_with_gradient

logger = get_logger(__name__)


@dataclass(frozen=True)
class Rollout:
    """A completion of this process."""

    completion_ids: list[int]
    logprobs: list[float | None] | None  # of the engine; None with transformers
    extra: dict[str, Any]  # what reward functions logged of it (`log_extra`)
    row: dict[str, Any] | None = None  # as a transform has made it for this completion


@dataclass(frozen=True)
class Round:
    """K rows after their scores."""

    sample_index: NDArray[np.int64]  # (K,)
    has_gradient: NDArray[np.bool_]  # (K,)
    rewards: torch.Tensor  # (K*G, F), gathered
    rollouts: list[Rollout]  # (K*G / processes,) of this process


@dataclass(frozen=True)
class Replay:
    """What stands in for generation and scoring when the accepted groups are prepared for training."""

    rollouts: list[Rollout]  # of this process
    rewards: torch.Tensor  # (K*G, F), of all processes

    def completions(self) -> tuple[list[list[int]], list[list[float | None]] | None]:
        """As `_generate_single_turn` of TRL 1.16 returns them."""
        logprobs = [rollout.logprobs for rollout in self.rollouts]
        return [[*rollout.completion_ids] for rollout in self.rollouts], None if None in logprobs else logprobs

    def rewards_of(self, completion_ids: list[list[int]]) -> torch.Tensor:
        """As `_calculate_rewards` of TRL 1.16 returns them, if these are the completions that they were given for."""
        if completion_ids != [rollout.completion_ids for rollout in self.rollouts]:
            raise RuntimeError(
                "With vade_dynamic_sampling=True, the completions that were scored are put together into the batch to "
                "train on, and others arrived there: a subclass or a patch of the trainer generates on its own. Let "
                "_generate and _generate_single_turn call super(), or set vade_dynamic_sampling=False."
            )
        return self.rewards


class _Scored(Exception):
    """Leaves `_generate_and_score_completions` with the round that was scored; nothing went wrong."""

    def __init__(self, scored: Round):
        self.round = scored


class Refill:
    """
    Makes the generation batches of one trainer.

    Attributes:
        replay: what is put in place of generation and scoring now, or None.
    """

    def __init__(self, trainer: Any):
        self._trainer = trainer
        trainer.selection.loader.keeps = True
        self._watch = UnfilledBatchWatch()
        self._rows: Rows | None = None  # of the round that is on
        self._metrics: dict[str, list[float]] = {}  # the trainer's, during a round
        self.replay: Replay | None = None

    @property
    def in_round(self) -> bool:
        """Whether the completions that arrive now are a round's."""
        return self._rows is not None

    def complete(self, rows: Rows, prepare: Callable[[Rows], dict[str, Any]]) -> dict[str, Any]:
        """Return what `prepare`, TRL's `_generate_and_score_completions`, makes of this process's share of the batch.

        Args:
            rows: this process's share of the batch as it was chosen.
            prepare: the parent's method.
        """
        trainer, selection = self._trainer, self._trainer.selection
        rounds, drawn, missing = [], rows, selection.num_groups
        while drawn is not None:
            rounds.append(self._score(drawn, prepare))
            missing -= int(rounds[-1].has_gradient.sum())
            enough = missing <= 0 or len(rounds) > trainer.args.vade_max_refills
            drawn = None if enough else selection.refill(missing)
        if missing > 0 and (notice := self._watch.observe(missing, rounds, trainer)):
            logger.warning(notice)
        accepted = accepted_groups(np.concatenate([each.has_gradient for each in rounds]), selection.num_groups)
        replay = self._deal(rounds, accepted)
        if len(rounds) > 1:
            chosen = np.concatenate([each.sample_index for each in rounds])[accepted]
            with selection.feedback.timed("selection"):
                rows = selection.loader.load_again(chosen, [rollout.row for rollout in replay.rollouts])
            trainer.log_multimodal = trainer.args.log_multimodal and selection.loader.images_on_all_processes
        return self._prepare(rows, replay, prepare)

    def finish_round(self, prompts: list[Any], output: tuple[Any, ...]) -> None:
        """Score a round whose completions are there, and leave TRL's method.

        Args:
            prompts: what TRL generated from, and hands to reward functions.
            output: of `_generate` (TRL 1.16): prompt ids, completion ids, tool mask, completions, logprobs, ...
        """
        trainer = self._trainer
        trainer._metrics["train"] = self._metrics  # from here on it is the batch's own metrics again
        _, completion_ids, _, completions, logprobs, *_ = output
        sample_index = trainer.selection.in_flight.sample_index
        rewards = trainer._calculate_rewards(self._rows, prompts, completions, completion_ids)
        num_groups = len(sample_index)
        has_gradient = groups_with_gradient(
            rewards.double().cpu().numpy().reshape(num_groups, -1, rewards.shape[1]),
            trainer.reward_weights.double().cpu().numpy(),
            normalise=trainer.multi_objective_aggregation == "normalize_then_sum",
            trained=self._ended(completion_ids).reshape(num_groups, -1)
            if trainer.mask_truncated_completions
            else None,
        )
        extra, columns = [], trainer._pending_extra_logs
        for i in range(len(completion_ids)):
            extra.append({name: values[i] for name, values in columns.items() if i < len(values)})
        columns.clear()  # of the groups that are kept they come back in `_prepare`
        logprobs = [None] * len(completion_ids) if logprobs is None else logprobs
        made = trainer.selection.loader.made or [None] * len(completion_ids)
        rollouts = [Rollout(*each) for each in zip(completion_ids, logprobs, extra, made, strict=True)]
        raise _Scored(Round(sample_index, has_gradient, rewards, rollouts))

    def _score(self, rows: Rows, prepare: Callable[[Rows], dict[str, Any]]) -> Round:
        rows = list(
            map(own_values_or_same, rows)
        )  # a reward function may write into them, and they are prepared for training
        # TRL logs the lengths of all that it generates: of a batch once, when it is prepared, and not of each round.
        self._rows, self._metrics = rows, self._trainer._metrics["train"]
        self._trainer._metrics["train"] = defaultdict(list)
        try:
            prepare(rows)
        except _Scored as scored:
            return scored.round
        finally:
            self._rows, self._trainer._metrics["train"] = None, self._metrics
        raise RuntimeError(
            "With vade_dynamic_sampling=True the completions of a round did not pass VADEGRPOTrainer._generate: a "
            "subclass or a patch of the trainer generates on its own. Let its _generate call super(), or set "
            "vade_dynamic_sampling=False."
        )

    def _ended(self, completion_ids: list[list[int]]) -> NDArray[np.bool_]:
        """Which of all processes' completions TRL 1.16 does not take for truncated."""
        accelerator = self._trainer.accelerator
        ends = {*self._trainer.eos_token_ids, self._trainer._tokenizer.pad_token_id}
        ended = torch.tensor([ids[-1] in ends for ids in completion_ids], device=accelerator.device)
        return accelerator.gather(ended).cpu().numpy()

    def _deal(self, rounds: list[Round], accepted: NDArray[np.int64]) -> Replay:
        """Take the rollouts of the accepted groups from all processes, and deal them out in their order."""
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
        # `_generate` has counted the tokens of the accepted groups a second time (TRL 1.16).
        trainer.state.num_input_tokens_seen = tokens_seen
        trainer._metrics["train"]["num_tokens"] = [tokens_seen]
        return prepared


class UnfilledBatchWatch:
    """Notices generation batches that could not be filled: says the first, and then one in ten times as many."""

    def __init__(self) -> None:
        self._count = 0
        self._next = 1

    def observe(self, missing: int, rounds: list[Round], trainer: Any) -> str | None:
        """Look at a generation batch that lacks `missing` groups; return what is to be said, or None."""
        self._count += 1
        if self._count < self._next:
            return None
        self._next *= 10
        size, refills = trainer.selection.num_groups, len(rounds) - 1
        groups = sum(len(each.sample_index) for each in rounds)
        if refills >= trainer.args.vade_max_refills:
            reason = "vade_max_refills allows no more"
        elif trainer.selection.feedback.outage:
            reason = "there are no more during a reward outage"
        else:
            reason = f"too few other rows of the {len(trainer.selection.dataset)} are left for another"
        return (
            f"vade_dynamic_sampling: {size - missing} of the {size} groups of a generation batch have a gradient "
            f"after {refills} refills ({groups} groups, {groups * trainer.num_generations} rollouts), and {reason}. "
            f"The run goes on; the other {missing} have none, and an advantage of 0 (generation batches of this kind "
            f"so far: {self._count}). If it happens often, the rows are too easy or too hard for this policy, or "
            "num_generations is too small; a larger vade_max_refills buys more refills with more rollouts."
        )
