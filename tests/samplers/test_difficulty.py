"""The variant law of DIVA-GRPO: the offsets of the kinds, and the offsets that an original draws."""

import math

import numpy as np
import pytest

from tests.support.refusals import refused
from trl_vade.errors import ConfigurationError
from trl_vade.samplers.problems import Problems, VariantRows, kind_offsets, variant_offsets

LADDER = ("hint-1", "hint-2", "hint-3", "hint-4", "text", "rotation-1", "blur-2", "speckle-3", "drawn")


def one_problem(*kinds):
    size = 1 + len(kinds)
    return VariantRows(np.zeros(size, dtype=int), np.arange(size), ("original", *kinds))


@pytest.mark.parametrize(
    ("offset", "kind"),
    [
        *((offset, "hint-4") for offset in (-8, -7)),  # all steps
        *((offset, "hint-3") for offset in (-6, -5)),
        *((offset, "hint-2") for offset in (-4, -3)),
        *((offset, "hint-1") for offset in (-2, -1)),
        (0, "text"),
        *((offset, "rotation-1") for offset in (1, 2)),
        *((offset, "blur-2") for offset in (3, 4)),
        *((offset, "speckle-3") for offset in (5, 6)),
        *((offset, "drawn") for offset in (7, 8)),
    ],
)
def test_each_offset_of_the_released_code_takes_its_kind(offset, kind):
    distance = np.abs(kind_offsets(one_problem(*LADDER))[1:] - offset)
    assert LADDER[distance.argmin()] == kind
    assert np.count_nonzero(distance == distance.min()) == 1


def test_a_hint_is_all_steps_where_a_problem_has_no_longer_one():
    of, kind = np.array([0, 0, 0, 3, 3, 3, 3]), np.array([0, 4, 5, 0, 4, 5, 6])
    offsets = kind_offsets(
        VariantRows(of, kind, ("original", "text", "hint-1", "hint-2", "hint-3", "hint-4", "hint-5"))
    )
    assert offsets.tolist() == [0, -5.5, -7.5, 0, -5.5, -6.5, -7.5]
    assert kind_offsets(one_problem("hint-1")).tolist() == [0, -1.5]


@pytest.mark.parametrize(
    ("difficulty", "mu"), [(1, 6), (2, 5), (3, 4), (4, 3), (5, 2), (6, 1), (7, -1), (8, -3), (9, -5), (6.5, 0)]
)
def test_offsets_follow_the_rounded_normal_of_the_released_code(difficulty, mu):
    mean = np.full(100, 1 - (difficulty - 1) / 8)
    offsets = variant_offsets(mean, 100, np.random.default_rng(0)).ravel()
    assert np.abs(offsets).max() <= 8
    for offset in range(mu - 2, mu + 3):
        low, high = offset - 0.5 - mu, offset + 0.5 - mu if offset < 8 else math.inf
        share = (math.erf(high / math.sqrt(2)) - math.erf(low / math.sqrt(2))) / 2
        assert (offsets == offset).mean() == pytest.approx(share, abs=0.02)


def matched(variants, mean, groups=1, draws=4000):
    """The share of each kind among the variants of one problem, whose original has the pass rate `mean`."""
    problems, chance = Problems(variants, groups, "difficulty"), np.random.default_rng(0)
    rows = [
        problems.rows_of(
            np.array([0]), lambda rows: np.zeros(rows.size), lambda rows: np.full(rows.size, mean), chance
        )
        for _ in range(draws)
    ]
    rows = np.array(rows)
    assert (rows[:, 0] == 0).all()
    return {kind: float((rows[:, 1:] == place).sum() / draws) for place, kind in enumerate(variants.kinds) if place}


def test_hopeless_originals_get_hints_and_mastered_ones_pictures():
    """At D = 9 the offset is -5 on average: three steps for -5 and -6, by the normal distribution .625."""
    hopeless, mastered = matched(one_problem(*LADDER), 0.0), matched(one_problem(*LADDER), 1.0)
    assert hopeless["hint-3"] == pytest.approx(0.624, abs=0.03)
    assert hopeless["hint-2"] == pytest.approx(0.302, abs=0.03)
    assert hopeless["hint-4"] == pytest.approx(0.067, abs=0.02)
    assert mastered["speckle-3"] == pytest.approx(0.624, abs=0.03)  # the mean is 6, and 5 and 6 take level 3
    assert mastered["drawn"] == pytest.approx(0.309, abs=0.03)


def test_of_equally_near_kinds_each_is_taken_alike():
    shares = matched(one_problem("rotation-3", "gaussian-3", "blur-3"), 1.0)
    assert list(shares.values()) == pytest.approx([1 / 3] * 3, abs=0.03)


def test_several_variants_of_a_problem_differ_and_each_follows_the_law():
    shares = matched(one_problem(*LADDER), 0.0, groups=2)
    assert sum(shares.values()) == pytest.approx(2)
    assert max(shares.values()) <= 1  # no variant twice
    assert shares["hint-3"] + shares["hint-2"] > 1.5


def test_a_kind_that_the_law_does_not_know_is_refused():
    with refused(ConfigurationError, names=["difficulty", "jpeg-1"], offers=["posterior"]):
        kind_offsets(one_problem("text", "jpeg-1"))
    for kind in ("hint", "hint-0", "rotation-4", "hints-1", "blur"):
        with refused(ConfigurationError, names=[kind]):
            kind_offsets(one_problem(kind))
    unused = VariantRows(np.array([0, 0]), np.array([0, 1]), ("original", "text", "jpeg-1"))
    assert kind_offsets(unused).tolist() == [0, 0]
