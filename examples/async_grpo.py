# /// script
# requires-python = ">=3.11"
# dependencies = ["trl-vade[rewards]", "trl>=1.16"]
# ///
# Run, with a vLLM server on another GPU:
#   VLLM_SERVER_DEV_MODE=1 vllm serve Qwen/Qwen2.5-0.5B-Instruct --weight-transfer-config '{"backend": "nccl"}'
#   uv run examples/async_grpo.py
"""Prompts chosen on time in TRL's asynchronous GRPO, for text. Experimental.

TRL's rollout loop, a process of its own, generates groups one by one while the trainer trains. Here it draws the row
of each group when a slot is free. K scored groups are observed as one step of the posterior. A draw knows every step,
and neither the groups in flight nor those that wait for their step: their rows are not drawn again. `vade/lag_groups`
says how many groups were scored between the draw of a group and its score.

It uses `trl_vade.samplers` and `trl_vade.selection` alone, which know no trainer. Limits:

* Text only, as TRL's loop: it sends token ids, and the vision tower stays frozen. No environments.
* One loop, so one machine generates. Rows must be more than the groups in flight, waiting and unobserved.
* The groups in flight at a save are lost. A resumed run draws again, and does not repeat the stopped run bit for bit.
* Run with the loop of TRL 1.16 against a stub of vLLM's server. Neither a GPU nor TRL 1.18, where the loop has another
  place, was at hand.
"""

import argparse
import copy
import functools
import itertools
import math
from dataclasses import dataclass
from multiprocessing.context import get_spawning_popen
from pathlib import Path
from queue import Empty
from typing import Any

import numpy as np
from accelerate.logging import get_logger
from datasets import load_dataset
from numpy.typing import NDArray
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from trl_vade.data.row_keys import dataset_fingerprint, sample_keys
from trl_vade.data.row_views import prompt_texts
from trl_vade.rewards import accuracy_reward
from trl_vade.samplers import ThompsonSampler, load_snapshot, save_snapshot
from trl_vade.samplers.priors import prompt_words
from trl_vade.selection.batch_metrics import InFlight, log_metrics
from trl_vade.selection.feedback import Feedback
from trl_vade.selection.log import SelectionLog
from trl_vade.selection.outcomes import rows_with_gradient
from trl_vade.selection.success import RewardSignal, success_name

try:  # since TRL 1.18
    from trl.trainer import async_grpo_trainer as trl_async
except ImportError:
    from trl.experimental.async_grpo import async_grpo_trainer as trl_async

AsyncRolloutWorker = trl_async.AsyncRolloutWorker
logger = get_logger(__name__)


@dataclass(frozen=True)
class AsyncSelection:
    """The settings of the selection.

    Attributes:
        success_reward: the name of the reward function that says whether an answer is right.
        groups_per_step: K, the groups that are observed as one step of the posterior. Its decays are those of a step.
        drop_dead_groups: whether groups without a gradient are left out of the queue to the trainer. This is DAPO's
            dynamic sampling. TRL counts an epoch in trained groups, so it lasts longer: set `max_steps`.
        score_queue: generated groups that may wait for their scores. Fewer groups, less lag.
    """

    success_reward: str | None = None
    groups_per_step: int = 32
    drop_dead_groups: bool = False
    score_queue: int = 16


@dataclass(frozen=True)
class Step:
    """K scored groups, as the loop sends them to the trainer."""

    in_flight: InFlight  # (K,) with the belief at their draws
    rewards: NDArray[np.float64]  # (K*G, F), NaN without a score
    lag: NDArray[np.int64]  # (K,) groups that were scored between the draw of a group and its score
    progress: dict[str, int]  # of the sampler's random stream
    model_version: int


class Stream:
    """Groups drawn one by one, and their scores observed K at a time. Each process has a copy.

    Args:
        feedback: the way to the sampler; that of the loop's process neither logs nor warns.
        settings: of the selection.
        channel: the queue to the trainer's process.
    """

    def __init__(self, feedback: Feedback, settings: AsyncSelection, channel: Any):
        self.feedback, self.settings, self.channel = feedback, settings, channel
        self._num_scored = 0
        self._drawn: dict[int, tuple[InFlight, int]] = {}  # groups in flight: belief, and groups scored at the draw
        self._scored: list[tuple[InFlight, int, NDArray[np.float64]]] = []  # not yet observed: belief, lag, rewards

    def __getstate__(self):
        """Return the state for the loop's process. TRL also pickles it once as a test, which no queue allows."""
        feedback = copy.copy(self.feedback)
        feedback.writes, feedback.signal = False, copy.copy(feedback.signal)
        feedback.signal.say = str  # the trainer's process says it
        return vars(self) | {"feedback": feedback, "channel": self.channel if get_spawning_popen() else None}

    def draw(self, group: int) -> int:
        """Draw the row of a group, which is none of those in flight or not yet observed."""
        busy = [each[0].sample_index for each in (*self._drawn.values(), *self._scored)]
        draw = self.feedback.sampler.draw(1, exclude=np.concatenate(busy) if busy else None)
        self._drawn[group] = (self.feedback.in_flight(draw.sample_index), self._num_scored)
        return int(draw.sample_index[0])

    def score(self, group: int, rewards: NDArray[np.float64], model_version: int) -> None:
        """Take the rewards of a group, (G, F), and observe K groups as one step."""
        in_flight, scored_before = self._drawn.pop(group)
        self._scored.append((in_flight, self._num_scored - scored_before, rewards))
        self._num_scored += 1
        if len(self._scored) < self.settings.groups_per_step:
            return
        beliefs, lag, every = zip(*self._scored, strict=True)
        together = InFlight(
            sample_index=np.concatenate([each.sample_index for each in beliefs]),
            posterior_mean=np.concatenate([each.posterior_mean for each in beliefs]),
            predicted_gradient=np.concatenate([each.predicted_gradient for each in beliefs]),
            posterior_step=min(each.posterior_step for each in beliefs),
        )
        step = Step(
            together, np.concatenate(every), np.array(lag), dict(self.feedback.sampler.progress), model_version
        )
        self._scored.clear()
        self.observe(step)
        self.channel.put(step)

    def sent(self) -> Step | None:
        """Return the next step that the loop's process has sent, or None."""
        try:
            return self.channel.get_nowait()
        except Empty:
            return None

    def observe(self, step: Step) -> dict[str, float]:
        """Take one step of the posterior, and return its metrics."""
        weights = np.ones(step.rewards.shape[1])  # TRL's loop adds the rewards up
        outcomes = self.feedback.signal.outcomes(step.rewards, step.in_flight.sample_index, weights=weights)
        metrics = self.feedback.observe(step.in_flight, outcomes, step.model_version)
        self.feedback.sampler.progress = step.progress
        return metrics | {"lag_groups": float(step.lag.mean()), "lag_groups_max": float(step.lag.max())}


class VADERolloutLoop(AsyncRolloutWorker._loop_cls):
    """TRL's rollout loop, with rows that a `Stream` chooses. It lives in the process of the loop."""

    def __init__(self, *, stream: Stream, **named: Any):
        super().__init__(**named)
        self.stream = stream
        stream.channel.cancel_join_thread()  # else this process could not end while the other one reads no more

    def _repeat_iterator(self):
        """Draw a row whenever TRL asks for the next group."""
        for group in itertools.count():
            row = self.dataset[self.stream.draw(group)]
            yield from itertools.repeat((group, row), self.num_generations)

    async def _score_group(self, group: Any) -> list[Any]:
        """Pass the rewards to the sampler. Leave out a group without a gradient, if that is asked for."""
        samples = await super()._score_group(group)
        names = [f"rewards/{name}" for name in self.reward_func_names]
        rewards = np.full((self.num_generations, len(names)), math.nan)
        place = 0  # a conversation of several turns may have several samples, or none
        for number, sequences in enumerate(group.completions_sequences):
            if sequences:
                rewards[number] = [samples[place].metrics[name] for name in names]
            place += len(sequences)
        self.stream.score(group.group_id, rewards, group.model_version)
        dead = not rows_with_gradient(rewards[None], np.ones(len(names))).any()  # advantages may be rounding errors
        return [] if dead and self.stream.settings.drop_dead_groups else samples


class VADEAsyncGRPOTrainer(trl_async.AsyncGRPOTrainer):
    """`AsyncGRPOTrainer` that chooses the prompts by their posterior pass rates.

    Args:
        selection: the settings of the selection.
        positional: of `AsyncGRPOTrainer`, and `named` likewise.
    """

    def __init__(self, *positional: Any, selection: AsyncSelection | None = None, **named: Any):
        super().__init__(*positional, **named)
        self._settings = settings = selection or AsyncSelection()
        self._stream: Stream | None = None  # of the main process, which keeps what the loop's process sends
        if isinstance(self.rollout_worker, AsyncRolloutWorker):  # on the main process
            in_flight = -(-self.args.max_inflight_tasks // self.args.num_generations)
            busy = in_flight + settings.score_queue + settings.groups_per_step + 1
            if len(self.train_dataset) <= busy:
                raise ValueError(
                    f"{len(self.train_dataset)} rows, but up to {busy} are busy at a time, and none is drawn while it "
                    "is. Use more rows, or lower max_inflight_tasks, score_queue or groups_per_step."
                )
            self.rollout_worker._loop_cls = VADERolloutLoop
            self.rollout_worker._loop_kwargs["score_queue_maxsize"] = settings.score_queue

    def _new_stream(self) -> Stream:
        settings, worker, rows = self._settings, self.rollout_worker, self.train_dataset
        names = [function.__name__ for function in worker._loop_kwargs["reward_funcs"]]
        epoch = len(rows) / settings.groups_per_step  # in steps
        sampler = ThompsonSampler(  # with the rule of the preset `balanced`
            len(rows),
            seed=self.args.seed,
            signal_aware_decay=True,
            cooldown=round(epoch / 2),
            even_rest=round(epoch),
            num_generations=self.args.num_generations,
            prior="prompts",
            words=prompt_words(prompt_texts(rows)),
        )
        feedback = Feedback(
            sampler,
            num_generations=self.args.num_generations,
            log=SelectionLog(self.args.output_dir),
            signal=RewardSignal(success_name(names, settings.success_reward), names, say=logger.warning),
        )
        return Stream(feedback, settings, worker._mp_ctx.Queue())

    def _inner_training_loop(self, *positional: Any, **named: Any):
        """Begin with the posterior of the checkpoint, or with a new one."""
        if isinstance(self.rollout_worker, AsyncRolloutWorker):
            self._stream = self._new_stream()
            if (checkpoint := named.get("resume_from_checkpoint")) is not None:
                self._resume(self._stream.feedback, checkpoint)
            self.rollout_worker._loop_kwargs["stream"] = self._stream
        return super()._inner_training_loop(*positional, **named)

    def log(self, logs: dict[str, float], *positional: Any, **named: Any) -> None:
        """Log the metrics of the steps that the loop has sent, too."""
        self._take_steps()
        super().log(logs, *positional, **named)

    def _save_checkpoint(self, model, trial):
        """Save the posterior beside the model."""
        self._take_steps()
        if self._stream is not None:
            folder = Path(self._get_output_dir(trial)) / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
            feedback = self._stream.feedback
            feedback.log.sync()
            run = {**feedback.state_dict(), "global_step": self.state.global_step}
            metadata = self._identity(feedback) | {"run": run}
            save_snapshot(folder, feedback.sampler, metadata=metadata, sample_key=self._keys)
        super()._save_checkpoint(model, trial)

    def _take_steps(self) -> None:
        while self._stream is not None and (step := self._stream.sent()) is not None:
            log_metrics(self._stream.observe(step), to=self._metrics["train"])

    def _resume(self, feedback: Feedback, checkpoint: str) -> None:
        snapshot = load_snapshot(checkpoint)
        feedback.adopt_signal(snapshot.metadata)
        ours = self._identity(feedback)
        if differing := {name: value for name, value in ours.items() if snapshot.metadata.get(name) != value}:
            raise ValueError(f"The posterior in {checkpoint} belongs to another run: here it is {differing}.")
        feedback.sampler.load_state_dict(snapshot.sampler_state)
        feedback.load_state_dict(snapshot.metadata["run"])
        feedback.resume_log(snapshot.metadata["run"])

    @functools.cached_property
    def _keys(self) -> NDArray[np.int64]:
        return sample_keys(self.train_dataset)

    def _identity(self, feedback: Feedback) -> dict[str, Any]:
        """Return the facts that a posterior depends on."""
        rows = dataset_fingerprint(self._keys)
        return {"dataset_fingerprint": rows, **feedback.signal.facts, "num_generations": self.args.num_generations}


def as_row(example):
    """Make the two columns that the training needs: a conversation, and the number after GSM8K's `####`."""
    question = f"{example['question']}\nThink step by step, and put the final number in \\boxed{{}}."
    return {"prompt": [{"role": "user", "content": question}], "answer": example["answer"].split("####")[-1].strip()}


def main():
    """Train on grade-school math."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="Qwen/Qwen2.5-0.5B-Instruct")
    parser.add_argument("--server", default="http://localhost:8000", help="the address of vLLM's server")
    parser.add_argument("--output_dir", default="gsm8k-async")
    parser.add_argument("--max_steps", type=int, default=300)
    options = parser.parse_args()
    rows = load_dataset("openai/gsm8k", "main", split="train").map(as_row, remove_columns="question")
    args = trl_async.AsyncGRPOConfig(
        output_dir=options.output_dir,
        vllm_server_base_url=options.server,
        num_generations=8,
        max_steps=options.max_steps,
        max_completion_length=512,
        learning_rate=1e-6,
        logging_steps=1,
        save_steps=50,
    )
    # The loop's process imports the reward function, so it must be one of a module.
    selection = AsyncSelection(drop_dead_groups=True)
    VADEAsyncGRPOTrainer(options.model, accuracy_reward, args, train_dataset=rows, selection=selection).train()


if __name__ == "__main__":  # the loop's process imports this file, too
    main()
