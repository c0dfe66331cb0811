"""`python -m trl_vade.evaluation.lmms.runner PLAN`: lmms-eval 0.7.3, corrected, one model for all runs of a plan.

Started by `run`, in a process of its own. What is wrong with lmms-eval 0.7.3, and where that is dealt with:

* It does not name all its requirements (decord, Levenshtein, this math-verify): our extra `eval` does.
* `latex2sympy2` cannot be imported beside math-verify 0.9.0, and rule-based MathVision dies of a NameError: `correct`.
* `lm.clean()` deletes the model after each evaluation: `_one_model`.
* Each command indexes some thousand task files, for three seconds: `correct`.
* A system prompt reaches no model that is asked by messages, as all of ours are: `correct`.
* HF_TOKEN is printed, and read from a `.env` file: `process` strips it, and tells python-dotenv to read none.
* A checkpoint without some of its weights is evaluated with random ones, and the model's own `generation_config.json`
  has a say: `_load_whole_models`.
* An answer that could not be read is the shortest choice in MathVista: `scoring.mathvista`.
* MathVision's rules hand answers to Python's `eval`, which may never end: `scoring.mathvision_rules`.
* An error ends with exit code 0: `_run` calls the part that raises, and `summary` believes files alone.
* A dead judge is 0 points, and a verdict is whatever has a "1" in it: `judge_guard.JudgeGuard`.
* None stands for accuracy 0, and the error text of a failed request for an answer: `summary`.
* `<answer>` tags are part of the answer: `scoring`, by the tasks in `eval/tasks/`.
* A task with a built-in name and local rows is ignored: our tasks have other names (`benchmarks`).
* Greedy tasks with 16 new tokens; `-n 4` scores the first answer alone: `run` gives seeds and all settings.
* Pictures are resized to other bounds than the model's own: `models.picture_sizes`.
* vLLM is allowed to execute code of the model's repository: `models.model_arguments`.
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

from .judge_guard import JudgeGuard


def main(plan_file: str) -> None:
    """Do the runs of a plan, one after the other.

    Args:
        plan_file: JSON: `model` and `arguments` (lmms-eval's name of the backend and what its class takes), `tasks`
            (the folder of the tasks), `device`, `judge_delay`, `instruction`, `system_prompt`, `done` (a folder),
            `parent` (a pipe that ends with the process that made the plan), and `runs`: for each `task`, `folder`,
            `judged` and `options` of lmms-eval. `done/<number>` appears after each.
    """
    plan = json.loads(Path(plan_file).read_text(encoding="utf-8"))
    threading.Thread(target=_end_with_parent, args=[plan["parent"]], daemon=True).start()
    os.chdir(plan["done"])
    correct(plan["instruction"], plan["system_prompt"])
    guard = JudgeGuard(delay=plan["judge_delay"], patience=6 * plan["judge_delay"])
    if any(run["judged"] for run in plan["runs"]):
        guard.install()
    _one_model(plan["model"], plan["arguments"], plan["device"])
    for number, run in enumerate(plan["runs"]):
        guard.reset()
        _run(run, plan)
        if run["judged"]:
            report = json.dumps(guard.report(), ensure_ascii=False)
            Path(run["folder"], "judge.json").write_text(report, encoding="utf-8")
        Path(plan["done"], str(number)).touch()


def correct(instruction: str | None = None, system_prompt: str | None = None) -> None:
    """Correct lmms-eval 0.7.3 in this process; see the list above. A second call changes the two texts alone.

    Args:
        instruction: added to the text of every question, after a blank line; rows in the trainer's form have theirs.
        system_prompt: said before every question that does not begin with one of its own.
    """
    alias_latex2sympy()
    from lmms_eval import tasks
    from lmms_eval.api.task import ConfigurableMessagesTask

    if not hasattr(ConfigurableMessagesTask.doc_to_messages, "__wrapped__"):
        tasks.TaskManager.__init__ = _without_built_in(tasks.TaskManager.__init__)
        ConfigurableMessagesTask.doc_to_messages = _with_texts(ConfigurableMessagesTask.doc_to_messages)
    ConfigurableMessagesTask.vade_texts = (instruction, system_prompt)


def alias_latex2sympy() -> None:
    """`tasks/mathvision/eval_utils.py` imports latex2sympy2, which needs another antlr4 than math-verify 0.9.0 has.

    The failure is caught there, and every row then ends in `NameError: is_number`. `latex2sympy2_extended`, which
    math-verify brings, has the function under the same name.
    """
    from latex2sympy2_extended import latex2sympy2 as extended

    sys.modules["latex2sympy2"] = extended


def _without_built_in(initialise: Any) -> Any:
    """A `TaskManager` that is given a folder looks there only: our files include lmms-eval's by their path."""

    @functools.wraps(initialise)
    def light(self: Any, *args: Any, include_path: Any = None, **named: Any) -> None:
        initialise(self, *args, include_path=include_path, include_defaults=include_path is None, **named)

    return light


def _with_texts(doc_to_messages: Any) -> Any:
    """Messages with the instruction and the system prompt. The model's own `system_prompt` is read by none of the
    classes that are asked by messages (models/chat/qwen2_5_vl.py, vllm.py, openai.py).
    """

    @functools.wraps(doc_to_messages)
    def with_texts(self: Any, row: dict[str, Any], **named: Any) -> Any:
        instruction, system_prompt = self.vade_texts
        messages = doc_to_messages(self, row, **named)
        if instruction and not callable(self.config.doc_to_messages):  # rows of the trainer's have it already
            last = [part for part in messages[-1]["content"] if part["type"] == "text"][-1]
            last["text"] = f"{last['text']}\n\n{instruction}"
        if system_prompt and messages[0]["role"] != "system":
            messages.insert(0, {"role": "system", "content": [{"type": "text", "text": system_prompt}]})
        return messages

    return with_texts


def _end_with_parent(line: int) -> None:
    """Wait until a pipe from the process that started this one ends, which is when that is no more; end the group."""
    os.read(line, 1)
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _one_model(name: str, arguments: Mapping[str, Any], device: str | None) -> None:
    """Load the model now, and let every evaluation of this process have this one.

    It is loaded before the first run is seeded, so that no run depends on whether it was the first.
    """
    import torch
    from lmms_eval import evaluator, models

    more: dict[str, Any] = {}
    if name == "qwen2_5_vl":  # with "auto", its default, it sends its inputs to "cuda", which may not be there
        more["device"] = more["device_map"] = device or ("cuda" if torch.cuda.is_available() else "cpu")
        _load_whole_models()
    if name == "openai":  # a plan is a file, and holds no secret
        more["api_key"] = os.environ.get("VADE_SERVER_API_KEY") or "EMPTY"
    model = models.get_model(name)(**arguments, **more)
    model.clean = lambda: None  # the parent's deletes the weights

    class One:
        """Stands for the class of the model, of which lmms-eval makes an instance for each evaluation."""

        create_from_arg_string = staticmethod(lambda *args: model)

    evaluator.models.get_model = lambda *args, **named: One


def _load_whole_models() -> None:
    """Refuse a checkpoint that lacks weights, for which transformers 5.23 takes random ones with a warning; and sample
    as was asked, and not also by what else the model's `generation_config.json` has, such as a repetition penalty:
    lmms-eval tells vLLM nothing of that.
    """
    from transformers import GenerationConfig, Qwen2_5_VLForConditionalGeneration

    load = Qwen2_5_VLForConditionalGeneration.from_pretrained

    def whole(name: str, **named: Any) -> Any:
        model, report = load(name, output_loading_info=True, **named)
        lacking = sorted(map(str, [*report["missing_keys"], *report["mismatched_keys"]]))
        if lacking:
            raise EvaluationError(
                f"The weights of {name} lack {len(lacking)} tensors of the model, or have them in another shape, the "
                f"first {lacking[0]}: random ones would be evaluated. Save the model again with save_pretrained()."
            )
        ends = {key: getattr(model.generation_config, key) for key in ("bos_token_id", "eos_token_id", "pad_token_id")}
        model.generation_config = GenerationConfig(**ends)
        return model

    Qwen2_5_VLForConditionalGeneration.from_pretrained = whole


def _run(run: Mapping[str, Any], plan: Mapping[str, Any]) -> None:
    """One evaluation by lmms-eval's own command line, less what turns an exception into exit code 0."""
    from lmms_eval import __main__ as command

    os.chdir(run["folder"])  # `--output_path .`: lmms-eval splits the path at commas, and writes it into its files
    sys.argv = ["lmms-eval", *run["options"], "--include_path", plan["tasks"]]
    _, options = command.parse_eval_args()
    started = time.monotonic()
    command.cli_evaluate_single(options)
    print(f"trl_vade: {run['task']} took {time.monotonic() - started:.1f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
