"""Does the prior from words say what the words say, and no more? Beliefs about rows that were never chosen.

    python -m eval.benchmarks.words                                        # 20 seeds, a minute
    python -m eval.benchmarks.words --runs FILE                            # 48 runs of the learning benchmark, an hour
    python -m eval.benchmarks.words --runs FILE --against eval/prior.jsonl # and their differences to another version

512 questions of digit chains of 1 to 8 steps; a policy that solves chains of up to 4 steps. 192 rows are seen once,
32 a step, 8 completions each. The words of a row say how long it is ("real"), nothing ("nothing", only its digits
differ), or one of two lengths, one of which is solved and one is not ("misleading": 1 with 5, 2 with 6, ...). For the
other 320 rows: the squared error of the expected pass rate, beside that of one common mean, and the log-likelihood of
a group of 8 under the belief, beside that of Beta(1, 1). A belief that is surer than it is right loses there.

With `--runs` the default preset learns in three situations of the learning benchmark, on seeds that nothing else used.
`eval/prior.jsonl` has these runs of two commits; differences are paired by seed, on one machine. With `--misled` it
learns in `staged` alone, its sampler reads the misleading words, and runs with the flat prior are beside.
"""

import argparse
import itertools
import json
import math
import re
from pathlib import Path

import numpy as np

from trl_vade.samplers import ThompsonSampler
from trl_vade.samplers.priors import prompt_words

ROWS, SEEN, STEP, G = 512, 192, 32, 8
REGIMES = ("staged", "wide", "many_impossible")
KEPT = (
    "regime",
    "arm",
    "learning_rate",
    "seed",
    "batches",
    "seconds",
    "machine",
    "versions",
    "commit",
    "rollouts",
    "score",
)
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


def runs(file, misled):
    """Make the runs that `file` lacks, and return all."""
    from .learning import arms, one_run
    from .learning.curves import read

    regimes, plain = ("staged",) if misled else REGIMES, one_run.prompt_texts
    flat = {"vade_preset": "balanced", "vade_prior": "flat"}
    if misled:
        one_run.prompt_texts = lambda pool: [re.sub(r"(?<=sum of )\d", one_of_two, text) for text in plain(pool)]
    made = {(record["regime"], record["arm"], record["seed"]): record for record in read(file)}
    for seed, regime, arm in itertools.product(
        range(500, 516), regimes, ("default", "flat") if misled else ("default",)
    ):
        if (regime, arm, seed) not in made:
            arms.ARMS[arm] = flat if arm == "flat" else arms.ARMS[arms.DEFAULT]
            record = one_run.run(regime, arm, 4e-4, seed, 120, evaluate_every=10)
            made[regime, arm, seed] = {name: record[name] for name in KEPT}
            with file.open("a") as lines:
                lines.write(json.dumps(made[regime, arm, seed]) + "\n")
    return [*made.values()]


def one_of_two(length):
    return str((int(length[0]) - 1) % 4 + 1)


def differences(ours, theirs):
    from .learning import curves
    from .learning.tables import between

    for regime in REGIMES:
        of = [[each for each in side if each["regime"] == regime] for side in (ours, theirs)]
        print(f"| {regime} | {between(curves.differences(*of, curves.area))} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--runs", type=Path)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--misled", action="store_true")
    options = parser.parse_args()
    if options.runs:
        ours = runs(options.runs, options.misled)
        if options.against:
            theirs = [json.loads(line) for line in options.against.read_text().splitlines()]
            differences(ours, [record for record in theirs if record["commit"] != ours[0]["commit"]])
        if options.misled:
            differences(*([each for each in ours if each["arm"] == arm] for arm in ("default", "flat")))
        return
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
