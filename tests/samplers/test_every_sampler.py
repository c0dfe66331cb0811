"""What every sampler of the package does alike: one battery, a sampler that comes later is a line in `SAMPLERS`."""

import inspect
import tempfile
from functools import partial

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.draws import bits, fields, run
from tests.support.refusals import refused
from trl_vade.errors import ConfigurationError, ObservationError, SnapshotCorruptError, SnapshotMismatchError
from trl_vade.samplers import ThompsonSampler, UniformSampler
from trl_vade.samplers.base import PromptSampler
from trl_vade.samplers.information import information_gain
from trl_vade.samplers.priors import prompt_words
from trl_vade.samplers.problems import VariantRows
from trl_vade.samplers.snapshot import load_snapshot, save_snapshot, state_digest


def labels(num_samples):
    return [f"kind {i % 3}" for i in range(num_samples)]


def pairs(num_samples):
    """Every second row is a variant of the row before it."""
    row = np.arange(num_samples)
    return VariantRows(row - row % 2, row % 2, ("original", "text"))


RESTING = {"gain": "symmetric", "signal_aware_decay": True, "cooldown": 3}
SAMPLERS = {
    "thompson": ThompsonSampler,
    "greedy": partial(ThompsonSampler, greedy=True),
    "resting": partial(ThompsonSampler, **RESTING),
    "resting, strata": lambda n, **more: ThompsonSampler(n, stratify=labels(n)[::-1], **RESTING, **more),
    "prior of prompts": lambda n, **more: ThompsonSampler(
        n, words=prompt_words(labels(n)), prior="prompts", even_rest=4, **RESTING, **more
    ),
    "uniform": UniformSampler,
}
WITHOUT_LABELS = [name for name in SAMPLERS if name != "resting, strata" and "prior" not in name]
every_sampler = pytest.mark.parametrize("make", SAMPLERS.values(), ids=SAMPLERS)


@every_sampler
def test_it_is_a_prompt_sampler_with_figures_to_log(make):
    sampler = make(5)
    assert isinstance(sampler, PromptSampler)
    assert sampler.metrics() == {"coverage": 0.0, "mean_pass_rate": 0.5}
    assert str(inspect.signature(sampler.draw)).startswith("(k: int, *, exclude: ")
    sampler.observe([0, 2, 3], [8, 0, 0], [8, 8, 0])  # row 3 got no score
    figures = sampler.metrics()
    assert all(type(value) is float for value in figures.values())
    assert figures == {"coverage": 2 / 5, "mean_pass_rate": pytest.approx(0.5)}  # of 9/10, 1/10 and thrice 1/2
    sampler.observe([], [], [])
    sampler.observe([3], [0], [0])
    assert sampler.posterior.step == 3  # a step without a score is a step
    assert len(sampler.draw(5).sample_index) == 5


@every_sampler
def test_a_draw_describes_distinct_rows_and_belongs_to_the_caller(make):
    sampler = run(make(20), 12)
    a, b = sampler.belief()
    draw, before = sampler.peek(7), bits(sampler.peek(7))
    assert [array.shape for array in fields(draw)] == [(7,)] * 4
    assert [array.dtype for array in fields(draw)] == [np.int64] + [np.float64] * 3
    rows = draw.sample_index
    assert len(set(rows.tolist())) == 7
    assert set(rows.tolist()) <= set(range(20))
    np.testing.assert_allclose(draw.posterior_mean, (a / (a + b))[rows], rtol=1e-14)
    kind = sampler.state_dict()["settings"].get("gain", "asymmetric")
    np.testing.assert_allclose(draw.information_gain, information_gain(draw.sampled_pass_rate, kind), rtol=1e-14)
    for array in fields(draw):
        array[:] = 0
    assert bits(sampler.draw(7)) == before


@every_sampler
@settings(max_examples=25)
@given(num_samples=st.integers(1, 12), data=st.data())
def test_rows_left_out_are_not_chosen_and_all_others_can_be(make, num_samples, data):
    exclude = data.draw(st.lists(st.integers(0, num_samples - 1), max_size=num_samples))  # repeats are allowed
    left = set(range(num_samples)) - set(exclude)
    sampler = make(num_samples, seed=data.draw(st.integers(0, 2**32)))
    for _ in range(data.draw(st.integers(0, 3))):
        trials = data.draw(st.lists(st.integers(0, 8), min_size=num_samples, max_size=num_samples))
        sampler.observe(range(num_samples), [data.draw(st.integers(0, most)) for most in trials], trials)
        sampler.draw(data.draw(st.integers(1, num_samples)))
    if left:
        k = data.draw(st.integers(1, len(left)))
        rows = sampler.draw(k, exclude=exclude).sample_index.tolist()
        assert len(set(rows)) == k
        assert set(rows) <= left
        assert set(sampler.draw(len(left), exclude=exclude).sample_index.tolist()) == left
    with refused(ConfigurationError, names=["k", len(left) + 1], offers=[len(left)]):
        sampler.draw(len(left) + 1, exclude=exclude)


@every_sampler
def test_a_refused_draw_look_or_observation_changes_nothing(make):
    sampler = run(make(5), 2)
    before = state_digest(sampler)
    for k in (0, -1, 6, 2.0, True, None):
        for verb in (sampler.draw, sampler.peek):
            with refused(ConfigurationError, names=["k", k], offers=[5]):
                verb(k)
    with refused(ObservationError, names=["sample_index", 5]):
        sampler.draw(1, exclude=[5])
    for wrong in (([0, 0], [1, 1], [8, 8]), ([9], [1], [8]), ([0, 1], [9, 0], [8, 8])):
        with pytest.raises(ObservationError):
            sampler.observe(*wrong)
    assert state_digest(sampler) == before


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_draw_depends_on_the_seed_the_draw_number_and_the_state_alone(name):
    first, again, other = (SAMPLERS[name](60, seed=seed) for seed in (5, 5, 6))
    np.random.seed(0)
    draws = [first.draw(10) for _ in range(3)]
    np.random.seed(1)
    assert [bits(draw) for draw in draws] == [bits(again.draw(10)) for _ in range(3)]
    chosen = {tuple(draw.sample_index.tolist()) for draw in (*draws, other.draw(10))}
    assert len(chosen) == (1 if name == "greedy" else 4)  # without chance


@every_sampler
@settings(max_examples=8)
@example(steps=13, before=2, through_files=True)
@given(steps=st.integers(0, 20), before=st.integers(0, 4), through_files=st.booleans())
def test_after_loading_the_next_draws_are_the_same(make, steps, before, through_files):
    sampler = run(make(23, seed=9), steps)
    state = sampler.state_dict()
    kept = state_digest(sampler)
    if through_files:
        with tempfile.TemporaryDirectory() as directory:
            save_snapshot(directory, sampler)
            state = load_snapshot(directory).sampler_state
    loaded = run(make(23, seed=9), before, seed=5)  # it has done something else before
    loaded.load_state_dict(state)
    assert state_digest(loaded) == kept
    for step in range(6):
        draw = sampler.draw(4)
        assert bits(draw) == bits(loaded.draw(4))
        for each in (sampler, loaded):
            each.observe(draw.sample_index, [step % 9, 0, 8, 3], [8, 8, 8, 8])
    assert state_digest(loaded) == state_digest(sampler)
    again = make(23, seed=9)
    again.load_state_dict(state)  # which shares nothing with the sampler that went on
    assert state_digest(again) == kept


@pytest.mark.parametrize("name", SAMPLERS)
def test_the_state_of_another_sampler_is_refused_by_naming_both_sides(name):
    ours = run(SAMPLERS[name](6, seed=1), 2)
    before = state_digest(ours)
    with refused(SnapshotMismatchError, names=["seed", 2, 1]):
        ours.load_state_dict(run(SAMPLERS[name](6, seed=2), 5).state_dict())
    size = ["num_samples", 5, 6] if name in WITHOUT_LABELS else []  # the labels of five rows are other labels
    with refused(SnapshotMismatchError, names=size):
        ours.load_state_dict(run(SAMPLERS[name](5, seed=1), 5).state_dict())
    for make in SAMPLERS.values():
        theirs = make(6, seed=1)
        if type(theirs) is not type(ours):
            other_fields = theirs.state_dict().keys() != ours.state_dict().keys()  # then these are what is named
            with refused(SnapshotMismatchError, names=[] if other_fields else ["kind", theirs.kind, ours.kind]):
                ours.load_state_dict(theirs.state_dict())
    assert state_digest(ours) == before


@every_sampler
def test_a_damaged_state_is_refused_and_changes_nothing(make):
    sampler, state = run(make(5), 3), run(make(5), 8).state_dict()
    before, posterior = state_digest(sampler), state["posterior"]
    damaged = [
        *({name: value for name, value in state.items() if name != missing} for missing in state),
        state | {"colour": "red"},
        state | {"kind": None},
        state | {"seed": np.zeros(2)},
        state | {"seed": False},  # equal to 0, the seed here
        state | {"settings": None},
        state | {"posterior": posterior | {"alpha": -posterior["alpha"] - 1}},
    ]
    progress = [name for name in state if name in ("num_draws", "epoch", "position")]
    damaged += [state | {name: value} for name in progress for value in (-1, 1.0, None, 2**63)]
    damaged += [state | {"posterior": posterior | {"decay_unsampled": value}} for value in (None, 2.0, "a", [])]
    for each in damaged:
        with pytest.raises((SnapshotCorruptError, SnapshotMismatchError)):
            sampler.load_state_dict(each)
        assert state_digest(sampler) == before
    sampler.load_state_dict(state)


@every_sampler
def test_a_seed_outside_its_range_or_a_data_set_without_rows_is_refused(make):
    for seed in (-1, 2**63, 1.0, None, True):
        with refused(ConfigurationError, names=["seed", seed]):
            make(5, seed=seed)
    with refused(ConfigurationError, names=["num_samples", 0]):
        make(0)


OTHER_RULES = [
    (ThompsonSampler, {}, {"gain": "symmetric", "greedy": True, "cooldown": 3, "decay_sampled": 0.5}),
    (ThompsonSampler, {"stratify": [0] * 8}, {"stratify": labels(8), "cooldown": 2}),
    (ThompsonSampler, {"prior": "prompts", "words": prompt_words(labels(8))}, {"even_rest": 3}),
    (UniformSampler, {"decay_sampled": 0.5}, {"signal_aware_decay": True}),
    *((ThompsonSampler, {"decay_unsampled": old}, {"decay_unsampled": 0.9}) for old in (0.5, 1.0, 0.0)),
]


@pytest.mark.parametrize(("kind", "theirs", "ours"), OTHER_RULES)
def test_under_other_rules_the_evidence_stays_and_the_rules_that_differ_are_named(kind, theirs, ours):
    saved, sampler = run(kind(8, seed=3, **theirs), 6), kind(8, seed=3, **ours)
    state = saved.state_dict()
    assert set(ours) <= sampler.changed_rules(state).keys()
    sampler.load_state_dict(state)
    np.testing.assert_allclose(sampler.posterior.counts(), saved.posterior.counts(), rtol=1e-12)
    assert sampler.posterior.last_update.tolist() == saved.posterior.last_update.tolist()
    assert sampler.progress == saved.progress
    assert sampler.changed_rules(sampler.state_dict()) == {}
    before = sampler.posterior.alpha  # and from now on the new decays hold
    sampler.observe([], [], [])
    np.testing.assert_allclose(sampler.posterior.alpha, before * sampler.posterior.decays["decay_unsampled"])


def test_counts_that_the_new_decay_ends_can_be_saved_and_loaded():
    """Of a row that was last seen a thousand steps ago, under a decay that halves the counts in each, or ends them."""
    for lambda_2 in (0.5, 0.0):
        old, new = ThompsonSampler(2, decay_unsampled=1.0), ThompsonSampler(2, decay_unsampled=lambda_2)
        old.observe([0], [3], [4])
        for _ in range(1000):
            old.observe([], [], [])
        new.load_state_dict(old.state_dict())
        assert new.posterior.alpha[0] < 1.0
        ThompsonSampler(2, decay_unsampled=lambda_2).load_state_dict(new.state_dict())


def test_an_epoch_of_other_problems_is_refused():
    with pytest.raises(SnapshotMismatchError):
        UniformSampler(4).load_state_dict(UniformSampler(4, variants=pairs(4), variant_groups=1).state_dict())
