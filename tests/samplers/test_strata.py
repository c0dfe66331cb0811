"""Stratified choice: the shares of a draw and of many, and which rows fill them."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.refusals import refused
from trl_vade import ThompsonSampler
from trl_vade.errors import ConfigurationError, SnapshotMismatchError
from trl_vade.samplers.strata import GOLDEN, PLASTIC, Strata, shares_of

few = settings(deadline=None, derandomize=True, max_examples=150)
sizes_of_strata = st.lists(st.integers(1, 30), min_size=1, max_size=8)
turns = {"seed": st.integers(0, 2**63 - 1), "number": st.integers(0, 2**62)}


def rows_of(sizes, seed=0):
    """(N,) the stratum of each row, in an order without pattern."""
    return np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))


def best(strata, rows, value, k, seed=0, number=0):
    return strata.best(rows, value, strata.quotas(k, seed=seed, number=number))


# ------------------------------------------------------------------------------------------------------- the shares


@few
@given(sizes=sizes_of_strata, data=st.data(), **turns)
def test_quotas_sum_to_the_draw_and_are_the_share_rounded_down_or_up(sizes, data, seed, number):
    num_rows = sum(sizes)
    k = data.draw(st.integers(0, num_rows))
    quotas = Strata(rows_of(sizes)).quotas(k, seed=seed, number=number).tolist()
    assert sum(quotas) == k
    for quota, size in zip(quotas, sizes, strict=True):
        assert math.floor(Fraction(k * size, num_rows)) <= quota <= math.ceil(Fraction(k * size, num_rows))
        assert quota <= size


@few
@given(sizes=sizes_of_strata, data=st.data(), **turns)
def test_quotas_are_those_of_systematic_sampling(sizes, data, seed, number):
    """In exact fractions, with the offset as it is documented."""
    num_rows = sum(sizes)
    k = data.draw(st.integers(0, num_rows))
    offset = Fraction((seed * PLASTIC + number * GOLDEN) % 2**64, 2**64)
    ends = [math.floor(Fraction(k * sum(sizes[:i]), num_rows) + offset) for i in range(len(sizes) + 1)]
    quotas = Strata(rows_of(sizes)).quotas(k, seed=seed, number=number)
    assert quotas.tolist() == [end - start for start, end in itertools.pairwise(ends)]


def test_the_constants_are_the_numbers_that_they_are_named_after():
    golden, plastic = GOLDEN / 2**64, 2**64 / PLASTIC
    assert golden == pytest.approx((math.sqrt(5) - 1) / 2, rel=1e-15)
    assert plastic**3 == pytest.approx(plastic + 1, rel=1e-15)
    assert GOLDEN % 2 == PLASTIC % 2 == 1  # so that no two of 2**64 successive offsets are equal


@pytest.mark.parametrize("seed", [0, 1, 12345, 2**63 - 1])
@pytest.mark.parametrize(
    ("sizes", "k"),
    [
        ([100] * 12, 4),  # a third of a row in each draw
        ([1, 1, 1, 2, 5, 40, 300, 7, 3, 1000, 60, 9], 4),
        ([1, 9999], 1),
        ([3, 4, 5], 7),
    ],
    ids=str,
)
def test_over_many_draws_no_stratum_is_ever_far_from_its_share(sizes, k, seed):
    """Also where its share of one draw is far below 1: it is neither forgotten nor given several turns in a row."""
    strata, share = Strata(rows_of(sizes)), k * np.array(sizes) / sum(sizes)
    quotas = np.array([strata.quotas(k, seed=seed, number=number) for number in range(2000)])
    away = np.cumsum(quotas, axis=0) - share * np.arange(1, 2001)[:, None]
    assert np.abs(away[:200]).max() < 3
    assert np.abs(away).max() < 4


def test_seeds_take_other_turns_and_the_same_seed_takes_them_again():
    strata = Strata(rows_of([5] * 9))

    def turns_of(seed):
        return [strata.quotas(4, seed=seed, number=number).tolist() for number in range(30)]

    assert turns_of(3) == turns_of(3)
    assert len({str(turns_of(seed)) for seed in range(20)}) == 20
    assert turns_of(1)[1:] != turns_of(0)[:-1]  # nor is one seed a step behind another


def test_named_shares_are_kept_over_many_draws_and_the_others_divide_the_rest_by_their_rows():
    labels = ["hint"] * 60 + ["noise"] * 20 + ["original"] * 20
    shares = shares_of(labels, {"original": 0.5})
    assert shares == pytest.approx([0.375, 0.125, 0.5])
    strata = Strata(np.unique(labels, return_inverse=True)[1], shares)
    quotas = np.array([strata.quotas(7, seed=3, number=number) for number in range(1000)])
    assert (quotas.sum(axis=1) == 7).all()
    away = np.cumsum(quotas, axis=0) - 7 * shares * np.arange(1, 1001)[:, None]
    assert np.abs(away).max() < 4


@pytest.mark.parametrize(
    ("labels", "named", "shares"),
    [([1, 2, 2], {"2": 0.25}, [0.75, 0.25]), ([False, True], {"True": 1.0}, [0.0, 1.0]), (["a", "b"], {}, [0.5, 0.5])],
)
def test_labels_are_named_as_text(labels, named, shares):
    assert shares_of(labels, named) == pytest.approx(shares)


@pytest.mark.parametrize(
    ("named", "fault"), [({"c": 0.5}, "'c'"), ({"a": 0.75, "b": 0.75}, "1.5"), ({"a": 0.5, "b": 0.25}, "0.75")]
)
def test_shares_that_do_not_fit_the_labels_are_refused(named, fault):
    with refused(ConfigurationError, [fault, "vade_strata_shares"], ["must sum to 1"]):
        shares_of(["a", "a", "b"], named)


def test_a_share_is_a_number_and_shares_need_labels():
    for share in (-0.5, 1.5, "0.5", True):
        with refused(ConfigurationError, ["stratify_shares", share]):
            shares_of(["a", "b"], {"a": share})
    with refused(ConfigurationError, ["stratify_shares"], ["label"]):
        ThompsonSampler(4, stratify_shares={"a": 0.5})


@pytest.mark.parametrize("num_rows", [400, 200_000])
def test_a_sampler_with_shares_gives_them_and_goes_on_from_its_state(num_rows):
    labels = np.where(np.arange(num_rows) % 4 == 0, "original", "variant")

    def sampler(shares):
        return ThompsonSampler(num_rows, seed=1, stratify=labels, stratify_shares=shares)

    one = sampler({"original": 0.5})
    for _ in range(3):
        rows = one.draw(10).sample_index
        assert np.sum(labels[rows] == "original") == 5
        one.observe(rows, np.ones(10), np.full(10, 2))
    other = sampler({"original": 0.5})
    other.load_state_dict(one.state_dict())
    assert other.draw(9).sample_index.tolist() == one.draw(9).sample_index.tolist()
    for shares in (None, {"original": 0.25}):
        with pytest.raises(SnapshotMismatchError, match="stratify_shares"):
            sampler(shares).load_state_dict(one.state_dict())


def test_a_stratum_with_fewer_rows_than_its_share_leaves_its_places_to_the_others():
    labels = ["few"] * 3 + ["many"] * 97
    draw = ThompsonSampler(100, stratify=labels, stratify_shares={"few": 0.9}).draw(20)
    assert np.sum(draw.sample_index < 3) == 3


def test_shares_of_a_huge_data_set_do_not_overflow():
    strata = Strata(np.repeat([0, 1, 2], [1, 1_999_998, 1]))
    assert strata.quotas(2_000_000, seed=2**63 - 1, number=2**62).tolist() == [1, 1_999_998, 1]


# --------------------------------------------------------------------------------------------------------- the rows


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
    strata = Strata(stratum)
    quotas = strata.quotas(k, seed=seed, number=number)
    chosen = rows[best(strata, rows, value, k, seed, number)]
    assert chosen.tolist() == by_hand(stratum, rows, value, k, quotas)


@few
@given(case=draws(), **turns)
def test_k_distinct_rows_come_back_and_each_stratum_has_its_share_as_far_as_it_has_rows(case, seed, number):
    stratum, rows, value, k = case
    strata = Strata(stratum)
    chosen = rows[best(strata, rows, value, k, seed, number)]
    assert chosen.size == k == len(set(chosen.tolist()))
    assert set(chosen.tolist()) <= set(rows.tolist())
    awake = np.bincount(stratum[rows[value >= 0]], minlength=stratum.max() + 1)
    taken = np.bincount(stratum[chosen], minlength=awake.size)
    assert (taken >= np.minimum(strata.quotas(k, seed=seed, number=number), awake)).all()
    resting = set(rows[value < 0].tolist())
    if resting & set(chosen.tolist()):  # only where there is no other row left
        assert set(rows.tolist()) - resting <= set(chosen.tolist())


def test_with_one_stratum_the_best_of_all_are_chosen():
    rng = np.random.default_rng(0)
    strata, value = Strata(np.zeros(50, dtype=np.int64)), rng.integers(-3, 9, 50) / 4
    for k in (1, 7, 45, 50):
        expected = np.argsort(-value, kind="stable")[:k]
        assert best(strata, np.arange(50), value, k, 0, k).tolist() == expected.tolist()


def test_a_stratum_whose_rows_rest_leaves_its_places_to_the_best_of_the_others():
    strata = Strata(np.repeat([0, 1], [4, 4]))
    value = np.array([0.1, 0.2, 0.3, 0.4, -1.0, -2.0, 0.05, -3.0])
    chosen = best(strata, np.arange(8), value, 4)
    assert chosen.tolist() == [3, 2, 1, 6]  # two each; of the second only row 6 does not rest
    everyone = best(strata, np.arange(8), value, 7)
    assert everyone.tolist() == [3, 2, 1, 0, 6, 4, 5]  # those that rest last, the one that rested longest first


def test_of_equal_rows_the_lower_ones_are_chosen():
    chosen = best(Strata(np.tile([0, 1], 5)), np.arange(10), np.full(10, 0.25), 4)
    assert chosen.tolist() == [0, 1, 2, 3]
