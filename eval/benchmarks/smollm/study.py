"""What a real model's pass rates are made of, and what a draw of rows would find, by inference alone."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trl_vade.samplers import ThompsonSampler, UniformSampler
from trl_vade.samplers.priors import prompt_words

GROUPS, GENERATIONS = 32, 8
FOLDS, RIDGE = 8, 1.0


def parts_of_variance(
    successes: NDArray[np.float64], trials: int, texts: list[str], tasks: list[str], cells: list[str], seed: int = 0
) -> dict[str, float]:
    """Return shares of the variance of true pass rates: what words, tasks, and tasks with levels explain.

    `successes`, (N,), are those of `trials` answers of each row. The variance of the rates is that of the shares less
    the mean variance of a share by luck, p (1 - p) / (trials - 1). What features explain is measured on rows that the
    fit did not see, in eight folds. The rest is of the rows.
    """
    share = successes / trials
    true = float(share.var() - (share * (1 - share) / (trials - 1)).mean())
    found = {
        "words": np.unpackbits(prompt_words(texts), axis=1).astype(float),
        "task": one_hot(tasks),
        "task and level": one_hot(cells),
    }
    fold = np.random.default_rng(seed).permutation(len(share)) % FOLDS
    explained = {}
    for name, features in found.items():
        error = np.empty(len(share))
        for part in range(FOLDS):
            here, there = fold == part, fold != part
            x, y = features[there], share[there]
            weights = np.linalg.solve(x.T @ x + RIDGE * np.eye(x.shape[1]), x.T @ (y - y.mean()))
            error[here] = share[here] - y.mean() - features[here] @ weights
        explained[name] = float((share.var() - (error**2).mean()) / true)
    return {"mean": float(share.mean()), "deviation": true**0.5, **explained}


def one_hot(labels: list[str]) -> NDArray[np.float64]:
    return np.equal.outer(labels, sorted({*labels})).astype(float)


def useful_shares(rates: NDArray[np.float64], texts: list[str], batches: int, seed: int) -> dict[str, list[float]]:
    """Return the share of groups with a gradient that draws of a policy that stays find, by epoch of the rows.

    `rates`, (N,), are taken for the pass rates. The oracle takes the best rows again and again.
    """
    chance = np.random.default_rng(seed)
    epoch, mixed = len(rates) / GROUPS, 1 - rates**GENERATIONS - (1 - rates) ** GENERATIONS
    balanced = {"signal_aware_decay": True, "num_generations": GENERATIONS}
    balanced |= {"cooldown": round(0.5 * epoch), "even_rest": round(epoch)}
    samplers: dict[str, Any] = {
        "even": UniformSampler(len(rates), seed=seed),
        "default": ThompsonSampler(len(rates), seed=seed, prior="prompts", words=prompt_words(texts), **balanced),
        "default, without words": ThompsonSampler(len(rates), seed=seed, **balanced),
    }
    found: dict[str, list[float]] = {name: [] for name in samplers}
    for _ in range(batches):
        for name, sampler in samplers.items():
            rows = sampler.draw(GROUPS).sample_index
            successes = chance.binomial(GENERATIONS, rates[rows]).astype(float)
            live = (successes > 0) & (successes < GENERATIONS)
            sampler.observe(rows, successes, np.full(GROUPS, float(GENERATIONS)), live)
            found[name].append(float(live.mean()))
    found["oracle"] = [float(np.sort(mixed)[-GROUPS:].mean())] * batches
    size = max(round(epoch), 1)
    return {
        name: [float(np.mean(each[at : at + size])) for at in range(0, batches, size)] for name, each in found.items()
    }
