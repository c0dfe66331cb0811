"""The estimate of an even draw, against the truth that a simulated run knows."""

import numpy as np
import pytest

from trl_vade.samplers.information import mixed_group_probability
from trl_vade.samplers.posterior import BetaPosterior
from trl_vade.selection.report.even_draw import even_draw_ratio

G = 8


def watched(rates, share=1.0, rounds=3):
    """A posterior after `rounds` visits of a share of the rows."""
    chance = np.random.default_rng(0)
    posterior = BetaPosterior(len(rates))
    rows = np.arange(int(share * len(rates)))
    for _ in range(rounds):
        posterior.observe(rows, chance.binomial(G, rates[rows]), np.full(len(rows), G))
    return posterior


def truth(rates):
    return float(np.mean(1 - rates**G - (1 - rates) ** G))


@pytest.mark.parametrize("share", [0.2, 1.0])
def test_it_is_close_to_the_truth_where_many_rows_are_mastered_or_impossible(share):
    rates = np.random.default_rng(1).beta(0.3, 0.3, 2000)
    posterior = watched(rates, share)
    alpha, beta = posterior.alpha, posterior.beta
    flat = float(mixed_group_probability(alpha + 1, beta + 1, G).mean())
    assert even_draw_ratio(posterior, G) == pytest.approx(truth(rates), abs=0.05)
    assert flat > truth(rates) + 0.08


def test_without_evidence_it_is_that_of_the_flat_belief():
    one = float(mixed_group_probability(np.ones(1), np.ones(1), G)[0])
    assert even_draw_ratio(BetaPosterior(5), G) == pytest.approx(one)


def test_spreads_have_their_own_chance_of_a_gradient():
    posterior = BetaPosterior(100)
    posterior.observe(np.arange(100), np.full(100, 4.0), np.full(100, 8.0))
    assert even_draw_ratio(posterior, G, spreads=True) < even_draw_ratio(posterior, G)
