"""GRPO on a `FastPolicy` in one process: what a learning benchmark runs hundreds of times.

The sampler is passed in. It needs `draw(k, exclude=None)`, whose result has `sample_index` and `posterior_mean`, both
(K,), and `observe(sample_index, successes, trials)`, with `mixed` where a `signal` is given. A sampler with a true
attribute `sees_pass_rates` is an oracle: every few steps its `set_pass_rates(p, mixed)` gets the exact pass rates of
the pool and how likely a group of each row has a gradient, (N,) each.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from trl_vade.selection.signal import RewardSignal

from .fast_policy import FastPolicy
from .rollouts import Rollouts

History = dict[str, dict[str, list[Any]]]

STEP_FIGURES = ("rollouts", "gradient_ratio", "refills", "loss", "grad_norm", "sample_index", "has_spread")
STEP_FIGURES += ("successes", "posterior_mean")
MOST_SEEN = 2048
EVALUATION_FIGURES = ("step", "rollouts", "tokens", "score", "greedy", "pool_pass_rates", "uniform_ratio")


def train(
    policy: FastPolicy,
    sampler: Any,
    *,
    steps: int,
    num_groups: int,
    num_generations: int,
    learning_rate: float,
    seed: int,
    validation: FastPolicy,
    evaluate_every: int,
    max_rollouts: int | None = None,
    initial_pass: bool = False,
    dynamic_sampling: str = "",
    max_refills: int = 10,
    oracle_every: int = 5,
    max_grad_norm: float = 1.0,
    signal: RewardSignal | None = None,
    watched: NDArray[np.int64] | None = None,
) -> History:
    """Train `policy.model` in place; return what happened, the same to the bit for the same arguments on one machine.

    The optimiser is the one of transformers' `Trainer` by default: AdamW, betas 0.9 and 0.999, eps 1e-8, no weight
    decay, a constant rate, gradients clipped to a norm.

    Args:
        policy: The pool to train on; N rows.
        sampler: Chooses the rows, see above. Its random numbers are its own.
        steps: Updates at most; `max_rollouts` may end the training before.
        num_groups: K, groups of a generation batch, which is one update.
        num_generations: G, completions of each.
        seed: Of the sampling of completions.
        validation: Scored exactly, without sampling; shares the model of `policy`.
        evaluate_every: Steps between two evaluations, or as many rollouts as these have without refills; there is one
            before the first and one after the last step too.
        max_rollouts: After the step that reaches it, training ends.
        initial_pass: Begin with G completions of every row, observed as one step (VADE, Algorithm 1, lines 1-4); they
            count as rollouts. The sampler takes the counts over, since nothing was trained on.
        dynamic_sampling: As DAPO (arXiv 2503.14476): groups without a spread are dropped and others drawn for them,
            never a row that this batch has had. "batches": each draw has `num_groups` rows, as DAPO's own code does,
            and groups beyond a full batch are dropped. "missing": each draw has as many rows as are missing. What is
            still missing after `max_refills`, or when no row is left, is filled up with the groups dropped first.
        max_refills: Further draws for one batch at most.
        oracle_every: Steps between two looks of an oracle.
        signal: What the sampler is told of the rewards; None: the right answers.
        watched: Rows of the pool whose pass rates are in the evaluations; None: all.

    Returns:
        `history["steps"]`, one entry a step (M groups generated in it): `rollouts` so far, `gradient_ratio` (share of
        the M groups with a spread), `refills`, `loss` and `grad_norm` of the update. (M,) each, in the order drawn:
        `sample_index`, `has_spread`, `successes` (as the sampler was told) and `posterior_mean` (before them).

        `history["evaluations"]`: `step`, `rollouts` and their `tokens` so far, `score` (mean probability of a right
        answer over the validation rows), `greedy` (share that is right without sampling), exact `pool_pass_rates`.
        `uniform_ratio` is the gradient ratio that a uniform draw from the pool would have in expectation.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # on busy cores two threads that wait for each other are slower
    try:
        generator = torch.Generator().manual_seed(seed)
        optimizer = torch.optim.AdamW(policy.model.parameters(), lr=learning_rate, weight_decay=0.0, fused=True)
        history: History = {
            "steps": {name: [] for name in STEP_FIGURES},
            "evaluations": {name: [] for name in EVALUATION_FIGURES},
        }
        rollouts = tokens = due = 0
        for step in range(steps + 1):
            last = step == steps or (max_rollouts is not None and rollouts >= max_rollouts)
            if rollouts >= due or last:
                due = rollouts + evaluate_every * num_groups * num_generations
                figures = _evaluate(policy, validation, num_generations, watched)
                _append(history["evaluations"], {"step": step, "rollouts": rollouts, "tokens": tokens, **figures})
            if last:
                break
            if step == 0 and initial_pass:
                rollouts, tokens = _pass_over_all(policy, sampler, num_generations, generator)
                now = {"step": 0, "rollouts": rollouts, "tokens": tokens}
                _append(history["evaluations"], now | figures)  # nothing has changed
            if getattr(sampler, "sees_pass_rates", False) and step % oracle_every == 0:
                sampler.set_pass_rates(*_chances(policy, num_generations, step))
            refills = max_refills if dynamic_sampling else 0
            whole = dynamic_sampling == "batches"
            batch, generated, told, posterior_mean = _generation_batch(
                policy, sampler, num_groups, num_generations, refills, whole, generator, signal
            )
            figures = policy.update(batch, optimizer, max_grad_norm)
            everything = Rollouts.concatenate(generated)
            rollouts += everything.rewards.numel()
            tokens += int(everything.completion_mask.sum())
            figures |= {
                "rollouts": rollouts,
                "gradient_ratio": float(everything.has_spread.mean()),
                "refills": len(generated) - 1,
                "sample_index": everything.sample_index,
                "has_spread": everything.has_spread,
                "successes": told,
                "posterior_mean": posterior_mean,
            }
            _append(history["steps"], figures)
        return history
    finally:
        torch.set_num_threads(threads)


def _append(lists: dict[str, list[Any]], figures: dict[str, Any]) -> None:
    for name, values in lists.items():
        values.append(figures[name])


def _evaluate(
    policy: FastPolicy, validation: FastPolicy, num_generations: int, watched: NDArray[np.int64] | None
) -> dict[str, Any]:
    rates, greedy = validation.score()
    pool = policy.pass_rates(watched)
    return {
        "score": float(rates.mean()),
        "greedy": float(greedy.mean()),
        "pool_pass_rates": pool,
        "uniform_ratio": float(np.mean(1.0 - pool**num_generations - (1.0 - pool) ** num_generations)),
    }


def _chances(policy: FastPolicy, num_generations: int, step: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What an oracle sees: of a large pool other rows at each look, since all of them would take minutes."""
    seen = np.random.default_rng(step).permutation(len(policy))[:MOST_SEEN]
    rates, mixed = np.zeros(len(policy)), np.full(len(policy), -1.0)  # these are not chosen
    rates[seen], mixed[seen] = policy.chances(num_generations, seen)
    return rates, mixed


def _pass_over_all(
    policy: FastPolicy, sampler: Any, num_generations: int, generator: torch.Generator
) -> tuple[int, int]:
    """Sample every row, and tell the sampler in one step; return the numbers of completions and of their tokens."""
    every_row = np.arange(len(policy))
    batches = np.array_split(every_row, -(-len(policy) // 64))
    parts = [policy.sample(rows, num_generations, generator) for rows in batches]
    successes = np.concatenate([part.successes for part in parts])
    sampler.take_over(every_row, successes, np.full(len(policy), float(num_generations)))
    return len(policy) * num_generations, sum(int(part.completion_mask.sum()) for part in parts)


def _generation_batch(
    policy: FastPolicy,
    sampler: Any,
    num_groups: int,
    num_generations: int,
    max_refills: int,
    whole: bool,
    generator: torch.Generator,
    signal: RewardSignal | None,
) -> tuple[Rollouts, list[Rollouts], NDArray[np.float64], NDArray[np.float64]]:
    """Draw, sample, score and observe until the batch is full.

    Returns:
        The batch, all rounds, and of all groups the successes that the sampler was told and its posterior means.
    """
    rounds: list[Rollouts] = []
    told: list[NDArray[np.float64]] = []
    means: list[NDArray[np.float64]] = []
    missing = num_groups
    while True:
        if rounds:
            drawn = np.concatenate([part.sample_index for part in rounds])
            # Late in a long run the rows may run out before the batch is full.
            draw = sampler.draw(min(num_groups if whole else missing, len(policy) - len(drawn)), exclude=drawn)
        else:
            draw = sampler.draw(missing)
        part = policy.sample(draw.sample_index, num_generations, generator)
        told.append(_observe(part, sampler, signal))
        rounds.append(part)
        means.append(np.array(draw.posterior_mean, dtype=np.float64))
        missing -= int(part.has_spread.sum())
        generated = sum(len(part.sample_index) for part in rounds)
        if missing <= 0 or len(rounds) > max_refills or generated == len(policy):
            break
    everything = Rollouts.concatenate(rounds)
    spread = everything.has_spread
    # Groups with a gradient first, in the order drawn; then, where it takes them, those without.
    chosen = np.concatenate([np.flatnonzero(spread), np.flatnonzero(~spread)])[:num_groups]
    return everything.take(chosen), rounds, np.concatenate(told), np.concatenate(means)


def _observe(part: Rollouts, sampler: Any, signal: RewardSignal | None) -> NDArray[np.float64]:
    """Tell the sampler what came of the groups, and return the successes that it was told."""
    trials = np.full(len(part.sample_index), float(part.rewards.shape[1]))
    if signal is None:
        sampler.observe(part.sample_index, part.successes, trials)
        return part.successes
    outcomes = signal.outcomes(part.rewards.flatten()[:, None].double().numpy(), part.sample_index, weights=np.ones(1))
    if signal.is_spread:
        sampler.use_spreads()
    live = outcomes.has_gradient if signal.is_spread else outcomes.is_mixed
    sampler.observe(part.sample_index, outcomes.successes, trials, live)
    return outcomes.successes
