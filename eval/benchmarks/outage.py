"""How fast selection recovers from a reward outage, with the guard of `trl_vade.selection.watch` and without it.

    python -m eval.benchmarks.outage

No model is trained. The 2,000 rows have latent pass rates: 25 % impossible (0), 20 % hard (0.02 to 0.2), 25 % medium
(0.2 to 0.6), 15 % easy (0.6 to 0.95), 15 % mastered (0.97 to 1). A run warms up for 100 generation batches. Then every
reward is 0 (or 1) for 20 batches, and sound again for 100. Both arms of a seed see the same rows, rates and random
numbers up to the first choice that differs.

Reported: the effective gradient ratio of the true rewards before the outage (mean of its last 25 batches); generation
batches until its mean over five is back at 95 % of that, and how many runs never got there; the mean absolute error of
the posterior mean on the rows visited, before the outage and 10 batches after it.
"""

import argparse

import numpy as np

from trl_vade.samplers.thompson import ThompsonSampler
from trl_vade.selection.outcomes import GroupOutcomes
from trl_vade.selection.watch import OutageGuard

RULES = {
    "the paper's rule": {},
    "symmetric gain": {"gain": "symmetric"},
    "lambda_1 = 0.8": {"decay_sampled": 0.8},
    "symmetric, lambda_1 = 0.8": {"gain": "symmetric", "decay_sampled": 0.8},
}
COLUMNS = {
    "before": "ratio_before",
    "batches to 95 %": "recovery",
    "error before": "error_before",
    "10 later": "error_10",
    "outage batches observed": "observed",
    "sound ones left out": "false",
}
ROWS, START, END, LAST = 2000, 100, 120, 220  # generation batches: of the outage's start and end, and of the run


def pass_rates(rng):
    lowest, highest = np.array([[0.0, 0.02, 0.2, 0.6, 0.97], [0.0, 0.2, 0.6, 0.95, 1.0]])
    kind = rng.choice(5, size=ROWS, p=[0.25, 0.2, 0.25, 0.15, 0.15])
    return rng.uniform(lowest[kind], highest[kind])


def simulate(seed, *, guarded, value, batch, generations, **rule):
    """One run: the figures of `COLUMNS`."""
    rates, chance = pass_rates(np.random.default_rng([seed, 0])), np.random.default_rng([seed, 1])
    sampler = ThompsonSampler(ROWS, seed=seed, signal_aware_decay=False, **rule)
    guard = OutageGuard(sampler.posterior) if guarded else None
    trials = np.full(batch, float(generations))
    ratio, errors, left_out, false = [], [], 0, 0
    for step in range(LAST):
        errors.append(error(sampler.posterior, rates))
        rows = sampler.draw(batch).sample_index
        successes = chance.binomial(generations, rates[rows]).astype(np.float64)
        ratio.append(np.mean((successes > 0) & (successes < trials)))
        if START <= step < END:
            successes = trials * value
        if guard:
            guard.judge(GroupOutcomes(rows, successes, trials, (successes > 0) & (successes < trials)))
            left_out += guard.active
            false += guard.active and not START <= step < END
        seen = slice(0) if guard and guard.active else slice(None)
        sampler.observe(rows[seen], successes[seen], trials[seen])
    before = float(np.mean(ratio[START - 25 : START]))
    back = np.flatnonzero(np.convolve(ratio[END:], np.full(5, 0.2), mode="valid") >= 0.95 * before)
    return {
        "ratio_before": before,
        "recovery": int(back[0]) + 5 if back.size else None,
        "error_before": errors[START],
        "error_10": errors[END + 10],
        "observed": END - START - left_out + false,
        "false": false,
    }


def error(posterior, rates):
    visited = posterior.visits > 0
    return float(np.abs(posterior.posterior_mean - rates)[visited].mean()) if visited.any() else float("nan")


def spread(values):
    reached = [value for value in values if value is not None]
    if not reached:
        return "never"
    digits = 0 if isinstance(reached[0], int) else 3
    text = f"{np.mean(reached):.{max(digits, 1)}f} ({min(reached):.{digits}f} to {max(reached):.{digits}f})"
    return text if len(reached) == len(values) else f"{text}, {len(values) - len(reached)} never"


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(20)))
    parser.add_argument("--batch", type=int, default=64, help="rows in a generation batch")
    parser.add_argument("--generations", type=int, default=8, help="completions of a row")
    options = parser.parse_args(arguments)
    print(f"{options.batch} x {options.generations}; mean over {len(options.seeds)} seeds (lowest to highest)\n")
    print("| rewards | rule | guard |", " | ".join(COLUMNS), "|")
    print("| --- " * (3 + len(COLUMNS)) + "|")
    for value in (0, 1):
        for name, rule in RULES.items():
            for guarded in (True, False):
                how = {"guarded": guarded, "value": value, "batch": options.batch} | rule
                runs = [simulate(seed, generations=options.generations, **how) for seed in options.seeds]
                figures = " | ".join(spread([run[key] for run in runs]) for key in COLUMNS.values())
                print(f"| all {value} | {name} | {'on' if guarded else 'off'} | {figures} |", flush=True)


if __name__ == "__main__":
    main()
