"""How far is the posterior, as it is stored, from the same equations in plain float64?"""

import numpy as np

from .evidence import COMPLETIONS
from .tables import aligned

CHECK_EVERY = 500
SMALLEST = 1e-6  # relative errors are those of larger values: below, beside the prior's 1, a count says nothing


class Oracle:
    """Equations 5 and 6, a row's decay made up for when it is read: float64 and nothing else."""

    def __init__(self, num_rows, decay_sampled, decay_unsampled, signal_aware_decay):
        self.sampled, self.unsampled, self.signal_aware = decay_sampled, decay_unsampled, signal_aware_decay
        self.alpha, self.beta, self.last = np.zeros(num_rows), np.zeros(num_rows), np.zeros(num_rows)
        self.step = 0

    def counts(self, rows=slice(None)):
        kept = self.unsampled ** (self.step - self.last[rows])
        return self.alpha[rows] * kept, self.beta[rows] * kept

    def observe(self, rows, successes):
        alpha, beta = self.counts(rows)
        self.step += 1
        mixed = (successes > 0) & (successes < COMPLETIONS)
        kept = np.where(mixed | (not self.signal_aware), self.sampled, self.unsampled)
        self.alpha[rows] = kept * alpha + successes
        self.beta[rows] = kept * beta + (COMPLETIONS - successes)
        self.last[rows] = self.step


def outcomes(num_rows, steps, k, seed):
    """Yield (rows, successes) of each step: a part of the rows, none to nearly all, is that of the step before."""
    generator = np.random.default_rng(seed)
    level, phase = generator.normal(0, 2, num_rows), generator.uniform(0, 2 * np.pi, num_rows)
    rows = generator.choice(num_rows, k, replace=False)
    for step in range(steps):
        stays = generator.permutation(rows)[: int(k * (0.45 + 0.45 * np.sin(step / 50)))]
        others = generator.integers(num_rows, size=3 * k + 16)
        _, first = np.unique(np.concatenate([stays, others]), return_index=True)
        rows = np.concatenate([stays, others])[np.sort(first)[:k]]
        pass_rate = 1 / (1 + np.exp(-level[rows] - 2 * np.sin(step / 800 + phase[rows])))  # it drifts
        yield rows, generator.binomial(COMPLETIONS, pass_rate)


def compare(num_rows, steps, k, seed, signal_aware_decay, check_every=CHECK_EVERY):
    """The largest (absolute, relative) errors of alpha, beta and the posterior mean over all rows, at some steps."""
    from trl_vade import BetaPosterior

    posterior = BetaPosterior(num_rows, signal_aware_decay=signal_aware_decay)
    oracle = Oracle(num_rows, **posterior.decays)
    worst = dict.fromkeys(("alpha", "beta", "posterior mean"), (0.0, 0.0))
    for step, (rows, successes) in enumerate(outcomes(num_rows, steps, k, seed), start=1):
        posterior.observe(rows, successes, np.full(rows.size, COMPLETIONS))
        oracle.observe(rows, successes)
        if step % check_every == 0 or step == steps:
            alpha, beta = oracle.counts()
            true = (alpha, beta, (alpha + 1) / (alpha + beta + 2))
            stored = (*posterior.counts(), posterior.posterior_mean)
            for name, mine, right in zip(worst, stored, true, strict=True):
                worst[name] = tuple(map(max, worst[name], _errors(mine, right)))
    return {"signal_aware_decay": signal_aware_decay, "dtype": str(posterior.state_dict()["alpha"].dtype)} | worst


def _errors(mine, right):
    off, counted = np.abs(mine - right), right > SMALLEST
    return float(off.max()), float((off[counted] / right[counted]).max(initial=0))


def report(results):
    names = ("alpha", "beta", "posterior mean")
    head = ["largest error, absolute (relative)", "stored as", *names]
    lines = [
        [
            f"signal_aware_decay={result['signal_aware_decay']}",
            result["dtype"],
            *("{:.1e} ({:.1e})".format(*result[name]) for name in names),
        ]
        for result in results
    ]
    return aligned(head, lines)
