"""The policy in training as a model of lmms-eval, with the trainer's processor and settings."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from lmms_eval.api.model import lmms
from lmms_eval.evaluator import evaluate
from lmms_eval.tasks import TaskManager, get_task_dict
from transformers import GenerationConfig, set_seed
from trl.models import unwrap_model_for_generation

from trl_vade.errors import EvaluationError

from .benchmarks import Benchmark
from .corrections import correct
from .settings import Evaluation
from .tasks import task_folder


def run_tasks(model: Any, evaluation: Evaluation, benchmarks: Sequence[Benchmark]) -> dict[str, Any]:
    """Evaluate `model` in this process and return lmms-eval's results. Seeds the global random generators.

    lmms-eval's `simple_evaluate` would wait for the other processes, and patch file locks and SSL permanently.
    """
    correct(evaluation.instruction, evaluation.system_prompt)
    set_seed(evaluation.seeds[0])
    with task_folder(evaluation, benchmarks) as folder:
        names = [benchmark.task for benchmark in benchmarks]
        tasks = get_task_dict(names, TaskManager("ERROR", include_path=str(folder)), "chat")
        for benchmark in benchmarks:
            task, decoding = tasks[benchmark.task], vars(evaluation.generation.of(benchmark))
            model.task_dict[benchmark.task] = task.dataset
            task.set_config(key="generation_kwargs", value=decoding, update=True)
            task.set_config(key="num_fewshot", value=0)
        return evaluate(lm=model, task_dict=tasks, limit=evaluation.limit, bootstrap_iters=0)


class Policy(lmms):
    """Model of lmms-eval 0.7.3 that generates with the policy of a GRPOTrainer (TRL 1.16), until `stop()` is true."""

    is_simple = False  # it takes messages

    def __init__(self, trainer: Any, batch_size: int, stop: Callable[[], bool]):
        super().__init__()
        self.trainer, self.batch_size, self.stop = trainer, batch_size, stop
        self.accelerator = trainer.accelerator  # lmms-eval would make another
        self.device = trainer.accelerator.device
        self._rank, self._world_size = 0, 1

    def clean(self) -> None:
        """Do nothing. The parent's method would delete the model's weights."""

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

    loglikelihood = generate_until_multi_round = generate_until  # abstract; no benchmark here needs them

    def _answers(self, model: Any, requests: Sequence[tuple[Any, ...]]) -> list[str]:
        processor, settings = self.trainer.processing_class, requests[0][2]  # one task's settings are the same
        sees = hasattr(processor, "image_processor")
        rows = [(ask, self.task_dict[task][split][row]) for _, ask, _, row, task, split in requests]
        padding = {"padding": True, "padding_side": "left", "return_tensors": "pt"}
        inputs = processor.apply_chat_template(
            [as_conversation(ask(row), sees) for ask, row in rows],
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


def as_conversation(messages: Sequence[dict[str, Any]], sees: bool) -> list[dict[str, Any]]:
    """Return lmms-eval's messages in the form of transformers: with parts if the model `sees` images, else text."""
    if not sees:
        if any(part["type"] == "image" for message in messages for part in message["content"]):
            raise EvaluationError("This task's questions have images, but the policy has no image processor.")
        return [{**message, "content": "".join(part["text"] for part in message["content"])} for message in messages]

    def part_of(part: dict[str, Any]) -> dict[str, Any]:
        return {"type": "image", "image": part["url"]} if part["type"] == "image" else dict(part)

    return [{**message, "content": list(map(part_of, message["content"]))} for message in messages]
