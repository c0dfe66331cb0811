"""Thompson and uniform sampling by themselves; what every sampler does alike is in test_every_sampler.py."""

import tempfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.support.refusals import refused
from trl_vade.errors import (
    ConfigurationError,
    ObservationError,
    SnapshotCorruptError,
    SnapshotError,
    SnapshotMismatchError,
)
from trl_vade.samplers import ThompsonSampler, UniformSampler
from trl_vade.samplers.snapshot import load_snapshot, save_snapshot, state_digest
from trl_vade.samplers.strata import Strata
from trl_vade.samplers.uniform import stock_order

exhaustive = settings(deadline=None, derandomize=True, max_examples=60)
both = pytest.mark.parametrize("kind", [ThompsonSampler, UniformSampler])


def fields(draw):
    return [draw.sample_index, draw.sampled_pass_rate, draw.information_gain, draw.posterior_mean]


def assert_same_draw(ours, theirs):
    assert [array.tobytes() for array in fields(ours)] == [array.tobytes() for array in fields(theirs)]


def run(sampler, num_steps, k=4, seed=0):
    """Draw and observe as a training run does; row i is solved with a probability of about i / N."""
    rng = np.random.default_rng(seed)
    for _ in range(num_steps):
        rows = sampler.draw(k).sample_index
        sampler.observe(rows, rng.binomial(8, rows / sampler.posterior.num_samples), np.full(k, 8))
    return sampler


@both
def test_bad_settings_are_refused_at_construction(kind):
    with refused(ConfigurationError, names=["decay_sampled", 1.5]):
        kind(5, decay_sampled=1.5)
    with refused(ConfigurationError, names=["decay_unsampled", -0.5]):
        kind(5, decay_unsampled=-0.5)


def test_an_unknown_gain_or_greedy_setting_is_refused():
    with refused(ConfigurationError, names=["gain", "entropy"], offers=["symmetric", "asymmetric"]):
        ThompsonSampler(5, gain="entropy")
    with refused(ConfigurationError, names=["greedy", 1]):
        ThompsonSampler(5, greedy=1)


@both
def test_the_metrics_are_coverage_and_mean_pass_rate(kind):
    sampler = kind(4)
    assert sampler.metrics() == {"coverage": 0.0, "mean_pass_rate": 0.5}
    sampler.observe([0, 2, 3], [8, 0, 0], [8, 8, 0])
    # rows 0 and 2 were visited; means 9/10, 1/2, 1/10, 1/2
    assert sampler.metrics() == {"coverage": 0.5, "mean_pass_rate": pytest.approx(0.5, rel=1e-15)}


# Thompson sampling


@exhaustive
@given(seed=st.integers(0, 2**32), by=st.booleans())
def test_mean_pass_rates_count_the_rows_of_which_nothing_is_known(seed, by):
    rng = np.random.default_rng(seed)
    stratum = rng.permutation(np.arange(90) % 4)
    sampler = ThompsonSampler(90)
    rows = rng.permutation(90)[: rng.integers(0, 91)]
    sampler.observe(rows, rng.integers(0, 9, rows.size), np.full(rows.size, 8))
    a, b = sampler.belief()
    mean = a / (a + b)
    if by:
        expected = [mean[stratum == number].mean() for number in range(4)]
        np.testing.assert_allclose(sampler.mean_pass_rates(stratum, 4), expected, rtol=1e-12)
    else:
        np.testing.assert_allclose(sampler.mean_pass_rates(), [mean.mean()], rtol=1e-12)
    assert sampler.metrics() == {
        "coverage": rows.size / 90,
        "mean_pass_rate": pytest.approx(mean.mean(), rel=1e-12),
    }


@pytest.mark.parametrize(("alpha", "beta"), [(0.0, 0.0), (2.0, 6.0), (8.0, 0.0), (0.5, 1000.0), (300.0, 200.0)])
def test_draws_follow_the_beta_distribution_of_the_posterior(alpha, beta):
    from scipy.stats import beta as beta_distribution
    from scipy.stats import kstest

    sampler = ThompsonSampler(5000, seed=3)
    sampler.observe(np.arange(5000), np.full(5000, alpha), np.full(5000, alpha + beta))
    draw = sampler.draw(5000)  # all of them: fewer would be the best ones, which follow another distribution
    by_row = draw.sampled_pass_rate[np.argsort(draw.sample_index)]
    expected = beta_distribution(alpha + 1, beta + 1)
    # The seed is fixed, so this is decided once. The slip Beta(alpha, beta + 1) has p < 1e-11 where alpha <= 8.
    assert kstest(by_row, expected.cdf).pvalue > 0.001
    assert kstest(by_row[:2500], by_row[2500:]).pvalue > 0.001  # the same in the first rows and in the last


def test_one_row_follows_its_posterior_over_many_draws():
    from scipy.stats import beta as beta_distribution
    from scipy.stats import kstest

    sampler = ThompsonSampler(1, seed=11)
    sampler.observe([0], [3], [8])
    pass_rates = np.concatenate([sampler.draw(1).sampled_pass_rate for _ in range(3000)])
    assert kstest(pass_rates, beta_distribution(4, 6).cdf).pvalue > 0.001
    assert abs(np.corrcoef(pass_rates[1:], pass_rates[:-1])[0, 1]) < 0.05


def test_a_draw_depends_on_the_seed_the_draw_number_and_the_posterior_alone():
    first, again = ThompsonSampler(50, seed=5), ThompsonSampler(50, seed=5)
    np.random.seed(0)
    draw = first.draw(10)
    np.random.seed(1)
    assert_same_draw(draw, again.draw(10))
    assert first.draw(10).sample_index.tolist() != draw.sample_index.tolist()
    assert ThompsonSampler(50, seed=6).draw(10).sample_index.tolist() != draw.sample_index.tolist()
    again.observe([0], [1], [8])
    assert again.draw(50).sampled_pass_rate.tolist() != first.draw(50).sampled_pass_rate.tolist()
    # A batch of another size uses the same random numbers.
    assert ThompsonSampler(50, seed=5).draw(3).sample_index.tolist() == draw.sample_index[:3].tolist()


def test_rows_with_much_evidence_are_chosen_by_their_gain():
    sampler = ThompsonSampler(5)
    # pass rates near 0, 1/3, 1/2, 3/4, 1: gains near 0, 0.148, 0.125, 0.047, 0
    sampler.observe(np.arange(5), np.array([0, 4, 6, 9, 12]) * 1e6, np.full(5, 12e6))
    assert sampler.draw(3).sample_index.tolist() == [1, 2, 3]
    symmetric = ThompsonSampler(5, gain="symmetric")
    symmetric.observe(np.arange(5), np.array([0, 4, 6, 9, 12]) * 1e6, np.full(5, 12e6))
    assert symmetric.draw(3).sample_index.tolist() == [2, 1, 3]  # 1/4, 2/9, 3/16
    p = symmetric.draw(3).sampled_pass_rate
    np.testing.assert_allclose(p * (1 - p), [1 / 4, 2 / 9, 3 / 16], rtol=1e-2)


def test_greedy_takes_the_posterior_mean_for_the_pass_rate():
    sampler = run(ThompsonSampler(12, greedy=True), 5)
    draw = sampler.draw(12)
    assert draw.sampled_pass_rate.tolist() == draw.posterior_mean.tolist()
    assert_same_draw(draw, sampler.draw(12))  # the draw number makes no difference
    assert ThompsonSampler(12, greedy=True).draw(4).sample_index.tolist() == [0, 1, 2, 3]  # all equal


@exhaustive
@given(seed=st.integers(0, 2**32))
def test_permuting_the_rows_permutes_the_greedy_choices(seed):
    rng = np.random.default_rng(seed)
    names = rng.permutation(15)
    sampler, permuted = ThompsonSampler(15, greedy=True), ThompsonSampler(15, greedy=True)
    successes = rng.random(15)  # fractions, so that no two rows tie
    sampler.observe(np.arange(15), successes, np.ones(15))
    permuted.observe(names, successes, np.ones(15))
    assert permuted.draw(6).sample_index.tolist() == names[sampler.draw(6).sample_index].tolist()


# Uniform sampling


@pytest.mark.parametrize(("num_samples", "k"), [(1, 1), (7, 3), (12, 4), (10, 10), (1000, 48), (9471, 512)])
def test_uniform_draws_are_the_batches_of_the_stock_trainer(num_samples, k):
    from trl.trainer.utils import RepeatSampler

    stock = RepeatSampler(range(num_samples), mini_repeat_count=1, batch_size=k, shuffle=True, seed=42)
    sampler = UniformSampler(num_samples, seed=42)
    for _epoch in range(3):
        order = list(stock)
        for start in range(0, len(order), k):
            assert sampler.draw(k).sample_index.tolist() == order[start : start + k]


def test_a_draw_that_does_not_fit_starts_the_next_epoch():
    sampler = UniformSampler(10, seed=1)
    rows = [sampler.draw(k).sample_index.tolist() for k in (6, 5, 5, 1)]
    assert rows[0] == stock_order(10, 1, 0)[:6].tolist()
    assert rows[1] == stock_order(10, 1, 1)[:5].tolist()  # 4 rows of epoch 0 are dropped
    assert rows[2] == stock_order(10, 1, 1)[5:].tolist()
    assert rows[3] == stock_order(10, 1, 2)[:1].tolist()


def test_outcomes_never_change_a_uniform_choice():
    blind, informed = UniformSampler(30, seed=2), UniformSampler(30, seed=2)
    for _ in range(20):
        rows = informed.draw(7).sample_index
        assert blind.draw(7).sample_index.tolist() == rows.tolist()
        informed.observe(rows, np.full(7, 8), np.full(7, 8))
    assert informed.posterior.step == 20
    assert informed.metrics()["mean_pass_rate"] > 0.6


def test_more_rows_than_torch_shuffles_in_this_way_are_refused():
    with refused(ConfigurationError, names=["num_samples", 214748364], offers=[214748363]):
        UniformSampler(2**32 // 20)


# State


STRATIFIED = ThompsonSampler(5, seed=1, stratify=list("ababa"))


@pytest.mark.parametrize(
    ("ours", "theirs", "names"),
    [
        (ThompsonSampler(5, seed=1), {"gain": "symmetric"}, ["gain", "symmetric", "asymmetric"]),
        (ThompsonSampler(5, seed=1), {"greedy": True}, ["greedy", True, False]),
        (ThompsonSampler(5, seed=1), {"decay_sampled": 0.5}, ["decay_sampled", 0.5, 0.2]),
        (ThompsonSampler(5, seed=1), {"decay_unsampled": 0.5}, ["decay_unsampled", 0.5, 0.999]),
        (ThompsonSampler(5, seed=1), {"stratify": [0, 0, 1, 1, 1]}, ["stratify", None]),
        (STRATIFIED, {}, ["stratify", None]),
        (STRATIFIED, {"stratify": list("aabbb")}, ["stratify"]),
    ],
)
def test_the_state_under_another_setting_is_refused_by_naming_both_sides(ours, theirs, names):
    before = state_digest(run(ours, 3))
    with refused(SnapshotMismatchError, names=names) as refusal:
        ours.load_state_dict(ThompsonSampler(5, seed=1, **theirs).state_dict())
    assert "release" not in str(refusal.value)  # another release would say the same
    assert state_digest(ours) == before


def test_without_strata_the_state_is_that_of_earlier_releases():
    """With a setting more, no snapshot saved before there was one could be loaded."""
    assert set(ThompsonSampler(5).state_dict()["settings"]) == {
        *("gain", "greedy", "cooldown", "prior"),
        *("decay_sampled", "decay_unsampled", "signal_aware_decay"),
    }


def test_settings_that_are_gone_are_loaded_where_they_changed_nothing():
    saved = run(ThompsonSampler(5, seed=1), 3)
    state, fresh = saved.state_dict(), ThompsonSampler(5, seed=1)
    fresh.load_state_dict(state | {"settings": state["settings"] | {"strata": None, "uniform_share": 0.0}})
    assert state_digest(fresh) == state_digest(saved)
    for gone in ({"uniform_share": 0.5}, {"strata": "0" * 64}, {"prior": "learned"}):
        with refused(SnapshotError, names=[*gone]):
            ThompsonSampler(5, seed=1).load_state_dict(state | {"settings": state["settings"] | gone})


def test_a_position_beyond_the_epoch_is_refused():
    sampler = UniformSampler(5)
    with refused(SnapshotCorruptError, names=["position", 6]):
        sampler.load_state_dict(sampler.state_dict() | {"position": 6})


def test_an_epoch_that_would_take_forever_to_find_is_refused():
    sampler = UniformSampler(2)
    with refused(SnapshotCorruptError, names=["epoch", 10**9]):
        sampler.load_state_dict(sampler.state_dict() | {"epoch": 10**9})
    alone = UniformSampler(1)
    alone.load_state_dict(alone.state_dict() | {"epoch": 2**30})  # one row has one order
    assert alone.draw(1).sample_index.tolist() == [0]


class SamplerAgainstDictionary(RuleBasedStateMachine):
    """`ThompsonSampler` against a dictionary {row: (alpha, beta, visits)} that is decayed row by row at every step."""

    num_samples, seed, decay_sampled, decay_unsampled = 6, 17, 0.2, 0.9
    resting = False  # symmetric gain, signal-aware decay, a cooldown of two steps
    stratify = None  # labels of the rows

    def __init__(self):
        super().__init__()
        self.sampler = self.build()
        self.oracle = dict.fromkeys(range(self.num_samples), (0.0, 0.0, 0))
        self.last_drawn = {}
        self.step = self.num_draws = 0

    def build(self):
        return ThompsonSampler(
            self.num_samples,
            seed=self.seed,
            decay_sampled=self.decay_sampled,
            decay_unsampled=self.decay_unsampled,
            **({"gain": "symmetric", "signal_aware_decay": True, "cooldown": 2} if self.resting else {}),
            stratify=self.stratify,
        )

    @rule(k=st.integers(1, num_samples - 2), exclude=st.sets(st.integers(0, num_samples - 1), max_size=2))
    def draw(self, k, exclude):
        alpha, beta, _ = np.array(list(self.oracle.values())).T
        philox = np.random.Philox(key=np.array([self.seed, self.num_draws], dtype=np.uint64))
        p = np.random.Generator(philox).beta(alpha + 1, beta + 1)
        gain = p * (1 - p) if self.resting else p * (1 - p) ** 2
        left = dict.fromkeys(range(self.num_samples), 0)  # steps of the cooldown: 2 for a row of the last step, then 1
        if self.resting:
            left |= {row: max(2 - (self.step - step), 0) for row, step in self.last_drawn.items()}
        rows = [row for row in range(self.num_samples) if row not in exclude]
        expected = self.best(rows, k, key=lambda i: (left[i], -gain[i], i), resting=lambda i: left[i] > 0)
        drawn = self.sampler.draw(k, exclude=sorted(exclude))
        self.num_draws += 1
        assert drawn.sample_index.tolist() == expected
        np.testing.assert_allclose(drawn.sampled_pass_rate, p[expected], rtol=1e-9)

    def best(self, rows, k, key, resting):
        """The first `k` rows by `key`; with strata each one's quota of those that do not rest goes first."""
        chosen = []
        if self.stratify is not None:
            quotas = Strata(np.array(self.stratify)).quotas(k, seed=self.seed, number=self.num_draws)
            for stratum, quota in enumerate(quotas):
                own = [row for row in rows if self.stratify[row] == stratum and not resting(row)]
                chosen += sorted(own, key=key)[:quota]
        others = sorted(set(rows) - set(chosen), key=key)
        return sorted([*chosen, *others[: k - len(chosen)]], key=key)

    @rule(
        groups=st.dictionaries(
            st.integers(0, num_samples - 1), st.tuples(st.integers(0, 8), st.integers(0, 8)).map(sorted)
        )
    )
    def observe(self, groups):
        self.sampler.observe(list(groups), [s for s, _ in groups.values()], [t for _, t in groups.values()])
        self.step += 1
        for row, (alpha, beta, visits) in self.oracle.items():
            successes, trials = groups.get(row, (0, 0))
            trained = 0 < successes < trials if self.resting else trials > 0
            kept = self.decay_sampled if trained else self.decay_unsampled
            if row in groups:
                self.last_drawn[row] = self.step
            self.oracle[row] = (kept * alpha + successes, kept * beta + trials - successes, visits + (trials > 0))

    @rule()
    def save_and_load_in_memory(self):
        state = self.sampler.state_dict()
        self.sampler = self.build()
        self.sampler.load_state_dict(state)

    @rule()
    def save_and_load_in_a_directory(self):
        with tempfile.TemporaryDirectory() as directory:
            save_snapshot(directory, self.sampler)
            self.sampler = self.build()
            self.sampler.load_state_dict(load_snapshot(directory).sampler_state)

    @rule(wrong=st.sampled_from([([0, 0], [1, 1], [8, 8]), ([6], [1], [8]), ([0, 1], [9, 0], [8, 8])]))
    def a_refused_observation_changes_nothing(self, wrong):
        before = state_digest(self.sampler)
        with pytest.raises(ObservationError):
            self.sampler.observe(*wrong)
        assert state_digest(self.sampler) == before

    @invariant()
    def the_posterior_is_the_dictionary(self):
        posterior = self.sampler.posterior
        alpha, beta, visits = zip(*self.oracle.values(), strict=True)
        np.testing.assert_allclose(posterior.alpha, alpha, rtol=1e-12)
        np.testing.assert_allclose(posterior.beta, beta, rtol=1e-12)
        assert posterior.visits.tolist() == list(visits)
        assert posterior.step == self.step


TestSamplerAgainstDictionary = SamplerAgainstDictionary.TestCase
TestSamplerAgainstDictionary.settings = settings(
    deadline=None, derandomize=True, max_examples=10, stateful_step_count=30
)


class RobustSamplerAgainstDictionary(SamplerAgainstDictionary):
    """The same with the symmetric gain, signal-aware decay and a cooldown."""

    resting = True


TestRobustSamplerAgainstDictionary = RobustSamplerAgainstDictionary.TestCase
TestRobustSamplerAgainstDictionary.settings = TestSamplerAgainstDictionary.settings


class StratifiedSamplerAgainstDictionary(RobustSamplerAgainstDictionary):
    """The same with a stratum of two rows and one of four."""

    stratify = (0, 1, 1, 0, 1, 1)


TestStratifiedSamplerAgainstDictionary = StratifiedSamplerAgainstDictionary.TestCase
TestStratifiedSamplerAgainstDictionary.settings = TestSamplerAgainstDictionary.settings
