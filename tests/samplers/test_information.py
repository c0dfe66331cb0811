import itertools
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats
from scipy.integrate import quad

from tests.support.refusals import refused
from trl_vade.errors import ConfigurationError
from trl_vade.samplers.information import information_gain, mixed_group_probability


def exact_ratio(alpha, beta, num_generations):
    """The closed form in exact arithmetic."""
    a, b = Fraction(alpha) + 1, Fraction(beta) + 1
    all_right = all_wrong = Fraction(1)
    for j in range(num_generations):
        all_right *= (a + j) / (a + b + j)
        all_wrong *= (b + j) / (a + b + j)
    return float(1 - all_right - all_wrong)


def test_gains_worked_by_hand():
    # p (1 - p)^2 (eq. 4): at 1/4, 1/4 * 9/16 = 9/64; at 1/2, 1/2 * 1/4 = 1/8; at 3/4, 3/4 * 1/16 = 3/64
    assert information_gain([0.0, 0.25, 0.5, 0.75, 1.0]).tolist() == [0.0, 9 / 64, 1 / 8, 3 / 64, 0.0]
    # p (1 - p): 3/16, 1/4, 3/16
    assert information_gain([0.0, 0.25, 0.5, 0.75, 1.0], "symmetric").tolist() == [0.0, 3 / 16, 1 / 4, 3 / 16, 0.0]


def test_an_unknown_gain_is_refused_by_naming_both_that_exist():
    for kind in ("variance", "", None, "Symmetric"):
        with refused(ConfigurationError, names=[kind], offers=["asymmetric", "symmetric"]):
            information_gain(0.5, kind)


def ratio_of(alpha, beta, num_generations):
    return mixed_group_probability(np.array(alpha) + 1.0, np.array(beta) + 1.0, num_generations)


def test_the_expected_ratio_is_exact_from_no_counts_to_a_million():
    counts = [0, 1, 7, 1000, 10**6]
    for alpha, beta, g in itertools.product(counts, counts, [2, 3, 8, 16, 64]):
        assert ratio_of([alpha], [beta], g) == pytest.approx([exact_ratio(alpha, beta, g)], rel=1e-13, abs=0)
        assert 0 <= ratio_of([alpha], [beta], 1) < 1e-15


def test_the_expected_ratio_is_the_integral_it_stands_for():
    for alpha, beta in [(0.0, 0.0), (0.3, 2.7), (5.4, 4.2), (40.0, 0.1)]:
        density = scipy.stats.beta(alpha + 1, beta + 1).pdf
        integral, _ = quad(lambda p, density=density: (1 - p**8 - (1 - p) ** 8) * density(p), 0, 1, epsabs=1e-13)
        assert ratio_of([alpha], [beta], 8) == pytest.approx([integral], rel=1e-9)
