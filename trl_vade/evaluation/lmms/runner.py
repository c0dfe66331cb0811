"""`python -m trl_vade.evaluation.lmms.runner PLAN`: corrected lmms-eval 0.7.3, one model for all runs of a plan.

`run` starts it in a process of its own. The faults of lmms-eval 0.7.3, and where they are corrected:

* Some requirements are not declared (decord, Levenshtein, this math-verify): the extra `eval` declares them.
* MathVision's rules pass answers to Python's `eval`, by a latex2sympy2 that cannot be imported beside math-verify
  0.9.0: `arithmetic`.
* `lm.clean()` deletes the model after each evaluation: `_one_model`.
* Each command indexes about a thousand task files, which takes three seconds: `correct`.
* A system prompt does not reach models that take messages: `correct`.
* HF_TOKEN is printed, and read from a `.env` file: `process` removes it and disables python-dotenv.
* Missing weights of a checkpoint become random, and `generation_config.json` changes the decoding:
  `_load_whole_models`.
* In MathVista, an unreadable answer becomes a near choice, and no float is right: `scoring.mathvista`.
* Errors end with exit code 0: `_run` calls the part that raises, and `summary` trusts only complete files.
* A dead judge scores 0, and every text with a "1" is a verdict: `judge_guard.JudgeGuard`.
* The error text of a failed request counts as an answer: `samples`. MathVista's accuracy 0 is None: `scoring.mean`.
* `<answer>` tags stay in the answer: `scoring`, with the tasks in `eval/tasks/`.
* A task with a built-in name and local rows is ignored: our tasks have other names (`benchmarks`).
* Tasks are greedy with 16 new tokens, and `-n 4` scores only the first answer: `run` sets seeds and all settings.
* Images are resized to other bounds than the model's: `models.picture_sizes`.
* vLLM may execute code of the model's repository: `models.model_arguments`.
"""

import functools
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trl_vade.errors import EvaluationError

from .arithmetic import close_eval
from .judge_guard import JudgeGuard


def main(plan_file: str) -> None:
    """Do the runs of a plan, one after the other. Creates `done/<number>` after each run.

    Args:
        plan_file: a JSON file with `model` and `arguments` (lmms-eval's name of the backend and the arguments of its
            class), `tasks` (the folder of the tasks), `device`, `repetition_penalty`, `judge_delay`, `instruction`,
            `system_prompt`, `done` (a folder), `parent` (a pipe that closes with the parent process), and `runs`: for
            each run its `task`, `folder`, `judged`, and the `options` of lmms-eval.
    """
    plan = json.loads(Path(plan_file).read_text(encoding="utf-8"))
    threading.Thread(target=_end_with_parent, args=[plan["parent"]], daemon=True).start()
    os.chdir(plan["done"])
    correct(plan["instruction"], plan["system_prompt"])
    guard = JudgeGuard(delay=plan["judge_delay"], patience=6 * plan["judge_delay"])
    if any(run["judged"] for run in plan["runs"]):
        guard.install()
    _one_model(plan)
    for number, run in enumerate(plan["runs"]):
        guard.reset()
        _run(run, plan)
        if run["judged"]:
            report = json.dumps(guard.report(), ensure_ascii=False)
            Path(run["folder"], "judge.json").write_text(report, encoding="utf-8")
        Path(plan["done"], str(number)).touch()


def correct(instruction: str | None = None, system_prompt: str | None = None) -> None:
    """Correct lmms-eval 0.7.3 in this process; see the list above. A second call changes only the two texts.

    Args:
        instruction: text to add to every question, after a blank line. Rows in the trainer's form have their own.
        system_prompt: system prompt before every question that has none of its own.
    """
    close_eval()
    from lmms_eval import tasks
    from lmms_eval.api.task import ConfigurableMessagesTask

    if not hasattr(ConfigurableMessagesTask.doc_to_messages, "__wrapped__"):
        tasks.TaskManager.__init__ = _without_built_in(tasks.TaskManager.__init__)
        ConfigurableMessagesTask.doc_to_messages = _with_texts(ConfigurableMessagesTask.doc_to_messages)
    ConfigurableMessagesTask.vade_texts = (instruction, system_prompt)


def _without_built_in(initialise: Any) -> Any:
    """Wrap `TaskManager.__init__`: with a folder it looks only there. Our files include lmms-eval's by path."""

    @functools.wraps(initialise)
    def light(self: Any, *args: Any, include_path: Any = None, **named: Any) -> None:
        initialise(self, *args, include_path=include_path, include_defaults=include_path is None, **named)

    return light


def _with_texts(doc_to_messages: Any) -> Any:
    """Wrap `doc_to_messages`: add the instruction and the system prompt to the messages.

    The models that take messages ignore their own `system_prompt` (models/chat/qwen2_5_vl.py, vllm.py, openai.py).
    """

    @functools.wraps(doc_to_messages)
    def with_texts(self: Any, row: dict[str, Any], **named: Any) -> Any:
        instruction, system_prompt = self.vade_texts
        messages = doc_to_messages(self, row, **named)
        if instruction and not callable(self.config.doc_to_messages):  # rows in the trainer's form have it already
            last = [part for part in messages[-1]["content"] if part["type"] == "text"][-1]
            last["text"] = f"{last['text']}\n\n{instruction}"
        if system_prompt and messages[0]["role"] != "system":
            messages.insert(0, {"role": "system", "content": [{"type": "text", "text": system_prompt}]})
        return messages

    return with_texts


def _end_with_parent(line: int) -> None:
    """Wait until the pipe of the parent process closes, then end this process group."""
    os.read(line, 1)
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _one_model(plan: Mapping[str, Any]) -> None:
    """Load the model of a plan now, and use it for every evaluation of this process.

    It is loaded before the first run is seeded, so that no run depends on its place.
    """
    import torch
    from lmms_eval import evaluator, models

    name, more = plan["model"], dict(plan["arguments"])
    if name == "qwen2_5_vl":  # the default "auto" sends inputs to "cuda", which may not exist
        more["device"] = more["device_map"] = plan["device"] or ("cuda" if torch.cuda.is_available() else "cpu")
        _load_whole_models(plan["repetition_penalty"])
    if name == "openai":  # the plan is a file, so it must not hold the key
        more["api_key"] = os.environ.get("VADE_SERVER_API_KEY") or "EMPTY"
    model = models.get_model(name)(**more)
    model.clean = lambda: None  # the parent's method deletes the weights

    class One:
        """Replacement for the model's class, of which lmms-eval makes an instance for each evaluation."""

        create_from_arg_string = staticmethod(lambda *args: model)

    evaluator.models.get_model = lambda *args, **named: One


def _load_whole_models(repetition_penalty: float = 1.0) -> None:
    """Refuse checkpoints that lack weights, and ignore the settings of the model's `generation_config.json`.

    transformers 5.23 only warns and takes random weights. The file's settings would apply with transformers alone,
    such as Qwen2.5-VL's repetition penalty of 1.05. lmms-eval sends the given one to vLLM, but not to transformers.
    """
    from transformers import GenerationConfig, Qwen2_5_VLForConditionalGeneration

    load = Qwen2_5_VLForConditionalGeneration.from_pretrained

    def whole(name: str, **named: Any) -> Any:
        model, report = load(name, output_loading_info=True, **named)
        lacking = sorted(map(str, [*report["missing_keys"], *report["mismatched_keys"]]))
        if lacking:
            raise EvaluationError(
                f"The weights of {name} lack {len(lacking)} tensors of the model, or have them in another shape "
                f"(first: {lacking[0]}). Random ones would be evaluated. Save the model again with save_pretrained()."
            )
        ends = {key: getattr(model.generation_config, key) for key in ("bos_token_id", "eos_token_id", "pad_token_id")}
        model.generation_config = GenerationConfig(**ends, repetition_penalty=repetition_penalty)
        return model

    Qwen2_5_VLForConditionalGeneration.from_pretrained = whole


def _run(run: Mapping[str, Any], plan: Mapping[str, Any]) -> None:
    """Run an evaluation by lmms-eval's command line, without the part that turns an exception into exit code 0."""
    from lmms_eval import __main__ as command

    os.chdir(run["folder"])  # `--output_path .`: lmms-eval splits the path at commas, and writes it into its files
    sys.argv = ["lmms-eval", *run["options"], "--include_path", plan["tasks"]]
    _, options = command.parse_eval_args()
    started = time.monotonic()
    command.cli_evaluate_single(options)
    print(f"trl_vade: {run['task']} took {time.monotonic() - started:.1f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
