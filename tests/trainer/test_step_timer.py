"""The wall time of optimiser steps, on a clock that the tests set."""

from types import SimpleNamespace

from transformers import TrainerControl, TrainerState, TrainingArguments

from trl_vade.trainer.step_timer import StepTimer


def test_the_timer_adds_up_the_steps_also_in_the_dictionary_that_a_resume_put_in_place(tmp_path, monkeypatch):
    holder, now = {"seconds": {"step": 0.5, "selection": 7.0}}, 1000.0
    monkeypatch.setattr("trl_vade.trainer.step_timer.time", SimpleNamespace(perf_counter=lambda: now))
    timer = StepTimer(lambda: holder["seconds"], {})
    events = (TrainingArguments(str(tmp_path), use_cpu=True), TrainerState(), TrainerControl())
    for duration in (1.0, 2.0, 4.0, 2.0):
        if duration == 2.0:
            holder["seconds"] = {**holder["seconds"]}
        timer.on_step_begin(*events)
        now += duration
        timer.on_step_end(*events)
        now += 100.0  # an evaluation, say
    assert holder["seconds"] == {"step": 9.5, "selection": 7.0}
