"""VADE on a page: what the package's sampler does, in numpy alone. Tests hold the package against it, draw by draw.

N rows, K rows of a draw, G completions of each. Source: VADE, arXiv 2511.18902, Algorithm 1 and equations 4 to 6.
The prior from words, the rest by even draws and the decay by signal are ours.
"""

import re
from collections import Counter
from zlib import crc32

import numpy as np


class Reference:
    def __init__(self, num_rows, seed, *, rest, epoch, texts, symmetric, greedy, by_signal, sampled, others):
        self.alpha, self.beta = np.zeros((2, num_rows))  # right and wrong answers, as of the step `last`
        self.last, self.chosen = np.zeros((2, num_rows), int)  # steps in which a row was last scored, and last chosen
        self.seed, self.step, self.draws = seed, 0, 0
        self.symmetric, self.greedy = symmetric, greedy
        self.by_signal, self.sampled, self.others = by_signal, sampled, others
        self.rest, self.epoch, self.words = rest, epoch, None if texts is None else words_of(texts)
        self.excess, self.room = 56 / 3, 56.0  # how far new rows were from their prior: as if it were Beta(1, 1)

    def counts(self):  # equation 6: a step without the row keeps `others` of its counts
        kept = np.power(self.others, self.step - self.last)
        return self.alpha * kept, self.beta * kept

    def prior(self, alpha, beta):
        seen, rho = self.last > 0, np.clip(self.excess / self.room, 1 / 9, 1 / 1.5)
        if self.words is None or seen.sum() < 32:
            return None
        mean = regression(self.words, self.words[seen], alpha[seen], (alpha + beta)[seen])
        return mean * (1 / rho - 1), (1 - mean) * (1 / rho - 1)

    def observe(self, rows, right, trials):
        alpha, beta = self.counts()
        if prior := self.prior(alpha, beta):  # was it right about rows that it had not seen?
            m, new = (prior[0] / (prior[0] + prior[1]))[rows], ((alpha + beta)[rows] < 1) & (trials > 0)
            m, s, n, kept = m[new], right[new], trials[new], 256 / (256 + new.sum())
            self.excess = kept * self.excess + (n * (s / n - m) ** 2 / (m * (1 - m)) - 1).sum()
            self.room = kept * self.room + (n - 1).sum()
        self.step += 1
        self.chosen[rows] = self.step
        for i, s, n in zip(rows, right, trials, strict=True):
            kept = self.sampled if 0 < s < n or not self.by_signal else self.others
            if n:  # equation 5
                self.alpha[i], self.beta[i] = kept * alpha[i] + s, kept * beta[i] + (n - s)
                self.last[i] = self.step

    def draw(self, k, exclude=()):
        alpha, beta = self.counts()
        a, b = self.prior(alpha, beta) or (1.0, 1.0)
        chance = np.random.Generator(np.random.Philox(key=[self.seed, self.draws]))
        self.draws += 1
        a, b = alpha + a, beta + b
        p = a / (a + b) if self.greedy else chance.beta(a, b)  # Thompson: one pass rate of each row
        gain = p * (1 - p) if self.symmetric else p * (1 - p) * (1 - p)  # equation 4
        rest = max(self.rest, round(self.epoch * live_share(alpha, beta))) if self.epoch else self.rest
        waits = np.where(self.chosen > 0, np.maximum(self.chosen + rest - self.step, 0), 0)
        value = gain - waits  # below 0: the row rests
        value[list(exclude)] = -np.inf
        return np.argsort(-value, kind="stable")[:k]


def words_of(texts):  # (N, 129): which of 128 hashed words each text has, without words of fewer than 8 texts, and 1
    texts = [set(re.findall(r"\w+", text.lower())) for text in texts]
    count, features = Counter(word for words in texts for word in words), np.zeros((len(texts), 129))
    for row, words in zip(features, texts, strict=True):
        row[[crc32(word.encode()) % 128 for word in words if count[word] >= 8] + [128]] = 1
    return features


def regression(words, x, alpha, n):  # logistic, with a ridge, by Newton's method
    w = np.zeros(129)
    for _ in range(100):
        p = 1 / (1 + np.exp(-x @ w))
        w += (step := np.linalg.solve((x.T * (n * p * (1 - p))) @ x + np.eye(129), x.T @ (alpha - n * p) - w))
        if np.abs(step).max() < 1e-6:
            break
    return np.clip(1 / (1 + np.exp(-words @ np.round(w, 6))), 0.05, 0.95)


def live_share(alpha, beta, g=8):  # of groups with a gradient, if each row came equally often
    n = alpha + beta
    a, b = moments(alpha[n >= 1], beta[n >= 1]) if (n >= 1).sum() >= 32 else (1.0, 1.0)
    a, b, j = alpha[:, None] + a, beta[:, None] + b, np.arange(g)
    return np.mean(1 - np.prod((a + j) / (a + b + j), 1) - np.prod((b + j) / (a + b + j), 1))


def moments(alpha, beta):  # of a beta-binomial (Kleinman, 1973): a mean in [0.05, 0.95], a + b in [0.5, 8]
    n = alpha + beta
    mean = np.clip(alpha.sum() / n.sum(), 0.05, 0.95)
    excess = (n * (alpha / n - mean) ** 2).sum() / (mean * (1 - mean)) - (n.size - 1)
    room = n.sum() - (n**2).sum() / n.sum() - (n.size - 1)
    rho = np.clip(excess / room if room > 0 else 0.0, 1 / 9, 1 / 1.5)
    return mean * (1 / rho - 1), (1 - mean) * (1 / rho - 1)
