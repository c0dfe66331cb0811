"""Tables of posteriors: of given counts, of a sampler that was trained, and in the folder of a repository."""

import numpy as np

from trl_vade.hub.posteriors.repository import CARD_FILE, render_posterior_card, stage_posterior
from trl_vade.hub.posteriors.table import PosteriorTable

RUN = {
    "dataset_fingerprint": "f" * 64,
    "success_reward": "is_right",
    "success_threshold": 0.5,
    "num_generations": 8,
    "base_model": "Qwen/Qwen2.5-VL-3B-Instruct",
    "run": {"global_step": 40, "rollouts": 640, "seconds": {"step": 1.5}},
}
NUMBERS = ("index", "alpha", "beta", "visits", "pass_rate", "last_step")


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


def example_table(step=200, size=24, **facts):
    """A table of `size` of 40 rows, with all facts that a run can have; those given are changed."""
    row = np.arange(size)
    alpha, beta = (7 * row % 9) * 0.75, (5 * row % 8) * 0.5
    return PosteriorTable(
        sample_id=[f"question-{number}" for number in row],
        index=row.astype(np.int64),
        task=["chart" if number % 3 else "math" for number in row],
        alpha=alpha,
        beta=beta,
        visits=1 + row.astype(np.int64) % 4,
        pass_rate=(alpha + 1) / (alpha + beta + 2),
        last_step=1 + row.astype(np.int64) % 50,
        metadata={
            "format_version": 1,
            "package_version": "0.1.0",
            "global_step": step,
            "generation_batches": 50,
            "num_samples": 40,
            "rollouts": 6400,
            "base_model": "Qwen/Qwen2.5-VL-3B-Instruct",
            "model_repo": "you/qwen-vade",
            "dataset": "you/your-questions",
            "dataset_revision": "0123456789abcdef0123456789abcdef01234567",
            "dataset_fingerprint": "f" * 64,
            "success_reward": "accuracy_reward",
            "success_threshold": 0.5,
            "num_generations": 8,
            "temperature": 1.0,
            "sampler": "thompson",
            "preset": "balanced",
            "information_gain": "asymmetric",
            "prior": "prompts",
            "even_rest": True,
            "cooldown": 0.5,
            "decay_sampled": 0.2,
            "decay_unsampled": 0.999,
            "signal_aware_decay": True,
            "seed": 42,
            "posterior_init": "prior",
        }
        | facts,
    )


def stage(folder, *tables):
    """The folder of a repository, card and all, whose newest table is the last one."""
    for table in tables:
        stage_posterior(folder, table)
    steps = [table.metadata["global_step"] for table in tables]
    (folder / CARD_FILE).write_text(render_posterior_card(tables[-1], steps, "you/posterior"), encoding="utf-8")
    return folder


def make_table(counts, *, task=None, index=None, **facts):
    """A table of {sample_id: (alpha, beta)}; row i has i + 1 visits."""
    alpha, beta = np.array(list(counts.values()), dtype=np.float64).reshape(-1, 2).T
    places = np.arange(len(counts)) if index is None else np.array(index)
    return PosteriorTable(
        sample_id=list(counts),
        index=places.astype(np.int64),
        task=task,
        alpha=alpha,
        beta=beta,
        visits=np.arange(len(counts)) + 1,
        pass_rate=(alpha + 1) / (alpha + beta + 2),
        last_step=np.full(len(counts), 3),
        metadata=facts,
    )
