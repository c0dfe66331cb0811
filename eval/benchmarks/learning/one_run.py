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
from trl_vade.trainer.initial_posterior import COLUMN_COUNTS
from trl_vade.trainer.presets import setting
from trl_vade.trainer.selection_choice import make_signal

from ..machine import machine
from .arms import AT_ITS_RATE, BEST, sampler_of, settings
from .encoded_rows import EncodedRows
from .fast_grpo import train
from .fast_policy import FastPolicy
from .pools import as_dataset, draw_pool, load_other, load_regime
from .regimes import REGIMES, Regime

ROLLOUTS_A_BATCH = 256  # K groups of G
WATCHED, HELD_OUT = 128, 128  # rows
COLUMN_ANSWERS = 16  # of each row, that a share in a column is of
BINS = 10


def run(
    regime: str, arm: str, learning_rate: float, seed: int, batches: int, *, evaluate_every: int
) -> dict[str, Any]:
    """Train with `arm` until `batches` generation batches' worth of rollouts are spent; return the record.

    Evaluations are `evaluate_every` generation batches' worth of rollouts apart.
    """
    start = time.perf_counter()
    torch.set_num_threads(1)
    described = REGIMES[regime]
    directory, pool, encoded = regime_of(regime, seed)
    args = settings(arm, seed, described.settings)
    model = AutoModelForImageTextToText.from_pretrained(directory).eval()
    processor = AutoProcessor.from_pretrained(directory)
    policy, judge = (fast_policy(described, model, processor, rows) for rows in encoded)

    def rates(of: str) -> np.ndarray:
        """Exact pass rates of the base policy, or of one that was taught more or less."""
        if of == "the base policy":
            return policy.pass_rates()
        other = load_other(described, seed, stronger=of == "a stronger one")
        model = AutoModelForImageTextToText.from_pretrained(other).eval()
        return fast_policy(described, model, processor, encoded[0]).pass_rates()

    num_generations, told = args.num_generations, described.told or (lambda prompt: prompt)
    num_groups = ROLLOUTS_A_BATCH // num_generations
    prompts = [*map(told, prompt_texts(pool))]
    sampler = sampler_of(arm, len(pool), num_groups=num_groups, seed=seed, prompts=prompts)
    if args.column:
        shares = np.random.default_rng(seed).binomial(COLUMN_ANSWERS, rates(args.column)) / COLUMN_ANSWERS
        weight = np.full(len(pool), COLUMN_COUNTS * args.vade_warm_start_discount)
        sampler.take_over(np.arange(len(pool)), weight * shares, weight)
    kept = kept_skill(described, seed, model, processor)
    before = kept and kept.pass_rates().mean()
    history = train(
        policy,
        sampler,
        steps=batches,
        max_rollouts=batches * ROLLOUTS_A_BATCH,
        num_groups=num_groups,
        num_generations=num_generations,
        learning_rate=learning_rate,
        seed=seed,
        validation=judge,
        evaluate_every=evaluate_every,
        initial_pass=setting(args, "posterior_init") == "rollout",
        dynamic_sampling=("batches" if args.whole_batches else "missing") if args.vade_dynamic_sampling else "",
        max_refills=args.vade_max_refills,
        signal=None if arm in (BEST, AT_ITS_RATE) else make_signal(args, ["reward"], say=lambda message: None),
        # Only some rows are looked at: all of them would take a fifth of the time of the training.
        watched=np.arange(0, len(pool), max(len(pool) // WATCHED, 1)),
    )
    return {
        "regime": regime,
        "arm": arm,
        "learning_rate": learning_rate,
        "seed": seed,
        "batches": batches,
        "seconds": round(time.perf_counter() - start, 1),
        **machine(),
        **({"held_out": rounded([before, kept.pass_rates().mean()])} if kept else {}),
        **figures(history, len(pool), num_generations),
    }


@functools.lru_cache(maxsize=2)
def regime_of(regime: str, seed: int) -> tuple[Path, datasets.Dataset, list[EncodedRows]]:
    """A regime's base policy, its pool, and pool and validation rows encoded, which takes seconds: arms follow."""
    directory, pool, validation = load_regime(regime, seed, progress=False)
    model, processor = AutoModelForImageTextToText.from_pretrained(directory), AutoProcessor.from_pretrained(directory)
    return directory, pool, [EncodedRows(model, processor, rows) for rows in (pool, validation)]


def fast_policy(regime: Regime, model: Any, processor: Any, rows: Any) -> FastPolicy:
    """`model` as the policy over `rows` that `regime` asks for."""
    limits = {"temperature": regime.temperature, "max_completion_length": regime.max_completion_length}
    return FastPolicy(model, processor, rows, **limits, reward=regime.reward)


def kept_skill(regime: Regime, seed: int, model: Any, processor: Any) -> FastPolicy | None:
    """`model` as the policy over validation rows of the skill that is held out of the training."""
    if not regime.held_out:
        return None
    rows = draw_pool(replace(regime, parts=regime.held_out), "validation", HELD_OUT, seed, None, None, progress=False)
    return fast_policy(regime, model, processor, as_dataset(rows))


def figures(history: dict[str, dict[str, list[Any]]], num_rows: int, num_generations: int) -> dict[str, Any]:
    """What is kept of a run: curves at its evaluations, means over the steps between two of them."""
    steps, at = history["steps"], history["evaluations"]
    uniform = np.array(at["uniform_ratio"])
    # An initial pass lies between two evaluations without a step.
    windows = [n for n, (first, last) in enumerate(zip(at["step"], at["step"][1:], strict=False)) if first < last]
    spread = [np.mean(np.concatenate(steps["has_spread"][at["step"][n] : at["step"][n + 1]])) for n in windows]
    record: dict[str, Any] = {
        "rollouts": at["rollouts"],
        "tokens": at["tokens"],
        "score": rounded(at["score"]),
        "greedy": round(at["greedy"][-1], 4),
        "updates": len(steps["refills"]),
        "refills": sum(steps["refills"]),
        "window": [(at["rollouts"][n] + at["rollouts"][n + 1]) / 2 for n in windows],
        "ratio": rounded(spread),
        "lift": rounded(ratio / uniform[n : n + 2].mean() for n, ratio in zip(windows, spread, strict=True)),
    }
    if not steps["refills"]:  # the initial pass took all rollouts
        return record
    late = np.concatenate(steps["successes"][-len(steps["successes"]) // 3 :])
    record |= {
        "all_wrong_late": round(float(np.mean(late == 0)), 4),
        "all_right_late": round(float(np.mean(late == num_generations)), 4),
    }
    return record | visits(steps["sample_index"], num_rows) | calibration(steps, num_generations)


def visits(chosen: list[np.ndarray], num_rows: int) -> dict[str, float]:
    """How the slots are spread over the rows."""
    counts = np.sort(np.bincount(np.concatenate(chosen), minlength=num_rows))[::-1]
    return {
        "coverage": round(float(np.mean(counts > 0)), 4),
        "top_tenth": round(float(counts[: num_rows // 10].sum() / counts.sum()), 4),
    }


def calibration(steps: dict[str, list[Any]], num_generations: int) -> dict[str, Any]:
    """The belief before the rollouts against what came: reliability by bins, and the Brier score beside that of the
    mean of all that came before, which a belief about rows has to beat."""
    belief = np.concatenate(steps["posterior_mean"])
    came = np.concatenate(steps["successes"]) / num_generations
    sizes = np.array([len(batch) for batch in steps["successes"]])
    sums = np.array([float(np.sum(batch)) / num_generations for batch in steps["successes"]])
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
