"""`VADEEvalCallback`: small benchmarks during training that do not change the training."""

import os
import random
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.logging import get_logger
from accelerate.utils import DistributedType
from transformers import Trainer, TrainerCallback

from trl_vade.checks import check_whole_number
from trl_vade.errors import ConfigurationError
from trl_vade.trainer.checkpoint.preemption import LastCheckpoint

from .benchmarks import BENCHMARKS, find_benchmarks
from .settings import Evaluation, Generation, check, instruction_text

logger = get_logger(__name__)


class VADEEvalCallback(TrainerCallback):
    """Callback that evaluates the policy with lmms-eval during training.

        trainer.add_callback(VADEEvalCallback(trainer, ["scienceqa_img", "chartqa"], every_steps=50, limit=64))

    The scores, in per cent, are logged as `lmms/<benchmark>`, every `every_steps` optimiser steps. The states of all
    random generators and the modes of all modules are restored, so weights, choices and rollouts are bit for bit those
    of a training without the callback. If an evaluation fails, the error is logged and the training continues.

    The policy generates with transformers, also in a run with vLLM, and with the trainer's processor. One process
    evaluates and the others wait for up to `ddp_timeout` (1800 s), so keep `limit` small. Sharded weights (FSDP,
    DeepSpeed ZeRO-3) are refused, and so are `tasks` that need a judge: a dead one would stop the training. For
    `options` see `planned`.
    """

    def __init__(self, trainer: Any, tasks: Sequence[str], *, every_steps: int, **options: Any):
        self.evaluation = planned(trainer.args, tasks, every_steps=every_steps, **options)
        self.trainer, self.every_steps = trainer, every_steps
        self.benchmarks = find_benchmarks(tasks)
        state = trainer.accelerator.state
        if state.distributed_type == DistributedType.FSDP or getattr(state.deepspeed_plugin, "zero_stage", 0) == 3:
            raise ConfigurationError(
                f"VADEEvalCallback needs whole weights on each process, but {state.distributed_type} shards them. "
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
        return [one for one in self.trainer.callback_handler.callbacks if isinstance(one, LastCheckpoint)]

    def _told_to_stop(self) -> bool:
        return any(one.asked for one in self._last_checkpoints())

    def _evaluate_and_log(self, step: int, control: Any) -> None:
        try:
            scores = self.evaluate()
        except Exception as error:  # no error of an evaluation may end the training
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
        """Evaluate the present policy on this process, and return its scores in per cent, by benchmark."""
        with unchanged_process(), undisturbed(self.trainer.model):
            from .in_training import Policy, run_tasks

            policy = Policy(self.trainer, self.evaluation.batch_size, self._told_to_stop)
            found = run_tasks(policy, self.evaluation, self.benchmarks)["results"]
        return {one.name: 100.0 * found[one.task][one.key] for one in self.benchmarks}


@contextmanager
def unchanged_process() -> Iterator[None]:
    """Restore, after the block, the environment, warning filters and timeouts that lmms-eval 0.7.3 changes."""
    groups = torch.distributed.distributed_c10d if torch.distributed.is_available() else None
    environment, patience = dict(os.environ), groups and groups.default_pg_timeout
    # As if there were one process, else lmms-eval would wait for the others.
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
    try:
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
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
    seed: int = 0,
    generation: Generation | None = None,
    instruction: str | None = None,
    **options: Any,
) -> Evaluation:
    """Return the checked evaluation of a `VADEEvalCallback`, without loading a model.

    `args` are the trainer's settings. Without a `generation` it is greedy, with their `max_completion_length` and
    `repetition_penalty`. `limit` is of each benchmark, `seed` that of sampled answers in each evaluation, and
    `options` are `data`, `batch_size` and `system_prompt` of `Evaluation`.
    """
    check_whole_number("every_steps", every_steps, minimum=1, advice="Give the optimiser steps between evaluations.")
    if judged := [name for name in tasks if name in BENCHMARKS and BENCHMARKS[name].judged]:
        raise ConfigurationError(
            f"VADEEvalCallback with {', '.join(judged)}: a judge scores these answers. If it hangs, the training "
            "would wait. Evaluate the checkpoints with `trl-vade evaluate`."
        )
    greedy = Generation(0.0, max_new_tokens=args.max_completion_length, repetition_penalty=args.repetition_penalty)
    chosen = {"generation": generation or greedy, "limit": limit, "instruction": instruction_text(instruction)}
    evaluation = Evaluation("", Path(args.output_dir), tasks, seeds=[seed], **chosen, **options)
    check(evaluation)
    return evaluation
