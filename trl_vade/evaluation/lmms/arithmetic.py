"""The value of an answer in LaTeX for lmms-eval's rules, by a parser that executes nothing.

lmms-eval 0.7.3 scores MathVision by rules that pass `str(latex2sympy(answer))` to Python's `eval`
(tasks/mathvision/eval_utils.py). An answer of the model can so run code, or never end. `close_eval` puts the rewards'
parser in the place of both. The names of functions that sympy writes, such as `sqrt`, are unknown to that `eval`, so
only numbers and arithmetic ever had a value there.
"""

import re
import sys
from types import SimpleNamespace

from trl_vade.rewards.arithmetic import value_of

_IGNORED = re.compile(
    r"\$|\\(?:left|right|boxed)(?![a-z])|\\[,! ]|\^(?:\\circ|\{\\circ\})|(?<=\d),(?=\d{3}(?!\d))|(?<=\d)\.(?!\d)"
)
_MIXED = re.compile(r"(?<![\d.}])(\d+)(\\frac\{[^{}]*\}\{[^{}]*\})")  # two and a half
_UNKNOWN = re.compile(r"sqrt|√|pi|π")


def close_eval() -> None:
    """Let lmms-eval's rules for MathVision take values from `value`, and evaluate no text."""
    sys.modules.setdefault("latex2sympy2", SimpleNamespace(latex2sympy=value))  # type: ignore[arg-type]
    from lmms_eval.tasks.mathvision import eval_utils

    eval_utils.latex2sympy, eval_utils.eval = value, float  # the name in the module hides the built-in one


def value(latex: str) -> float:
    r"""Return the value of numbers with + - * / ^ %, fractions and brackets; anything else is an ArithmeticError.

    Degrees have the value of their number, and 2\frac{1}{2} is two and a half.
    """
    text = re.sub(r"\\[dt]frac(?![a-z])", r"\\frac", _IGNORED.sub("", latex))
    text = re.sub(r"\\?%", "/100", _MIXED.sub(r"(\1+\2)", text))
    found = None if _UNKNOWN.search(text) else value_of(text)
    if found is None or not found[1]:
        raise ArithmeticError(f"{latex!r} is not arithmetic")
    return found[0]
