"""One run of the learning benchmark: an arm on a regime, and the figures that are kept of it."""

import functools
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import torch
from transformers import AutoModelForImageTextToText, AutoProcessor

from trl_vade.data.row_views import prompt_texts
from trl_vade.trainer.selection_choice import make_signal

from ..machine import machine
from .arms import ORACLE, Arm, sampler_of, settings
from .encoded_rows import EncodedRows
from .fast_grpo import train
from .fast_policy import FastPolicy
from .packing import grow_tree
from .pools import as_dataset, draw_pool, load_regime
from .regimes import REGIMES, Regime

ROLLOUTS_A_BATCH = 256  # K groups of G
WATCHED, HELD_OUT = 128, 128  # rows
LOOKED_AT = 64  # validation rows of which answers are sampled, four each, for what is said of them
BINS = 10


def run(
    regime: str,
    arm: str,
    learning_rate: float,
    seed: int,
    batches: int,
    *,
    evaluate_every: int,
    brief: bool = False,
    compiled: bool = False,
) -> dict[str, Any]:
    """Train with `arm` until `batches` generation batches' worth of rollouts are spent; return the record.

    Evaluations are `evaluate_every` generation batches' worth of rollouts apart. A `brief` record has scores alone.
    For `compiled` see `FastPolicy`.
    """
    start = time.perf_counter()
    torch.set_num_threads(1)
    described, of = REGIMES[regime], Arm.of(arm)
    directory, pool, encoded = regime_of(regime, seed)
    args = settings(of, seed, described.settings)
    model, base = (AutoModelForImageTextToText.from_pretrained(directory).eval() for _ in range(2))
    processor = AutoProcessor.from_pretrained(directory)
    policy, judge = (fast_policy(described, model, processor, rows, compiled=compiled) for rows in encoded)
    first = fast_policy(described, base, processor, encoded[1])
    told = described.told or (lambda prompt: prompt)
    sampler = sampler_of(of, len(pool), seed=seed, prompts=[*map(told, prompt_texts(pool))])
    kept = kept_skill(described, seed, model, processor)
    before = kept and kept.pass_rates().mean()
    batch = of.groups * of.size
    history = train(
        policy,
        sampler,
        steps=batches * ROLLOUTS_A_BATCH // batch,
        num_groups=of.groups,
        num_generations=of.size,
        learning_rate=learning_rate,
        seed=seed,
        validation=judge,
        evaluate_every=evaluate_every * ROLLOUTS_A_BATCH // batch,
        passes=of.passes,
        replay=of.replay,
        oracle_every=1,
        signal=None if of.rule == ORACLE else make_signal(args, ["reward"], say=lambda message: None),
        # Only some rows are looked at: all of them would take a fifth of the time of the training.
        watched=np.arange(0, 0 if brief else len(pool), max(len(pool) // WATCHED, 1)),
    )
    at = history["evaluations"]
    record = {
        "regime": regime,
        "arm": arm,
        "learning_rate": learning_rate,
        "seed": seed,
        "batches": batches,
        "seconds": round(time.perf_counter() - start, 1),
        **machine(),
        "rollouts": at["rollouts"],
        "score": rounded(at["score"]),
    }
    if brief:
        return record
    return {
        **record,
        **({"held_out": rounded([before, kept.pass_rates().mean()])} if kept else {}),
        **{f"{name}_before": value for name, value in answers_of(first, first).items()},
        **answers_of(judge, first),
        **figures(history, len(pool)),
    }


@torch.no_grad()
def answers_of(policy: FastPolicy, base: FastPolicy) -> dict[str, float]:
    """What is said of sampled answers: their tokens; by token the entropy and the KL to `base`, in nats."""
    rollouts = policy.sample(np.arange(min(LOOKED_AT, len(policy))), 4, torch.Generator().manual_seed(0))
    tree = grow_tree(rollouts.completion_ids, rollouts.completion_mask)
    mine, theirs = (each.edge_logps(rollouts, tree).double() for each in (policy, base))
    visits = torch.bincount(tree.edge_of[tree.edge_of >= 0], minlength=len(mine)).double()  # tokens of each edge
    kl, entropy = (mine.exp() * (mine - theirs)).sum(1), -(mine.exp() * mine).sum(1)
    means = {"kl": visits @ kl / visits.sum(), "entropy": visits @ entropy / visits.sum()}
    return {
        name: round(float(x), 5) for name, x in {**means, "length": visits.sum() / rollouts.rewards.numel()}.items()
    }


@functools.lru_cache(maxsize=2)
def regime_of(regime: str, seed: int) -> tuple[Path, datasets.Dataset, list[EncodedRows]]:
    """A regime's base policy, its pool, and pool and validation rows encoded, which takes seconds: arms follow."""
    directory, pool, validation = load_regime(regime, seed, progress=False)
    model, processor = AutoModelForImageTextToText.from_pretrained(directory), AutoProcessor.from_pretrained(directory)
    return directory, pool, [EncodedRows(model, processor, rows) for rows in (pool, validation)]


def fast_policy(regime: Regime, model: Any, processor: Any, rows: Any, **more: Any) -> FastPolicy:
    """`model` as the policy over `rows` that `regime` asks for."""
    limits = {"temperature": regime.temperature, "max_completion_length": regime.max_completion_length}
    return FastPolicy(model, processor, rows, **limits, reward=regime.reward, **more)


def kept_skill(regime: Regime, seed: int, model: Any, processor: Any) -> FastPolicy | None:
    """`model` as the policy over validation rows of the skill that is held out of the training."""
    if not regime.held_out:
        return None
    rows = draw_pool(replace(regime, parts=regime.held_out), "validation", HELD_OUT, seed, None, None, progress=False)
    return fast_policy(regime, model, processor, as_dataset(rows))


def figures(history: dict[str, dict[str, list[Any]]], num_rows: int) -> dict[str, Any]:
    """What is kept of a run: curves at its evaluations, means over the steps between two of them."""
    steps, at = history["steps"], history["evaluations"]
    uniform = np.array(at["uniform_ratio"])
    # An initial pass lies between two evaluations without a step.
    windows = [n for n, (first, last) in enumerate(zip(at["step"], at["step"][1:], strict=False)) if first < last]
    spread = [np.mean(np.concatenate(steps["has_spread"][at["step"][n] : at["step"][n + 1]])) for n in windows]
    record: dict[str, Any] = {
        "trained": at["trained"],
        "tokens": at["tokens"],
        "greedy": round(at["greedy"][-1], 4),
        "updates": len(steps["rollouts"]),
        "replayed": round(float(np.mean(steps["replayed"])), 3),
        "clipped": round(float(np.mean(steps["clipped"])), 4),
        "window": [(at["rollouts"][n] + at["rollouts"][n + 1]) / 2 for n in windows],
        "ratio": rounded(spread),
        "lift": rounded(ratio / uniform[n : n + 2].mean() for n, ratio in zip(windows, spread, strict=True)),
    }
    late, trials = (np.concatenate(steps[name][-len(steps[name]) // 3 :]) for name in ("successes", "trials"))
    record |= {
        "all_wrong_late": round(float(np.mean(late == 0)), 4),
        "all_right_late": round(float(np.mean(late == trials)), 4),
    }
    return record | visits(steps["sample_index"], num_rows) | calibration(steps)


def visits(chosen: list[np.ndarray], num_rows: int) -> dict[str, float]:
    """How the slots are spread over the rows."""
    counts = np.sort(np.bincount(np.concatenate(chosen), minlength=num_rows))[::-1]
    return {
        "coverage": round(float(np.mean(counts > 0)), 4),
        "top_tenth": round(float(counts[: num_rows // 10].sum() / counts.sum()), 4),
    }


def calibration(steps: dict[str, list[Any]]) -> dict[str, Any]:
    """The belief before the rollouts against what came: reliability by bins, and the Brier score beside that of the
    mean of all that came before, which a belief about rows has to beat."""
    belief = np.concatenate(steps["posterior_mean"])
    rates = [right / trials for right, trials in zip(steps["successes"], steps["trials"], strict=True)]
    came, sizes = np.concatenate(rates), np.array([len(batch) for batch in rates])
    sums = np.array([float(np.sum(batch)) for batch in rates])
    so_far = np.concatenate([[0.5], np.cumsum(sums)[:-1] / np.cumsum(sizes)[:-1]])
    bin_of = np.minimum((belief * BINS).astype(int), BINS - 1)
    count = np.bincount(bin_of, minlength=BINS)
    return {
        "brier": round(float(np.mean((belief - came) ** 2)), 5),
        "brier_of_the_mean": round(float(np.mean((np.repeat(so_far, sizes) - came) ** 2)), 5),
        "bin_count": count.tolist(),
        "bin_belief": rounded(np.bincount(bin_of, belief, BINS) / np.maximum(count, 1)),
        "bin_came": rounded(np.bincount(bin_of, came, BINS) / np.maximum(count, 1)),
    }


def rounded(values: Any) -> list[float]:
    return [round(float(value), 4) for value in values]
