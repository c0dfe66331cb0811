"""The window about the best pass rate, and the densities of beliefs in it."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from trl_vade.samplers.information import information_gain
from trl_vade.samplers.large_pool.free_rows import FreeRows
from trl_vade.samplers.large_pool.window import (
    MOST_WIDTH,
    beta_density,
    find_window,
    log_gamma,
    wanted_inside,
    window,
)
from trl_vade.samplers.posterior import BetaPosterior


def free_rows(right, wrong):
    """Two rows, of which the first has these counts."""
    posterior = BetaPosterior(2)
    posterior.observe([0], [right], [right + wrong])
    nothing = np.empty(0, dtype=np.int64)
    return FreeRows(posterior, lambda rows: np.zeros(rows.size, dtype=bool), nothing, np.random.default_rng(0))


both_gains = pytest.mark.parametrize("gain", ["symmetric", "asymmetric"])


@both_gains
@pytest.mark.parametrize("width", [0.0, 1e-9, 1e-6, 1e-3, 0.1, 0.5, 0.9, 1.0])
def test_the_ends_of_the_window_are_equal_and_all_inside_beats_all_outside(gain, width):
    lo, hi = window(width, gain)
    assert 0 <= lo <= hi <= 1
    assert hi - lo == pytest.approx(width, abs=1e-15)
    ends = information_gain([lo, hi], gain)
    assert ends[0] == pytest.approx(ends[1], abs=1e-15)
    inside = information_gain(np.linspace(lo, hi, 999), gain)
    outside = information_gain(np.concatenate([np.linspace(0, lo, 999), np.linspace(hi, 1, 999)]), gain)
    assert inside.min() >= outside.max() - 1e-15


def test_more_than_k_rows_are_wanted_inside():
    assert wanted_inside(1) == 41
    assert wanted_inside(512) == pytest.approx(725.02, abs=0.01)


@given(x=st.floats(1e-3, 1e17))
def test_the_logarithm_of_gamma_is_that_of_the_standard_library(x):
    assert log_gamma(np.array([x]))[0] == pytest.approx(math.lgamma(x), rel=1e-12, abs=2e-12)


@both_gains
@given(
    a=st.floats(0.05, 8),
    b=st.floats(0.05, 8),
    rows=st.floats(1, 1e9),
    wanted=st.floats(1, 1e4),
)
def test_the_rows_wanted_are_to_be_expected_in_the_window_that_is_found(gain, a, b, rows, wanted):
    belief = stats.beta(a, b)
    found = find_window(wanted, gain, lambda p: rows * belief.pdf(p))
    if found is None:  # then the widest one has too few
        lo, hi = window(MOST_WIDTH, gain)
        ends = belief.pdf([lo, (lo + hi) / 2, hi])
        assert rows * ends.min() * MOST_WIDTH < 1.2 * wanted
    else:
        assert 0.97 * wanted < rows * (belief.cdf(found[1]) - belief.cdf(found[0])) < 20 * wanted
        assert found[1] - found[0] <= MOST_WIDTH


@given(seed=st.integers(0, 2**32))
def test_the_density_is_that_of_the_beta_distribution(seed):
    rng = np.random.default_rng(seed)
    p, a, b = rng.uniform(0.01, 0.99, 20), 10 ** rng.uniform(-1.5, 4, 20), 10 ** rng.uniform(-1.5, 4, 20)
    np.testing.assert_allclose(beta_density(p, a, b), stats.beta(a, b).pdf(p), rtol=1e-7, atol=1e-290)


@given(
    right=st.floats(0, 300),
    wrong=st.floats(0, 300),
    width=st.floats(1e-6, 0.25),
    gain=st.sampled_from(["symmetric", "asymmetric"]),
)
def test_no_density_in_the_window_is_above_the_bound(right, wrong, width, gain):
    rows = free_rows(right, wrong)
    p, (a, b) = np.linspace(*window(width, gain), 50), rows.belief(np.array([0]))
    assert beta_density(p, np.full(50, a[0]), np.full(50, b[0])).max() <= rows.highest_density * (1 + 1e-9)


def test_the_bound_is_met_by_a_row_that_is_always_solved_and_by_one_of_which_nothing_is_known():
    assert free_rows(0.0, 0.0).highest_density == pytest.approx(1.0)
    ends = beta_density(np.array([1.0 - 1e-12]), np.array([9.0]), np.array([1.0]))
    assert free_rows(8.0, 0.0).highest_density == pytest.approx(ends[0])
