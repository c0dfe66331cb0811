"""The fast loop: what it counts, what it tells the sampler, and that it learns and repeats itself."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import AutoModelForImageTextToText

from eval.benchmarks.learning.fast_grpo import train
from eval.benchmarks.learning.fast_policy import FastPolicy
from eval.benchmarks.learning.rollouts import Rollouts
from trl_vade.testbed import build_dataset

pytestmark = pytest.mark.benchmark


@pytest.fixture(scope="module")
def splits():
    return build_dataset(24, 12, progress=False)


@pytest.fixture
def make(directory, processor, splits):
    """A pool and a validation policy that share a fresh model."""

    def policies(num_rows=24, **settings):
        model = AutoModelForImageTextToText.from_pretrained(directory)
        return [
            FastPolicy(model, processor, rows, **settings)
            for rows in (splits["train"].select(range(num_rows)), splits["validation"])
        ]

    return policies


class InTurn:
    """Every row in turn; keeps all it is asked and told."""

    def __init__(self, num_rows):
        self.num_rows, self.next, self.draws, self.seen = num_rows, 0, [], []

    def draw(self, k):
        rows = [(self.next + i) % self.num_rows for i in range(k)]
        self.next += k
        self.draws.append(rows)
        return SimpleNamespace(sample_index=np.array(rows), posterior_mean=np.array(rows) / self.num_rows)

    def observe(self, sample_index, successes, trials):
        self.seen.append((sample_index.tolist(), successes.tolist(), trials.tolist()))


def run(policies, sampler=None, **changes):
    policy, validation = policies
    settings = {"steps": 4, "num_groups": 6, "num_generations": 4, "learning_rate": 1e-3, "seed": 0}
    settings |= {"evaluate_every": 2, "validation": validation} | changes
    return train(policy, InTurn(len(policy)) if sampler is None else sampler, **settings)


@pytest.fixture
def updates(monkeypatch):
    """The batches that were updated on, each with what came of it, in order; a list that goes on growing."""
    update, seen = FastPolicy.update, []

    def noted(self, batch, *rest):
        figures, written = update(self, batch, *rest)
        seen.append((batch, written))
        return figures, written

    monkeypatch.setattr(FastPolicy, "update", noted)
    return seen


def test_a_plain_run_draws_scores_and_counts_one_batch_a_step(make, updates):
    sampler = InTurn(24)
    steps = run(make(), sampler)["steps"]
    assert sampler.draws == [list(range(6 * i, 6 * i + 6)) for i in range(4)]
    assert steps["rollouts"] == [24, 48, 72, 96]
    for i, (batch, _) in enumerate(updates):
        assert sorted(batch.sample_index) == sampler.draws[i]
        assert sampler.seen[i] == (sampler.draws[i], steps["successes"][i].tolist(), [4.0] * 6)
        assert steps["sample_index"][i].tolist() == sampler.draws[i]
        assert np.array_equal(steps["posterior_mean"][i], steps["sample_index"][i] / 24)
        spread = (steps["successes"][i] > 0) & (steps["successes"][i] < 4)
        assert steps["gradient_ratio"][i] == spread.mean()
        assert (steps["grad_norm"][i] > 0) == spread.any()
    assert 0 < np.mean(steps["gradient_ratio"]) < 1
    assert run(make())["steps"]["loss"] == steps["loss"] != run(make(), seed=1)["steps"]["loss"]


@pytest.mark.parametrize(("steps", "every", "expected"), [(3, 2, [0, 2, 3]), (2, 9, [0, 2])])
def test_evaluations_stand_at_the_start_at_every_so_many_steps_and_at_the_end(make, steps, every, expected):
    policies = make()
    evaluations = run(policies, steps=steps, evaluate_every=every)["evaluations"]
    assert evaluations["step"] == expected
    assert evaluations["rollouts"] == [24 * step for step in expected]
    rates, greedy = policies[1].score()
    assert (evaluations["score"][-1], evaluations["greedy"][-1]) == (rates.mean(), greedy.mean())
    pool = policies[0].pass_rates()
    assert np.array_equal(evaluations["pool_pass_rates"][-1], pool)
    assert evaluations["uniform_ratio"][-1] == pytest.approx(np.mean(1 - pool**4 - (1 - pool) ** 4))


def test_an_oracle_is_shown_the_exact_pass_rates_of_the_moment(make):
    policies = make()
    shown = []

    class Oracle(InTurn):
        sees_pass_rates = True

        def set_pass_rates(self, pass_rates, mixed):
            shown.append((len(self.draws), pass_rates, policies[0].pass_rates()))
            assert mixed == pytest.approx(1 - pass_rates**4 - (1 - pass_rates) ** 4)

    history = run(policies, Oracle(24), steps=5, oracle_every=2, evaluate_every=4)
    assert [draws for draws, _, _ in shown] == [0, 2, 4]
    assert all(np.array_equal(given, true) for _, given, true in shown)
    assert np.array_equal(shown[2][1], history["evaluations"]["pool_pass_rates"][1])


def test_live_groups_of_the_last_batches_fill_the_places_of_groups_without_a_gradient(make, updates):
    history = run(make(), InTurn(24), steps=6, num_groups=8, replay=2)
    names, kept = ("completion_ids", "written_logps", "rewards"), []  # the live groups of each batch
    steps = zip(updates, history["steps"]["has_spread"], history["steps"]["replayed"], strict=True)
    for (batch, written), live, replayed in steps:
        older = Rollouts.concatenate([*kept[-2:][::-1], batch.take([])])
        assert replayed == min(len(older.rewards), (~live).sum())
        assert len(batch.rewards) == 8
        found = batch.take(np.arange(8 - replayed, 8))
        for name in names:
            assert torch.equal(getattr(found, name), getattr(older.take(np.arange(replayed)), name))
        fresh = batch.take(np.arange(live.sum()))
        assert fresh.has_spread.all()
        assert fresh.written_logps.isnan().all()
        kept.append(written.take(np.arange(live.sum())))
    assert max(history["steps"]["replayed"]) > 0
    assert history["evaluations"]["trained"][-1] == 4 * sum(int(batch.has_spread.sum()) for batch, _ in updates)


def test_two_passes_over_a_batch_are_two_updates_with_the_probabilities_of_the_first(make, updates):
    history = run(make(), InTurn(24), steps=3, passes=2)
    for (first, written), (second, _) in zip(updates[::2], updates[1::2], strict=True):
        live = np.flatnonzero(second.has_spread)
        assert torch.equal(written.take(live).written_logps, second.take(live).written_logps)
        assert torch.equal(first.completion_ids, second.completion_ids)
        assert first.written_logps.isnan().all()
        assert not second.take(live).written_logps.isnan().any()
    assert len(updates) == 6
    live = sum(int(each.sum()) for each in history["steps"]["has_spread"])
    assert history["evaluations"]["trained"][-1] == 2 * 4 * live
