"""The learned prior: worked-out fits, bounds, strata, and what it does to a sampler's belief."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.refusals import refused
from trl_vade import ThompsonSampler
from trl_vade.errors import ConfigurationError
from trl_vade.samplers.prior import FEWEST_ROWS, fit_prior, learned_prior


def learned(alpha, beta, strata=None):
    """(S, 2) the priors where all rows were visited."""
    num_strata = 1 if strata is None else strata.max() + 1
    return learned_prior(alpha, beta, np.arange(alpha.size), strata, num_strata).table.tolist()


def test_a_fit_worked_out_by_hand():
    """40 rows of 8 trials, ten each of 0, 2, 6 and 8 successes: m = 1/2, and rho solves the equation of moments.

    The weighted squares are 20 x 8 x (1/4 + 1/16) = 50, over m (1 - m) = 200. V - 1 = 39, and
    sum n - sum n^2 / sum n - 39 = 320 - 8 - 39 = 273, so rho = 161 / 273 and a + b = 273 / 161 - 1 = 0.6957.
    """
    alpha = np.repeat([0.0, 2.0, 6.0, 8.0], 10)
    a, b = fit_prior(alpha, 8.0 - alpha)
    assert a == pytest.approx(b) == pytest.approx((273 / 161 - 1) / 2)


@pytest.mark.parametrize(("a", "b"), [(0.6, 0.9), (2.0, 1.0), (1.0, 4.0)])
def test_it_finds_the_distribution_that_pass_rates_were_drawn_from(a, b):
    rng = np.random.default_rng(0)
    alpha = rng.binomial(8, rng.beta(a, b, size=20_000)).astype(float)
    assert fit_prior(alpha, 8 - alpha) == pytest.approx((a, b), rel=0.06)


@given(seed=st.integers(0, 2**32), rows=st.integers(FEWEST_ROWS, 80), most=st.floats(0.001, 1e6))
def test_its_mean_and_its_strength_stay_within_the_bounds(seed, rows, most):
    rng = np.random.default_rng(seed)
    a, b = fit_prior(rng.uniform(0, most, rows) * rng.integers(0, 2, rows) + 1e-9, rng.uniform(0, most, rows))
    assert 0.05 - 1e-9 <= a / (a + b) <= 0.95 + 1e-9
    assert 0.5 - 1e-9 <= a + b <= 8.0 + 1e-9


def test_rows_that_all_failed_or_all_passed_give_a_prior_that_can_still_be_moved():
    never, always = np.zeros(50), np.full(50, 8.0)
    assert fit_prior(never, always)[0] > 0
    assert fit_prior(always, never)[1] > 0


def test_too_few_rows_leave_it_flat():
    alpha = np.zeros(100)
    alpha[: FEWEST_ROWS - 1] = 8.0
    assert learned(alpha, np.zeros(100)) == [[1.0, 1.0]]
    alpha[FEWEST_ROWS - 1] = 8.0
    assert learned(alpha, np.zeros(100)) != [[1.0, 1.0]]


def test_rows_with_next_to_no_evidence_left_do_not_count():
    alpha = np.full(100, 0.9)
    assert learned(alpha, np.zeros(100)) == [[1.0, 1.0]]


def test_each_stratum_has_its_own_and_a_thin_one_that_of_all():
    strata = np.repeat([0, 1, 2], [60, 60, 4])
    alpha, beta = np.where(strata == 0, 7.0, 1.0), np.where(strata == 0, 1.0, 7.0)
    easy, hard, thin = learned(alpha, beta, strata)
    assert easy[0] / sum(easy) == pytest.approx(7 / 8)
    assert hard[0] / sum(hard) == pytest.approx(1 / 8)
    assert [thin] == learned(alpha, beta)


def test_the_strata_are_those_of_the_visited_rows():
    strata = np.tile([0, 1], 60)
    visited = np.delete(np.arange(120), [0, 1, 7, 100])
    alpha = np.where(strata == 0, 7.0, 1.0)[visited]
    a, b = learned_prior(alpha, 8 - alpha, visited, strata, 2).of(np.array([0, 1]))
    assert (a / (a + b)).tolist() == pytest.approx([7 / 8, 1 / 8])


@pytest.mark.parametrize("kind", ["beta", None, True])
def test_an_unknown_prior_is_refused_with_the_known_ones(kind):
    with refused(ConfigurationError, names=[kind], offers=["flat", "learned"]):
        ThompsonSampler(5, prior=kind)


def test_unseen_rows_of_a_sampler_are_believed_to_be_like_the_seen_ones():
    sampler = ThompsonSampler(100, prior="learned")
    assert sampler.draw(1).posterior_mean[0] == 0.5
    sampler.observe(np.arange(40), np.full(40, 1.0), np.full(40, 8.0))
    a, b = sampler.belief(np.array([99]))
    assert a[0] / (a + b)[0] == pytest.approx(1 / 8)
    assert sampler.metrics()["mean_pass_rate"] < 0.2


def test_strata_reach_the_belief_and_a_resume_with_others_is_refused():
    from trl_vade.errors import SnapshotMismatchError

    labels = ["chart"] * 50 + ["math"] * 50
    sampler = ThompsonSampler(100, prior="learned", strata=labels)
    rows = np.r_[0:40, 50:90]
    sampler.observe(rows, np.where(rows < 50, 7.0, 1.0), np.full(80, 8.0))
    a, b = sampler.belief()
    assert (a / (a + b))[49] > 0.8 > 0.2 > (a / (a + b))[99]
    again = ThompsonSampler(100, prior="learned", strata=labels)
    again.load_state_dict(sampler.state_dict())
    np.testing.assert_array_equal(again.draw(9).sample_index, sampler.draw(9).sample_index)
    with refused(SnapshotMismatchError, names=["strata"]):
        ThompsonSampler(100, prior="learned", strata=labels[::-1]).load_state_dict(sampler.state_dict())


@pytest.mark.parametrize("labels", [["a"] * 4, [["a"] * 5], [0.5] * 5, [None] * 5])
def test_strata_that_are_not_one_label_a_row_are_refused(labels):
    with refused(ConfigurationError, names=["strata", 5]):
        ThompsonSampler(5, strata=labels)
