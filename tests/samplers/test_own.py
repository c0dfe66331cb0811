"""Samplers of a user's own: what they may be, what they draw, and what is kept of them."""

import copy
import json
import pickle
from types import SimpleNamespace

import numpy as np
import pytest

from tests.support.own_samplers import OWN, WorstLast
from tests.support.refusals import refused
from trl_vade.errors import ConfigurationError, SnapshotMismatchError
from trl_vade.samplers import Draw, ThompsonSampler
from trl_vade.samplers.own import as_text, find_sampler, make_own
from trl_vade.samplers.snapshot import load_snapshot, save_snapshot, state_digest


def run(sampler, steps=3):
    for _ in range(steps):
        rows = sampler.draw(3, exclude=[1]).sample_index
        sampler.observe(rows, rows % 3, np.full(3, 2.0), np.full(3, True))
    return sampler


def made(given=OWN, num_samples=8):
    return make_own(as_text(given), num_samples, seed=3, decay_unsampled=0.9)


def small(num_samples, *, seed):
    return ThompsonSampler(num_samples, seed=seed, cooldown=2)


class Hungry(ThompsonSampler):
    """A rule that changes a part of ours."""


class Broken(WorstLast):
    """Its draw returns `wrong`, and its state cannot be loaded."""

    wrong = None

    def draw(self, k, *, exclude=None):
        return self.wrong

    def load_state_dict(self, state):
        raise KeyError("rate")


@pytest.mark.parametrize("given", [OWN, WorstLast, WorstLast(8, seed=3)], ids=["path", "class", "object"])
def test_each_way_to_give_it_makes_the_same_sampler(given):
    sampler = run(made(given))
    assert sampler.state_dict()["kind"] == OWN
    assert state_digest(sampler) == state_digest(run(made()))
    assert (sampler.posterior.step, sampler.posterior.decays["decay_unsampled"]) == (3, 0.9)
    assert {"coverage", "mean_pass_rate", "failed_last"} <= sampler.metrics().keys()
    a, b = sampler.belief()
    draw = sampler.peek(3)
    assert draw.sampled_pass_rate.tolist() == (a / (a + b))[draw.sample_index].tolist()


def test_a_sampler_with_a_posterior_of_its_own_is_used_as_it_is():
    ours = ThompsonSampler(8, seed=5, decay_sampled=0.5)
    assert made(ours) is ours
    assert (ours.kind, made(Hungry(8)).kind) == ("thompson", f"{__name__}:Hungry")
    assert made(f"{__name__}:small").state_dict()["settings"]["cooldown"] == 2
    with refused(ConfigurationError, ["8", "9"]):
        made(ours, 9)


def test_a_choice_that_breaks_the_rule_is_refused_and_rows_alone_or_a_draw_are_not():
    chooser = Broken(8)
    sampler = made(chooser)
    for wrong in ([1, 2], [1, 2, 2], [1, 2, 8], [1, 2, -1], [1, 2, 0], [1.0, 2.0, 3.0], None, [[1, 2, 3]], [True] * 3):
        chooser.wrong = wrong
        with refused(ConfigurationError, ["Broken", "draw(3)", wrong, "[0, 8)"]):
            sampler.draw(3, exclude=[0])
    for right in ([5, 1, 3], Draw(np.array([5, 1, 3], dtype=np.int32), *np.zeros((3, 3)))):
        chooser.wrong = right
        draw = sampler.draw(3)
        assert (draw.sample_index.dtype, draw.sample_index.tolist()) == (np.int64, [5, 1, 3])
        assert draw.sampled_pass_rate.tolist() == draw.posterior_mean.tolist() == [0.5] * 3


def test_a_resumed_sampler_draws_as_if_it_had_never_stopped(tmp_path):
    sampler = run(made())
    save_snapshot(tmp_path, sampler)
    peeked = sampler.peek(4).sample_index.tolist()
    fresh = made()
    fresh.load_state_dict(load_snapshot(tmp_path).sampler_state)
    assert peeked == sampler.draw(4).sample_index.tolist() == fresh.draw(4).sample_index.tolist()
    assert state_digest(run(fresh)) == state_digest(run(sampler))


def test_the_state_of_another_class_or_that_it_cannot_load_is_refused_and_changes_nothing():
    state, other = run(made()).state_dict(), made(Broken(8, seed=3))
    before = state_digest(other)
    with refused(SnapshotMismatchError, ["WorstLast", "Broken"]):
        other.load_state_dict(state)
    with pytest.raises(KeyError, match="rate"):
        other.load_state_dict(state | {"kind": other.kind})
    with pytest.raises(SnapshotMismatchError):
        made().load_state_dict({name: value for name, value in state.items() if name != "own"})
    assert state_digest(other) == before


def test_a_state_that_json_cannot_keep_is_refused_at_once():
    chooser = WorstLast(8)
    for state in ({"rate": np.zeros(2)}, {"rate": (1, 2)}, {"rate": float("nan")}, {1: 2}, None, [1]):
        chooser.state_dict = lambda state=state: state
        with refused(ConfigurationError, ["WorstLast", "state_dict", "JSON"]):
            made(chooser)


def test_settings_hold_a_text_in_the_place_of_the_object():
    text = as_text(WorstLast(8))
    assert json.loads(json.dumps(text)) == str(text) == OWN
    assert type(pickle.loads(pickle.dumps(text))) is str
    assert copy.deepcopy(text) is as_text(text) is text


def test_what_leads_nowhere_or_makes_no_sampler_is_refused():
    for place in ("no_such_module:Mine", *(f"{__name__}:{name}" for name in ("Missing", "run.steps", "pytest"))):
        with refused(ConfigurationError, [f"vade_sampler={place!r}"], ["thompson", "greedy", "uniform"]):
            find_sampler(place)
    unmeasured = SimpleNamespace(**dict.fromkeys(("draw", "observe", "state_dict", "load_state_dict"), print))
    with refused(ConfigurationError, ["vade_sampler=namespace", "lacks metrics."]):
        as_text(unmeasured)
    for name, said in (("run", "seed"), ("no_verbs", "NoneType")):
        with refused(ConfigurationError, [f"vade_sampler='{__name__}:{name}'", said]):
            make_own(f"{__name__}:{name}", 8, seed=3)


def no_verbs(num_samples, *, seed):
    return None
