"""Numbers as people write them, and when two of them are equal."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trl_vade.rewards.quantities import equal, read_quantity


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("42", 42),
        ("-5", -5),
        ("\u22125", -5),
        (".5", 0.5),
        ("1,234,567.5", 1234567.5),
        ("1 234", 1234),
        ("1{,}234", 1234),
        ("$5", 5),
        ("-$5", -5),
        ("$-5", -5),
        ("1.2e3", 1200),
        (r"1.2 \times 10^{3}", 1200),
        ("3/4", 0.75),
        (r"-\frac{3}{4}", -0.75),
        ("1 1/2", 1.5),
        (r"1\frac{1}{2}", 1.5),
        ("5 million", 5e6),
        ("x = 5", 5),
        ("about 5", 5),
        ("\u0664\u0662", 42),
    ],
)
def test_a_number_is_read(text, value):
    assert read_quantity(text).value == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    "text",
    [
        *("", "many", "inf", "nan", "5 or 6", "5, 6", "5-6", "5 \u00b1 1", "1,23", "12,34,567", "0,123", "4\u00b2"),
        *("0x10", "1_000", "1e999", "9" * 61, "5x", r"5\pi", "5\u03c0", "2+3", "5!", "--5", "1/0", r"\frac{1}{0}"),
        *("(5)", "5 hundred", "5 is right", r"\sqrt{4}", "5 not 6", "a", "%", "$"),
    ],
)
def test_what_is_no_single_number_is_not_read(text):
    assert read_quantity(text) is None


def same(answer, reference, **how):
    return equal(read_quantity(answer), read_quantity(reference), **how)


def test_an_integer_is_met_exactly():
    assert same("42.0", "42")
    assert not same("42.0001", "42")
    assert not same("100005", "100000")


def test_decimals_ask_for_their_own_precision():
    assert same("2.828", "2.83")
    assert not same("2.83", "2.828")
    assert not same("2.8", "2.83")
    assert same("0.335", "0.33")
    assert not same("0.336", "0.33")


def test_a_fraction_may_be_written_with_four_decimals():
    assert same("0.3333", "1/3")
    assert not same("0.33", "1/3")
    assert not same("2.0005", "4/2")


@pytest.mark.parametrize("written", ["12%", "12 %", r"12\%", "12 percent", "12", "0.12"])
def test_percent_may_be_written_as_such_or_not(written):
    assert same(written, "12%")


def test_percent_is_never_taken_twice():
    assert not same("1200%", "12%")
    assert not same("0.12%", "12%")
    assert same("12%", "0.12")
    assert not same("12", "0.12")


def test_units_are_left_out_and_never_mixed_up():
    assert same("5 cm", "5")
    assert same("5", "5 cm")
    assert same("5 centimeters", "5cm")
    assert same("45^\\circ", "45 degrees")
    assert same("25 cm\u00b2", "25 square centimetres")
    assert not same("5 m", "5 cm")
    assert not same("25 cm", "25 cm^2")
    assert same("0.05 m", "5 cm")


def test_relaxed_is_within_five_percent_ends_included():
    assert same("95", "100", relaxed=True)
    assert same("105", "100", relaxed=True)
    assert not same("94.9", "100", relaxed=True)
    assert not same("105.1", "100", relaxed=True)
    assert same("-105", "-100", relaxed=True)
    assert same("0", "0", relaxed=True)
    assert not same("0.001", "0", relaxed=True)


@given(st.floats(1e-290, 1e290) | st.floats(-1e290, -1e-290) | st.just(0.0))
def test_every_float_is_read_as_python_writes_it_and_equals_itself(value):
    quantity = read_quantity(repr(value))
    assert quantity.value == value
    assert equal(quantity, quantity)


@given(st.integers(-(10**15), 10**15))
def test_separators_change_no_integer(number):
    assert read_quantity(f"{number:,}").value == number


@given(st.decimals(-1000, 1000, places=2), st.decimals(-1000, 1000, places=2))
def test_two_numbers_of_two_decimals_are_equal_only_where_they_are(left, right):
    assert same(str(left), str(right)) == (left == right)


@given(st.text(max_size=60))
def test_any_text_is_read_or_not(text):
    quantity = read_quantity(text)
    assert quantity is None or math.isfinite(quantity.value)
