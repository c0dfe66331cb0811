"""Which run goes on: the newest of its folder, from whole files alone; nothing is mixed, moved or overwritten."""

import json
import os
import shutil
import time
from pathlib import Path

import pytest
from peft import LoraConfig
from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState

from tests.support.marks import slow
from tests.support.refusals import refused
from tests.support.runs import StopAfter, assert_equal_weights, says_a_digit, weights
from trl_vade import VADEGRPOTrainer
from trl_vade.checkpoints import complete_checkpoints
from trl_vade.errors import CheckpointSaveError
from trl_vade.selection.log import SelectionLog
from trl_vade.trainer.checkpoint.resuming import write_marker

STATES = ["model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth"]


@pytest.fixture
def begin(text_model_path, text_rows, make_args):
    """A function that makes a trainer of 4 steps, which are all saved; it stops after the step given."""

    def make(stop=None, adapters=False, **changes):
        args = make_args(**{"save_strategy": "steps", "save_steps": 1, "max_steps": 4} | changes)
        callbacks = [StopAfter(stop)] if stop else []
        more = {"peft_config": LoraConfig(target_modules=["q_proj"])} if adapters else {}
        return VADEGRPOTrainer(text_model_path, says_a_digit, args, text_rows, callbacks=callbacks, **more)

    return make


class Begun(TrainerCallback, ExportableState):
    """It has a state to save, which the checkpoint of a run without it lacks."""

    def state(self):
        return {"args": {}, "attributes": {}}

    def on_train_begin(self, args, state, control, **kwargs):
        self.step = state.global_step


def go_on(trainer, checkpoint="auto"):
    """Resume, and return the step that the run began at."""
    begun = Begun()
    trainer.add_callback(begun)
    trainer.train(resume_from_checkpoint=checkpoint)
    return begun.step


def steps(folder):
    return [line["step"] for line in SelectionLog(folder).read()]


def names(folder):
    return sorted(path.name for path in Path(folder).glob("checkpoint-*"))


def marker_of(folder, step):
    return json.loads((folder / f"checkpoint-{step}" / "vade_checkpoint.json").read_text())


def contents(folder):
    """The content of each file but the lock."""
    paths = [path for path in sorted(Path(folder).rglob("*")) if path.is_file() and path.name != "vade_lock.json"]
    return {str(path): path.read_bytes() for path in paths}


@pytest.mark.parametrize("limit", [1, slow(2)])
def test_a_clock_that_stepped_back_deletes_no_new_checkpoint(begin, limit):
    begin(stop=2, save_total_limit=limit).train()
    folder = Path(begin().args.output_dir)
    for path in folder.glob("checkpoint-*"):
        os.utime(path, (time.time() + 3600,) * 2)
    go_on(begin(save_total_limit=limit))
    assert names(folder) == ["checkpoint-3", "checkpoint-4"][-limit:]


def test_a_preempted_run_needs_nobody_at_any_time(begin, caplog):
    """The same command goes on after a kill before the first save, inside it, and later."""
    trainer = begin()
    assert go_on(trainer) == 0  # the very first start
    folder, end = Path(trainer.args.output_dir), weights(trainer)
    before = contents(folder)
    for path in folder.glob("checkpoint-*"):
        shutil.rmtree(path)
    assert go_on(begin(stop=1)) == 0
    assert steps(folder) == [1]
    assert contents(folder)[str(folder / "vade_selection-1.jsonl")] == before[str(folder / "vade_selection.jsonl")]
    assert "vade_selection-1.jsonl" in caplog.text
    (folder / "checkpoint-1" / "vade_checkpoint.json").unlink()
    assert go_on(begin(stop=2)) == 0
    assert f"{folder / 'checkpoint-1'} is skipped" in caplog.text
    resumed = begin()
    assert go_on(resumed) == 2
    assert_equal_weights(weights(resumed), end)


def test_states_and_a_log_that_are_missing_are_named_and_training_goes_on(begin, caplog):
    trainer = begin(stop=2, save_only_model=True)
    trainer.train()
    SelectionLog(trainer.args.output_dir).path.unlink()
    assert go_on(begin(save_only_model=True)) == 2
    assert steps(trainer.args.output_dir) == [3, 4]
    assert "it is missing" in caplog.text
    (said,) = [record.getMessage() for record in caplog.records if "save_only_model" in record.getMessage()]
    assert all(name in said for name in ("random numbers", "optimizer", "scheduler"))


def test_the_last_whole_checkpoint_is_deleted_only_when_the_next_is_whole(begin, monkeypatch):
    """With `save_total_limit` the Trainer deletes it inside the save, before TRL has written its last file."""
    trainer = begin(save_total_limit=1)

    def full(folder, line):
        if folder.name == "checkpoint-3":
            raise OSError(28, "No space left on device")
        return write_marker(folder, line)

    monkeypatch.setattr("trl_vade.trainer.checkpoint.resuming.write_marker", full)
    with refused(CheckpointSaveError, names=["checkpoint-3"], offers=["'auto'"]):
        trainer.train()
    folder = Path(trainer.args.output_dir)
    assert complete_checkpoints(folder) == [folder / "checkpoint-2"]
    assert trainer.args.save_total_limit == 1
    assert not trainer.is_in_train  # in which no failed push raises


def test_a_marker_names_every_file_that_a_resume_reads_and_the_runs_before(checkpointed_run):
    _, folder = checkpointed_run("iterated")
    markers = [marker_of(folder, step) for step in (1, 2, 3)]
    for number, marker in enumerate(markers, start=1):
        there = {path.name: path.stat().st_size for path in (folder / f"checkpoint-{number}").iterdir()}
        assert marker["files"] == {name: there[name] for name in there.keys() - {"vade_checkpoint.json", "README.md"}}
        assert {*STATES, "trainer_state.json", "vade_posterior.safetensors"} <= marker["files"].keys()
        assert ("vade_generation_batch_00000.safetensors" in marker["files"]) == (number != 2)
        assert (marker["format"], marker["line"]) == (1, [[markers[0]["line"][0][0], number]])


def test_a_marker_names_the_checkpoints_that_its_run_goes_back_to(begin):
    for stop in (1, 3, 4):
        go_on(begin(stop))
    folder = Path(begin().args.output_dir)
    first, second, third = (marker_of(folder, step)["line"] for step in (1, 2, 4))
    assert second[:-1] == first
    assert third[:-1] == [*first, [second[-1][0], 3]]
    assert len({line[-1][0] for line in (first, second, third)}) == 3
