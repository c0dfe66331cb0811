"""Does the prior from words say what the words say, and no more? Beliefs about rows that were never chosen.

    python -m eval.benchmarks.words               # 20 seeds, a minute

512 questions of digit chains of 1 to 8 steps; a policy that solves chains of up to 4 steps. 192 rows are seen once,
32 a step, 8 completions each. The words of a row say how long it is ("real"), nothing ("nothing", only its digits
differ), or one of two lengths, one of which is solved and one is not ("misleading": 1 with 5, 2 with 6, ...). For the
other 320 rows: the squared error of the expected pass rate, beside that of one common mean, and the log-likelihood of
a group of 8 under the belief, beside that of Beta(1, 1). A belief that is surer than it is right loses there.
"""

import argparse
import math

import numpy as np

from trl_vade.samplers import ThompsonSampler
from trl_vade.samplers.priors import prompt_words

ROWS, SEEN, STEP, G = 512, 192, 32, 8
log_gamma = np.vectorize(math.lgamma)


def texts_of(words, length, rng):
    said = {"real": length, "nothing": ["some"] * ROWS, "misleading": (length - 1) % 4 + 1}[words]
    digits = ["".join(map(str, rng.integers(0, 5, 8))) for _ in range(ROWS)]
    return [f"What is the sum of {count} of the digits {shown}?" for count, shown in zip(said, digits, strict=True)]


def likelihood(a, b, right):
    """Mean log-likelihood of `right` of G under a beta-binomial, without the binomial coefficient."""
    beta = lambda a, b: log_gamma(a) + log_gamma(b) - log_gamma(a + b)  # noqa: E731
    return float(np.mean(beta(a + right, b + G - right) - beta(a, b)))


def measure(words, seed):
    rng = np.random.default_rng([seed, 7])
    length = rng.integers(1, 9, ROWS)
    rate = 1 / (1 + np.exp(3.0 * (length - 4.5) + rng.normal(0, 0.5, ROWS)))
    right = rng.binomial(G, rate)
    sampler = ThompsonSampler(ROWS, prior="prompts", words=prompt_words(texts_of(words, length, rng)))
    order = rng.permutation(ROWS)
    for rows in order[:SEEN].reshape(-1, STEP):
        sampler.prior()  # as a draw asks for it
        sampler.observe(rows, right[rows], np.full(STEP, G))
    other = order[SEEN:]
    a, b = sampler.belief(other)
    common = right[order[:SEEN]].mean() / G
    return (
        float(np.mean((a / (a + b) - rate[other]) ** 2)),
        float(np.mean((common - rate[other]) ** 2)),
        float(np.mean(a + b)),
        likelihood(a, b, right[other]) - likelihood(np.ones(other.size), np.ones(other.size), right[other]),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    options = parser.parse_args()
    print(f"Mean (lowest to highest) of {options.seeds} seeds\n")
    print(
        "| words | squared error | of one common mean | strength a + b | log-likelihood of a group, above Beta(1, 1) |"
    )
    print("| --- | ---: | ---: | ---: | ---: |")
    for words in ("real", "nothing", "misleading"):
        values = np.array([measure(words, seed) for seed in range(options.seeds)])
        cells = [f"{each.mean():.3g} ({each.min():.3g} to {each.max():.3g})" for each in values.T]
        print(f"| {words} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
