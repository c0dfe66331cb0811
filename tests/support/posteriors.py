"""Posteriors: of a sampler that was trained, with all facts that a run can have, and in the folder of a repository."""

import tempfile
from pathlib import Path

import numpy as np
from datasets import Dataset

from trl_vade import ThompsonSampler, load_snapshot, save_snapshot
from trl_vade.data.row_keys import sample_keys
from trl_vade.hub.card_parts import CARD_FILE
from trl_vade.hub.posteriors.repository import posterior_card, stage_posterior
from trl_vade.hub.posteriors.table import PosteriorTable, posterior_table
from trl_vade.samplers.snapshot import POSTERIOR_FILE

NUMBERS = ("sample_key", "index", "alpha", "beta", "visits", "pass_rate", "last_step")
QUESTIONS = Dataset.from_dict({"id": [f"question-{row}" for row in range(40)]})
FACTS = {
    **{"package_version": "0.1.0", "base_model": "Qwen/Qwen2.5-VL-3B-Instruct", "model_repo": "you/qwen-vade"},
    **{"dataset": "you/your-questions", "dataset_revision": "0123456789abcdef0123456789abcdef01234567"},
    **{"dataset_fingerprint": "f" * 64, "success_reward": "accuracy_reward", "success_threshold": 0.5},
    **{"num_generations": 8, "temperature": 1.0, "sampler": "thompson", "preset": "balanced", "prior": "prompts"},
    **{"information_gain": "asymmetric", "even_rest": True, "cooldown": 0.5, "posterior_init": "prior"},
}


def trained(sampler, batches=6, rows=4, seed=0):
    """The sampler after some generation batches of 8 completions a row; row 1 of 0..9 is never scored."""
    chance = np.random.default_rng(seed)
    for _ in range(batches):
        chosen = chance.choice(np.delete(np.arange(sampler.posterior.num_samples), 1), rows, replace=False)
        sampler.observe(chosen, chance.integers(0, 9, rows), np.full(rows, 8))
    return sampler


def same(left, right):
    assert (left.sample_id, left.task, left.metadata) == (right.sample_id, right.task, right.metadata)
    for name in NUMBERS:
        one, other = getattr(left, name), getattr(right, name)
        assert one.dtype == other.dtype, name
        np.testing.assert_array_equal(one, other)


def save_example(folder, step=200, size=24, **facts):
    """Save a posterior that has seen `size` of `QUESTIONS`, with all facts that a run can have; return its file."""
    row = np.arange(size)
    # Without a decay the counts, and the digest in the card, are the same bytes on every processor.
    sampler = ThompsonSampler(40, seed=42, signal_aware_decay=True, decay_unsampled=1.0)
    counts = {"sample_index": row, "alpha": (7 * row % 9) * 0.75, "beta": (5 * row % 8) * 0.5}
    steps = {"last_update": 1 + row, "visits": 1 + row % 4}
    sampler.posterior.load_state_dict(sampler.posterior.state_dict() | counts | steps | {"step": 50})
    run = {"global_step": step, "rollouts": 6400}
    save_snapshot(folder, sampler, metadata=FACTS | {"run": run} | facts, sample_key=sample_keys(QUESTIONS))
    return folder / POSTERIOR_FILE


def table_in(file, **names):
    return posterior_table(load_snapshot(file), **names)


def named(file):
    """The table in a file of `save_example`, with the names and tasks of its rows."""
    rows = table_in(file).index.tolist()
    tasks = ["chart" if row % 3 else "math" for row in rows]
    return table_in(file, sample_id=[QUESTIONS[row]["id"] for row in rows], task=tasks)


def example_table(step=200, size=24, **facts):
    with tempfile.TemporaryDirectory() as folder:
        return named(save_example(Path(folder), step, size, **facts))


def stage(folder, *examples):
    """The folder of a repository, card and all, with examples of these steps and sizes; the last is the newest."""
    with tempfile.TemporaryDirectory() as place:
        for step, size in examples:
            file = save_example(Path(place), step, size)
            stage_posterior(folder, file, named(file))
        card = posterior_card(named(file), [step for step, _ in examples], "you/posterior")
    (folder / CARD_FILE).write_text(card, encoding="utf-8")
    return folder


def make_table(counts, *, task=None, **facts):
    """A table of {sample_id: (alpha, beta)}; row i has i + 1 visits."""
    alpha, beta = np.array(list(counts.values()), dtype=np.float64).reshape(-1, 2).T
    row = np.arange(len(counts))
    names = {"sample_key": row, "sample_id": list(counts), "index": row, "task": task, "metadata": facts}
    rates = {"alpha": alpha, "beta": beta, "pass_rate": (alpha + 1) / (alpha + beta + 2)}
    return PosteriorTable(**names, **rates, visits=row + 1, last_step=np.full(len(counts), 3))
