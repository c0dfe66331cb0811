"""Numbers as people write them, and when two of them are equal."""

import math

from hypothesis import given
from hypothesis import strategies as st

from trl_vade.rewards.quantities import equal, only_number, read_closed, read_quantity

READ = [
    *(("42", 42), ("-5", -5), ("\u22125", -5), (".5", 0.5), ("1,234,567.5", 1234567.5), ("1 234", 1234)),
    *(("1{,}234", 1234), ("$5", 5), ("-$5", -5), ("$-5", -5), ("1.2e3", 1200), (r"1.2 \times 10^{3}", 1200)),
    *(("3/4", 0.75), (r"-\frac{3}{4}", -0.75), ("1 1/2", 1.5), (r"1\frac{1}{2}", 1.5), ("5 million", 5e6)),
    *(("x = 5", 5), ("about 5", 5), ("\u0664\u0662", 42)),
    *(("5K", 5000), ("4.2M", 4.2e6), ("1.5 bn", 1.5e9), ("10^5", 1e5), ("10\u207b\u2075", 1e-5)),
    *(("3.2\u00d710\u2075", 3.2e5), ("\u00bd", 0.5), ("1\u00bd", 1.5), (r"\frac58", 0.625), ("5\u20448", 0.625)),
    *(("US$38.51", 38.51), ("USD 38.51", 38.51), ("35\u00ba", 35), ("35\u02da", 35), ("25 \u2103", 25)),
    *(("three quarters", 0.75), ("two-thirds of it", 2 / 3), ("one and a half", 1.5), ("2 and a half", 2.5)),
    *(("2 hours 30 minutes", 2.5), ("6 ft 3 in", 6.25), ("1 h, 30 min and 36 s", 1.51), ("2 kg 500 g", 2.5)),
    *(("seventeen", 17), ("twenty-one apples", 21), ("five thousand", 5000), ("Zero", 0), ("one half", 0.5)),
    *(("- 7", -7), ("negative 7", -7), ("minus seven", -7), ("x = 2*8.5 = 17", 17), ("A = 180 - 145 = 35", 35)),
    *(("\u2220A = 35\u00b0", 35), ("12\\,\\mathrm{cm}", 12), ("25 \\mathrm{~cm}^2", 25)),
    ("8 meters per second squared", 8),
]
NOT_READ = [
    *("", "many", "inf", "nan", "5 or 6", "5, 6", "5-6", "5 \u00b1 1", "1,23", "12,34,567", "0,123", "4\u00b2", "a"),
    *("0x10", "1_000", "1e999", "9" * 61, "5x", r"5\pi", "5\u03c0", "2+3", "5!", "--5", "1/0", r"\frac{1}{0}", "%"),
    *("2x = 35", "x + 3 = 5", "5x^2", "5xy", "x > 3", "x >= 3", "5 != 7", r"x \neq 3", "x = 1 or x = 2", "12th", "$"),
    *("x = 1, y = 2", "2 hours 90 minutes", "30 minutes 2 hours", "2 hours 30 apples", "2 m 30 s", "(5)", "5 not 6"),
    *("2 hours or 30 minutes", "5 hundred", "5 is right", r"\sqrt{4}"),
]


def test_a_number_is_read_and_what_is_no_single_number_is_not():
    read = [(text, read_quantity(text), value) for text, value in READ]
    assert [one for one in read if one[1] is None or not math.isclose(one[1].value, one[2], rel_tol=1e-12)] == []
    assert [text for text in NOT_READ if read_quantity(text) is not None] == []


def same(answer, reference, **how):
    return equal(read_quantity(answer), read_quantity(reference), **how)


SAME = [  # answer and reference
    ("42.0", "42"),
    *(("2.828", "2.83"), ("0.335", "0.33"), ("2.54", "2.5"), ("0.3333", "1/3")),
    *(("12%", "12%"), ("12 %", "12%"), (r"12\%", "12%"), ("12 percent", "12%"), ("12", "12%"), ("0.12", "12%")),
    *(("12%", "0.12"), ("5 cm", "5"), ("5", "5 cm"), ("5 centimeters", "5cm"), ("45^\\circ", "45 degrees")),
    *(("25 cm\u00b2", "25 square centimetres"), ("0.05 m", "5 cm"), ("1.4 billion", "1.4")),
]
NOT_SAME = [
    *(("42.0001", "42"), ("100005", "100000")),  # an integer is met exactly
    *(("2.83", "2.828"), ("2.8", "2.83"), ("0.336", "0.33"), ("0.33", "1/3"), ("2.0005", "4/2")),
    *(("0.14", "0.1"), ("0.06", "0.1")),  # decimals are never coarser than 5 %
    *(("1200%", "12%"), ("0.12%", "12%"), ("12", "0.12")),  # percent is never taken twice
    *(("5 m", "5 cm"), ("25 cm", "25 cm^2"), ("72 million", "72"), ("1.5 billion", "1.4"), ("1.4 billion", "3/2")),
]
OTHER_UNITS = [
    *(("60 mph", "60 km/h"), ("5 m/s", "5 m"), ("5 m/s", "5 m/s^2"), ("25 \u00b0C", "25 \u00b0F"), ("5 N", "5 J")),
    *(("10 V", "10 ohms"), ("1250 cents", "$1250"), ("5 kg", "5 lb"), ("30 min", "30 s"), ("25 cm^2", "25%")),
]
SAME_UNITS = [
    *(("120 mm", "12 cm"), ("60 mph", "60 miles per hour"), ("45 cents", "$0.45"), ("2 h", "120 minutes")),
    *(("5 m s^{-1}", "5 m/s"), ("10 \u03a9", r"10 \Omega"), ("30 mL", "30 cm\u00b3"), ("25 sq. cm", "25 cm^2")),
    *(("5 apples", "5"), ("5 km/h", "5"), ("72 loaves per day", "72")),
]
RELAXED = [  # within 5 %, ends included; ChartQA's labels leave out the factor of an axis
    *(("95", "100"), ("105", "100"), ("-105", "-100"), ("0", "0"), ("1.4 billion", "1.4"), ("72 million", "72"))
]
NOT_RELAXED = [*(("94.9", "100"), ("105.1", "100"), ("0.001", "0"), ("14 billion", "1.4"), ("1.4", "1.4 billion"))]


def test_two_numbers_are_the_same_to_the_precision_and_in_the_units_of_the_reference():
    mirrored = [(other, one) for one, other in SAME_UNITS]
    assert [pair for pair in SAME + SAME_UNITS + mirrored if not same(*pair)] == []
    assert [pair for pair in OTHER_UNITS if not same(pair[0], pair[0])] == []
    mirrored = [(other, one) for one, other in OTHER_UNITS]
    assert [pair for pair in NOT_SAME + OTHER_UNITS + mirrored if same(*pair)] == []
    assert [pair for pair in RELAXED if not same(*pair, relaxed=True)] == []
    assert [pair for pair in NOT_RELAXED if same(*pair, relaxed=True)] == []


def test_roots_pi_and_powers_have_a_value_and_sums_and_variables_have_none():
    cases = [(r"5\sqrt{3}", "8.66"), ("36\u03c0", "113.1"), (r"\sqrt{3^2+4^2}", "5"), ("5\u00b2", "25")]
    for closed, rounded in cases:
        assert equal(read_closed(closed), read_quantity(rounded))
        assert read_closed(f"{closed} cm").unit == read_quantity("1 cm").unit
        assert not equal(read_closed(closed), read_quantity(f"{float(rounded) * 1.02:.2f}"))
    for none in ("2+3", "180 - 35", r"5 \times 3", "x", "2x", "9^{9^{9^9}}", r"\sqrt{-1}", "1/0 + \u221a2"):
        assert read_closed(none) is None, none


SAYING_42 = [
    *("He needs 42 of them.", "She sold 42 clips altogether.", "There are forty-two birds left.", "It costs $42."),
    *("She has 42 left over.", "I count 42.", "It costs $42 in total.", "It was 42 in 2015."),
    *("42 is what he pays.", "We get 42.", "There are 42, which is even.", "He rides at 42 km/h on average."),
]
SAYING_NONE = [
    *("She had 42 but sold some.", "We are given 42 apples.", "Let us subtract 42 from it.", "42 hundred"),
    *("There are 42 cats and 3 dogs.", "It is more than 42.", "at least 42", "two times 42", "Step 42", "Pair 42"),
    *("The 42 lines are parallel.", "none of these", "The two lines meet."),
    *("int(42)", '{"answer": 42}', "x > 42", "42x", "42!", "log 42", "42 dozen", "Output reward 42", "42", "No"),
]


def test_the_one_number_of_a_sentence_is_found_unless_it_bounds_or_counts_with_it():
    assert [one for one in SAYING_42 if only_number(one) is None or only_number(one).value != 42] == []
    assert [one for one in SAYING_NONE if only_number(one) is not None] == []


@given(st.floats(1e-290, 1e290) | st.floats(-1e290, -1e-290) | st.just(0.0), st.integers(-(10**15), 10**15), st.text())
def test_every_number_is_read_as_python_writes_it_and_any_text_is_read_or_not(value, whole, text):
    quantity = read_quantity(repr(value))
    assert quantity.value == value
    assert equal(quantity, quantity)
    assert read_quantity(f"{whole:,}").value == whole
    assert (found := read_quantity(text)) is None or math.isfinite(found.value)


@given(st.decimals(-1000, 1000, places=2), st.decimals(-1000, 1000, places=2))
def test_two_numbers_of_two_decimals_are_equal_only_where_they_are(left, right):
    assert same(str(left), str(right)) == (left == right)
