"""How fast selection recovers from a reward outage, with the guard of `trl_vade.selection.watch` and without it.

    python -m eval.benchmarks.outage

No model is trained. The rows have latent pass rates, a mixture: 25 % impossible (0), 20 % hard (0.02 to 0.2), 25 %
medium (0.2 to 0.6), 15 % easy (0.6 to 0.95), 15 % mastered (0.97 to 1); with `--drift` each walks on in its logit by
that much a step (standard deviation). A run warms up, then every reward is 0 (or 1) for `--outage_steps` generation
batches, then rewards are sound again. Both arms of a seed see the same rows, rates and random numbers up to the first
choice that differs.

Reported: the effective gradient ratio (of the true rewards) before the outage (mean of its last 25 batches) and after
it; generation batches until its mean over five is back at 95 % of before, and how many runs never got there; the mean
absolute error of the posterior mean on the rows visited.
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
COLUMNS = (
    ("before", "ratio_before"),
    ("first 10 after", "ratio_10"),
    ("first 25", "ratio_25"),
    ("first 50", "ratio_50"),
    ("batches to 95 %", "recovery"),
    ("error before", "error_before"),
    ("at its end", "error_end"),
    ("10 later", "error_10"),
    ("50 later", "error_50"),
    ("outage batches observed", "observed"),
    ("sound ones left out", "false"),
)
ERROR_AT = {"error_before": 0, "error_end": 0, "error_10": 10, "error_50": 50}  # batches after the start, or the end


def pass_rates(num_rows, rng):
    lowest, highest = np.array([[0.0, 0.02, 0.2, 0.6, 0.97], [0.0, 0.2, 0.6, 0.95, 1.0]])
    kind = rng.choice(5, size=num_rows, p=[0.25, 0.2, 0.25, 0.15, 0.15])
    return rng.uniform(lowest[kind], highest[kind])


def drifted(rates, drift, rng):
    if not drift:
        return rates
    inside = np.clip(rates, 1e-6, 1 - 1e-6)
    moved = 1 / (1 + (1 / inside - 1) * np.exp(-rng.normal(0.0, drift, len(rates))))
    return np.where((rates > 0) & (rates < 1), moved, rates)  # the impossible stays so


def simulate(seed, *, guarded, value, options, **rule):
    """One run: figures of `COLUMNS`, with the batches of the outage that were observed and the sound ones left out."""
    rng, chance = np.random.default_rng([seed, 0]), np.random.default_rng([seed, 1])
    rates = pass_rates(options.rows, rng)
    sampler = ThompsonSampler(options.rows, seed=seed, **rule)
    guard = OutageGuard(sampler.posterior) if guarded else None
    start, end = options.before, options.before + options.outage_steps
    trials = np.full(options.batch, float(options.generations))
    ratio, errors, left_out, false = [], [], 0, 0

    for step in range(end + options.after):
        errors.append(error(sampler.posterior, rates))
        rows = sampler.draw(options.batch).sample_index
        successes = chance.binomial(options.generations, rates[rows]).astype(np.float64)
        ratio.append(np.mean((successes > 0) & (successes < trials)))
        if start <= step < end:
            successes = trials * value
        if guard:
            guard.judge(GroupOutcomes(rows, successes, trials, (successes > 0) & (successes < trials)))
            left_out += guard.active
            false += guard.active and not start <= step < end
        seen = slice(0) if guard and guard.active else slice(None)
        sampler.observe(rows[seen], successes[seen], trials[seen])
        rates = drifted(rates, options.drift, rng)

    before, after = float(np.mean(ratio[max(0, start - 25) : start])), np.array(ratio[end:])
    means_of_five = np.convolve(after, np.full(5, 0.2), mode="valid")
    back = np.flatnonzero(means_of_five >= 0.95 * before)
    figures = {
        "ratio_before": before,
        "observed": options.outage_steps - left_out + false,
        "false": false,
        "recovery": back[0] + 5 if back.size else None,
    }
    figures |= {f"ratio_{count}": float(after[:count].mean()) for count in (10, 25, 50)}
    for name, offset in ERROR_AT.items():
        figures[name] = errors[min(offset + (start if name == "error_before" else end), len(errors) - 1)]
    return figures


def error(posterior, rates):
    visited = posterior.visits > 0
    return float(np.abs(posterior.posterior_mean - rates)[visited].mean()) if visited.any() else float("nan")


def spread(values):
    reached = [value for value in values if value is not None]
    if not reached:
        return "never"
    digits = 0 if isinstance(reached[0], (int, np.integer)) else 3
    text = f"{np.mean(reached):.{max(digits, 1)}f} ({min(reached):.{digits}f} to {max(reached):.{digits}f})"
    return text if len(reached) == len(values) else f"{text}, {len(values) - len(reached)} never"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(20)))
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=64, help="rows in a generation batch")
    parser.add_argument("--generations", type=int, default=8, help="completions of a row")
    parser.add_argument("--before", type=int, default=100, help="generation batches before the outage")
    parser.add_argument("--outage_steps", type=int, default=20)
    parser.add_argument("--after", type=int, default=100)
    parser.add_argument("--drift", type=float, default=0.0)
    parser.add_argument("--rules", nargs="+", choices=RULES, default=list(RULES))
    options = parser.parse_args()

    print(
        f"Outage of {options.outage_steps} generation batches after {options.before}; {options.rows} rows, "
        f"{options.batch} x {options.generations}, drift {options.drift:g}; mean over {len(options.seeds)} seeds "
        "(lowest to highest)\n"
    )
    print("| rewards | rule | guard |", " | ".join(title for title, _ in COLUMNS), "|")
    print("| --- " * (3 + len(COLUMNS)) + "|")
    for value in (0, 1):
        for name in options.rules:
            for guarded in (True, False):
                runs = [
                    simulate(seed, guarded=guarded, value=value, options=options, **RULES[name])
                    for seed in options.seeds
                ]
                figures = " | ".join(spread([run[key] for run in runs]) for _, key in COLUMNS)
                print(f"| all {value} | {name} | {'on' if guarded else 'off'} | {figures} |", flush=True)


if __name__ == "__main__":
    main()
