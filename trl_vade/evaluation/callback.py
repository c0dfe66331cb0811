"""`VADEEvalCallback`: small benchmarks during training that do not change the training."""

import os
import random
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.logging import get_logger
from accelerate.utils import DistributedType
from transformers import Trainer, TrainerCallback

from trl_vade.checks import check_whole_number
from trl_vade.errors import ConfigurationError, EvaluationError
from trl_vade.trainer.checkpoint.preemption import LastCheckpoint

from .benchmarks import Benchmark, find_benchmarks
from .lmms.tasks import default_rows
from .settings import Evaluation, Generation, check, given_text, instruction_text

logger = get_logger(__name__)


class VADEEvalCallback(TrainerCallback):
    """Callback that evaluates the policy with lmms-eval during training.

        trainer.add_callback(VADEEvalCallback(trainer, ["scienceqa_img", "chartqa"], every_steps=50, limit=64))

    The scores, in per cent, are logged as `lmms/<benchmark>`. The states of all random generators and the modes of all
    modules are restored, so weights, choices and rollouts are bit for bit those of a training without the callback. If
    an evaluation fails, the error is logged and the training continues.

    The policy generates with transformers, also in a run with vLLM, and with the trainer's processor. One process
    evaluates and the others wait for up to `ddp_timeout` (1800 s), so keep `limit` small. Sharded weights (FSDP,
    DeepSpeed ZeRO-3) are refused: evaluate their checkpoints with `trl-vade evaluate`.

    Args:
        trainer: the trainer that the callback is added to.
        tasks: names of `benchmarks.BENCHMARKS`, without those that need a judge: a dead judge would stop the training.
        every_steps: optimiser steps between two evaluations.
        **options: `limit`, `data`, `generation`, `batch_size`, `seed`, `instruction` and `system_prompt`; see
            `planned`.

    Raises:
        ConfigurationError: the evaluation cannot work.
    """

    def __init__(self, trainer: Any, tasks: Sequence[str], *, every_steps: int, **options: Any):
        self.evaluation = planned(trainer.args, tasks, every_steps=every_steps, **options)
        self.trainer, self.every_steps = trainer, every_steps
        self.benchmarks = find_benchmarks(self.evaluation.tasks)
        distribution = trainer.accelerator.state.distributed_type
        plugin = trainer.accelerator.state.deepspeed_plugin
        if distribution == DistributedType.FSDP or (plugin and plugin.zero_stage == 3):
            raise ConfigurationError(
                f"VADEEvalCallback needs whole weights on each process, but they are sharded ({distribution}). "
                "Evaluate the checkpoints with `trl-vade evaluate`."
            )

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Evaluate every `every_steps` optimiser steps, unless a signal has asked this process to stop."""
        if state.global_step % self.every_steps:
            return
        if self.trainer.is_world_process_zero() and not self._told_to_stop():
            self._evaluate_and_log(state.global_step, control)
        # One process evaluates, so none waits for another that has failed. Here all meet again.
        self.trainer.accelerator.wait_for_everyone()
        for callback in self._last_checkpoints():  # a signal may have come after their turn
            callback.on_step_end(args, state, control)

    def _last_checkpoints(self) -> list[LastCheckpoint]:
        callbacks = self.trainer.callback_handler.callbacks
        return [callback for callback in callbacks if isinstance(callback, LastCheckpoint)]

    def _told_to_stop(self) -> bool:
        return any(callback.asked for callback in self._last_checkpoints())

    def _evaluate_and_log(self, step: int, control: Any) -> None:
        try:
            scores = self.evaluate()
        except Exception as error:  # no error of an evaluation may end the training
            if self._told_to_stop():
                logger.warning(
                    f"The evaluation at step {step} was stopped, because a signal asked this process to stop."
                )
                return
            attempts = getattr(error, "last_attempt", None)  # lmms-eval tries several times to make a task
            cause = (attempts and attempts.exception()) or error
            logger.error(f"The evaluation at step {step} failed: {type(cause).__name__}: {cause}")
            return
        asked = control.should_log
        # GRPOTrainer's `log` would write and clear the metrics gathered since the last one. The Trainer's `log` clears
        # the flag for the log of this step, so the flag is restored.
        Trainer.log(self.trainer, {f"lmms/{name}": score for name, score in scores.items()})
        control.should_log = asked

    def evaluate(self) -> dict[str, float]:
        """Evaluate the present policy on this process, and return its scores in per cent, by benchmark.

        The state of the training is restored, also after an error.
        """
        with unchanged_process(), undisturbed(self.trainer.model):
            from .in_training import Policy, TrainedPolicy, run_tasks

            trained = TrainedPolicy(**{part.name: getattr(self.trainer, part.name) for part in fields(TrainedPolicy)})
            policy = Policy(trained, self.evaluation.batch_size, stop=self._told_to_stop)
            results = run_tasks(policy, self.evaluation, self.benchmarks)
        return {benchmark.name: _score(benchmark, results) for benchmark in self.benchmarks}


@contextmanager
def unchanged_process() -> Iterator[None]:
    """Restore, after the block, settings of the process that lmms-eval 0.7.3 changes.

    These are the environment (also from a `.env` file, with a token), the warning filters and torch's default timeout
    of process groups. loguru's sinks are not restored. Within the block, RANK and WORLD_SIZE say that there is one
    process; else lmms-eval would wait for the others.
    """
    groups = torch.distributed.distributed_c10d if torch.distributed.is_available() else None
    environment, patience = dict(os.environ), groups and groups.default_pg_timeout
    os.environ.update(RANK="0", WORLD_SIZE="1", PYTHON_DOTENV_DISABLED="1")
    try:
        with warnings.catch_warnings():
            yield
    finally:
        os.environ.clear()
        os.environ.update(environment)
        if groups:
            groups.default_pg_timeout = patience


@contextmanager
def undisturbed(model: torch.nn.Module) -> Iterator[None]:
    """Restore, after the block, the generators of Python, numpy and torch, and the mode of each module."""
    python, numpy_state = random.getstate(), np.random.get_state()
    modes = {module: module.training for module in model.modules()}
    devices = range(torch.cuda.device_count()) if torch.cuda.is_available() else ()
    try:
        with torch.random.fork_rng(devices=list(devices)):
            model.eval()
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy_state)
        for module, training in modes.items():
            module.training = training


def planned(
    args: Any,
    tasks: Sequence[str],
    *,
    every_steps: int,
    limit: int | None = 64,
    data: Mapping[str, Path] | None = None,
    generation: Generation | None = None,
    batch_size: int = 8,
    seed: int = 0,
    instruction: str | None = None,
    system_prompt: str | None = None,
) -> Evaluation:
    """Return the checked evaluation of a `VADEEvalCallback`, without loading a model.

    Args:
        args: the trainer's settings.
        tasks: see `VADEEvalCallback`.
        every_steps: see `VADEEvalCallback`.
        limit: number of questions of each benchmark, from the first.
        data: by benchmark, a folder with its rows, instead of the Hub; `mixture` needs one.
        generation: the decoding of answers; None is greedy, with the trainer's `max_completion_length` and
            `repetition_penalty`.
        batch_size: questions at a time.
        seed: the seed of sampled answers, the same in each evaluation.
        instruction: a text added to every question; "mixture" is that of the training mixture.
        system_prompt: a system prompt before every question.

    Raises:
        ConfigurationError: the evaluation cannot work.
    """
    advice = "Give the optimiser steps between two evaluations."
    check_whole_number("every_steps", every_steps, minimum=1, advice=advice)
    decoding = {"max_new_tokens": args.max_completion_length, "repetition_penalty": args.repetition_penalty}
    evaluation = Evaluation(
        model="",
        output=Path(args.output_dir),
        tasks=list(tasks),
        seeds=[seed],
        limit=limit,
        generation=generation or Generation(temperature=0.0, **decoding),
        batch_size=batch_size,
        data=default_rows([task for task in tasks if task not in (data or {})]) | dict(data or {}),
        instruction=instruction_text(instruction, "instruction"),
        system_prompt=given_text("system_prompt", system_prompt),
    )
    benchmarks = check(evaluation, judged=False)
    if judged := [one.name for one in benchmarks if one.judged]:
        raise ConfigurationError(
            f"VADEEvalCallback with {', '.join(judged)}: a judge scores these answers. If it hangs, the training "
            "would wait. Evaluate the checkpoints with `trl-vade evaluate`."
        )
    return evaluation


def _score(benchmark: Benchmark, results: Mapping[str, Any]) -> float:
    value = results["results"].get(benchmark.task, {}).get(benchmark.key)
    if not isinstance(value, int | float) or value != value:
        raise EvaluationError(f"lmms-eval scored nothing: {benchmark.key} of {benchmark.task} is {value!r}.")
    return 100.0 * value
