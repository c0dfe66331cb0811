"""Experimental: prompts chosen on time in TRL's asynchronous GRPO.

TRL's rollout loop, a process of its own, generates groups one by one while the trainer trains. Here it draws the row
of each group when a slot is free. K scored groups are observed as one step of the posterior. A draw knows every step,
and neither the groups in flight nor those that wait for their step: their rows are not drawn again. `vade/lag_groups`
says how many groups were scored between the draw of a group and its score. A slow completion is overtaken by any
number of groups.

Limits:

* Text only, as TRL's loop: it sends token ids, and the vision tower stays frozen.
* One loop, so one machine generates. Rows must be more than the groups in flight, waiting and unobserved.
* The groups in flight at a save are lost. A resumed run draws again, and does not repeat the stopped run bit for bit.
* With `drop_dead_groups` an epoch lasts longer, since TRL counts the groups that were trained: set `max_steps`.
* Run by this project with the loop of TRL 1.16 against a stub of vLLM's server. Neither a GPU nor TRL 1.18, where the
  loop has another place, was at hand.
"""

import copy
import functools
import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.context import get_spawning_popen
from pathlib import Path
from queue import Empty
from types import SimpleNamespace
from typing import Any

import numpy as np
import trl
from accelerate.logging import get_logger
from numpy.typing import NDArray
from packaging.version import Version
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from trl.trainer.utils import get_config_model_id

from trl_vade.data.row_keys import dataset_fingerprint, sample_keys
from trl_vade.data.row_views import prompt_texts
from trl_vade.errors import ConfigurationError, LibraryError, SnapshotMismatchError
from trl_vade.hub.uploading import hub_id
from trl_vade.samplers.base import PosteriorSampler
from trl_vade.samplers.snapshot import load_snapshot, save_snapshot
from trl_vade.selection.batch_metrics import InFlight, log_metrics
from trl_vade.selection.feedback import Feedback
from trl_vade.selection.log import SelectionLog
from trl_vade.selection.signal import RewardSignal, Threshold, success_name

from .grpo_config import VADE_DEFAULTS
from .preflight import reward_names
from .presets import PRESETS
from .seams import Seam, check_seams
from .selection_choice import make_sampler

try:  # since TRL 1.18
    from trl.trainer import async_grpo_trainer as trl_async
except ImportError:
    from trl.experimental.async_grpo import async_grpo_trainer as trl_async

AsyncRolloutWorker = trl_async.AsyncRolloutWorker
RolloutLoop = AsyncRolloutWorker._loop_cls

logger = get_logger(__name__)

OLDEST_TRL = "1.16"
SEAMS = (
    Seam(RolloutLoop, "__init__", "1.16", takes=("dataset", "num_generations", "score_queue_maxsize")),
    Seam(RolloutLoop, "_repeat_iterator", "1.16"),
    Seam(RolloutLoop, "_score_group", "1.16", takes=("group",), returns=("samples",), issue="#3708"),
    Seam(AsyncRolloutWorker, "__init__", "1.16", sets=("_loop_kwargs", "_mp_ctx")),
)


@dataclass(frozen=True)
class AsyncSelection:
    """The settings of the selection.

    Attributes:
        preset: one of `VADEGRPOConfig.vade_preset`, without its initial pass; "uniform" for permutations of the rows.
        success_reward: as `vade_success_reward`.
        success_threshold: as `vade_success_threshold`.
        groups_per_step: K, the groups that are observed as one step of the posterior. Its decays are those of a step.
        drop_dead_groups: whether groups without a gradient are left out of the queue to the trainer. This is DAPO's
            dynamic sampling: the loop goes on until the trainer has its groups.
        score_queue: generated groups that may wait for their scores. Fewer groups, less lag.
    """

    preset: str = "balanced"
    success_reward: str | None = None
    success_threshold: Threshold = "auto"
    groups_per_step: int = 32
    drop_dead_groups: bool = False
    score_queue: int = 16

    def sampler(
        self, num_samples: int, seed: int, *, num_generations: int = 8, prompts: Iterable[str] | None = None
    ) -> PosteriorSampler:
        """Return a new sampler for N = `num_samples` rows with these `prompts`."""
        is_uniform = self.preset == "uniform"
        if not is_uniform and self.preset not in PRESETS:
            raise ConfigurationError(f"preset={self.preset!r} must be 'uniform' or one of {', '.join(PRESETS)}.")
        chosen = {"vade_sampler": "uniform"} if is_uniform else {"vade_preset": self.preset}
        settings = VADE_DEFAULTS | chosen | {"seed": seed, "num_generations": num_generations}
        args = SimpleNamespace(**settings)
        return make_sampler(args, num_samples, num_groups=self.groups_per_step, prompts=prompts)


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
        channel: the queue to the trainer's process; None: nothing is sent.
    """

    def __init__(self, feedback: Feedback, settings: AsyncSelection, channel: Any = None):
        self.feedback, self.settings, self._channel = feedback, settings, channel
        self.num_scored = 0
        self._drawn: dict[int, tuple[InFlight, int]] = {}  # groups in flight: belief, and groups scored at the draw
        self._scored: list[tuple[InFlight, int, NDArray[np.float64]]] = []  # not yet observed: belief, lag, rewards

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for the loop's process. TRL also pickles it once as a test, which no queue allows."""
        feedback = copy.copy(self.feedback)
        feedback.writes, feedback.signal = False, copy.copy(feedback.signal)
        feedback.signal.say = str  # the trainer's process says it
        return vars(self) | {"feedback": feedback, "_channel": self._channel if get_spawning_popen() else None}

    def leave_without_waiting(self) -> None:
        """Let this process end while the other one reads no more; else its last steps would hold it up."""
        if self._channel is not None:
            self._channel.cancel_join_thread()

    def draw(self, group: int) -> int:
        """Draw the row of a group, which is none of those in flight or not yet observed."""
        busy = [each[0].sample_index for each in (*self._drawn.values(), *self._scored)]
        draw = self.feedback.sampler.draw(1, exclude=np.concatenate(busy) if busy else None)
        self._drawn[group] = (self.feedback.in_flight(draw.sample_index), self.num_scored)
        return int(draw.sample_index[0])

    def score(self, group: int, rewards: NDArray[np.float64], model_version: int) -> None:
        """Take the rewards of a group, (G, F), and observe K groups as one step."""
        in_flight, scored_before = self._drawn.pop(group)
        self._scored.append((in_flight, self.num_scored - scored_before, rewards))
        self.num_scored += 1
        if len(self._scored) < self.settings.groups_per_step:
            return
        beliefs, lag, every = zip(*self._scored, strict=True)
        together = InFlight(
            sample_index=np.concatenate([each.sample_index for each in beliefs]),
            posterior_mean=np.concatenate([each.posterior_mean for each in beliefs]),
            predicted_gradient=np.concatenate([each.predicted_gradient for each in beliefs]),
            posterior_step=min(each.posterior_step for each in beliefs),
        )
        step = Step(together, np.concatenate(every), np.array(lag), self.feedback.sampler.progress, model_version)
        self._scored.clear()
        self.observe(step)
        if self._channel is not None:
            self._channel.put(step)

    def sent(self) -> Step | None:
        """Return the next step that the loop's process has sent, or None."""
        try:
            return self._channel.get_nowait()
        except Empty:
            return None

    def observe(self, step: Step) -> dict[str, float]:
        """Take one step of the posterior, and return its metrics."""
        weights = np.ones(step.rewards.shape[1])  # TRL's loop adds the rewards up
        outcomes = self.feedback.signal.outcomes(step.rewards, step.in_flight.sample_index, weights=weights)
        metrics = self.feedback.observe(step.in_flight, outcomes, step.model_version)
        self.feedback.sampler.progress = step.progress
        return metrics | {"lag_groups": float(step.lag.mean()), "lag_groups_max": float(step.lag.max())}


class VADERolloutLoop(RolloutLoop):  # type: ignore[misc, valid-type]
    """TRL's rollout loop, with rows that a `Stream` chooses. It lives in the process of the loop."""

    def __init__(self, *, stream: Stream, **named: Any):
        super().__init__(**named)
        self.stream = stream
        stream.leave_without_waiting()

    def _repeat_iterator(self) -> Iterator[tuple[int, dict[str, Any]]]:
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
        dead = all(sample.advantage == 0.0 for sample in samples)
        return [] if dead and self.stream.settings.drop_dead_groups else samples


class VADEAsyncGRPOTrainer(trl_async.AsyncGRPOTrainer):  # type: ignore[misc]
    """`AsyncGRPOTrainer` that chooses the prompts by their posterior pass rates. Experimental, see the module.

    Args:
        selection: the settings of the selection.
        positional: of `AsyncGRPOTrainer`, and `named` likewise.

    Raises:
        ConfigurationError: the rows are too few, or streamed, or the names of the rewards leave success open.
        LibraryError: the installed TRL is older than 1.16, or has another rollout loop.
    """

    def __init__(self, *positional: Any, selection: AsyncSelection | None = None, **named: Any):
        if Version(trl.__version__) < Version(OLDEST_TRL):
            raise LibraryError(
                f"TRL {trl.__version__} is installed, and the asynchronous trainer was not run with a TRL before "
                f"{OLDEST_TRL}. Install 'trl>={OLDEST_TRL}', or take VADEGRPOTrainer."
            )
        check_seams(SEAMS)
        super().__init__(*positional, **named)
        self._settings = selection or AsyncSelection()
        self._stream: Stream | None = None  # of the main process, which keeps what the loop's process sends
        if isinstance(self.rollout_worker, AsyncRolloutWorker):  # on the main process
            self._refuse_rows()
            self.rollout_worker._loop_cls = VADERolloutLoop
            self.rollout_worker._loop_kwargs["score_queue_maxsize"] = self._settings.score_queue

    def _refuse_rows(self) -> None:
        settings, args = self._settings, self.args
        busy = -(-args.max_inflight_tasks // args.num_generations) + settings.score_queue + settings.groups_per_step
        rows = len(self.train_dataset) if hasattr(self.train_dataset, "__len__") else 0
        if rows <= busy + 1:
            raise ConfigurationError(
                f"{rows or 'Streamed'} rows, but up to {busy + 1} are busy at a time: max_inflight_tasks="
                f"{args.max_inflight_tasks} / num_generations={args.num_generations}, score_queue="
                f"{settings.score_queue} and groups_per_step={settings.groups_per_step}. No row is drawn while it is "
                "busy. Use a data set of more rows, or lower these."
            )

    def _new_stream(self) -> Stream:
        settings, worker = self._settings, self.rollout_worker
        given = worker._loop_kwargs
        names = reward_names(given["reward_funcs"], given["environment_factory"])
        if names is None:
            raise ConfigurationError(
                "environment_factory is a function, so it is open whether its environment has a reward of its own. "
                "Pass the environment's class."
            )
        feedback = Feedback(
            settings.sampler(
                len(self.train_dataset),
                self.args.seed,
                num_generations=self.args.num_generations,
                prompts=prompt_texts(self.train_dataset),
            ),
            num_generations=self.args.num_generations,
            log=SelectionLog(self.args.output_dir),
            signal=RewardSignal(
                success_name(names, settings.success_reward),
                names,
                threshold=settings.success_threshold,
                say=logger.warning,
            ),
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
            about = {"base_model": hub_id(get_config_model_id(self.model.config)), "run": run}
            save_snapshot(folder, feedback.sampler, metadata=self._identity() | about, sample_key=self._keys)
        super()._save_checkpoint(model, trial)

    def _take_steps(self) -> None:
        while self._stream is not None and (step := self._stream.sent()) is not None:
            log_metrics(self._stream.observe(step), to=self._metrics["train"])

    def _resume(self, feedback: Feedback, checkpoint: str) -> None:
        snapshot = load_snapshot(checkpoint)
        feedback.adopt_signal(snapshot.metadata)
        ours = self._identity(feedback)
        differing = {name: (snapshot.metadata.get(name), value) for name, value in ours.items()}
        differing = {name: pair for name, pair in differing.items() if pair[0] != pair[1]}
        if differing:
            raise SnapshotMismatchError(
                f"The posterior in {checkpoint} belongs to another run: {differing} (there, here). Give this run the "
                "same rows, reward and num_generations, or resume from another checkpoint."
            )
        feedback.sampler.load_state_dict(snapshot.sampler_state)
        feedback.load_state_dict(snapshot.metadata["run"])
        feedback.resume_log(snapshot.metadata["run"])

    @functools.cached_property
    def _keys(self) -> NDArray[np.int64]:
        return sample_keys(self.train_dataset)[0]

    def _identity(self, feedback: Feedback | None = None) -> dict[str, Any]:
        """Return the facts that a posterior depends on."""
        facts = (feedback or self._stream.feedback).signal.facts
        rows = dataset_fingerprint(self._keys)
        return {"dataset_fingerprint": rows, **facts, "num_generations": self.args.num_generations}
