"""The fast loop: what it counts, what it tells the sampler, and that it learns and repeats itself."""

from types import SimpleNamespace

import numpy as np
import pytest
from transformers import AutoModelForImageTextToText

from eval.benchmarks.learning.fast_grpo import train
from eval.benchmarks.learning.fast_policy import FastPolicy
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

    def draw(self, k, exclude=None):
        rows = []
        while len(rows) < k:
            if self.next not in set([] if exclude is None else np.asarray(exclude).tolist()):
                rows.append(self.next)
            self.next = (self.next + 1) % self.num_rows
        self.draws.append((rows, exclude))
        return SimpleNamespace(sample_index=np.array(rows), posterior_mean=np.array(rows) / self.num_rows)

    def observe(self, sample_index, successes, trials):
        self.seen.append((sample_index.tolist(), successes.tolist(), trials.tolist()))

    def take_over(self, *outcomes):
        self.taken_over = len(self.seen)
        self.observe(*outcomes)


def run(policies, sampler=None, **changes):
    policy, validation = policies
    settings = {"steps": 4, "num_groups": 6, "num_generations": 4, "learning_rate": 1e-3, "seed": 0}
    settings |= {"evaluate_every": 2, "validation": validation} | changes
    return train(policy, InTurn(len(policy)) if sampler is None else sampler, **settings)


@pytest.fixture
def batches(monkeypatch):
    """The batches that were updated on, in order; a list that goes on growing."""
    update, seen = FastPolicy.update, []
    monkeypatch.setattr(
        FastPolicy, "update", lambda self, batch, *rest: seen.append(batch) or update(self, batch, *rest)
    )
    return seen


def test_a_plain_run_draws_scores_and_counts_one_batch_a_step(make, batches):
    sampler = InTurn(24)
    steps = run(make(), sampler)["steps"]
    assert [rows for rows, _ in sampler.draws] == [list(range(6 * i, 6 * i + 6)) for i in range(4)]
    assert [exclude for _, exclude in sampler.draws] == [None] * 4
    assert steps["rollouts"] == [24, 48, 72, 96]
    assert steps["refills"] == [0] * 4
    for i, batch in enumerate(batches):
        assert sorted(batch.sample_index) == sampler.draws[i][0]
        assert sampler.seen[i] == (sampler.draws[i][0], steps["successes"][i].tolist(), [4.0] * 6)
        assert steps["sample_index"][i].tolist() == sampler.draws[i][0]
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


def test_dynamic_sampling_fills_the_batch_with_groups_that_have_a_gradient(make, batches):
    sampler = InTurn(24)
    steps = run(make(), sampler, dynamic_sampling="missing", num_groups=3, num_generations=8)["steps"]
    assert max(steps["refills"]) > 0
    draws = iter(zip(sampler.draws, sampler.seen, strict=True))
    total = 0
    for i, batch in enumerate(batches):
        drawn, missing = [], 3
        for _ in range(steps["refills"][i] + 1):
            (rows, exclude), (observed, successes, trials) = next(draws)
            assert len(rows) == missing
            assert (exclude is None) if not drawn else (exclude.tolist() == drawn)
            assert observed == rows
            assert trials == [8.0] * len(rows)
            drawn += rows
            missing -= sum(0 < count < 8 for count in successes)
        assert missing == 0
        assert batch.has_spread.all()
        assert len(batch.sample_index) == 3
        assert len(set(drawn)) == len(drawn)
        assert steps["sample_index"][i].tolist() == drawn
        total += 8 * len(drawn)
        assert steps["rollouts"][i] == total
        assert steps["gradient_ratio"][i] == 3 / len(drawn)
        assert len(steps["posterior_mean"][i]) == len(steps["successes"][i]) == len(drawn)


def test_dapos_own_way_draws_whole_batches_and_drops_what_is_beyond_a_full_one(make, batches):
    sampler = InTurn(24)
    run(make(), sampler, dynamic_sampling="batches", num_groups=3, num_generations=8)
    assert {len(rows) for rows, _ in sampler.draws} == {3}
    assert all(len(batch.sample_index) == 3 and batch.has_spread.all() for batch in batches)
    live = sum(0 < count < 8 for _, successes, _ in sampler.seen for count in successes)
    assert live > 3 * len(batches)  # some were dropped, and the sampler was told of them all the same


def test_what_is_missing_is_filled_up_with_dropped_groups_and_no_row_comes_twice(make, batches):
    # No answer fits into four tokens: no group ever has a spread.
    how = {"dynamic_sampling": "missing", "num_groups": 5}
    steps = run(make(max_completion_length=4), **how, max_refills=2, steps=2)["steps"]
    assert (steps["refills"], steps["rollouts"]) == ([2, 2], [60, 120])
    assert steps["gradient_ratio"] == steps["grad_norm"] == [0.0, 0.0]
    assert [batch.sample_index.tolist() for batch in batches] == [row[:5].tolist() for row in steps["sample_index"]]
    steps = run(make(8, max_completion_length=4), **how, steps=1)["steps"]  # the pool is used up
    assert sorted(steps["sample_index"][0]) == list(range(8))
    assert steps["refills"] == [1]


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


def test_training_ends_when_the_rollouts_are_spent_and_evaluations_keep_to_the_rollouts(make):
    history = run(make(), steps=50, max_rollouts=5 * 24, dynamic_sampling="missing", max_refills=1, evaluate_every=1)
    rollouts = history["steps"]["rollouts"]
    assert rollouts[-2] < 5 * 24 <= rollouts[-1]
    assert history["evaluations"]["rollouts"][-1] == rollouts[-1]
    gaps = np.diff(history["evaluations"]["rollouts"])
    assert (gaps >= 24).all()
    assert (gaps <= 2 * 24).all()


def test_an_initial_pass_is_taken_over_in_one_step_and_is_counted(make):
    sampler = InTurn(24)
    history = run(make(), sampler, initial_pass=True)
    rows, successes, trials = sampler.seen[sampler.taken_over]
    assert sampler.taken_over == 0
    assert rows == list(range(24))
    assert trials == [4.0] * 24
    assert 0 < sum(successes) < 24 * 4
    assert history["steps"]["rollouts"][0] == 24 * 4 + 6 * 4
    assert history["evaluations"]["rollouts"][:3] == [0, 24 * 4, 24 * 4 + 6 * 4]
    assert history["evaluations"]["score"][0] == history["evaluations"]["score"][1]
