"""`trainer.batch_rows`: properties against brute force, and a schedule of D3S."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trl_vade.trainer.batch_rows import most_varied, spread

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


@given(st.integers(0, 40), st.integers(0, 40), st.integers(1, 5))
def test_others_lie_evenly_between_the_values(size, more, parts):
    values = np.random.default_rng(size).permutation(100)[:size]
    places = spread(values, more)
    assert values[places[places < size]].tolist() == sorted(values)
    assert places[places >= size].tolist() == [*range(size, size + more)]
    shares = [(part >= size).sum() / len(part) for part in np.array_split(places, parts) if len(part) > 9]
    assert all(abs(share - more / (size + more)) <= 0.2 for share in shares)
