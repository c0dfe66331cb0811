"""The belief about new variants: one shift a kind, fitted to pairs of a variant and its original."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.problems import KINDS, variant_rows
from tests.support.refusals import refused
from trl_vade.errors import ConfigurationError
from trl_vade.samplers import BetaPosterior, ThompsonSampler
from trl_vade.samplers.variant_prior import RIDGE, variant_prior, variant_shifts

few = settings(deadline=None, derandomize=True, max_examples=40)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def logit(p):
    return np.log(p) - np.log1p(-p)


def world(problems, seed, shifts, scatter=0.7):
    """Originals, two fifths of them all but hopeless, and the pass rate of each row: shifted by kind, with scatter."""
    rng = np.random.default_rng(seed)
    variants = variant_rows([len(shifts) - 1] * problems)
    hard = rng.random(problems) < 0.4
    of_original = np.where(hard, rng.normal(-4.5, 0.8, problems), rng.normal(0.2, 1.8, problems))
    own = rng.normal(0, scatter, variants.of.size) * (variants.kind > 0)
    return variants, sigmoid(of_original[variants.of // len(shifts)] + np.array(shifts)[variants.kind] + own), rng


def observed(variants, rates, trials, rng=None):
    """A posterior in which each row had its number of trials."""
    posterior = BetaPosterior(variants.of.size)
    trials = np.broadcast_to(trials, rates.shape)
    successes = trials * rates if rng is None else rng.binomial(trials, rates)
    posterior.observe(np.arange(rates.size), successes, trials)
    return posterior


# -------------------------------------------------------------------------------------------------------- the fit


def test_without_evidence_all_rows_are_flat_and_the_draws_those_of_the_flat_prior():
    variants = variant_rows([4] * 5, seed=2)
    a, b = variant_prior(BetaPosterior(25), variants).of(None)
    assert a.tolist() == b.tolist() == [1.0] * 25
    flat, ours = ThompsonSampler(25), ThompsonSampler(25, variants=variants, prior="variants")
    assert flat.draw(9).sample_index.tolist() == ours.draw(9).sample_index.tolist()
    assert ours.metrics()["mean_pass_rate"] == 0.5


def test_the_shifts_that_pass_rates_were_made_with_are_found():
    """Originals are known well and have medium rates, so that the bounds of the means cut nothing."""
    shifts, rng = np.array([0.0, 1.2, -0.8, 0.0]), np.random.default_rng(0)
    variants = variant_rows([3] * 800)
    rates = sigmoid(rng.normal(0, 0.7, 800)[variants.of // 4] + shifts[variants.kind])
    shift = variant_shifts(observed(variants, rates, np.where(variants.kind == 0, 400, 8), rng), variants)
    assert shift[:4].tolist() == pytest.approx(shifts.tolist(), abs=0.06)
    assert (shift[4:] == 0).all()  # kinds without a row


@few
@given(seed=st.integers(0, 9999), most=st.sampled_from([1, 8, 1000, 10**6]))
def test_the_shifts_maximise_the_penalised_likelihood(seed, most):
    """Written out pair by pair: the slope of a concave function is 0 at its maximum."""
    rng = np.random.default_rng(seed)
    variants = variant_rows(rng.integers(0, 5, 8), seed)
    size = variants.of.size
    posterior, rows = BetaPosterior(size), np.flatnonzero(rng.random(size) < 0.7)
    trials = rng.integers(0, most, rows.size, endpoint=True)
    posterior.observe(rows, np.floor(trials * rng.choice([0.0, 0.3, 1.0], rows.size)), trials)
    posterior.observe([], [], [])
    alpha, beta = posterior.counts()
    shift = variant_shifts(posterior, variants)
    slope, scale = -RIDGE * shift, np.full(len(KINDS), RIDGE)
    for row in np.flatnonzero(variants.kind):
        of, n = variants.of[row], alpha[row] + beta[row]
        if n >= 1 and alpha[of] + beta[of] >= 1:
            mean = np.clip((alpha[of] + 1) / (alpha[of] + beta[of] + 2), 0.05, 0.95)
            p = sigmoid(logit(mean) + shift[variants.kind[row]])
            slope[variants.kind[row]] += alpha[row] - n * p
            scale[variants.kind[row]] += n * p * (1 - p)
    assert np.abs(slope / scale).max() < 1e-6
    assert np.isfinite(shift).all()
    assert shift[0] == 0


def test_few_pairs_move_a_shift_little_and_many_move_it_all_the_way():
    shifts = []
    for problems in (1, 4, 400):
        variants = variant_rows([1] * problems)
        rates = np.where(variants.kind == 0, 0.25, 0.75)
        shifts.append(variant_shifts(observed(variants, rates, 8), variants)[1])
    whole = math.log(3) + math.log(7 / 3)  # from 3 / 10, the mean of such an original, to 3 / 4
    assert 0 < shifts[0] < whole / 2 < shifts[1] < shifts[2]
    assert shifts[2] == pytest.approx(whole, abs=0.03)


def test_a_pair_counts_where_both_rows_have_evidence():
    variants = variant_rows([1] * 50)
    rows = np.arange(100)
    for counted in (rows % 2 == 0, rows % 2 == 1, (rows % 2 == 0) == (rows < 50)):
        posterior = BetaPosterior(100)
        posterior.observe(rows[counted], np.full(counted.sum(), 8), np.full(counted.sum(), 8))
        assert (variant_shifts(posterior, variants) == 0).all()
    scarce = observed(variants, np.where(variants.kind == 0, 0.1, 0.9), 0.9)  # decayed below one completion
    assert (variant_shifts(scarce, variants) == 0).all()


# ----------------------------------------------------------------------------------------------------- the belief


def test_a_new_variant_has_the_logit_of_its_original_plus_the_shift():
    """The first hint is seen with 400 originals, and new with five others of known and unknown pass rates."""
    variants = variant_rows([2] * 405)
    posterior, old = BetaPosterior(variants.of.size), np.arange(1200)
    rates = np.array([0.25, 0.75, 0.25])[variants.kind[old]]
    posterior.observe(old, 8 * rates, np.full(1200, 8))
    posterior.observe([1200, 1203, 1206, 1209], [0, 4, 8, 200], [8, 8, 8, 400])
    prior = variant_prior(posterior, variants)
    a, b = prior.of(np.array([1201, 1204, 1207, 1210, 1213]))
    odds = np.array([1 / 9, 1, 9, 1, 1]) * math.exp(variant_shifts(posterior, variants)[1])
    assert (a / (a + b)).tolist() == pytest.approx(np.minimum(odds / (1 + odds), 0.95).tolist())
    assert (a + b).tolist() == pytest.approx([3, 3, 3, 3, 2])
    whole = prior.of(None)
    assert whole[0][[1201, 1213]].tolist() == a[[0, 4]].tolist()
    assert (whole[0][variants.kind == 0] == 1).all()
    assert (whole[1][variants.kind == 0] == 1).all()


@few
@given(seed=st.integers(0, 9999), most=st.sampled_from([1, 8, 2**50]))
def test_means_and_strengths_stay_within_the_bounds(seed, most):
    rng = np.random.default_rng(seed)
    variants = variant_rows(rng.integers(0, 9, 20), seed)
    posterior = observed(variants, rng.choice([0.0, 0.5, 1.0], variants.of.size), most)
    for rows in (None, rng.permutation(variants.of.size)[:7]):
        a, b = variant_prior(posterior, variants).of(rows)
        assert ((a / (a + b) >= 0.05 - 1e-12) & (a / (a + b) <= 0.95 + 1e-12)).all()
        assert ((a + b >= 2 - 1e-12) & (a + b <= 3 + 1e-12)).all()


@pytest.mark.parametrize("scatter", [0.2, 0.7, 1.5])
@pytest.mark.parametrize("seed", range(3))
def test_it_predicts_new_variants_better_than_a_coin_flip_and_than_their_originals(seed, scatter):
    """After 15 batches of 32 pairs: the Brier score of one completion of each new variant of a seen original."""
    variants, rates, rng = world(400, seed, [0, 0.7, 1.6, 3.0, 0.0, -1.0], scatter)
    sampler = ThompsonSampler(rates.size, seed=seed, variants=variants, variant_groups=1, prior="variants")
    for _ in range(15):
        rows = sampler.draw(64).sample_index
        sampler.observe(rows, rng.binomial(8, rates[rows]), np.full(64, 8))
    visits = sampler.posterior.visits
    new = (variants.kind > 0) & (visits == 0) & (visits[variants.of] > 0)
    assert new.sum() > 400
    a, b = sampler.belief()
    mean = a / (a + b)

    def brier(guess):
        return (rates[new] * (1 - guess) ** 2 + (1 - rates[new]) * guess**2).mean()

    least = brier(rates[new])  # of the true pass rates
    assert brier(mean[new]) - least < 0.5 * (brier(0.5) - least)
    assert brier(mean[new]) - least < 0.85 * (brier(mean[variants.of][new]) - least)


def test_the_mean_of_all_rows_and_of_strata_is_that_of_the_belief():
    variants, rates, rng = world(30, 1, [0, 1.0, 2.0])
    sampler = ThompsonSampler(90, variants=variants, prior="variants")
    rows = rng.permutation(90)[:50]
    sampler.observe(rows, rng.binomial(8, rates[rows]), np.full(50, 8))
    a, b = sampler.belief()
    mean, stratum = a / (a + b), variants.kind % 2
    assert sampler.mean_pass_rates()[0] == pytest.approx(mean.mean(), rel=1e-12)
    by_stratum = [mean[stratum == 0].mean(), mean[stratum == 1].mean()]
    assert sampler.mean_pass_rates(stratum, 2).tolist() == pytest.approx(by_stratum, rel=1e-12)


def test_the_belief_needs_no_state_of_its_own():
    variants, rates, rng = world(30, 1, [0, 1.0, 2.0])
    sampler = ThompsonSampler(90, variants=variants, prior="variants")
    for _ in range(4):
        rows = sampler.draw(20).sample_index
        sampler.observe(rows, rng.binomial(8, rates[rows]), np.full(20, 8))
    resumed = ThompsonSampler(90, variants=variants, prior="variants")
    resumed.load_state_dict(sampler.state_dict())
    assert [array.tobytes() for array in resumed.belief()] == [array.tobytes() for array in sampler.belief()]
    assert variant_shifts(resumed.posterior, variants).any()


@pytest.mark.parametrize("kind", ["beta", "learned", None, True])
def test_an_unknown_prior_is_refused_with_the_known_ones(kind):
    with refused(ConfigurationError, names=[kind], offers=["flat", "prompts", "variants"]):
        ThompsonSampler(5, prior=kind)


def test_it_needs_variants():
    with refused(ConfigurationError, names=["prior", "variants"], offers=["VariantRows"]):
        ThompsonSampler(5, prior="variants")
