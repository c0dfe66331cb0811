"""`VADEEvalCallback`: a small benchmark during training, which the training does not feel."""

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
from .settings import Evaluation, Generation, check, instruction_text

logger = get_logger(__name__)


class VADEEvalCallback(TrainerCallback):
    """Run benchmarks by lmms-eval inside the training, on the policy as it is, every so many optimiser steps.

        trainer.add_callback(VADEEvalCallback(trainer, ["scienceqa", "chartqa"], every_steps=50, limit=64))

    The scores, in per cent, go to the log as `lmms/<benchmark>`. All generators' states and the modes of all modules
    are put back: weights, choices and rollouts are bit for bit those of a training without it. An evaluation that
    fails is logged, and the training goes on.

    The policy generates with transformers, under vLLM too, with the trainer's processor. Of several processes the
    first evaluates and the others wait, so keep `limit` small (their patience is `ddp_timeout`, 1800 s). Weights that
    are sharded (FSDP, DeepSpeed ZeRO-3) are refused: evaluate their checkpoints by `trl-vade evaluate`.

    Args:
        trainer: the trainer that it is added to.
        tasks: names of `benchmarks.BENCHMARKS`, none that needs a judge: its death would hold the training up.
        every_steps: optimiser steps between evaluations; the first is after so many.
        options: `limit`, `data`, `generation`, `batch_size`, `seed`, `instruction` and `system_prompt`; see `planned`.

    Raises:
        ConfigurationError: it cannot work here; no model was asked.
    """

    def __init__(self, trainer: Any, tasks: Sequence[str], *, every_steps: int, **options: Any):
        self.evaluation = planned(trainer.args, tasks, every_steps=every_steps, **options)
        self.trainer, self.every_steps = trainer, every_steps
        self.benchmarks = find_benchmarks(self.evaluation.tasks)
        _refuse_sharded(trainer.accelerator.state)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Evaluate after every `every_steps`-th optimiser step, unless this process was told to stop."""
        if state.global_step % self.every_steps:
            return
        if self.trainer.is_world_process_zero() and not self._told_to_stop():
            self._evaluate_and_log(state.global_step, control)
        # One process evaluates, so that none waits for another that has failed; here all of them are again.
        self.trainer.accelerator.wait_for_everyone()
        for callback in self._last_checkpoints():  # they had their turn before a signal that came in the meantime
            callback.on_step_end(args, state, control)

    def _last_checkpoints(self) -> list[LastCheckpoint]:
        callbacks = self.trainer.callback_handler.callbacks
        return [callback for callback in callbacks if isinstance(callback, LastCheckpoint)]

    def _told_to_stop(self) -> bool:
        return any(callback.asked for callback in self._last_checkpoints())

    def _evaluate_and_log(self, step: int, control: Any) -> None:
        try:
            scores = self.evaluate()
        except Exception as error:  # of whatever kind: a training is worth more than its evaluation
            if self._told_to_stop():
                logger.warning(f"The evaluation at step {step} was ended: this process is told to stop.")
                return
            attempts = getattr(error, "last_attempt", None)  # lmms-eval tries several times to make a task
            cause = (attempts and attempts.exception()) or error
            logger.error(f"The evaluation at step {step} failed: {type(cause).__name__}: {cause}")
            return
        asked = control.should_log
        # GRPOTrainer's own `log` would hand out, and forget, what it has gathered since the last one. This one clears
        # the mark by which the step's own log is about to be written.
        Trainer.log(self.trainer, {f"lmms/{name}": score for name, score in scores.items()})
        control.should_log = asked

    def evaluate(self) -> dict[str, float]:
        """Scores of the policy as it is, in per cent, by benchmark; on one process, the others are not needed.

        Raises:
            Exception: whatever goes wrong; nothing of the training has changed.
        """
        with unchanged_process(), undisturbed(self.trainer.model):
            from .in_training import Policy, TrainedPolicy, run_tasks

            trained = TrainedPolicy(**{part.name: getattr(self.trainer, part.name) for part in fields(TrainedPolicy)})
            policy = Policy(trained, self.evaluation.batch_size, stop=self._told_to_stop)
            results = run_tasks(policy, self.evaluation, self.benchmarks)
        return {benchmark.name: _score(benchmark, results) for benchmark in self.benchmarks}


@contextmanager
def unchanged_process() -> Iterator[None]:
    """Put back what lmms-eval 0.7.3 sets for the whole process, or reads from a `.env` file: the environment (a token
    among it), the filters of warnings, the time that torch's new process groups wait. It also sets loguru's sinks.

    In here this is one process, as lmms-eval sees it: it reads these variables and would wait for the others.
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
    """Afterwards the generators of Python, numpy and torch, and the mode of each module, are as they were before."""
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
    """What `VADEEvalCallback` will do in a training with these `args`; no model is needed to know that it cannot.

    Args:
        args: of the trainer.
        tasks, every_steps: see `VADEEvalCallback`.
        limit: questions of each benchmark, always the same.
        data: by benchmark, a folder with its rows, in place of the Hub; `mixture` needs one.
        generation: how answers are sampled; by default greedily, with the trainer's `max_completion_length`.
        batch_size: questions at a time.
        seed: of the answers, where they are sampled; the same each time.
        instruction: added to every question; "mixture": that of the training mixture.
        system_prompt: said before every question.

    Raises:
        ConfigurationError: it cannot work.
    """
    advice = "Give the optimiser steps from one evaluation to the next."
    check_whole_number("every_steps", every_steps, minimum=1, advice=advice)
    evaluation = Evaluation(
        model="",
        output=Path(args.output_dir),
        tasks=list(tasks),
        seeds=[seed],
        limit=limit,
        generation=generation or Generation(temperature=0.0, max_new_tokens=args.max_completion_length),
        batch_size=batch_size,
        data=default_rows([task for task in tasks if task not in (data or {})]) | dict(data or {}),
        instruction=instruction_text(instruction),
        system_prompt=system_prompt,
    )
    benchmarks = check(evaluation, judged=False)
    if judged := [one.name for one in benchmarks if one.judged or one.name == "mathvision_rules"]:
        raise ConfigurationError(
            f"VADEEvalCallback with {', '.join(judged)}: a language model judges the answers there, or lmms-eval "
            "hands them to Python's eval; where that is slow or dead the training would wait for it. Evaluate the "
            "checkpoints by `trl-vade evaluate`."
        )
    return evaluation


def _refuse_sharded(state: Any) -> None:
    stage = getattr(state.deepspeed_plugin, "zero_stage", 0) if state.deepspeed_plugin else 0
    if state.distributed_type == DistributedType.FSDP or stage == 3:
        raise ConfigurationError(
            "VADEEvalCallback needs the whole weights on each process, and here they are sharded "
            f"({state.distributed_type}). Evaluate the checkpoints by `trl-vade evaluate`."
        )


def _score(benchmark: Benchmark, results: Mapping[str, Any]) -> float:
    value = results["results"].get(benchmark.task, {}).get(benchmark.key)
    if not isinstance(value, int | float) or value != value:
        raise EvaluationError(f"lmms-eval gave {benchmark.key} = {value!r} for {benchmark.task}: it scored nothing.")
    return 100.0 * value / benchmark.scale
