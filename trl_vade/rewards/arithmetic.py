r"""The value of a formula of roots, pi, powers, fractions and letters, in float arithmetic.

Nothing is executed, and nothing takes long: the syntax tree holds numbers and five operations, on floats.
"""

import ast
import math
import operator
import re

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
    (re.compile(r"\{"), "("),
    (re.compile(r"\}"), ")"),
]
_TOKEN = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+|sqrt|pi|[^\W\d_]|[-+*/^()])")
_WORD = re.compile(r"[a-zA-Z]{3}|(?<![a-zA-Z])(?:ln|or|to|is|in|at|of|by)(?![a-zA-Z])")
_OPERATIONS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}


def value_of(formula: str) -> tuple[float, bool] | None:
    """Return the value of `formula` and whether it is without letters; None if it cannot be read.

    Each letter has a value of its own, always the same. So formulas with different values are different, and
    constants with the same value are equal.
    """
    tokens = _tokens(formula)
    try:
        value = _value(ast.parse(" ".join(tokens), mode="eval").body) if 0 < len(tokens) <= LONGEST else None
    except (SyntaxError, ValueError, ArithmeticError, RecursionError, MemoryError):
        return None
    if not isinstance(value, float) or not math.isfinite(value):
        return None
    return value, not any(token.isalpha() and token not in ("sqrt", "pi") for token in tokens)


def _tokens(formula: str) -> list[str]:
    """Return Python's tokens, with each product written out; [] for anything else than a formula."""
    for _ in range(20):
        before = formula
        for pattern, replacement in _INNERMOST:
            formula = pattern.sub(replacement, formula)
        if formula == before:
            break
    for pattern, replacement in _SPELLINGS:
        formula = pattern.sub(replacement, formula)
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
        tokens.append("**" if token == "^" else token)
    return tokens


def _value(node: ast.AST) -> float:
    match node:
        case ast.Constant(value=int() | float() as number):
            return float(number)
        case ast.Name(id="pi"):
            return math.pi
        case ast.Name(id=letter) if len(letter) == 1:
            return 1.1 + ord(letter) * 0.6180339887 % 1.0
        case ast.UnaryOp(op=sign, operand=operand):
            return _OPERATIONS[type(sign)](_value(operand))
        case ast.BinOp(left=left, op=operation, right=right):
            return _OPERATIONS[type(operation)](_value(left), _value(right))
        case ast.Call(func=ast.Name(id="sqrt"), args=[inner]):
            return math.sqrt(_value(inner))
    raise ValueError("no formula")
