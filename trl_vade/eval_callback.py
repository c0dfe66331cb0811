"""`VADEEvalCallback`: a small benchmark during training, which the training does not feel."""

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.logging import get_logger
from accelerate.utils import DistributedType
from transformers import Trainer, TrainerCallback

from .benchmarks import Benchmark
from .checks import check_whole_number
from .errors import ConfigurationError, EvaluationError
from .eval_settings import Evaluation, Generation, check
from .lmms_tasks import default_rows, task_folder

logger = get_logger(__name__)


class VADEEvalCallback(TrainerCallback):
    """Run benchmarks by lmms-eval inside the training, on the policy as it is, every so many optimiser steps.

        trainer.add_callback(VADEEvalCallback(trainer, ["scienceqa", "chartqa"], every_steps=50, limit=64))

    The scores, in per cent, go to the log as `lmms/<benchmark>`. All generators' states and the modes of all modules
    are put back: weights, choices and rollouts are bit for bit those of a training without it. An evaluation that
    fails is logged, and the training goes on.

    The policy generates with transformers, under vLLM too, with the trainer's processor. Weights that are sharded
    (FSDP, DeepSpeed ZeRO-3) are refused: evaluate their checkpoints by `trl-vade evaluate`.

    Args:
        trainer: the trainer that it is added to.
        tasks: names of `benchmarks.BENCHMARKS`, none that needs a judge: its death would hold the training up.
        every_steps: optimiser steps between evaluations; the first is after so many.
        limit: questions of each benchmark, always the same.
        data: by benchmark, a folder with its rows, in place of the Hub; `mixture` needs one.
        generation: how answers are sampled; by default greedily, with the trainer's `max_completion_length`.
        batch_size: questions at a time, on each process.
        seed: of the answers, where they are sampled; the same each time.
        instruction: added to every question.
        system_prompt: said before every question.

    Raises:
        ConfigurationError: it cannot work here; no model was asked.
    """

    def __init__(
        self,
        trainer: Any,
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
    ):
        advice = "Give the optimiser steps from one evaluation to the next."
        check_whole_number("every_steps", every_steps, minimum=1, advice=advice)
        generation = generation or Generation(temperature=0.0, max_new_tokens=trainer.args.max_completion_length)
        self.evaluation = Evaluation(
            model="",
            output=Path(trainer.args.output_dir),
            tasks=list(tasks),
            seeds=[seed],
            limit=limit,
            generation=generation,
            batch_size=batch_size,
            data=default_rows(tasks) | dict(data or {}),
        )
        self.trainer, self.every_steps, self.texts = trainer, every_steps, (instruction, system_prompt)
        self.benchmarks = _fit(self.evaluation, trainer)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Evaluate after every `every_steps`-th optimiser step."""
        if state.global_step % self.every_steps:
            return
        try:
            scores = self.evaluate()
        except Exception as error:  # of whatever kind: a training is worth more than its evaluation
            attempts = getattr(error, "last_attempt", None)  # lmms-eval tries several times to make a task
            cause = (attempts and attempts.exception()) or error
            logger.error(f"The evaluation at step {state.global_step} failed: {type(cause).__name__}: {cause}")
            return
        if scores:
            asked = control.should_log
            # GRPOTrainer's own `log` would hand out, and forget, what it has gathered since the last one. This one
            # clears the mark by which the step's own log is about to be written.
            Trainer.log(self.trainer, {f"lmms/{name}": score for name, score in scores.items()})
            control.should_log = asked

    def evaluate(self) -> dict[str, float]:
        """Scores of the policy as it is, in per cent, by benchmark; {} on all processes but the first."""
        with undisturbed(self.trainer.model):
            from lmms_eval.evaluator import simple_evaluate
            from lmms_eval.tasks import TaskManager

            from .lmms_policy import Policy
            from .lmms_runner import correct

            correct(*self.texts)
            seed = self.evaluation.seeds[0]
            with task_folder(self.benchmarks, self.evaluation.data) as tasks:
                results = simple_evaluate(
                    model=Policy(self.trainer, self.evaluation.batch_size),
                    tasks=[benchmark.task for benchmark in self.benchmarks],
                    task_manager=TaskManager("ERROR", include_path=str(tasks)),
                    gen_kwargs=",".join(f"{name}={value}" for name, value in vars(self.evaluation.generation).items()),
                    limit=self.evaluation.limit,
                    bootstrap_iters=0,
                    random_seed=seed,
                    numpy_random_seed=seed,
                    torch_random_seed=seed,
                    fewshot_random_seed=seed,
                )
        return {benchmark.name: _score(benchmark, results) for benchmark in self.benchmarks} if results else {}


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


def _fit(evaluation: Evaluation, trainer: Any) -> list[Benchmark]:
    """The benchmarks, if they and this trainer go together."""
    benchmarks = check(evaluation, judged=False)
    if judged := [benchmark.name for benchmark in benchmarks if benchmark.judged]:
        raise ConfigurationError(
            f"VADEEvalCallback with {', '.join(judged)}: a language model judges the answers there, and where it is "
            "slow or dead the training would wait for it. Evaluate the checkpoints by `trl-vade evaluate`."
        )
    state = trainer.accelerator.state
    stage = getattr(state.deepspeed_plugin, "zero_stage", 0) if state.deepspeed_plugin else 0
    if state.distributed_type == DistributedType.FSDP or stage == 3:
        raise ConfigurationError(
            "VADEEvalCallback needs the whole weights on each process, and here they are sharded "
            f"({state.distributed_type}). Evaluate the checkpoints by `trl-vade evaluate`."
        )
    return benchmarks


def _score(benchmark: Benchmark, results: Mapping[str, Any]) -> float:
    value = results["results"].get(benchmark.task, {}).get(benchmark.key)
    if not isinstance(value, int | float) or value != value:
        raise EvaluationError(f"lmms-eval gave {benchmark.key} = {value!r} for {benchmark.task}: it scored nothing.")
    return 100.0 * value / benchmark.scale
