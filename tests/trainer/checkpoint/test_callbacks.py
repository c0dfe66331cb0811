"""The posterior's mark in the trainer state, and the seconds of the steps."""

import json
from types import SimpleNamespace

import pytest
from transformers import TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState

from trl_vade.trainer.checkpoint.posterior import PosteriorState
from trl_vade.trainer.grpo_trainer import StepTimer


def marked(file="vade_posterior.safetensors", step=12, digest="ab" * 32):
    state = PosteriorState(file)
    state.step, state.digest = step, digest
    return state


def test_the_mark_survives_the_road_that_the_trainer_takes_on_a_resume():
    restored = PosteriorState.from_state(json.loads(json.dumps(marked().state())))
    assert isinstance(restored, PosteriorState)
    assert (restored.file, restored.step, restored.digest) == ("vade_posterior.safetensors", 12, "ab" * 32)


def test_a_mark_of_a_run_that_never_saved_survives_too():
    restored = PosteriorState.from_state(PosteriorState("file").state())
    assert (restored.file, restored.step, restored.digest) == ("file", 0, "")


def test_the_trainer_state_file_holds_the_mark_under_its_class_name(tmp_path):
    path = str(tmp_path / "trainer_state.json")
    TrainerState(stateful_callbacks=[marked(), TrainerControl()]).save_to_json(path)
    saved = TrainerState.load_from_json(path).stateful_callbacks["PosteriorState"]
    assert saved["attributes"] == {"step": 12, "digest": "ab" * 32}
    assert PosteriorState.from_state(saved).state() == marked().state()


def test_the_mark_is_small_and_knows_no_trainer():
    assert isinstance(marked(), ExportableState)
    assert len(json.dumps(marked().state())) < 300
    assert set(vars(marked())) == {"file", "step", "digest"}


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test sets: as no timing may decide, the real one is replaced for once."""
    now = SimpleNamespace(seconds=1000.0)
    monkeypatch.setattr("trl_vade.trainer.grpo_trainer.time", SimpleNamespace(perf_counter=lambda: now.seconds))
    return now


def step(timer, clock, seconds, tmp_path):
    events = (TrainingArguments(str(tmp_path), use_cpu=True), TrainerState(), TrainerControl())
    timer.on_step_begin(*events)
    clock.seconds += seconds
    timer.on_step_end(*events)


def test_the_timer_adds_up_the_steps_and_leaves_out_what_lies_between_them(clock, tmp_path):
    seconds = {"step": 0.5, "selection": 7.0}
    timer = StepTimer(lambda: seconds)
    for duration in (1.0, 2.0, 4.0):
        step(timer, clock, duration, tmp_path)
        clock.seconds += 100.0  # an evaluation, say
    assert seconds == {"step": 7.5, "selection": 7.0}


def test_the_timer_goes_on_in_the_dictionary_that_a_resume_put_in_place(clock, tmp_path):
    holder = {"seconds": {"step": 0.0}}
    timer = StepTimer(lambda: holder["seconds"])
    step(timer, clock, 1.0, tmp_path)
    holder["seconds"] = {"step": 50.0}
    step(timer, clock, 2.0, tmp_path)
    assert holder["seconds"] == {"step": 52.0}
