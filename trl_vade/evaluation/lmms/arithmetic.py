"""The value of an answer in LaTeX, found by a parser that executes nothing.

lmms-eval 0.7.3 scores MathVision by rules that pass `str(latex2sympy(answer))` to Python's `eval`
(tasks/mathvision/eval_utils.py). An answer of the model can so run code, or never end. `close_eval` puts this parser
in the place of both. The names of functions that sympy writes, such as `sqrt`, are unknown to that `eval`, so only
numbers and arithmetic ever had a value there.
"""

import re
import sys
from fractions import Fraction
from types import SimpleNamespace

_IGNORED = re.compile(r"\$|\\(?:left|right|boxed)(?![a-z])|\\[,! ]|\^(?:\\circ|\{\\circ\})|(?<=\d),(?=\d{3}(?!\d))")
_TOKEN = re.compile(r"\d+\.?\d*|\.\d+|\\(?:[a-z]+|%)|[-+*/^(){}%]|\s+")
_TIMES, _OVER = ("*", "\\times", "\\cdot"), ("/", "\\div")
_FRACTIONS = ("\\frac", "\\dfrac", "\\tfrac")
_CLOSING = {"(": ")", "{": "}"}
_LARGEST = 4096  # bits of an exact power


def close_eval() -> None:
    """Let lmms-eval's rules for MathVision take values from `value`, and evaluate no text."""
    sys.modules.setdefault("latex2sympy2", SimpleNamespace(latex2sympy=value))  # type: ignore[arg-type]
    from lmms_eval.tasks.mathvision import eval_utils

    eval_utils.latex2sympy, eval_utils.eval = value, _number  # the name in the module hides the built-in one


def _number(text: str) -> int | float:
    """Return the number that Python's `eval` would make of a fraction, so that it is rounded as there."""
    found = Fraction(text)
    return found.numerator if found.denominator == 1 else float(found)


def value(latex: str) -> Fraction:
    r"""Return the value of numbers with + - * / ^ %, fractions and brackets; anything else is an ArithmeticError.

    Degrees have the value of their number, and 2\frac{1}{2} is two and a half.
    """
    text = _IGNORED.sub("", latex)
    found = _TOKEN.findall(text)
    if "".join(found) != text:
        raise ArithmeticError(f"{latex!r} is not arithmetic")
    tokens = [*filter(str.strip, found), ""]
    result = _sum(tokens)
    if tokens != [""]:
        raise ArithmeticError(f"{latex!r} does not end where its value does")
    return result


def _sum(tokens: list[str]) -> Fraction:
    found = _product(tokens)
    while tokens[0] in ("+", "-"):
        sign = 1 if tokens.pop(0) == "+" else -1
        found += sign * _product(tokens)
    return found


def _product(tokens: list[str]) -> Fraction:
    found = _signed(tokens)
    while tokens[0] in (*_TIMES, *_OVER, *_FRACTIONS, "("):
        over = tokens[0] in _OVER
        if over or tokens[0] in _TIMES:
            tokens.pop(0)
        found = found / _signed(tokens) if over else found * _signed(tokens)
    return found


def _signed(tokens: list[str]) -> Fraction:
    if tokens[0] in ("+", "-"):
        return (1 if tokens.pop(0) == "+" else -1) * _signed(tokens)
    base = _atom(tokens)
    while tokens[0] in ("%", "\\%"):
        base, _ = base / 100, tokens.pop(0)
    if tokens[0] != "^":
        return base
    tokens.pop(0)
    exponent = _signed(tokens)
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    if exponent.denominator == 1 and bits * abs(exponent) <= _LARGEST:
        return base**exponent.numerator
    return Fraction(float(base) ** float(exponent))  # an OverflowError or a TypeError, if it is no real number


def _atom(tokens: list[str]) -> Fraction:
    token = tokens.pop(0)
    if token in _FRACTIONS:
        return _atom(tokens) / _atom(tokens)
    if token in _CLOSING:
        found = _sum(tokens)
        if tokens.pop(0) != _CLOSING[token]:
            raise ArithmeticError("a bracket is open")
        return found
    if not token[:1].isdigit() and token[:1] != ".":
        raise ArithmeticError(f"{token!r} is not a number")
    found = Fraction(token)
    mixed = found.denominator == 1 and tokens[0] in _FRACTIONS
    return found + _atom(tokens) if mixed else found
