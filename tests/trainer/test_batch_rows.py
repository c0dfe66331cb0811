"""`trainer.batch_rows`: properties against brute force, and a schedule of D3S."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trl_vade.selection.on_time import enough_for
from trl_vade.trainer.batch_rows import in_parts, most_varied, scheduled, spread

levels = st.one_of(st.sampled_from([-1.5, -0.5, 0.0, 0.5, 2.0]), st.floats(-3, 3))


@given(st.lists(levels, min_size=1, max_size=9), st.data())
def test_no_other_subset_has_a_larger_variance(advantages, data):
    n = data.draw(st.integers(1, len(advantages)))
    places = most_varied(advantages, n)
    assert len(set(places.tolist())) == n
    assert (np.diff(places) > 0).all()
    best = max(np.var(subset) for subset in combinations(advantages, n))
    assert np.var(np.array(advantages)[places]) == pytest.approx(best, abs=1e-9)


def test_a_number_outside_of_the_batch_and_an_advantage_that_is_no_number_are_refused():
    for advantages, n in [([1.0, 0.0, -1.0], -1), ([1.0, 0.0, -1.0], 4), ([1.0, np.nan], 1)]:
        with pytest.raises(ValueError, match="advantages"):
            most_varied(advantages, n)


def test_the_schedule_of_256_rows_in_16_parts_is_golden():
    progress = [0.0, 0.25, 0.5, 0.75, 1.0]
    assert [in_parts(256 * scheduled([0.25, 1.0], p), 16) for p in progress] == [64, 112, 160, 208, 256]
    assert [scheduled((0.2, 1.0), p) for p in progress] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert [(in_parts(rows, 4), enough_for(rows, 4)) for rows in (0, 5, 6.1, 8)] == [(4, 4), (4, 8), (8, 8), (8, 8)]


@given(st.integers(0, 40), st.integers(0, 40), st.integers(1, 5))
def test_others_lie_evenly_between_the_values(size, more, parts):
    values = np.random.default_rng(size).permutation(100)[:size]
    places = spread(values, more)
    assert values[places[places < size]].tolist() == sorted(values)
    assert places[places >= size].tolist() == [*range(size, size + more)]
    shares = [(part >= size).sum() / len(part) for part in np.array_split(places, parts) if len(part) > 9]
    assert all(abs(share - more / (size + more)) <= 0.2 for share in shares)
