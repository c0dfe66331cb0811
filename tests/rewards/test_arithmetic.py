"""The value of a formula, against sympy's; and what has none."""

import math

import sympy
from hypothesis import given
from hypothesis import strategies as st

from trl_vade.rewards.arithmetic import value_of
from trl_vade.rewards.notation import plain

x, y = sympy.symbols("x y")
leaves = st.integers(1, 9).map(sympy.Integer) | st.sampled_from([sympy.pi, x, y, sympy.sqrt(2), sympy.Rational(3, 4)])
formulas = st.recursive(
    leaves,
    lambda parts: (
        st.builds(lambda left, right: left + right, parts, parts)
        | st.builds(lambda left, right: left * right, parts, parts)
        | st.builds(lambda left, right: left - right, parts, parts)
        | st.builds(lambda left, right: left / (right**2 + 1), parts, parts)
        | st.builds(lambda base, power: base**power, parts, st.sampled_from([2, 3]))
        | st.builds(lambda inside: sympy.sqrt(inside**2 + 1), parts)
    ),
    max_leaves=6,
)


def value(formula):
    found = value_of(plain(formula))
    return None if found is None else found[0]


@given(formulas)
def test_a_formula_has_the_value_that_sympy_gives_it(formula):
    expected = float(formula.subs({x: value("x"), y: value("y")}))
    for written in (sympy.latex(formula), sympy.latex(formula, mul_symbol="times"), str(formula)):
        found = value(written)
        assert found is None or math.isclose(found, expected, rel_tol=1e-9, abs_tol=1e-9), written
    assert value(sympy.latex(formula)) is not None


EQUAL = [
    *((r"2\sqrt{3}", "2sqrt3"), ("2\u221a3", "2*sqrt(3)"), (r"\sqrt[3]{27}", "3"), ("x\u00b2", "x^2")),
    *(("3xy", "y*x*3"), (r"\frac{1}{2}x", "x/2"), (r"\dfrac12", "0.5"), ("(x+1)(x-1)", "x^{2}-1")),
    *(("1,000x", "1000x"), ("5\u03c0", r"5\pi"), ("007", "7"), ("-2^2", "-4"), ("2^-1", "1/2")),
]
NO_FORMULA = [
    *("", "x=2", "(1, 2)", "sin(x)", "cat", "1 or 2", "5!", "|x|", "2 3", "x2", "((", ")", "1/0", "9^{9^{9^{9}}}"),
    *(r"\sqrt{-1}", "(" * 900, "-" * 900 + "1", "1" + "+1" * 400, r"\frac{1}{" * 90, "__import__('os')", "()"),
    *("x.real", "[1][0]", r"\sqrt{(-8)^{1/3}}", "5//2", "2* *3", "sqrt()"),
]


def test_other_spellings_have_the_same_value_and_what_is_no_formula_has_none():
    assert [pair for pair in EQUAL if not math.isclose(value(pair[0]), value(pair[1]), rel_tol=1e-12)] == []
    assert [text for text in NO_FORMULA if value(text) is not None] == []


@given(st.text(alphabet="0123456789xysqrtpi\\{}()^+-*/. frac\u221a\u03c0", max_size=60))
def test_any_text_has_a_value_or_none(text):
    assert value(text) is None or math.isfinite(value(text))
