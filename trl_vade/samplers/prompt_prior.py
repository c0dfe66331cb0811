"""The belief about rows without evidence, from the words of their prompts.

Axis letters: N rows of the data set, V visited rows, F features.
"""

import re
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trl_vade.checks import FloatArray
from trl_vade.errors import ConfigurationError, abbreviated

from .even_draw import FEWEST_ROWS, HIGHEST_MEAN, HIGHEST_STRENGTH, LOWEST_MEAN, LOWEST_STRENGTH
from .posterior import BetaPosterior
from .prior import FLAT, Prior, RowPrior

Words = NDArray[np.uint8]  # (N, F / 8): F bits a row

WIDTH = 128
"""F, the features that words are hashed to. `docs/results/learning.md` has measured no other number."""
RIDGE = 1.0  # the precision of the belief N(0, 1 / RIDGE) about each weight
MOST_ROWS = 2**13  # rows of a fit: those that were chosen last
MOST_STEPS, TOLERANCE, DIGITS = 100, 1e-6, 6
"""Of Newton's method: the steps, the change of the weights that ends it, and the digits of the weights that are kept.
Another order of the sums, as on another machine, leaves these digits the same."""
EVIDENCE = 1.0  # smallest alpha + beta of a row that tells how far rows differ
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W\u3040-\u30ff\u3400-\u9fff]+")
"""A word, or a character of a script without spaces."""
_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).astype(np.float64)  # (256, 8)


def prompt_words(texts: Iterable[str]) -> Words:
    """Hash the words of N texts to F features; return which of them each text has, (N, F / 8) packed bits.

    Case and order do not count, nor how often a word occurs. Numbers are words.
    """
    rows = []
    for text in texts:
        features = 0
        for word in set(_WORD.findall(text.lower())):
            features |= 1 << (WIDTH - 1 - zlib.crc32(word.encode()) % WIDTH)  # the first feature is the highest bit
        rows.append(features.to_bytes(WIDTH // 8, "big"))
    return np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(-1, WIDTH // 8)


def check_words(words: Any, num_samples: int) -> Words:
    """Return `words`, or raise `ConfigurationError` unless they are the `prompt_words` of `num_samples` rows."""
    shape, dtype = getattr(words, "shape", None), getattr(words, "dtype", None)
    if shape != (num_samples, WIDTH // 8) or dtype != np.uint8:
        received = abbreviated(words) if shape is None else f"{dtype} of shape {shape}"
        raise ConfigurationError(
            f"prior is 'prompts', and words is {received}. "
            f"It must be uint8 of shape ({num_samples}, {WIDTH // 8}): pass prompt_words of the prompts of all rows."
        )
    checked: Words = words
    return checked


def prompt_prior(posterior: BetaPosterior, words: Words) -> Prior:
    """Fit a logistic regression of the pass rates on the words of the prompts; return its belief about all N rows.

    With alpha_i successes and beta_i failures of row i as the posterior has them, and its features x_i, the weights
    maximise

        sum_i alpha_i log p_i + beta_i log(1 - p_i) - RIDGE / 2 |w|^2,    p_i = sigmoid(w x_i + w_0)

    The mean of the belief about row i is p_i, within [0.05, 0.95]. How far rows differ from their p_i gives its
    strength a + b, within [0.5, 8]. Counts decay, so the fit follows the policy. It depends on the counts alone, so a
    checkpoint need not hold it. Below 32 visited rows the belief is Beta(1, 1).

    Args:
        posterior: the counts of the N rows.
        words: (N, F / 8) the result of `prompt_words`.
    """
    rows = posterior.visited
    if rows.size < FEWEST_ROWS:
        return FLAT
    if rows.size > MOST_ROWS:
        last = posterior.last_update_of(rows)
        rows = rows[np.argsort(last, kind="stable")[-MOST_ROWS:]]
    alpha, beta = posterior.counts(rows)
    n = alpha + beta
    features = np.ones((rows.size, WIDTH + 1))
    features[:, :WIDTH] = np.unpackbits(words[rows], axis=1)
    mean = np.clip(_sigmoid(_logits(words, _fit(features, alpha, n))), LOWEST_MEAN, HIGHEST_MEAN)
    expected, evident = mean[rows], n >= EVIDENCE
    squares = n * (alpha / np.maximum(n, EVIDENCE) - expected) ** 2 / (expected * (1.0 - expected))
    room = float((n[evident] - 1.0).sum())
    rho = float((squares[evident] - 1.0).sum()) / room if room > 0 else 0.0
    rho = float(np.clip(rho, 1.0 / (1.0 + HIGHEST_STRENGTH), 1.0 / (1.0 + LOWEST_STRENGTH)))
    a = mean * (1.0 / rho - 1.0)
    return RowPrior(a, (1.0 / rho - 1.0) - a)


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


def _logits(words: Words, weights: FloatArray) -> FloatArray:
    """Return the logits of all N rows: for each byte of a row, the sum of its weights is looked up."""
    of_bytes = _BITS @ weights[:WIDTH].reshape(-1, 8).T  # (256, F / 8)
    logits = np.full(len(words), weights[WIDTH])
    for byte, table in enumerate(of_bytes.T):
        logits += table[words[:, byte]]
    return logits


def _sigmoid(logits: FloatArray) -> FloatArray:
    value: FloatArray = np.exp(-np.logaddexp(0.0, -logits))  # without an overflow
    return value
