"""A saved posterior carried over to other rows or settings: each count follows its row, and nothing is invented."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.refusals import refused
from trl_vade.data.row_keys import find_rows
from trl_vade.errors import SnapshotCorruptError, SnapshotMismatchError
from trl_vade.samplers import ThompsonSampler, UniformSampler
from trl_vade.samplers.snapshot import load_snapshot, save_snapshot
from trl_vade.trainer.checkpoint.mismatch import joined_state

# Each example writes a snapshot to the disk.
few = settings(deadline=None, derandomize=True, max_examples=40)
SEEDS = st.integers(0, 2**32)
KEYS = st.integers(-(2**63), 2**63 - 1)


def learn(sampler, random, num_steps=6, names=None):
    """Observe 4 completions of each of up to 3 drawn rows a step; `names` gives the rows other numbers."""
    for _ in range(num_steps):
        rows = random.permutation(sampler.posterior.num_samples)[: random.integers(0, 4)]
        sampler.draw(2)
        sampler.observe(
            rows if names is None else names[rows], random.integers(0, 5, rows.size), np.full(rows.size, 4)
        )
    return sampler


def saved(directory, sampler, keys):
    save_snapshot(directory, sampler, sample_key=None if keys is None else np.array(keys, dtype=np.int64))
    return load_snapshot(directory)


def join(snapshot, keys, sampler=None):
    """A sampler over the rows with `keys` that has taken the saved counts over, and how many rows were found."""
    sampler = sampler or ThompsonSampler(len(keys), seed=1)
    state, num_found = joined_state(snapshot, sampler.state_dict(), np.array(keys, dtype=np.int64))
    sampler.load_state_dict(state)
    return sampler, num_found


def random_keys(random, count):
    return np.unique(random.integers(-(2**62), 2**62, 2 * count))[:count][random.permutation(count)]


@pytest.fixture
def learned():
    """Four rows with decays that are exact in binary; after two steps row 1 has 3 and 1, row 2 has 1.5 and 0."""
    sampler = ThompsonSampler(4, seed=1, decay_sampled=0.5, decay_unsampled=0.75)
    sampler.draw(2)
    sampler.observe([0, 2], [1, 2], [4, 2])
    sampler.draw(2)
    sampler.observe([1], [3], [4])
    return sampler


def test_a_join_worked_by_hand(learned, tmp_path):
    snapshot = saved(tmp_path, learned, [100, 101, 102, 103])
    # Row 0 is gone, row 2 is first, row 3 was never scored, and 104 is new.
    sampler, num_found = join(snapshot, [102, 104, 103, 101])
    posterior = sampler.posterior
    assert num_found == 2
    assert posterior.alpha.tolist() == [2 * 0.75, 0, 0, 3]
    assert posterior.beta.tolist() == [0, 0, 0, 1]
    assert posterior.visits.tolist() == [1, 0, 0, 1]
    assert posterior.step == 2


def test_from_then_on_the_new_decays_hold(learned, tmp_path):
    snapshot = saved(tmp_path, learned, [100, 101, 102, 103])
    fresh = ThompsonSampler(4, seed=1, decay_sampled=0.25, decay_unsampled=0.5)
    sampler, _ = join(snapshot, [103, 102, 101, 100], fresh)
    assert sampler.posterior.alpha.tolist() == [0, 1.5, 3, 0.75]
    assert sampler.posterior.beta.tolist() == [0, 0, 1, 2.25]
    sampler.observe([2], [2], [4])
    assert sampler.posterior.alpha.tolist() == [0, 1.5 * 0.5, 3 * 0.25 + 2, 0.75 * 0.5]
    assert sampler.posterior.beta.tolist() == [0, 0, 1 * 0.25 + 2, 2.25 * 0.5]
    assert sampler.posterior.decays == fresh.posterior.decays
    assert sampler.posterior.decays["decay_sampled"] == 0.25


@few
@given(seed=SEEDS)
def test_a_permutation_of_the_rows_permutes_the_posterior_bit_for_bit(tmp_path_factory, seed):
    random = np.random.default_rng(seed)
    keys, order = random_keys(random, 8), random.permutation(8)
    before = learn(ThompsonSampler(8, seed=1), random)
    after, num_found = join(saved(tmp_path_factory.mktemp("join"), before, keys), keys[order])
    assert after.posterior.alpha.tolist() == before.posterior.alpha[order].tolist()
    assert after.posterior.beta.tolist() == before.posterior.beta[order].tolist()
    assert after.posterior.visits.tolist() == before.posterior.visits[order].tolist()
    assert after.posterior.step == before.posterior.step
    assert num_found == np.count_nonzero(before.posterior.visits)


@few
@given(seed=SEEDS)
def test_permuted_rows_go_on_to_learn_as_if_they_had_never_moved(tmp_path_factory, seed):
    random = np.random.default_rng(seed)
    keys, order = random_keys(random, 8), random.permutation(8)
    before = learn(ThompsonSampler(8, seed=1), random)
    after, _ = join(saved(tmp_path_factory.mktemp("join"), before, keys), keys[order])
    learn(before, np.random.default_rng(seed))
    learn(after, np.random.default_rng(seed), names=np.argsort(order))
    np.testing.assert_allclose(after.posterior.alpha, before.posterior.alpha[order], rtol=1e-12)
    np.testing.assert_allclose(after.posterior.beta, before.posterior.beta[order], rtol=1e-12)
    assert after.posterior.visits.tolist() == before.posterior.visits[order].tolist()


@few
@given(seed=SEEDS, num_kept=st.integers(1, 8), num_new=st.integers(0, 8))
def test_rows_that_stay_keep_their_counts_and_rows_that_come_start_from_the_prior(
    tmp_path_factory, seed, num_kept, num_new
):
    random = np.random.default_rng(seed)
    universe = random_keys(random, 16)
    keys = universe[:8]
    before = learn(ThompsonSampler(8, seed=1), random)
    here = random.permutation(np.concatenate([random.permutation(keys)[:num_kept], universe[8 : 8 + num_new]]))
    snapshot = saved(tmp_path_factory.mktemp("join"), before, keys)
    was = {int(key): row for row, key in enumerate(keys)}
    scored = [key for key in here.tolist() if key in was and before.posterior.visits[was[key]]]
    if not scored and before.posterior.visits.any():
        with refused(SnapshotMismatchError, names=["None"]):
            join(snapshot, here)
        return
    after, num_found = join(snapshot, here)
    assert num_found == len(scored)
    for name in ("alpha", "beta", "visits"):
        old = getattr(before.posterior, name)
        assert getattr(after.posterior, name).tolist() == [
            old[was[key]] if key in was else 0 for key in here.tolist()
        ], name


@given(st.lists(KEYS, min_size=1, max_size=9, unique=True), st.lists(KEYS, max_size=6), st.data())
def test_rows_are_found_as_in_a_dictionary(sample_key, others, data):
    wanted = data.draw(st.permutations(others + data.draw(st.lists(st.sampled_from(sample_key), max_size=6))))
    found, rows = find_rows(np.array(wanted, dtype=np.int64), np.array(sample_key, dtype=np.int64))
    row_of = {key: row for row, key in enumerate(sample_key)}
    assert found.tolist() == [key in row_of for key in wanted]
    assert rows[found].tolist() == [row_of[key] for key in wanted if key in row_of]


def test_a_snapshot_without_keys_cannot_be_joined(learned, tmp_path):
    with pytest.raises(SnapshotMismatchError, match="no keys"):
        join(saved(tmp_path, learned, None), [100, 101, 102, 103])


def test_a_data_set_without_any_scored_row_is_another_one(learned, tmp_path):
    snapshot = saved(tmp_path, learned, [100, 101, 102, 103])
    with refused(SnapshotMismatchError, names=["None", 3]):
        join(snapshot, [103, 104, 105])  # 103 is there, and nothing is known of it


def test_where_nothing_was_scored_yet_everything_starts_from_the_prior(tmp_path):
    sampler = ThompsonSampler(3, seed=1)
    sampler.draw(2)
    sampler.observe([], [], [])
    joined, num_found = join(saved(tmp_path, sampler, [1, 2, 3]), [7, 8])
    assert num_found == 0
    assert joined.posterior.visits.tolist() == [0, 0]
    assert joined.posterior.step == 1


# ---------------------------------------------------------------------------------------------- the random numbers


def test_the_draws_go_on_where_they_were(learned, tmp_path):
    keys = [100, 101, 102, 103]
    snapshot = saved(tmp_path, learned, keys)
    settings = {"decay_sampled": 0.5, "decay_unsampled": 0.75}
    joined, _ = join(snapshot, keys, ThompsonSampler(4, seed=1, **settings))
    ours, theirs = joined.draw(4), learned.draw(4)
    assert ours.sampled_pass_rate.tolist() == theirs.sampled_pass_rate.tolist()
    assert ours.sample_index.tolist() == theirs.sample_index.tolist()


def test_what_was_joined_serves_at_once_and_does_not_rest_first(tmp_path):
    """When each row was chosen is not carried over; a cooldown from the join on would bar all that is known."""
    first = ThompsonSampler(20)
    first.observe(range(10), [4] * 10, [8] * 10)
    save_snapshot(tmp_path, first, sample_key=np.arange(20, dtype=np.int64))
    other = ThompsonSampler(20, gain="symmetric", greedy=True, cooldown=5)
    state, _ = joined_state(load_snapshot(tmp_path), other.state_dict(), np.arange(20, dtype=np.int64))
    other.load_state_dict(state)
    assert set(other.draw(10).sample_index) == set(range(10))  # a mean of 1/2, as all others, and the lower rows
    other.observe([0], [4], [8])
    assert 0 not in other.draw(10).sample_index


def test_a_permutation_cannot_go_on_over_other_rows_so_the_next_epoch_begins(tmp_path):
    uniform = UniformSampler(6, seed=3)
    for _ in range(4):  # the second of epoch 1
        uniform.observe(uniform.draw(3).sample_index, [1, 1, 1], [2, 2, 2])
    joined, _ = join(saved(tmp_path, uniform, range(6)), range(7), UniformSampler(7, seed=3))
    expected = UniformSampler(7, seed=3)
    for _ in range(2):
        expected.draw(7)
    assert joined.draw(7).sample_index.tolist() == expected.draw(7).sample_index.tolist()


def test_counts_of_a_uniform_run_start_a_thompson_run_at_a_draw_of_its_own(tmp_path):
    uniform = learn(UniformSampler(6, seed=3), np.random.default_rng(0), num_steps=5)
    joined, _ = join(saved(tmp_path, uniform, range(6)), range(6), ThompsonSampler(6, seed=3))
    assert joined.posterior.alpha.tolist() == uniform.posterior.alpha.tolist()
    assert joined.state_dict()["num_draws"] == 5


def test_counts_of_a_thompson_run_start_a_uniform_run_at_its_first_epoch(learned, tmp_path):
    joined, _ = join(saved(tmp_path, learned, range(4)), range(4), UniformSampler(4, seed=3))
    assert joined.posterior.visits.tolist() == learned.posterior.visits.tolist()
    assert joined.draw(4).sample_index.tolist() == UniformSampler(4, seed=3).draw(4).sample_index.tolist()


# ------------------------------------------------------------------------------------------- what must not happen


def test_neither_the_snapshot_nor_the_fresh_state_is_written_into(learned, tmp_path):
    snapshot = saved(tmp_path, learned, [100, 101, 102, 103])
    fresh = ThompsonSampler(4, seed=1)
    state = fresh.state_dict()
    joined, _ = joined_state(snapshot, state, np.array([103, 102, 101, 100]))
    for array in (value for value in joined["posterior"].values() if isinstance(value, np.ndarray)):
        array[:] = 77
    fresh.load_state_dict(state)
    assert fresh.posterior.visits.tolist() == [0, 0, 0, 0]
    learned.load_state_dict(snapshot.sampler_state)
    assert learned.posterior.visits.tolist() == [1, 1, 1, 0]
    assert snapshot.sample_key.tolist() == [100, 101, 102]


def test_saved_numbers_that_no_run_can_have_made_are_refused(learned, tmp_path):
    snapshot = saved(tmp_path, learned, [100, 101, 102, 103])
    snapshot.sampler_state["posterior"]["alpha"][0] = np.nan
    with refused(SnapshotCorruptError, names=["alpha"]):
        join(snapshot, [100, 101, 102, 103])


def test_two_saved_rows_with_one_key_are_refused(learned, tmp_path):
    """Or the counts of one of them would be lost without a word."""
    snapshot = saved(tmp_path, learned, [100, 101, 102, 103])
    with refused(SnapshotCorruptError, names=["sample_index"]):
        join(replace(snapshot, sample_key=np.array([100, 100, 102])), [100, 101, 102, 103])
