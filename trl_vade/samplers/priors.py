"""The belief about rows without evidence: from the words of their prompts, or from all rows alike.

Axis letters: N rows of the data set, V visited rows, F features.
"""

import math
import re
import zlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from trl_vade.checks import FloatArray

from .information import mixed_group_probability, spread_group_probability
from .posterior import BetaPosterior

Words = NDArray[np.uint8]  # (N, F / 8): F bits a row
Belief = tuple[FloatArray | float, FloatArray | float]  # a and b of Beta(a, b): (N,) each, or one for all rows
Errors = tuple[float, float]  # of beliefs: see `more_errors`

PRIORS = ("flat", "prompts")
FLAT: Belief = (1.0, 1.0)
UNKNOWN: Errors = (56.0 / 3.0, 56.0)  # as if eight rows of eight trials had shown the strength of Beta(1, 1), 2
LATELY = 256.0  # rows
FEWEST_ROWS = 32  # for a fit
FEWEST_TEXTS = 8  # with a word that counts
EVIDENCE = 1.0  # smallest alpha + beta of a row that tells how far rows differ
LOWEST_MEAN, HIGHEST_MEAN, LARGEST_LOGIT = 0.05, 0.95, math.log(19.0)
LOWEST_STRENGTH, HIGHEST_STRENGTH = 0.5, 8.0  # of a + b; Beta(1, 1) has 2
WIDTH = 128  # F, the features that words are hashed to; no other number was measured
RIDGE = 1.0  # the precision of the belief N(0, 1 / RIDGE) about each weight
MOST_ROWS = 2**12  # rows of a fit: those that were chosen last
MOST_COUNTS = 2.0**30  # of a row in a fit, which larger ones would make singular
MOST_STEPS, TOLERANCE = 100, 1e-6  # of Newton's method
DIGITS = 6  # of the weights that are kept; another order of the sums, as on another machine, leaves these the same
# A word, or a character of a script without spaces.
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W\u3040-\u30ff\u3400-\u9fff]+")
_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).astype(np.float64)  # (256, 8)


def prompt_words(texts: Iterable[str]) -> Words:
    """Hash the words of N texts to F features; return which of them each text has, (N, F / 8) packed bits.

    Case and order do not count, nor how often a word occurs in a text. Numbers are words. Words of fewer than 8 texts
    are left out: a fit would take the luck of their few rows for what they mean.
    """
    hashed = [[zlib.crc32(word.encode()) for word in set(_WORD.findall(text.lower()))] for text in texts]
    row = np.repeat(np.arange(len(hashed)), [len(words) for words in hashed])
    words = np.fromiter((word for words in hashed for word in words), dtype=np.int64, count=row.size)
    _, place, count = np.unique(words, return_inverse=True, return_counts=True)
    common = count[place] >= FEWEST_TEXTS
    features = np.zeros((len(hashed), WIDTH), dtype=np.bool_)
    features[row[common], words[common] % WIDTH] = True
    return np.packbits(features, axis=1)


def prompt_prior(posterior: BetaPosterior, words: Words, errors: Errors = UNKNOWN) -> Belief:
    """Fit a logistic regression of the pass rates on the words of the prompts; return its belief about all N rows.

    With alpha_i successes and beta_i failures of row i as the posterior has them, and its features x_i, the weights
    maximise

        sum_i alpha_i log p_i + beta_i log(1 - p_i) - RIDGE / 2 |w|^2,    p_i = sigmoid(w x_i + w_0)

    The mean of the belief about row i is p_i, within [0.05, 0.95]. Its strength a + b, within [0.5, 8], comes from the
    `errors` of earlier beliefs, so it cannot be surer than it was right lately. Counts decay, so the fit follows the
    policy. Below 32 visited rows the belief is Beta(1, 1).

    `words`, (N, F / 8), are the result of `prompt_words`, and `errors` that of `more_errors`.
    """
    rows = posterior.visited
    if rows.size < FEWEST_ROWS:
        return FLAT
    if rows.size > MOST_ROWS:
        rows = rows[np.argsort(posterior.last_update[rows], kind="stable")[-MOST_ROWS:]]
    counts = np.array(posterior.counts(rows))
    alpha, beta = counts * np.minimum(1.0, MOST_COUNTS / np.maximum(counts.sum(axis=0), 1.0))
    features = np.ones((rows.size, WIDTH + 1))
    features[:, :WIDTH] = np.unpackbits(words[rows], axis=1)
    weights = _fit(features, alpha, alpha + beta)
    logits = np.full(len(words), weights[WIDTH])
    for byte, table in enumerate((_BITS @ weights[:WIDTH].reshape(-1, 8).T).T):  # a byte's sum is looked up
        logits += table[words[:, byte]]
    mean = _sigmoid(np.clip(logits, -LARGEST_LOGIT, LARGEST_LOGIT))
    excess, room = errors
    rho = float(np.clip(excess / room, 1.0 / (1.0 + HIGHEST_STRENGTH), 1.0 / (1.0 + LOWEST_STRENGTH)))
    a = mean * (1.0 / rho - 1.0)
    return a, (1.0 / rho - 1.0) - a


def more_errors(errors: Errors, mean: FloatArray, successes: FloatArray, trials: FloatArray) -> Errors:
    """Return the errors of beliefs with those of K more, made before the first evidence of their rows came.

    Outcomes of n trials of a row with the belief Beta(a, b) of mean m have

        E[n (successes / n - m)^2 / (m (1 - m))] = 1 + (n - 1) rho,    rho = 1 / (a + b + 1)

    The errors are sums of both sides without the 1, of about the last 256 rows; their ratio estimates rho. `mean`,
    `successes` and `trials` (above 0) are (K,) each.
    """
    excess = float((trials * (successes / trials - mean) ** 2 / (mean * (1.0 - mean)) - 1.0).sum())
    kept = LATELY / (LATELY + trials.size)
    return kept * errors[0] + excess, kept * errors[1] + float((trials - 1.0).sum())


def _fit(features: FloatArray, alpha: FloatArray, n: FloatArray) -> FloatArray:
    """Return the weights, (F + 1,), the constant last, of `features`, (V, F + 1), by Newton's method."""

    def likelihood(weights: FloatArray) -> float:
        logits = features @ weights
        return float(alpha @ logits - n @ np.logaddexp(0.0, logits) - RIDGE / 2.0 * weights @ weights)

    weights = np.zeros(WIDTH + 1)
    reached = likelihood(weights)
    for _ in range(MOST_STEPS):
        p = _sigmoid(features @ weights)
        slope = features.T @ (alpha - n * p) - RIDGE * weights
        curvature = (features.T * (n * p * (1.0 - p))) @ features
        curvature[np.diag_indices_from(curvature)] += RIDGE
        step = np.linalg.solve(curvature, slope)
        # From far away a whole step may overshoot.
        while (next_one := likelihood(weights + step)) < reached and np.abs(step).max() > TOLERANCE:
            step /= 2.0
        weights, reached = weights + step, next_one
        if np.abs(step).max() < TOLERANCE:
            break
    rounded: FloatArray = np.round(weights, DIGITS)
    return rounded


def _sigmoid(logits: FloatArray) -> FloatArray:
    return 1.0 / (1.0 + np.exp(-np.clip(logits, -700.0, 700.0)))  # without an overflow


def rest_ratio(posterior: BetaPosterior, num_generations: int, spreads: bool = False) -> float:
    """Estimate the share of groups with a gradient if each row were chosen equally often; by it rows rest.

    The belief about each row, of spreads or pass rates, starts from a Beta distribution fitted to the visited rows:
    from Beta(1, 1) the estimate is too high. Below 32 visited rows it starts there nevertheless.
    """
    alpha, beta = posterior.counts(posterior.visited)
    evident = alpha + beta >= EVIDENCE
    a, b = fit_prior(alpha[evident], beta[evident]) or FLAT
    unseen = posterior.num_samples - len(alpha)
    of_gradients = spread_group_probability if spreads else mixed_group_probability
    ratios = of_gradients(np.append(alpha, 0.0) + a, np.append(beta, 0.0) + b, num_generations)
    return float((ratios[:-1].sum() + unseen * ratios[-1]) / posterior.num_samples)


def fit_prior(alpha: FloatArray, beta: FloatArray) -> tuple[float, float] | None:
    """Fit Beta(a, b) to the counts of V rows, alpha_i + beta_i > 0, by moments; None if V is below `FEWEST_ROWS`.

    With n_i = alpha_i + beta_i and m the pooled pass rate, weighted squares of alpha_i / n_i about m have the mean

        m (1 - m) ((V - 1) + rho (sum n_i - sum n_i^2 / sum n_i - (V - 1)))    rho = 1 / (a + b + 1)

    The fit solves this for rho and clips m and a + b to the bounds of this module.
    Source: Kleinman (1973), Proportions with extraneous variance, JASA 68, 46-54, with weights n_i.
    """
    if alpha.size < FEWEST_ROWS:
        return None
    n = alpha + beta
    mean = float(np.clip(alpha.sum() / n.sum(), LOWEST_MEAN, HIGHEST_MEAN))
    squares = float((n * (alpha / n - mean) ** 2).sum()) / (mean * (1.0 - mean))
    degrees = n.size - 1
    room = float(n.sum() - (n**2).sum() / n.sum()) - degrees
    rho = (squares - degrees) / room if room > 0 else 0.0
    strength = 1.0 / rho - 1.0 if rho > 0 else HIGHEST_STRENGTH
    strength = float(np.clip(strength, LOWEST_STRENGTH, HIGHEST_STRENGTH))
    return mean * strength, (1.0 - mean) * strength
