"""Draws of problems: originals with matched variants beside them, from both samplers; their rows, and DIVA's law."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.draws import bits, run
from tests.support.problems import variant_rows
from tests.support.refusals import refused
from trl_vade.errors import ConfigurationError
from trl_vade.samplers import ThompsonSampler, UniformSampler, load_snapshot, save_snapshot
from trl_vade.samplers.information import information_gain
from trl_vade.samplers.problems import MATCHES, VariantRows, kind_offsets, variant_offsets
from trl_vade.samplers.snapshot import state_digest
from trl_vade.samplers.uniform import stock_order

few = settings(max_examples=40)
counts_of_variants = st.lists(st.integers(0, 5), min_size=1, max_size=9)
seeds = st.integers(0, 999)
both = pytest.mark.parametrize("sampler", [ThompsonSampler, UniformSampler])
every_match = pytest.mark.parametrize("match", MATCHES)


def make(sampler, variants, groups=1, **settings):
    return sampler(variants.of.size, variants=variants, variant_groups=groups, **settings)


def originals_with(variants, groups):
    return np.flatnonzero((variants.num_variants >= groups) & (variants.kind == 0)).tolist()


@both
@every_match
@few
@given(counts=counts_of_variants, seed=seeds, groups=st.integers(1, 4), data=st.data())
def test_an_original_is_followed_by_its_variants(sampler, match, counts, seed, groups, data):
    groups = min(groups, max(counts))
    if not groups:
        return
    variants = variant_rows(counts, seed)
    drawn = make(sampler, variants, groups, variant_match=match, seed=seed)
    rows = np.arange(variants.of.size)
    drawn.observe(rows, np.random.default_rng(seed).integers(0, 9, rows.size), np.full(rows.size, 8))
    exclude = data.draw(st.lists(st.sampled_from(rows.tolist()), max_size=3))
    able = set(originals_with(variants, groups)) - set(variants.of[exclude].tolist())
    together = 1 + groups
    with refused(ConfigurationError, names=["k", together * (len(able) + 1)]):
        drawn.draw(together * (len(able) + 1), exclude=exclude)
    if not able:
        return
    k = data.draw(st.integers(1, len(able)))
    with refused(ConfigurationError, names=["k", k * together - 1], offers=[together]):
        drawn.draw(k * together - 1, exclude=exclude)
    draw = drawn.draw(k * together, exclude=exclude)
    problems = draw.sample_index.reshape(k, together)
    assert set(problems[:, 0].tolist()) <= able
    np.testing.assert_array_equal(variants.of[problems], np.repeat(problems[:, :1], together, axis=1))
    assert len(set(problems.ravel().tolist())) == k * together
    assert (variants.kind[problems[:, 1:]] > 0).all()
    a, b = drawn.belief(draw.sample_index)
    np.testing.assert_allclose(draw.posterior_mean, a / (a + b), rtol=1e-14)
    np.testing.assert_allclose(draw.information_gain, information_gain(draw.sampled_pass_rate), rtol=1e-14)
    everything = drawn.draw(together * len(able), exclude=exclude).sample_index
    assert set(everything.reshape(-1, together)[:, 0].tolist()) == able


@few
@given(
    counts=counts_of_variants, seed=seeds, groups=st.integers(1, 3), gain=st.sampled_from(["asymmetric", "symmetric"])
)
def test_a_draw_is_that_of_the_rule_written_out(counts, seed, groups, gain):
    """The pass rates of all rows are drawn; a problem is worth its best row; its variants follow by their gains."""
    groups = min(groups, max(counts))
    if not groups:
        return
    variants = variant_rows(counts, seed)
    sampler = make(ThompsonSampler, variants, groups, seed=seed, gain=gain)
    rng = np.random.default_rng(seed)
    for number in range(3):
        able = originals_with(variants, groups)
        a, b = sampler.belief()
        philox = np.random.Philox(key=np.array([seed, number], dtype=np.uint64))
        gains = information_gain(np.random.Generator(philox).beta(a, b), gain)
        worth = {original: gains[variants.of == original].max() for original in able}
        expected = []
        for original in sorted(able, key=lambda row: -worth[row]):
            own = [row for row in range(gains.size) if variants.of[row] == original != row]
            expected += [original, *sorted(own, key=lambda row: -gains[row])[:groups]]
        rows = sampler.draw(len(expected)).sample_index
        assert rows.tolist() == expected
        sampler.observe(rows, rng.integers(0, 9, rows.size), np.full(rows.size, 8))


def test_a_problem_rests_with_its_original():
    variants = variant_rows([2] * 6)
    sampler = make(ThompsonSampler, variants, cooldown=3)
    # The originals of problems 0 and 1, and a variant of problem 2.
    sampler.observe([0, 3, 7], np.full(3, 4), np.full(3, 8))
    assert set(sampler.draw(8).sample_index[::2].tolist()) == {6, 9, 12, 15}
    sampler.observe([6], [4], [8])
    assert sampler.draw(12).sample_index[-2] == 6  # resting problems come last, and the one that rested longest first
    assert set(sampler.draw(10).sample_index[-4::2].tolist()) == {0, 3}


def test_strata_are_those_of_the_originals():
    """A quarter of the problems is hard; the labels of variants do not count, and none is a stratum of its own."""
    variants = variant_rows([2] * 16)
    labels = np.where(variants.kind > 0, "variant", np.where(np.arange(48) < 12, "hard", "easy"))
    sampler = make(ThompsonSampler, variants, stratify=labels)
    sampler.posterior.observe(np.arange(12), np.zeros(12), np.full(12, 1000))
    for _ in range(10):
        assert (sampler.draw(16).sample_index[::2] < 12).sum() == 2


@every_match
def test_uniform_takes_each_problem_once_an_epoch_in_the_order_of_a_permutation(match):
    variants = variant_rows([1, 0, 3, 2, 0, 1, 5], seed=3)
    able = np.array(originals_with(variants, 1))
    sampler = make(UniformSampler, variants, seed=7, variant_match=match)
    for epoch in range(3):
        rows = np.concatenate([sampler.draw(4).sample_index for _ in range(2)])
        assert rows[::2].tolist() == able[stock_order(5, 7, epoch)][:4].tolist()  # the fifth does not fill a draw
        if match != "posterior":
            sampler.observe(rows[:2], [4, 4], [8, 8])


def test_uniform_matches_by_spreads_where_outcomes_are_spreads():
    """All variants have a small spread, but for a third one of each problem."""
    variants = variant_rows([3] * 5)
    sampler = make(UniformSampler, variants)
    sampler.use_spreads()
    sampler.observe(np.arange(20), np.where(variants.kind == 3, 1000.0, 300.0), np.full(20, 1000.0))
    rows = sampler.draw(10).sample_index
    assert (variants.kind[rows[1::2]] == 3).all()  # pass rates of 0.3 would be worth more than those of 1


@both
def test_variants_without_groups_change_no_draw_and_the_state_holds_no_rule_that_chooses_nothing(sampler):
    variants = variant_rows([2] * 8)
    plain, with_variants = sampler(24, seed=3), sampler(24, seed=3, variants=variants)
    for _ in range(5):
        assert bits(plain.draw(5)) == bits(with_variants.draw(5))
    none, rows = (each.state_dict()["settings"] for each in (plain, with_variants))
    assert rows.keys() - none.keys() == {"variants", "variant_groups"}
    assert json.loads(json.dumps(rows)) == rows


WORLDS = {
    "resting": (ThompsonSampler, {"cooldown": 2, "signal_aware_decay": True}),
    "greedy": (ThompsonSampler, {"greedy": True}),
    "uniform": (UniformSampler, {}),
}


@every_match
@pytest.mark.parametrize("name", WORLDS)
def test_a_resumed_run_draws_the_same_bits_and_a_look_shows_them(tmp_path, name, match):
    variants, (sampler, settings) = variant_rows([3] * 12, seed=1), WORLDS[name]

    def new():
        return make(sampler, variants, 2, seed=4, variant_match=match, **settings)

    first, resumed = run(new(), 7, 9), new()
    save_snapshot(tmp_path, first)
    resumed.load_state_dict(load_snapshot(tmp_path).sampler_state)
    for step in range(8):
        look, draw = bits(first.peek(9)), first.draw(9)
        assert look == bits(draw) == bits(resumed.draw(9))
        for each in (first, resumed):
            each.observe(draw.sample_index, np.arange(9) % (1 + step), np.full(9, 8))
    assert state_digest(first) == state_digest(resumed)


@both
def test_settings_of_variants_that_cannot_work_are_refused(sampler):
    variants = variant_rows([2] * 3)
    some = {"variants": variants}
    for given_, names in (
        ({"variant_groups": 1}, ["variant_groups", 1, "variants"]),
        *((some | {"variant_groups": groups}, ["variant_groups", groups]) for groups in (-1, 1.0, True)),
        (some | {"variant_groups": 4}, ["variant_groups", 4, 2]),
        (some | {"variant_match": "best"}, ["variant_match", "best", *MATCHES]),
        ({"variants": variant_rows([2] * 4)}, ["variants", 9]),
        ({"variants": variants.of}, ["variants", "VariantRows"]),
    ):
        with refused(ConfigurationError, names=names):
            sampler(9, **given_)


OF_ROWS = ("original", "text", "hint-1")


def test_rows_that_are_no_originals_and_variants_are_refused():
    for of, kind, names in (
        ([0, 0, 1], [0, 1, 2], [2, "hint-1", 1]),  # a variant of a variant
        ([0, 0], [1, 1], [0, "text"]),  # an original of another kind
        ([0, 0], [0, 0], [1, 0, "original"]),  # a variant of the kind of originals
        ([0, 1, 0, 0], [0, 0, 1, 1], [3, "text", 0]),  # two of a kind
    ):
        with refused(ConfigurationError, names=names):
            VariantRows(np.array(of), np.array(kind), OF_ROWS)


def test_the_digest_tells_apart_all_that_describes_the_rows():
    of, kind = np.array([0, 0, 2, 2, 2]), np.array([0, 1, 0, 1, 2])
    same = [VariantRows(of, kind, OF_ROWS), VariantRows(of.copy(), kind.astype(np.int32), OF_ROWS)]
    others = [VariantRows(np.array([0, 0, 2, 2, 0]), kind, OF_ROWS), VariantRows(of, kind, (*OF_ROWS, "drawn"))]
    others += [VariantRows(of, np.array([0, 2, 0, 1, 2]), OF_ROWS)]
    assert len({each.digest for each in same + others}) == 4


LADDER = ("hint-1", "hint-2", "hint-3", "hint-4", "text", "rotation-1", "blur-2", "speckle-3", "drawn")


def one_problem(*kinds):
    size = 1 + len(kinds)
    return VariantRows(np.zeros(size, dtype=int), np.arange(size), ("original", *kinds))


def test_each_offset_of_the_released_code_takes_its_kind():
    """Two offsets a kind, from the longest hint, all steps, to a picture drawn anew; 0 is `text`."""
    kinds = dict(zip(range(-8, 9), [*np.repeat(LADDER[3::-1], 2), "text", *np.repeat(LADDER[5:], 2)], strict=True))
    for offset, kind in kinds.items():
        distance = np.abs(kind_offsets(one_problem(*LADDER))[1:] - offset)
        assert LADDER[distance.argmin()] == kind
        assert np.count_nonzero(distance == distance.min()) == 1


def test_a_hint_is_all_steps_where_a_problem_has_no_longer_one():
    of, kind = np.array([0, 0, 0, 3, 3, 3, 3]), np.array([0, 4, 5, 0, 4, 5, 6])
    kinds = ("original", "text", *(f"hint-{number}" for number in range(1, 6)))
    offsets = kind_offsets(VariantRows(of, kind, kinds))
    assert offsets.tolist() == [0, -5.5, -7.5, 0, -5.5, -6.5, -7.5]
    assert kind_offsets(one_problem("hint-1")).tolist() == [0, -1.5]


def test_offsets_follow_the_rounded_normal_of_the_released_code():
    means = {1: 6, 2: 5, 3: 4, 4: 3, 5: 2, 6: 1, 7: -1, 8: -3, 9: -5, 6.5: 0}  # by difficulty
    for difficulty, mu in means.items():
        mean = np.full(100, 1 - (difficulty - 1) / 8)
        offsets = variant_offsets(mean, 100, np.random.default_rng(0)).ravel()
        assert np.abs(offsets).max() <= 8
        for offset in range(mu - 2, mu + 3):
            low, high = offset - 0.5 - mu, offset + 0.5 - mu if offset < 8 else math.inf
            share = (math.erf(high / math.sqrt(2)) - math.erf(low / math.sqrt(2))) / 2
            assert (offsets == offset).mean() == pytest.approx(share, abs=0.02)


def test_a_kind_that_the_law_does_not_know_is_refused():
    with refused(ConfigurationError, names=["difficulty", "jpeg-1"], offers=["posterior"]):
        kind_offsets(one_problem("text", "jpeg-1"))
    for kind in ("hint", "hint-0", "rotation-4", "hints-1", "blur"):
        with refused(ConfigurationError, names=[kind]):
            kind_offsets(one_problem(kind))
    unused = VariantRows(np.array([0, 0]), np.array([0, 1]), ("original", "text", "jpeg-1"))
    assert kind_offsets(unused).tolist() == [0, 0]
