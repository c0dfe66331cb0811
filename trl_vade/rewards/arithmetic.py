r"""The value of a formula of roots, pi, powers, fractions and letters, in float arithmetic.

Nothing is executed or compiled, and nothing takes long: a parser of five operations works on floats.
"""

import math
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


def value_of(formula: str) -> tuple[float, bool] | None:
    """Return the value of `formula` and whether it is without letters; None if it cannot be read.

    Each letter has a value of its own, always the same. So formulas with different values are different, and
    constants with the same value are equal.
    """
    tokens = _tokens(formula)
    if not 0 < len(tokens) <= LONGEST:
        return None
    left = [*tokens, ""]
    try:
        value = _sum(left)
    except (ValueError, ArithmeticError, RecursionError):
        return None
    if left != [""] or not isinstance(value, float) or not math.isfinite(value):  # a root may be a complex number
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


def _sum(tokens: list[str]) -> float:
    found = _product(tokens)
    while tokens[0] in ("+", "-"):
        found += (1.0 if tokens.pop(0) == "+" else -1.0) * _product(tokens)
    return found


def _product(tokens: list[str]) -> float:
    found = _signed(tokens)
    while tokens[0] in ("*", "/"):
        found = found * _signed(tokens) if tokens.pop(0) == "*" else found / _signed(tokens)
    return found


def _signed(tokens: list[str]) -> float:
    if tokens[0] in ("+", "-"):
        return (1.0 if tokens.pop(0) == "+" else -1.0) * _signed(tokens)
    base = _atom(tokens)
    if tokens[0] != "^":
        return base
    tokens.pop(0)
    power: float = base ** _signed(tokens)
    return power


def _atom(tokens: list[str]) -> float:
    token = tokens.pop(0)
    if token == "(":
        found = _sum(tokens)
        if tokens.pop(0) == ")":
            return found
    elif token == "sqrt" and tokens[0] == "(":
        return math.sqrt(_atom(tokens))
    elif token == "pi":
        return math.pi
    elif len(token) == 1 and token.isalpha():
        return 1.1 + ord(token) * 0.6180339887 % 1.0
    elif token[:1].isdigit() or token[:1] == ".":
        return float(token)
    raise ValueError("no formula")
