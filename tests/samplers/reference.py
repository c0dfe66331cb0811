"""VADE on a page: what the package's sampler does, in numpy alone. Tests hold the package against it, bit for bit.

N rows, K rows of a draw, G completions of each. Source: VADE, arXiv 2511.18902, Algorithm 1 and equations 4 to 6.
"""

import re
from zlib import crc32

import numpy as np


class Reference:
    def __init__(self, num_rows, seed, *, symmetric, by_signal, rest, epoch=0, texts=None, sampled=0.2, others=0.999):
        self.alpha, self.beta = np.zeros((2, num_rows))  # right and wrong answers, as of the step `last`
        self.last, self.chosen = np.zeros((2, num_rows), int)  # steps in which a row was last scored, and last chosen
        self.step, self.draws = 0, 0
        self.seed, self.symmetric, self.by_signal, self.sampled, self.others = (
            seed,
            symmetric,
            by_signal,
            sampled,
            others,
        )
        self.rest, self.epoch, self.words = rest, epoch, None if texts is None else words_of(texts)

    def counts(self):  # equation 6: an unseen step keeps `others` of the counts
        kept = np.power(self.others, self.step - self.last)
        return self.alpha * kept, self.beta * kept

    def observe(self, rows, right, trials):
        alpha, beta = self.counts()
        for i, s, n in zip(rows, right, trials, strict=True):
            mixed = 0 < s < n
            kept = self.sampled if mixed or not self.by_signal else self.others
            if n:  # equation 5
                self.alpha[i], self.beta[i], self.last[i] = (
                    kept * alpha[i] + s,
                    kept * beta[i] + (n - s),
                    self.step + 1,
                )
        self.step += 1
        self.chosen[rows] = self.step

    def draw(self, k, exclude=()):
        alpha, beta = self.counts()
        a, b = (1.0, 1.0) if self.words is None else prior(self.words, alpha, beta, self.last)
        chance = np.random.Generator(np.random.Philox(key=[self.seed, self.draws]))
        self.draws += 1
        p = chance.beta(alpha + a, beta + b)  # Thompson: one pass rate of each row
        gain = p * (1 - p) if self.symmetric else p * (1 - p) * (1 - p)  # equation 4
        rest = max(self.rest, round(self.epoch * live_share(alpha, beta))) if self.epoch else self.rest
        waits = np.where(self.chosen > 0, np.maximum(self.chosen + rest - self.step, 0), 0)
        value = gain - waits  # below 0: the row rests
        value[list(exclude)] = -np.inf
        return np.argsort(-value, kind="stable")[:k]


def live_share(alpha, beta, g=8):
    """The share of groups with a gradient if every row came equally often: beliefs start from a Beta fitted to all."""
    n = alpha + beta
    a, b = fit(alpha[n >= 1], beta[n >= 1]) if (n >= 1).sum() >= 32 else (1.0, 1.0)
    a, b, j = alpha[:, None] + a, beta[:, None] + b, np.arange(g)
    return np.mean(1 - np.prod((a + j) / (a + b + j), 1) - np.prod((b + j) / (a + b + j), 1))


def fit(alpha, beta):
    """Kleinman's moments of a beta-binomial: a mean in [0.05, 0.95] and a strength a + b in [0.5, 8]."""
    n = alpha + beta
    mean = np.clip(alpha.sum() / n.sum(), 0.05, 0.95)
    excess = (n * (alpha / n - mean) ** 2).sum() / (mean * (1 - mean)) - (n.size - 1)
    room = n.sum() - (n**2).sum() / n.sum() - (n.size - 1)
    rho = np.clip(excess / room if room > 0 else 0.0, 1 / 9, 1 / 1.5)
    return mean * (1 / rho - 1), (1 - mean) * (1 / rho - 1)


def words_of(texts):  # (N, 128): which of 128 hashed words each text has, and 1
    features = np.zeros((len(texts), 129))
    features[:, 128] = 1
    for row, text in zip(features, texts, strict=True):
        row[[crc32(word.encode()) % 128 for word in re.findall(r"\w+", text.lower())]] = 1
    return features


def prior(words, alpha, beta, last):
    """A ridge regression of the pass rates on the words, by Newton's method; its error gives its strength."""
    seen = np.flatnonzero(last)
    if seen.size < 32:
        return 1.0, 1.0
    x, a, n, w = words[seen], alpha[seen], (alpha + beta)[seen], np.zeros(129)
    for _ in range(100):
        p = 1 / (1 + np.exp(-x @ w))
        w += (step := np.linalg.solve((x.T * (n * p * (1 - p))) @ x + np.eye(129), x.T @ (a - n * p) - w))
        if np.abs(step).max() < 1e-6:
            break
    mean = np.clip(1 / (1 + np.exp(-words @ np.round(w, 6))), 0.05, 0.95)
    known, m = n >= 1, mean[seen]
    error = n * (a / np.maximum(n, 1) - m) ** 2 / (m * (1 - m)) - 1
    room = (n - 1)[known].sum()
    rho = np.clip(error[known].sum() / room if room > 0 else 0.0, 1 / 9, 1 / 1.5)
    return mean * (1 / rho - 1), (1 - mean) * (1 / rho - 1)
