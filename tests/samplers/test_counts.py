"""The numbers of the rows: sparse and dense hold the same, and a large pool costs what was visited."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trl_vade.samplers import counts as row_store
from trl_vade.samplers.counts import LARGE, RowStore

NAMES = ("alpha", "beta", "last_update", "visits")
N = 24
steps_of_rows = st.lists(st.lists(st.integers(0, N - 1), unique=True, max_size=N), max_size=8)


def store_of(num_samples, *, sparse):
    """A store of few rows that is held as one of many, or not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_store, "LARGE", 1 if sparse else LARGE)
        return RowStore(num_samples)


@pytest.mark.parametrize("sparse", [False, True])
@given(steps=steps_of_rows, asked=st.lists(st.integers(0, N - 1), max_size=30))
def test_it_holds_what_a_dictionary_holds(sparse, steps, asked):
    store, oracle = store_of(N, sparse=sparse), {}
    for step, rows in enumerate(steps, start=1):
        values = {row: (row + step / 8, step / 4, step, oracle.get(row, (0,) * 4)[3] + 1) for row in rows}
        columns = dict(zip(NAMES, np.array([*values.values()]).reshape(-1, 4).T, strict=True))
        store.write(np.array(rows, dtype=np.int64), **columns)
        oracle |= values
    expected = {name: [oracle.get(row, (0,) * 4)[i] for row in range(N)] for i, name in enumerate(NAMES)}
    for name, every in zip(NAMES, store.read(None, *NAMES), strict=True):
        assert every.tolist() == expected[name]
        some = store.read(np.array(asked, dtype=np.int64), name)[0]
        assert some.tolist() == [expected[name][row] for row in asked]
    assert store.visited.tolist() == sorted(oracle)
    assert [column.tolist() for column in store.read(store.visited, *NAMES)] == [
        [expected[name][row] for row in sorted(oracle)] for name in NAMES
    ]
    assert store.most_counts == max([a + b for a, b in zip(expected["alpha"], expected["beta"], strict=True)])


def bytes_held(store):
    held = [store._rows, *store._columns.values()]
    return sum(array.nbytes for array in held if array is not None)


def test_what_is_held_follows_the_visited_rows_until_all_rows_take_less():
    store = RowStore(LARGE)
    assert bytes_held(store) == 0
    sizes = []
    for rows in np.array_split(np.random.default_rng(0).permutation(LARGE), 20):
        store.write(rows, alpha=1.0, beta=2.0, last_update=1, visits=1)
        sizes.append(bytes_held(store) / LARGE)
    # 8 bytes for the row, 4 for each count and 8 for each of the others; without the row, 24.
    assert sizes == pytest.approx([min(32 * share / 20, 24) for share in range(1, 21)])
    assert store.visited.tolist() == list(range(LARGE))


def test_the_counts_of_a_large_pool_are_float32_and_those_of_others_float64():
    for num_samples, dtype in ((LARGE - 1, np.float64), (LARGE, np.float32)):
        store = RowStore(num_samples)
        store.write(np.array([5]), alpha=0.1, beta=0.2, last_update=1, visits=1)
        for rows in (None, np.array([5, 6])):
            assert [column.dtype for column in store.read(rows, *NAMES)] == [dtype, dtype, np.int64, np.int64]


@pytest.mark.parametrize("sparse", [False, True])
def test_nothing_was_visited_at_first(sparse):
    store = store_of(N, sparse=sparse)
    assert store.visited.size == store.most_counts == 0
    assert store.read(np.array([3, 3]), "visits")[0].tolist() == [0, 0]
    store.write(np.empty(0, dtype=np.int64), alpha=[], beta=[], last_update=1, visits=[])
    assert store.visited.size == 0
