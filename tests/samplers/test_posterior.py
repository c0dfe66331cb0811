import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.refusals import refused
from trl_vade.errors import ConfigurationError, ObservationError, SnapshotCorruptError, SnapshotMismatchError
from trl_vade.samplers.counts import LARGE
from trl_vade.samplers.posterior import BetaPosterior

exhaustive = settings(deadline=None, derandomize=True, max_examples=20)
decays = st.floats(0.0, 1.0)


def random_steps(seed, num_samples, num_steps):
    """A list of (rows, successes, trials), with unscored rows, empty steps and fractional successes among them."""
    rng = np.random.default_rng(seed)
    for _ in range(num_steps):
        rows = rng.permutation(num_samples)[: rng.integers(0, num_samples + 1)]
        trials = rng.integers(0, 9, size=rows.size)
        yield rows, trials * rng.choice([0.0, 0.25, 0.5, 1.0], size=rows.size), trials


def observed(num_samples=5, **settings):
    posterior = BetaPosterior(num_samples, **settings)
    posterior.observe([0, 3], [2, 8], [8, 8])
    posterior.observe([3, 1], [1, 0], [8, 8])
    return posterior


def assert_same_state(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        if isinstance(value, np.ndarray):
            assert value.dtype == theirs[name].dtype
            assert value.tobytes() == theirs[name].tobytes(), name
        else:
            assert value == theirs[name], name


def test_three_steps_worked_by_hand():
    # Decays that are exact in binary, so that the comparison can be exact: lambda_1 = 1/2, lambda_2 = 3/4.
    posterior = BetaPosterior(3, decay_sampled=0.5, decay_unsampled=0.75)

    posterior.observe([0, 1], [3, 1], [4, 4])
    # row 0, eq. 5: alpha = 0/2 + 3, beta = 0/2 + 1; row 1: alpha = 0/2 + 1, beta = 0/2 + 3; row 2, eq. 6: 0 and 0
    assert posterior.alpha.tolist() == [3.0, 1.0, 0.0]
    assert posterior.beta.tolist() == [1.0, 3.0, 0.0]

    posterior.observe([0], [4], [4])
    # row 0, eq. 5: alpha = 3/2 + 4, beta = 1/2 + 0; row 1, eq. 6: alpha = 1 * 3/4, beta = 3 * 3/4
    assert posterior.alpha.tolist() == [5.5, 0.75, 0.0]
    assert posterior.beta.tolist() == [0.5, 2.25, 0.0]

    posterior.observe([2, 1], [0, 2], [4, 4])
    # row 0, eq. 6: alpha = 5.5 * 3/4, beta = 0.5 * 3/4; row 1, eq. 5: alpha = 0.75/2 + 2, beta = 2.25/2 + 2
    # row 2, eq. 5: alpha = 0, beta = 4
    assert posterior.alpha.tolist() == [4.125, 2.375, 0.0]
    assert posterior.beta.tolist() == [0.375, 3.125, 4.0]
    # means: (4.125 + 1) / (4.5 + 2), (2.375 + 1) / (5.5 + 2), (0 + 1) / (4 + 2)
    assert posterior.posterior_mean.tolist() == [5.125 / 6.5, 3.375 / 7.5, 1 / 6]
    assert posterior.visits.tolist() == [2, 2, 1]
    assert posterior.step == 3


def test_signal_aware_decay_worked_by_hand():
    """lambda_1 = 1/2 only where the answers were mixed, else lambda_2 = 3/4: evidence without a gradient adds up."""
    posterior = BetaPosterior(3, decay_sampled=0.5, decay_unsampled=0.75, signal_aware_decay=True)
    posterior.observe([0, 1, 2], [0, 4, 2], [4, 4, 4])
    posterior.observe([0, 1, 2], [0, 4, 2], [4, 4, 4])
    assert posterior.alpha.tolist() == [0, 4 * 0.75 + 4, 2 * 0.5 + 2]
    assert posterior.beta.tolist() == [4 * 0.75 + 4, 0, 2 * 0.5 + 2]
    assert posterior.last_update.tolist() == [2, 2, 2]


def test_a_row_never_solved_is_written_off_only_with_signal_aware_decay():
    paper, aware = BetaPosterior(1), BetaPosterior(1, signal_aware_decay=True)
    for posterior in (paper, aware):
        for _ in range(30):
            posterior.observe([0], [0], [8])
    assert paper.beta[0] == pytest.approx(10)  # 8 / (1 - 0.2), however often it fails
    assert aware.beta[0] > 230


@pytest.mark.parametrize("value", ["false", 0, None])
def test_a_signal_aware_decay_that_is_no_bool_is_refused(value):
    with refused(ConfigurationError, names=["signal_aware_decay", value]):
        BetaPosterior(3, signal_aware_decay=value)


def test_the_papers_decays_are_the_default():
    posterior = BetaPosterior(2)
    posterior.observe([0], [2], [8])  # alpha = 2, beta = 6
    posterior.observe([1], [8], [8])  # alpha = 0.999 * 2 = 1.998, beta = 0.999 * 6 = 5.994
    posterior.observe([0], [5], [8])  # alpha = 0.2 * 1.998 + 5 = 5.3996, beta = 0.2 * 5.994 + 3 = 4.1988
    assert posterior.alpha[0] == pytest.approx(5.3996, rel=1e-15)
    assert posterior.beta[0] == pytest.approx(4.1988, rel=1e-15)


def test_without_evidence_the_belief_is_uniform():
    posterior = BetaPosterior(4)
    assert posterior.alpha.tolist() == posterior.beta.tolist() == [0.0] * 4
    assert posterior.posterior_mean.tolist() == [0.5] * 4
    assert posterior.visits.tolist() == [0] * 4
    assert (posterior.step, posterior.num_samples) == (0, 4)


def test_a_row_with_no_trials_decays_as_if_it_was_not_selected():
    unscored, absent = observed(), observed()
    unscored.observe([0, 1], [0, 3], [0, 8])
    absent.observe([1], [3], [8])
    assert_same_state(unscored.state_dict(), absent.state_dict())


def test_a_step_without_rows_still_decays():
    posterior = observed()
    before = posterior.alpha
    posterior.observe([], [], [])
    assert posterior.step == 3
    np.testing.assert_allclose(posterior.alpha, before * 0.999, rtol=1e-15)


def test_decays_of_zero_and_one_keep_the_last_update():
    # The paper's "last-update" ablation: each row remembers its latest group, and only that, for ever.
    posterior = BetaPosterior(3, decay_sampled=0, decay_unsampled=1)
    posterior.observe([0, 1], [2, 4], [8, 8])
    posterior.observe([1], [7], [8])
    posterior.observe([], [], [])
    assert posterior.alpha.tolist() == [2.0, 7.0, 0.0]
    assert posterior.beta.tolist() == [6.0, 1.0, 0.0]


def test_an_unsampled_decay_of_zero_keeps_only_the_current_step():
    posterior = BetaPosterior(2, decay_sampled=1, decay_unsampled=0)
    posterior.observe([0], [2], [8])
    assert posterior.alpha.tolist() == [2.0, 0.0]
    posterior.observe([1], [3], [8])
    assert posterior.alpha.tolist() == [0.0, 3.0]


@exhaustive
@given(seed=st.integers(0, 2**32), decay_sampled=decays, decay_unsampled=decays)
def test_lazy_decay_equals_eager_decay_over_hundreds_of_steps(seed, decay_sampled, decay_unsampled):
    posterior = BetaPosterior(12, decay_sampled=decay_sampled, decay_unsampled=decay_unsampled)
    alpha, beta = np.zeros(12), np.zeros(12)
    for rows, successes, trials in random_steps(seed, 12, 200):
        posterior.observe(rows, successes, trials)
        for row in range(12):  # equations 5 and 6 as written
            group = np.flatnonzero((rows == row) & (trials > 0))
            decay = decay_sampled if group.size else decay_unsampled
            alpha[row] = decay * alpha[row] + successes[group].sum()
            beta[row] = decay * beta[row] + (trials[group] - successes[group]).sum()
    # Below 1e-300 numbers are subnormal, and have no relative accuracy left.
    np.testing.assert_allclose(posterior.alpha, alpha, rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose(posterior.beta, beta, rtol=1e-12, atol=1e-300)


@exhaustive
@given(seed=st.integers(0, 2**32), decay_sampled=decays, decay_unsampled=decays)
def test_counts_are_never_negative_and_means_stay_inside_zero_and_one(seed, decay_sampled, decay_unsampled):
    posterior = BetaPosterior(7, decay_sampled=decay_sampled, decay_unsampled=decay_unsampled)
    for step in random_steps(seed, 7, 50):
        posterior.observe(*step)
        assert (posterior.alpha >= 0).all()
        assert (posterior.beta >= 0).all()
        assert ((posterior.posterior_mean > 0) & (posterior.posterior_mean < 1)).all()


@exhaustive
@given(seed=st.integers(0, 2**32))
def test_permuting_the_rows_permutes_the_posterior(seed):
    names = np.random.default_rng(seed).permutation(9)  # row i of one posterior is row names[i] of the other
    posterior, permuted = BetaPosterior(9), BetaPosterior(9)
    for rows, successes, trials in random_steps(seed, 9, 30):
        posterior.observe(rows, successes, trials)
        permuted.observe(names[rows], successes, trials)
    assert permuted.alpha[names].tolist() == posterior.alpha.tolist()
    assert permuted.beta[names].tolist() == posterior.beta.tolist()
    assert permuted.visits[names].tolist() == posterior.visits.tolist()


@exhaustive
@given(seed=st.integers(0, 2**32))
def test_a_loaded_posterior_goes_on_bit_for_bit(seed):
    steps = list(random_steps(seed, 8, 40))
    posterior, loaded = BetaPosterior(8), BetaPosterior(8)
    for step in steps[:20]:
        posterior.observe(*step)
    loaded.load_state_dict(posterior.state_dict())
    for step in steps[20:]:
        posterior.observe(*step)
        loaded.observe(*step)
    assert_same_state(loaded.state_dict(), posterior.state_dict())
    assert loaded.alpha.tobytes() == posterior.alpha.tobytes()


def test_loading_leaves_nothing_of_what_was_there_before():
    posterior = observed()
    posterior.load_state_dict(BetaPosterior(5).state_dict())
    assert_same_state(posterior.state_dict(), BetaPosterior(5).state_dict())
    assert posterior.alpha.tolist() == posterior.beta.tolist() == [0.0] * 5


def test_counts_of_a_few_rows_are_those_of_all_rows():
    posterior = observed()
    alpha, beta = posterior.counts([3, 0, 3])
    assert alpha.tolist() == posterior.alpha[[3, 0, 3]].tolist()
    assert beta.tolist() == posterior.beta[[3, 0, 3]].tolist()


def test_the_state_holds_only_the_rows_ever_visited():
    state = observed(1000).state_dict()
    assert state["sample_index"].tolist() == [0, 1, 3]
    # Row 0 as it was at its last update, step 1: the decay of step 2 is not applied yet.
    assert state["alpha"].tolist() == [2.0, 0.0, 0.2 * 8.0 * 1.0 + 1.0]
    assert state["last_update"].tolist() == [1, 2, 2]
    assert state["visits"].tolist() == [1, 1, 2]
    assert {name: state[name] for name in ("step", "num_samples", "decay_sampled", "decay_unsampled")} == {
        "step": 2,
        "num_samples": 1000,
        "decay_sampled": 0.2,
        "decay_unsampled": 0.999,
    }


def test_no_array_is_shared_with_the_caller():
    posterior = observed()
    expected = posterior.state_dict()
    rows, successes, trials = np.array([2]), np.array([1.0]), np.array([8.0])
    posterior.observe(rows, successes, trials)
    expected_after = posterior.state_dict()
    given_out = [posterior.alpha, posterior.beta, posterior.visits, posterior.posterior_mean, *posterior.counts()]
    given_out += [value for value in posterior.state_dict().values() if isinstance(value, np.ndarray)]
    for array in [*given_out, rows, successes, trials]:
        array[:] = 77
    assert_same_state(posterior.state_dict(), expected_after)

    loaded, state = BetaPosterior(5), {name: np.copy(value) for name, value in expected.items()}
    state |= {name: value for name, value in expected.items() if not isinstance(value, np.ndarray)}
    loaded.load_state_dict(state)
    for value in state.values():
        if isinstance(value, np.ndarray):
            value[:] = 77
    assert_same_state(loaded.state_dict(), expected)


@pytest.mark.parametrize(
    ("sample_index", "successes", "trials", "reason"),
    [
        ([1, 2, 1], [0, 0, 0], [8, 8, 8], "[1]"),
        ([1, 1], [0, 0], [0, 0], "more than once"),
        ([5], [0], [8], "[0, 5)"),
        ([-1], [0], [8], "[-1]"),
        ([2**63], [0], [8], "9223372036854775808"),
        ([1.0], [0], [8], "integers"),
        ([True], [0], [8], "integers"),
        (["1"], [0], [8], "integers"),
        (1, 0, 8, "vector"),
        ([[1]], [[0]], [[8]], "vector"),
        ([[1], [1, 2]], [0], [8], "cannot be read"),
        ([1], [-1], [8], "-1.0"),
        ([1], [0], [-8], "-8.0"),
        ([1], [9], [8], "successes 9.0"),
        ([1, 2], [0, np.nan], [8, 8], "Entry 1"),
        ([1], [0], [np.nan], "trials nan"),
        ([1], [0], [np.inf], "trials inf"),
        ([1], [0], [2.0**54], "2**53"),
        ([1], [np.inf], [np.inf], "finite"),
        ([1], ["many"], [8], "numbers"),
        ([1], [1 + 1j], [8], "numbers"),
        ([1], [None], [8], "numbers"),
        ([1, 2], [0], [8], "(2,)"),
        ([1, 2], [0, 0], [8], "(1,)"),
        ([1], [[0]], [[8]], "vector"),
    ],
)
def test_impossible_observations_are_refused_and_change_nothing(sample_index, successes, trials, reason):
    posterior = observed()
    before = posterior.state_dict()
    with refused(ObservationError, names=[reason]):
        posterior.observe(sample_index, successes, trials)
    assert_same_state(posterior.state_dict(), before)


@pytest.mark.parametrize("sample_index", [[5], [-1], [0.5], 0])
def test_counts_of_rows_that_do_not_exist_are_refused(sample_index):
    with pytest.raises(ObservationError):
        observed().counts(sample_index)


@pytest.mark.parametrize("num_samples", [0, -1, 2.0, True, "3", None])
def test_a_posterior_without_rows_is_refused(num_samples):
    with refused(ConfigurationError, names=["num_samples", num_samples]):
        BetaPosterior(num_samples)


@pytest.mark.parametrize("name", ["decay_sampled", "decay_unsampled"])
@pytest.mark.parametrize("value", [-0.1, 1.1, np.nan, np.inf, None, "0.2", True])
def test_decays_outside_zero_and_one_are_refused(name, value):
    with refused(ConfigurationError, names=[name, value], offers=["[0, 1]"]):
        BetaPosterior(3, **{name: value})


@pytest.mark.parametrize(
    ("name", "value", "both_sides"),
    [
        ("num_samples", 6, (6, 5)),
        ("decay_sampled", 0.5, (0.5, 0.2)),
        ("decay_unsampled", 0.9, (0.9, 0.999)),
    ],
)
def test_a_state_of_another_posterior_is_refused_by_naming_both_sides(name, value, both_sides):
    posterior = observed()
    before = posterior.state_dict()
    with refused(SnapshotMismatchError, names=[name, *both_sides]):
        posterior.load_state_dict(before | {name: value})
    assert_same_state(posterior.state_dict(), before)


def test_zero_and_minus_zero_are_different_settings():
    state = BetaPosterior(3, decay_sampled=0.0).state_dict()
    with refused(SnapshotMismatchError, names=["decay_sampled", -0.0, 0.0]):
        BetaPosterior(3, decay_sampled=0.0).load_state_dict(state | {"decay_sampled": -0.0})


def test_a_state_with_other_fields_is_refused_by_naming_both_sides():
    posterior = observed()
    before = posterior.state_dict()
    without_visits = {name: value for name, value in before.items() if name != "visits"}
    with refused(SnapshotMismatchError, names=["visits", "colour"]):
        posterior.load_state_dict(without_visits | {"colour": "red"})
    with refused(SnapshotCorruptError, names=["a list"]):
        posterior.load_state_dict(list(before))
    assert_same_state(posterior.state_dict(), before)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("step", -1, "step is -1"),
        ("step", 2.0, "whole number"),
        ("step", 2**63, "whole number"),
        ("step", 1, "last_update"),
        ("sample_index", np.array([0, 3, 1]), "sample_index"),
        ("sample_index", np.array([0, 1, 1]), "sample_index"),
        ("sample_index", np.array([0, 1, 5]), "[0, 5)"),
        ("sample_index", np.array([-1, 1, 3]), "[0, 5)"),
        ("sample_index", np.array([0, 1, 3], dtype=np.int32), "int32"),
        ("sample_index", [0, 1, 3], "a list"),
        ("alpha", np.array([1.0, 2.0]), "(2,)"),
        ("alpha", np.array([[1.0, 2.0, 3.0]]), "(1, 3)"),
        ("alpha", np.array([1, 2, 3]), "int64"),
        ("alpha", np.array([1.0, -2.0, 3.0]), "alpha"),
        ("alpha", np.array([1.0, np.nan, 3.0]), "alpha"),
        ("beta", np.array([1.0, np.inf, 3.0]), "beta"),
        ("last_update", np.array([0, 2, 2]), "last_update"),
        ("last_update", np.array([1, 2, 3]), "last_update"),
        ("alpha", np.array([1.0, 1e17, 3.0]), "2**53"),
        ("beta", np.array([1.0, 2.0, 1.7e308]), "2**53"),  # its draws would be NaN
        ("step", 2**53 + 1, "whole number"),  # the next steps must fit into int64
        ("visits", np.array([0, 1, 2]), "visits"),
        ("visits", np.array([2, 1, 2]), "visits"),
    ],
)
def test_broken_numbers_in_a_state_are_refused_and_change_nothing(name, value, reason):
    posterior = observed()
    before = posterior.state_dict()
    with refused(SnapshotCorruptError, names=[reason]):
        posterior.load_state_dict(before | {name: value})
    assert_same_state(posterior.state_dict(), before)


# -------------------------------------------------------------------------------------------------- large pools


def large_and_small(num_steps=40, **settings):
    """A large pool and one that is just none, after the same outcomes; half of the rows come back."""
    posteriors = [BetaPosterior(size, **settings) for size in (LARGE, LARGE - 1)]
    rng = np.random.default_rng(0)
    for _ in range(num_steps):
        rows = np.unique(np.concatenate([rng.integers(0, 300, 32), rng.integers(0, LARGE - 1, 32)]))
        successes = rng.integers(0, 9, rows.size)
        for posterior in posteriors:
            posterior.observe(rows, successes, np.full(rows.size, 8))
    return posteriors


@pytest.mark.parametrize("signal_aware_decay", [False, True])
def test_a_large_pool_counts_as_a_smaller_one_up_to_the_rounding_of_float32(signal_aware_decay):
    large, small = large_and_small(signal_aware_decay=signal_aware_decay)
    assert large.visited.tolist() == small.visited.tolist() == np.flatnonzero(large.visits).tolist()
    for ours, theirs in zip(large.visited_counts(), small.visited_counts(), strict=True):
        assert ours.dtype == theirs.dtype == np.float64
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    rows = np.array([0, 5, LARGE - 2])
    for ours, theirs in zip(large.counts(rows), small.counts(rows), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    np.testing.assert_allclose(large.alpha[:-1], small.alpha, rtol=1e-6)
    np.testing.assert_allclose(large.posterior_mean[:-1], small.posterior_mean, rtol=1e-6)
    assert large.visits[:-1].tolist() == small.visits.tolist()
    assert large.last_update[:-1].tolist() == small.last_update.tolist()
    assert large.last_update_of(rows).tolist() == small.last_update[rows].tolist()
    for posterior in (large, small):
        now = posterior.alpha + posterior.beta
        assert now.max() <= posterior.most_counts


def test_a_large_pool_goes_on_bit_for_bit_where_it_was_saved():
    large, _ = large_and_small()
    resumed = BetaPosterior(LARGE)
    resumed.load_state_dict(large.state_dict())
    assert_same_state(resumed.state_dict(), large.state_dict())
    for posterior in (large, resumed):
        posterior.observe([1, LARGE - 1], [0.1, 7.3], [8, 8])
    assert_same_state(resumed.state_dict(), large.state_dict())


def test_counts_of_another_precision_are_rounded_in_a_large_pool_and_refused_in_others():
    large, small = large_and_small()
    state = small.state_dict() | {"num_samples": LARGE}
    assert state["alpha"].dtype == np.float64
    rounded = BetaPosterior(LARGE)
    rounded.load_state_dict(state)
    np.testing.assert_allclose(rounded.alpha, large.alpha, rtol=1e-6)
    with refused(SnapshotCorruptError, names=["alpha", "float32"], offers=["float64"]):
        small.load_state_dict(large.state_dict() | {"num_samples": LARGE - 1})


def test_the_largest_counts_that_can_be_observed_can_be_saved_in_either_precision():
    for num_samples in (LARGE, 5):
        posterior, other = BetaPosterior(num_samples, decay_sampled=1), BetaPosterior(num_samples, decay_sampled=1)
        for _ in range(3):
            posterior.observe([2], [2.0**53 - 1], [2.0**53])
        other.load_state_dict(posterior.state_dict())
        assert_same_state(other.state_dict(), posterior.state_dict())


def test_a_step_beyond_any_run_costs_no_more_memory():
    posterior, late = BetaPosterior(10), BetaPosterior(10)
    posterior.observe([1], [1], [2])
    late.load_state_dict(posterior.state_dict() | {"step": 2**40})
    assert late.alpha.tolist() == [0.0] * 10
    late.load_state_dict(posterior.state_dict() | {"step": 2**20 + 700})
    soon = BetaPosterior(10)
    soon.load_state_dict(posterior.state_dict() | {"step": 2**20})
    np.testing.assert_allclose(late.alpha[1], soon.alpha[1] * 0.999**700, rtol=1e-9)


def test_a_step_that_fails_for_want_of_memory_changes_nothing(monkeypatch):
    posterior = observed()
    before = posterior.state_dict()

    def refuse(*_, **__):
        raise MemoryError

    monkeypatch.setattr(posterior._store, "write", refuse)
    with pytest.raises(MemoryError):
        posterior.observe([2], [1], [8])
    assert_same_state(posterior.state_dict(), before)
