"""Corrections of lmms-eval 0.7.3 inside its process, each one a function with its fault."""

import functools
import os
import re
import sys
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from trl_vade.errors import EvaluationError
from trl_vade.rewards.arithmetic import value_of


def correct(instruction: str | None, system_prompt: str | None) -> None:
    """Correct lmms-eval 0.7.3 in this process.

    `instruction` ends every question, but rows in the trainer's form, which have their own. `system_prompt` begins it.
    """
    close_eval()
    from lmms_eval import tasks
    from lmms_eval.api.task import ConfigurableMessagesTask

    # Each manager indexes about a thousand task files, which takes three seconds; ours include them by path.
    tasks.TaskManager.__init__ = functools.partialmethod(tasks.TaskManager.__init__, include_defaults=False)
    stock = ConfigurableMessagesTask.doc_to_messages

    @functools.wraps(stock)  # models that take messages ignore a system prompt (models/chat/qwen2_5_vl.py)
    def with_texts(self: Any, row: dict[str, Any], **named: Any) -> Any:
        messages = stock(self, row, **named)
        if instruction and not callable(self.config.doc_to_messages):  # rows in the trainer's form have it already
            last = [part for part in messages[-1]["content"] if part["type"] == "text"][-1]
            last["text"] = f"{last['text']}\n\n{instruction}"
        if system_prompt and messages[0]["role"] != "system":
            messages.insert(0, {"role": "system", "content": [{"type": "text", "text": system_prompt}]})
        return messages

    ConfigurableMessagesTask.doc_to_messages = with_texts


def keep_one_model(name: str, arguments: Mapping[str, Any], repetition_penalty: float) -> None:
    """Load a model once, before a run is seeded; lmms-eval loads one for each, and `clean()` deletes its weights."""
    import torch
    from lmms_eval import evaluator, models
    from transformers import AutoImageProcessor

    more = dict(arguments)
    if name == "qwen2_5_vl":
        # The default "auto" sends inputs to "cuda", which may not exist.
        more["device"] = more["device_map"] = "cuda" if torch.cuda.is_available() else "cpu"
        # Images are bound as in training. lmms-eval's own bounds (models/simple/qwen2_5_vl.py) enlarge small ones.
        size = AutoImageProcessor.from_pretrained(more["pretrained"]).size
        more = {"min_pixels": size["shortest_edge"], "max_pixels": size["longest_edge"]} | more
        load_whole_models(repetition_penalty)
    if name == "openai":  # the plan is a file, so it must not hold the key
        more["api_key"] = os.environ.get("VADE_SERVER_API_KEY") or "EMPTY"
    model = models.get_model(name)(**more)
    model.clean = lambda: None
    evaluator.models.get_model = lambda *args, **named: SimpleNamespace(create_from_arg_string=lambda *args: model)


def load_whole_models(repetition_penalty: float = 1.0) -> None:
    """Refuse checkpoints that lack weights, and ignore the settings of the model's `generation_config.json`.

    transformers 5.23 only warns and takes random weights. The file's settings, such as Qwen2.5-VL's repetition penalty
    of 1.05, would apply here alone: lmms-eval sends the given one to vLLM, but not to transformers.
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


_IGNORED = re.compile(
    r"\$|\\(?:left|right|boxed)(?![a-z])|\\[,! ]|\^(?:\\circ|\{\\circ\})|(?<=\d),(?=\d{3}(?!\d))|(?<=\d)\.(?!\d)"
)
_MIXED = re.compile(r"(?<![\d.}])(\d+)(\\frac\{[^{}]*\}\{[^{}]*\})")  # two and a half
_UNKNOWN = re.compile(r"sqrt|√|pi|π")


def close_eval() -> None:
    """Let lmms-eval's rules for MathVision take values from `value`, a parser that executes nothing.

    They pass `str(latex2sympy(answer))` to Python's `eval` (tasks/mathvision/eval_utils.py), so an answer can run
    code, or never end. That `eval` knows no function of sympy, so only arithmetic ever had a value there. Its
    latex2sympy2 cannot be imported beside math-verify 0.9.0.
    """
    sys.modules.setdefault("latex2sympy2", SimpleNamespace(latex2sympy=value))  # type: ignore[arg-type]
    from lmms_eval.tasks.mathvision import eval_utils

    eval_utils.latex2sympy, eval_utils.eval = value, float  # the name in the module hides the built-in one


def value(latex: str) -> float:
    r"""Return the value of numbers, also degrees, with + - * / ^ %, fractions and brackets, or an ArithmeticError."""
    text = re.sub(r"\\[dt]frac(?![a-z])", r"\\frac", _IGNORED.sub("", latex))
    text = re.sub(r"\\?%", "/100", _MIXED.sub(r"(\1+\2)", text))
    found = None if _UNKNOWN.search(text) else value_of(text)
    if found is None or not found[1]:
        raise ArithmeticError(f"{latex!r} is not arithmetic")
    return found[0]
