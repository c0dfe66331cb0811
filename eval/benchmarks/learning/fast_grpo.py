"""GRPO on a `FastPolicy` in one process: what a learning benchmark runs hundreds of times.

The sampler is passed in. It needs `draw(k, exclude=None)`, whose result has `sample_index` and `posterior_mean`, both
(K,), and `observe(sample_index, successes, trials)`, with `mixed` where a `signal` is given. A sampler with a true
attribute `sees_pass_rates` is an oracle: every few steps its `set_pass_rates(p, mixed)` gets the exact pass rates of
the pool and how likely a group of each row has a gradient, (N,) each.
"""

from collections import deque
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from trl_vade.selection.success import RewardSignal

from .fast_policy import FastPolicy
from .rollouts import Rollouts

History = dict[str, dict[str, list[Any]]]

STEP_FIGURES = ("rollouts", "gradient_ratio", "replayed", "clipped", "loss", "grad_norm", "sample_index", "has_spread")
STEP_FIGURES += ("successes", "trials", "posterior_mean")
MOST_SEEN = 2048
EVALUATION_FIGURES = ("step", "rollouts", "trained", "tokens", "score", "greedy", "pool_pass_rates", "uniform_ratio")


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
    passes: int = 1,
    replay: int = 0,
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
        steps: Generation batches.
        num_groups: K, groups of a generation batch.
        num_generations: G, completions of each.
        seed: Of the sampling of completions.
        validation: Scored exactly, without sampling; shares the model of `policy`.
        evaluate_every: Steps between two evaluations; there is one before the first and one after the last step too.
        passes: Updates on each batch, TRL's `num_iterations`.
        replay: A, batches whose live groups may fill the places of groups without a gradient in the next ones, whole
            and newest first, with the log-probabilities that they were written with.
        oracle_every: Steps between two looks of an oracle.
        signal: What the sampler is told of the rewards; None: the right answers.
        watched: Rows of the pool whose pass rates are in the evaluations; None: all. Without any these are NaN.

    Returns:
        `history["steps"]`, one entry a step: `rollouts` so far, `gradient_ratio` (share of the K groups with a
        spread), `loss` and `grad_norm` of the last update, `replayed` (older groups in it) and `clipped` (see
        `add_gradient`). (K,) each, in the order drawn: `sample_index`, `has_spread`, `successes` (as the sampler was
        told), `trials` and `posterior_mean` (before them).

        `history["evaluations"]`: `step`, `rollouts` so far and their `tokens`, completions `trained` on so far (each
        as often as it was; those without a gradient are left out), `score` (mean probability of a right answer over
        the validation rows), `greedy` (share that is right without sampling), exact `pool_pass_rates`.
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
        rollouts = trained = tokens = 0
        kept: deque[Rollouts] = deque(maxlen=replay)  # the live groups of the last batches
        for step in range(steps + 1):
            if step % evaluate_every == 0 or step == steps:
                figures = _evaluate(policy, validation, num_generations, watched)
                spent = {"rollouts": rollouts, "trained": trained, "tokens": tokens}
                _append(history["evaluations"], {"step": step, **spent, **figures})
            if step == steps:
                break
            if getattr(sampler, "sees_pass_rates", False) and step % oracle_every == 0:
                sampler.set_pass_rates(*_chances(policy, num_generations, step))
            draw = sampler.draw(num_groups)
            batch = policy.sample(draw.sample_index, num_generations, generator)
            told, live = _observe(batch, sampler, signal), batch.has_spread
            whole = _with_older(batch, kept)
            for _ in range(passes):
                figures, whole = policy.update(whole, optimizer, max_grad_norm)
            fresh = int(live.sum())
            kept.append(whole.take(np.arange(fresh)))
            rollouts += int(batch.trials.sum())
            trained += passes * int(whole.trials[whole.has_spread].sum())
            tokens += int(batch.completion_mask.sum())
            figures |= {
                "rollouts": rollouts,
                "gradient_ratio": float(live.mean()),
                "replayed": int(whole.has_spread.sum()) - fresh,
                "sample_index": batch.sample_index,
                "has_spread": live,
                "successes": told,
                "trials": batch.trials,
                "posterior_mean": np.array(draw.posterior_mean, dtype=np.float64),
            }
            _append(history["steps"], figures)
        return history
    finally:
        torch.set_num_threads(threads)


def _with_older(batch: Rollouts, kept: deque[Rollouts]) -> Rollouts:
    """Return the batch, its live groups first, with live groups of earlier batches where one has no gradient."""
    order = np.argsort(~batch.has_spread, kind="stable")
    if not kept:
        return batch.take(order)
    newest_first = Rollouts.concatenate([*kept][::-1])
    older = newest_first.take(np.arange(min(len(newest_first.rewards), (~batch.has_spread).sum())))
    return Rollouts.concatenate([batch.take(order[: len(order) - len(older.rewards)]), older])


def _append(lists: dict[str, list[Any]], figures: dict[str, Any]) -> None:
    for name, values in lists.items():
        values.append(figures[name])


def _evaluate(
    policy: FastPolicy, validation: FastPolicy, num_generations: int, watched: NDArray[np.int64] | None
) -> dict[str, Any]:
    rates, greedy = validation.score()
    pool = policy.pass_rates(watched) if watched is None or len(watched) else np.full(1, np.nan)
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


def _observe(part: Rollouts, sampler: Any, signal: RewardSignal | None) -> NDArray[np.float64]:
    """Tell the sampler what came of the groups, and return the successes that it was told."""
    trials = part.trials
    if signal is None:
        sampler.observe(part.sample_index, part.successes, trials)
        return part.successes
    outcomes = signal.outcomes(part.rewards.flatten()[:, None].double().numpy(), part.sample_index, weights=np.ones(1))
    if signal.is_spread:
        sampler.use_spreads()
    live = outcomes.has_gradient if signal.is_spread else outcomes.is_mixed
    sampler.observe(part.sample_index, outcomes.successes, trials, live)
    return outcomes.successes
