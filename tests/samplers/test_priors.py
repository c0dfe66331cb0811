"""The belief about unseen rows: a logistic regression on the words of the prompts."""

import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.refusals import refused
from trl_vade.errors import ConfigurationError
from trl_vade.samplers import BetaPosterior, ThompsonSampler
from trl_vade.samplers import priors as module
from trl_vade.samplers.priors import FLAT, RIDGE, WIDTH, prompt_prior, prompt_words

VOCABULARY = [f"word{number}" for number in range(40)]


def features(words):
    return np.unpackbits(words, axis=1).astype(np.float64)


def texts_of(size, seed):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(VOCABULARY, 6)) for _ in range(size)]


def observed(words, seed, size=None, trials=8):
    """A posterior over the rows of `words`, whose pass rates depend on their features, with some rows seen."""
    rng = np.random.default_rng(seed)
    rates = 1 / (1 + np.exp(-features(words) @ rng.normal(0, 1.2, WIDTH)))
    rows = rng.permutation(len(words))[: len(words) // 2 if size is None else size]
    posterior = BetaPosterior(len(words))
    posterior.observe(rows, rng.binomial(trials, rates[rows]), np.full(rows.size, trials))
    return posterior, rates


def test_a_text_has_the_features_of_its_words_that_eight_texts_have():
    texts = ["What is 12 + 3?"] * 7 + ["What is 12 + 4?"]
    hashed = sorted({zlib.crc32(word) % WIDTH for word in (b"what", b"is", b"12")})
    for row in features(prompt_words(texts)):
        assert np.flatnonzero(row).tolist() == hashed
    assert not features(prompt_words(texts[:7])).any()
    apart, together, other = prompt_words(["三 角 形", "三角形", "正方形"] * 8)[:3]  # a script without spaces
    assert apart.tolist() == together.tolist() != other.tolist()


@given(texts=st.lists(st.text(max_size=30), max_size=5))
def test_case_order_and_repetition_do_not_count(texts):
    words = [text.lower().split() for text in texts]
    changed = prompt_words(" ".join([*reversed(each), *each]) for each in words)
    assert changed.tolist() == prompt_words(map(" ".join, words)).tolist()


@settings(max_examples=30)
@given(seed=st.integers(0, 999), trials=st.sampled_from([1, 8, 2**20]))
def test_the_weights_maximise_the_penalised_likelihood(seed, trials):
    """Written out row by row: the slope of a concave function is 0 at its maximum."""
    words = prompt_words(texts_of(90, seed))
    posterior, _ = observed(words, seed, trials=trials)
    alpha, beta = posterior.counts(posterior.visited)
    seen = np.hstack([features(words)[posterior.visited], np.ones((alpha.size, 1))])
    weights = module._fit(seen, alpha, alpha + beta)
    slope, scale = -RIDGE * weights, np.full(WIDTH + 1, RIDGE)
    for row, x in enumerate(seen):
        p = 1 / (1 + np.exp(-x @ weights))
        slope += (alpha[row] - (alpha[row] + beta[row]) * p) * x
        scale += (alpha[row] + beta[row]) * p * (1 - p) * x
    assert np.abs(slope / scale).max() < 1e-5


def test_counts_of_any_size_are_fitted_and_below_32_rows_with_evidence_any_pass_rate_is_as_likely():
    posterior = BetaPosterior(64)
    posterior.observe(np.arange(64), np.full(64, 2.0**53), np.full(64, 2.0**53))
    a, b = prompt_prior(posterior, prompt_words(["one two"] * 64))
    assert (a / (a + b) > 0.9).all()
    words = prompt_words(texts_of(100, 0))
    assert prompt_prior(observed(words, 0, size=31)[0], words) is FLAT
    assert prompt_prior(observed(words, 0, size=32)[0], words) is not FLAT


@pytest.mark.parametrize(("successes", "strength"), [([4, 4], 8), ([0, 8], 0.5)])
def test_its_strength_is_how_right_it_was_about_rows_before_they_were_seen(successes, strength):
    sampler = ThompsonSampler(320, prior="prompts", words=prompt_words(["alike"] * 320))
    for first in range(0, 256, 32):
        sampler.observe(np.arange(first, first + 32), np.tile(successes, 16), np.full(32, 8))
        if first == 0:  # the first fit was never tried: as strong as Beta(1, 1)
            assert np.add(*sampler.prior())[300] == pytest.approx(2)
    before = np.add(*sampler.prior())[300]
    assert before == pytest.approx(strength, rel=0.2)
    sampler.observe(np.arange(32), np.full(32, 8), np.full(32, 8))  # rows that it knew say nothing of it
    assert np.add(*sampler.prior())[300] == pytest.approx(before)


@pytest.mark.parametrize(("most", "knows_old"), [(40, False), (100, True)])
def test_a_fit_to_many_rows_takes_those_that_were_chosen_last(monkeypatch, most, knows_old):
    monkeypatch.setattr(module, "MOST_ROWS", most)
    words = prompt_words(["old"] * 60 + ["new"] * 60)
    posterior = BetaPosterior(120)
    posterior.observe(np.arange(50), np.full(50, 8), np.full(50, 8))
    posterior.observe(np.arange(60, 100), np.zeros(40), np.full(40, 8))
    a, b = prompt_prior(posterior, words)
    old, new = (a / (a + b))[[55, 110]]
    assert new < 0.1
    assert (old > 0.9) == knows_old


def test_the_fit_is_made_once_for_each_change_of_the_counts(monkeypatch):
    fits, words = [], prompt_words(texts_of(120, 5))
    fit = lambda *args: fits.append(args) or prompt_prior(*args)  # noqa: E731
    monkeypatch.setattr("trl_vade.samplers.thompson.prompt_prior", fit)
    sampler = ThompsonSampler(120, prior="prompts", words=words)
    state = sampler.state_dict()
    for _ in range(3):
        sampler.belief(), sampler.peek(4), sampler.metrics(), sampler.draw(4)
    assert len(fits) == 1
    sampler.observe([1], [2], [8])
    sampler.draw(4)
    assert len(fits) == 2
    sampler.load_state_dict(state)
    sampler.draw(4)
    assert len(fits) == 3


def test_words_of_other_rows_are_refused():
    for words in (None, np.zeros((4, 16), np.uint8)):
        with refused(ConfigurationError, names=["words"], offers=["prompt_words", "(5, 16)"]):
            ThompsonSampler(5, prior="prompts", words=words)
