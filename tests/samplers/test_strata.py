"""Stratified choice: the shares of a draw and of many, and which rows fill them."""

import itertools
import math
from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from trl_vade.samplers.strata import GOLDEN, PLASTIC, Strata

few = settings(max_examples=150)
sizes_of_strata = st.lists(st.integers(1, 30), min_size=1, max_size=8)
turns = {"seed": st.integers(0, 2**63 - 1), "number": st.integers(0, 2**62)}


def rows_of(sizes, seed=0):
    """(N,) the stratum of each row, in an order without pattern."""
    return np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))


@few
@given(sizes=sizes_of_strata, data=st.data(), **turns)
def test_quotas_are_those_of_systematic_sampling(sizes, data, seed, number):
    """In exact fractions, with the offset as it is documented."""
    num_rows = sum(sizes)
    k = data.draw(st.integers(0, num_rows))
    offset = Fraction((seed * PLASTIC + number * GOLDEN) % 2**64, 2**64)
    ends = [math.floor(Fraction(k * sum(sizes[:i]), num_rows) + offset) for i in range(len(sizes) + 1)]
    quotas = Strata(rows_of(sizes), sum(sizes)).quotas(k, seed=seed, number=number)
    assert quotas.tolist() == [end - start for start, end in itertools.pairwise(ends)]


def test_over_many_draws_no_stratum_is_ever_far_from_its_share():
    """Also where its share of one draw is far below 1: it is neither forgotten nor given several turns in a row."""
    uneven = [1, 1, 1, 2, 5, 40, 300, 7, 3, 1000, 60, 9]
    for sizes, k, seed in (([100] * 12, 4, 0), (uneven, 4, 1), ([1, 9999], 1, 12345), ([3, 4, 5], 7, 2**63 - 1)):
        strata, share = Strata(rows_of(sizes), sum(sizes)), k * np.array(sizes) / sum(sizes)
        quotas = np.array([strata.quotas(k, seed=seed, number=number) for number in range(2000)])
        away = np.cumsum(quotas, axis=0) - share * np.arange(1, 2001)[:, None]
        assert np.abs(away).max() < 4, sizes


def test_shares_of_a_huge_data_set_do_not_overflow():
    strata = Strata(np.repeat([0, 1, 2], [1, 1_999_998, 1]), 2_000_000)
    assert strata.quotas(2_000_000, seed=2**63 - 1, number=2**62).tolist() == [1, 1_999_998, 1]


def by_hand(stratum, rows, value, k, quotas):
    """The rule of `Strata.best` as it is documented, row by row."""
    worth = dict(zip(rows.tolist(), value.tolist(), strict=True))
    ranking = sorted(worth, key=lambda row: (-worth[row], row))
    chosen = []
    for each, quota in enumerate(quotas):
        chosen += [row for row in ranking if stratum[row] == each and worth[row] >= 0][:quota]
    chosen += [row for row in ranking if row not in chosen][: k - len(chosen)]
    return sorted(chosen, key=lambda row: (-worth[row], row))


@st.composite
def draws(draw):
    """Strata, rows that may be chosen, what they are worth (with ties, some at rest), and how many are asked for."""
    stratum = rows_of(draw(sizes_of_strata), seed=draw(st.integers(0, 99)))
    free = draw(st.sets(st.integers(0, stratum.size - 1), min_size=1, max_size=stratum.size))
    rows = np.array(sorted(free))
    value = np.array(draw(st.lists(st.integers(-6, 12), min_size=rows.size, max_size=rows.size))) / 4
    return stratum, rows, value, draw(st.integers(1, rows.size))


@few
@given(case=draws(), **turns)
def test_each_stratum_gives_its_best_and_the_best_of_all_fill_what_is_left_open(case, seed, number):
    stratum, rows, value, k = case
    strata = Strata(stratum, stratum.size)
    quotas = strata.quotas(k, seed=seed, number=number)
    chosen = rows[strata.best(rows, value, quotas)]
    assert chosen.tolist() == by_hand(stratum, rows, value, k, quotas)
