"""`VADEEvalCallback`: small benchmarks during training that do not change the training."""

import os
import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.logging import get_logger
from accelerate.utils import DistributedType
from transformers import GenerationConfig, Trainer, TrainerCallback, set_seed
from trl.models import unwrap_model_for_generation

from trl_vade.checks import check_whole_number
from trl_vade.errors import ConfigurationError, EvaluationError
from trl_vade.trainer.checkpoint.preemption import LastCheckpoint

from .benchmarks import BENCHMARKS, find_benchmarks
from .corrections import correct
from .settings import Evaluation, Generation, check, instruction_text
from .tasks import task_folder

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
            raise ConfigurationError(f"{state.distributed_type} shards the weights. Use `trl-vade evaluate` instead.")

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
        """Evaluate the present policy on this process, and return its scores in per cent, by benchmark.

        lmms-eval's `simple_evaluate` would wait for the other processes, and patch file locks and SSL permanently.
        """
        asked, policy = self.evaluation, Policy(self.trainer, self.evaluation.batch_size, self._told_to_stop)
        tasks_made = task_folder(asked, self.benchmarks)
        with unchanged_process(), undisturbed(self.trainer.model), tasks_made as folder:
            correct(asked.instruction, asked.system_prompt)
            from lmms_eval.evaluator import evaluate
            from lmms_eval.tasks import TaskManager, get_task_dict

            set_seed(asked.seeds[0])
            names = [benchmark.task for benchmark in self.benchmarks]
            tasks = get_task_dict(names, TaskManager("ERROR", include_path=str(folder)), "chat")
            for benchmark in self.benchmarks:
                task, decoding = tasks[benchmark.task], vars(asked.generation.of(benchmark))
                policy.task_dict[benchmark.task] = task.dataset
                task.set_config(key="generation_kwargs", value=decoding, update=True)
                task.set_config(key="num_fewshot", value=0)
            found = evaluate(lm=policy, task_dict=tasks, limit=asked.limit, bootstrap_iters=0)["results"]
        return {one.name: 100.0 * found[one.task][one.key] for one in self.benchmarks}


@contextmanager
def unchanged_process() -> Iterator[None]:
    """Restore, after the block, the environment, warning filters and timeouts that lmms-eval 0.7.3 changes."""
    groups = torch.distributed.distributed_c10d
    environment, patience = dict(os.environ), groups.default_pg_timeout
    # As if there were one process, else lmms-eval would wait for the others.
    os.environ.update(RANK="0", WORLD_SIZE="1", PYTHON_DOTENV_DISABLED="1")
    try:
        with warnings.catch_warnings():
            yield
    finally:
        os.environ.clear()
        os.environ.update(environment)
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
        raise ConfigurationError(f"{', '.join(judged)} need a judge. If it hung, the training would wait.")
    greedy = Generation(0.0, max_new_tokens=args.max_completion_length, repetition_penalty=args.repetition_penalty)
    chosen = {"generation": generation or greedy, "limit": limit, "instruction": instruction_text(instruction)}
    evaluation = Evaluation("", Path(args.output_dir), tasks, seeds=[seed], **chosen, **options)
    check(evaluation)
    return evaluation


class Policy:
    """Model of lmms-eval 0.7.3 that generates with the policy of a GRPOTrainer (TRL 1.16), until `stop()` is true."""

    is_simple = False  # it takes messages
    rank = 0

    def __init__(self, trainer: Any, batch_size: int, stop: Callable[[], bool]):
        self.trainer, self.batch_size, self.stop = trainer, batch_size, stop
        self.accelerator = trainer.accelerator  # lmms-eval would make another
        self.device = trainer.accelerator.device
        self.task_dict: dict[str, Any] = {}

    def clean(self) -> None:
        """Do nothing: `clean` of lmms-eval's own models deletes their weights."""

    def generate_until(self, requests: Sequence[Any]) -> list[str]:
        """Generate the answers to the requests, in their order."""
        answers, failure = [], None
        kwargs = {"gradient_checkpointing_kwargs": self.trainer.args.gradient_checkpointing_kwargs}
        unwrapped = unwrap_model_for_generation(self.trainer.model_wrapped, self.accelerator, **kwargs)
        with unwrapped as model, torch.no_grad():
            try:
                for start in range(0, len(requests), self.batch_size):
                    if self.stop():
                        raise EvaluationError("a signal asked this process to stop")
                    batch = requests[start : start + self.batch_size]
                    answers += self._answers(model, [request.args for request in batch])
            except BaseException as error:  # TRL 1.16 restores gradient checkpointing only without an error
                failure = error
        if failure is not None:
            raise failure
        return answers

    def _answers(self, model: Any, requests: Sequence[tuple[Any, ...]]) -> list[str]:
        processor, settings = self.trainer.processing_class, requests[0][2]  # one task's settings are the same
        sees = hasattr(processor, "image_processor")
        asked = [ask(self.task_dict[task][split][row]) for _, ask, _, row, task, split in requests]
        padding = {"padding": True, "padding_side": "left", "return_tensors": "pt"}
        inputs = processor.apply_chat_template(
            asked if sees else list(map(as_texts, asked)),
            chat_template=self.trainer.chat_template,
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            **({"processor_kwargs": padding} if sees else padding),
            **self.trainer.chat_template_kwargs,
        ).to(self.device)
        output = model.generate(**inputs, generation_config=self._generation(model, settings))
        completions = output[:, inputs["input_ids"].shape[1] :]
        return processor.batch_decode(completions, skip_special_tokens=True)

    def _generation(self, model: Any, settings: dict[str, Any]) -> GenerationConfig:
        tokenizer = getattr(self.trainer.processing_class, "tokenizer", self.trainer.processing_class)
        image_token = getattr(model.config, "image_token_id", None)
        sampling = {name: settings[name] for name in ("temperature", "top_p", "top_k")}
        return GenerationConfig(
            max_new_tokens=settings["max_new_tokens"],
            **(sampling | {"do_sample": True} if settings["temperature"] > 0 else {"do_sample": False}),
            # None would be replaced by the model's generation_config, which training ignores, too.
            repetition_penalty=settings["repetition_penalty"],
            min_p=self.trainer.args.min_p,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=self.trainer.eos_token_ids,
            suppress_tokens=None if image_token is None else [image_token],  # as TRL 1.16 does
            disable_compile=True,
        )


def as_texts(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return lmms-eval's messages without parts, for a policy that sees no images."""
    if any(part["type"] == "image" for message in messages for part in message["content"]):
        raise EvaluationError("This task's questions have images, but the policy has no image processor.")
    return [{**message, "content": "".join(part["text"] for part in message["content"])} for message in messages]
