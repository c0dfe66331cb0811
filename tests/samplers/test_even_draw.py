"""The estimate of an even draw, against the truth that a simulated run knows."""

import numpy as np
import pytest

from trl_vade.samplers.information import mixed_group_probability
from trl_vade.samplers.posterior import BetaPosterior
from trl_vade.samplers.priors import FEWEST_ROWS, fit_prior, rest_ratio

G = 8


def watched(rates, share=1.0, rounds=3):
    """A posterior after `rounds` visits of a share of the rows."""
    chance = np.random.default_rng(0)
    posterior = BetaPosterior(len(rates))
    rows = np.arange(int(share * len(rates)))
    for _ in range(rounds):
        posterior.observe(rows, chance.binomial(G, rates[rows]), np.full(len(rows), G))
    return posterior


def test_it_is_close_to_the_truth_where_many_rows_are_mastered_or_impossible():
    rates = np.random.default_rng(1).beta(0.3, 0.3, 2000)
    truth = float(np.mean(1 - rates**G - (1 - rates) ** G))
    for share in (0.2, 1.0):
        posterior = watched(rates, share)
        flat = float(mixed_group_probability(posterior.alpha + 1, posterior.beta + 1, G).mean())
        assert rest_ratio(posterior, G) == pytest.approx(truth, abs=0.05)
        assert flat > truth + 0.08


def test_spreads_have_their_own_chance_of_a_gradient():
    posterior = BetaPosterior(100)
    posterior.observe(np.arange(100), np.full(100, 4.0), np.full(100, 8.0))
    assert rest_ratio(posterior, G, spreads=True) < rest_ratio(posterior, G)


def test_it_finds_the_distribution_that_pass_rates_were_drawn_from():
    for a, b in [(0.6, 0.9), (2.0, 1.0), (1.0, 4.0)]:
        rng = np.random.default_rng(0)
        alpha = rng.binomial(8, rng.beta(a, b, size=20_000)).astype(float)
        assert fit_prior(alpha, 8 - alpha) == pytest.approx((a, b), rel=0.06)


def test_rows_with_next_to_no_evidence_left_do_not_count_and_without_32_rows_the_belief_is_flat():
    flat = mixed_group_probability(np.ones(1), np.ones(1), G)
    assert rest_ratio(BetaPosterior(100), G) == pytest.approx(flat[0])
    posterior = watched(np.full(100, 0.02))
    assert rest_ratio(posterior, G) < 0.3
    posterior.load_state_dict(posterior.state_dict() | {"step": 10_000_000})
    assert rest_ratio(posterior, G) == pytest.approx(flat[0])
    alpha = np.full(FEWEST_ROWS, 8.0)
    assert fit_prior(alpha[1:], np.zeros(FEWEST_ROWS - 1)) is None
    assert fit_prior(alpha, np.zeros(FEWEST_ROWS)) is not None
