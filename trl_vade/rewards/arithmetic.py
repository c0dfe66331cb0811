r"""The value of a formula of roots, pi, powers, fractions and letters, in float arithmetic.

Nothing is executed or compiled: Python's parser reads the tokens, and five operations work on floats.
"""

import ast
import math
import operator
import re
from collections.abc import Callable

LONGEST = 200  # tokens

_INNERMOST = [
    (re.compile(r"\\frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}"), r"((\1)/(\2))"),
    (re.compile(r"(?:\\sqrt|√)\s*\[\s*(\d)\s*\]\s*\{([^{}]*)\}"), r"((\2)^(1/\1))"),
    (re.compile(r"(?:\\sqrt|√)\s*\{([^{}]*)\}"), r"sqrt(\1)"),
    (re.compile(r"\^\s*\{([^{}]*)\}"), r"^(\1)"),
]
_SPELLINGS = [
    (re.compile("\\\\(?:cdot|times)(?![a-zA-Z])|[\u00d7\u00b7]|(?<=\\d)\\s*x\\s*(?=10\\^)"), "*"),
    (re.compile(r"\\div(?![a-zA-Z])|÷"), "/"),
    (re.compile(r"\\pi(?![a-zA-Z])|π"), " pi "),
    (re.compile(r"(?:√|(?<!\\)sqrt)\s*(\d+(?:\.\d+)?|[a-z])"), r"sqrt(\1)"),
    (re.compile(r"\\sqrt\s*(\d(?!\d)|[a-z])"), r"sqrt(\1)"),
    (re.compile(r"√|\\sqrt"), "sqrt"),
    (re.compile(r"(?<![\d,])(\d{1,3}(?:,\d{3})+)(?![\d,])"), lambda m: m[1].replace(",", "")),
    (re.compile(r"\*\*"), "^"),
]
_TOKEN = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+|sqrt|pi|[^\W\d_]|[-+*/^()])")
_NUMBER = re.compile(r"[\d.]+")
_WORD = re.compile(r"[a-zA-Z]{3}|(?<![a-zA-Z])(?:ln|or|to|is|in|at|of|by)(?![a-zA-Z])")
_OPERATIONS: dict[type[ast.AST], Callable[..., float]] = {ast.Add: operator.add, ast.Sub: operator.sub}
_OPERATIONS |= {ast.Mult: operator.mul, ast.Div: operator.truediv, ast.Pow: operator.pow}
_OPERATIONS |= {ast.UAdd: operator.pos, ast.USub: operator.neg}


def value_of(formula: str) -> tuple[float, bool] | None:
    """Return the value of `formula` and whether it is without letters; None if it cannot be read.

    Each letter has a value of its own, always the same: formulas with different values are different.
    """
    tokens = _tokens(formula)
    if not 0 < len(tokens) <= LONGEST:
        return None
    written = [repr(float(token)) if _NUMBER.fullmatch(token) else token.replace("^", "**") for token in tokens]
    try:
        value = _value(ast.parse(" ".join(written), mode="eval").body)
    except (SyntaxError, ValueError, ArithmeticError, TypeError, RecursionError, MemoryError):
        return None
    if not isinstance(value, float) or not math.isfinite(value):  # a root may be a complex number
        return None
    return value, not any(token.isalpha() and token not in ("sqrt", "pi") for token in tokens)


def _tokens(formula: str) -> list[str]:
    """Return the tokens, with each product written out; [] for anything else than a formula."""
    for _ in range(20):
        before = formula
        for pattern, replacement in _INNERMOST:
            formula = pattern.sub(replacement, formula)
        if formula == before:
            break
    for pattern, replacement in _SPELLINGS:
        formula = pattern.sub(replacement, formula)
    formula = formula.replace("{", "(").replace("}", ")")
    found = _TOKEN.findall(formula)
    if _WORD.search(re.sub("sqrt|pi", " ", formula)) or "".join(found) != "".join(formula.split()):
        return []
    tokens: list[str] = []
    for token in found:
        if tokens and (tokens[-1].isalnum() or tokens[-1] == ")" or "." in tokens[-1]) and tokens[-1] != "sqrt":
            if token[0].isdigit() or token[0] == ".":
                return []  # two numbers, or an index
            if token.isalpha() or token == "(":
                tokens.append("*")
        tokens.append(token)
    return tokens


def _value(node: ast.expr) -> float:
    match node:
        case ast.Constant(value=float(number)):
            return number
        case ast.Name(id="pi"):
            return math.pi
        case ast.Name(id=letter):
            return 1.1 + ord(letter) * 0.6180339887 % 1.0
        case ast.Call(args=[inside]):
            return math.sqrt(_value(inside))
        case ast.UnaryOp(op=sign, operand=inside):
            return _OPERATIONS[type(sign)](_value(inside))
        case ast.BinOp(left=left, op=sign, right=right):
            return _OPERATIONS[type(sign)](_value(left), _value(right))
    raise ValueError("no formula")
