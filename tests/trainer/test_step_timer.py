"""The wall time of optimiser steps, on a clock that the tests set."""

from types import SimpleNamespace

import pytest
from transformers import TrainerControl, TrainerState, TrainingArguments

from trl_vade.trainer.step_timer import StepTimer


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test sets: as no timing may decide, the real one is replaced for once."""
    now = SimpleNamespace(seconds=1000.0)
    monkeypatch.setattr("trl_vade.trainer.step_timer.time", SimpleNamespace(perf_counter=lambda: now.seconds))
    return now


def step(timer, clock, seconds, tmp_path):
    events = (TrainingArguments(str(tmp_path), use_cpu=True), TrainerState(), TrainerControl())
    timer.on_step_begin(*events)
    clock.seconds += seconds
    timer.on_step_end(*events)


def test_the_timer_adds_up_the_steps_also_in_the_dictionary_that_a_resume_put_in_place(clock, tmp_path):
    holder = {"seconds": {"step": 0.5, "selection": 7.0}}
    timer = StepTimer(lambda: holder["seconds"], {})
    for duration in (1.0, 2.0, 4.0):
        step(timer, clock, duration, tmp_path)
        clock.seconds += 100.0  # an evaluation, say
    assert holder["seconds"] == {"step": 7.5, "selection": 7.0}
    holder["seconds"] = {"step": 50.0}
    step(timer, clock, 2.0, tmp_path)
    assert holder["seconds"] == {"step": 52.0}
