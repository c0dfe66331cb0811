"""Which run goes on: the last one saved, from whole files alone; another one is kept aside, refused, or replaced."""

import json
import os
import shutil
import time
from pathlib import Path

import pytest
from transformers import TrainerCallback

from tests.support.refusals import refused
from tests.support.runs import StopAfter, assert_equal_weights, says_a_digit, weights
from trl_vade import VADEGRPOTrainer
from trl_vade.errors import CheckpointIncompleteError, CheckpointSaveError, ConfigurationError
from trl_vade.hub.outbox import OUTBOX_FOLDER
from trl_vade.selection.log import SelectionLog
from trl_vade.trainer.checkpoint.folders import complete_checkpoints
from trl_vade.trainer.checkpoint.line import resolve_checkpoint, write_marker

STATES = ["model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth"]


@pytest.fixture
def begin(text_model_path, text_rows, make_args):
    """A function that makes a trainer of 4 steps, which are all saved; it stops after the step given."""

    def make(stop=None, **changes):
        args = make_args(**{"save_strategy": "steps", "save_steps": 1, "max_steps": 4} | changes)
        callbacks = [StopAfter(stop)] if stop else []
        return VADEGRPOTrainer(text_model_path, says_a_digit, args, text_rows, callbacks=callbacks)

    return make


class Begun(TrainerCallback):
    def on_train_begin(self, args, state, control, **kwargs):
        self.step = state.global_step


def go_on(trainer, checkpoint=True):
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


def test_after_a_resume_from_an_older_checkpoint_the_run_that_follows_goes_on_and_the_abandoned_one_is_kept(
    begin, caplog
):
    abandoned = begin()
    abandoned.train()
    folder = Path(abandoned.args.output_dir)
    abandoned.save_state()
    assert go_on(begin(stop=2), str(folder / "checkpoint-1")) == 1
    aside = folder / "_earlier-1"
    assert (names(aside), steps(aside)) == (["checkpoint-2", "checkpoint-3", "checkpoint-4"], [1, 2, 3, 4])
    assert (names(folder), steps(folder)) == (["checkpoint-1", "checkpoint-2"], [1, 2])
    assert (aside / "trainer_state.json").exists()  # and no report mixes two runs
    (said,) = [record.getMessage() for record in caplog.records if "abandoned" in record.getMessage()]
    assert "checkpoint-2, checkpoint-3, checkpoint-4" in said
    assert str(aside) in said
    first, second = (marker_of(folder, step) for step in (1, 2))
    assert second["parent"] == {"run": first["run"], "step": 1}
    assert second["run"] != first["run"] == marker_of(aside, 2)["run"]

    assert go_on(begin()) == 2
    assert (names(aside), steps(folder)) == (["checkpoint-2", "checkpoint-3", "checkpoint-4"], [1, 2, 3, 4])
    assert resolve_checkpoint(aside / "checkpoint-4", folder) == str(aside / "checkpoint-4")  # it is whole there


@pytest.mark.parametrize("alone", [False, True])
def test_the_order_of_checkpoints_survives_a_copy_that_brings_an_abandoned_run_back(begin, tmp_path, alone):
    """As a download, or a backup without deletion, does. `alone`: the run goes back where no later checkpoint is."""
    abandoned = begin()
    abandoned.train()
    folder, copy = Path(abandoned.args.output_dir), tmp_path / "copy"
    shutil.copytree(folder, copy)
    if alone:
        for step in (2, 3, 4):
            shutil.rmtree(folder / f"checkpoint-{step}")
    go_on(begin(stop=2), str(folder / "checkpoint-1"))
    shutil.copytree(folder, copy, dirs_exist_ok=True)
    assert names(copy) == [f"checkpoint-{step}" for step in (1, 2, 3, 4)]
    assert go_on(begin(output_dir=str(copy))) == 2


@pytest.mark.parametrize("limit", [1, 2])
def test_a_clock_that_stepped_back_deletes_no_new_checkpoint(begin, limit):
    begin(stop=2, save_total_limit=limit).train()
    folder = Path(begin().args.output_dir)
    for path in folder.glob("checkpoint-*"):
        os.utime(path, (time.time() + 3600,) * 2)
    go_on(begin(save_total_limit=limit))
    assert names(folder) == ["checkpoint-3", "checkpoint-4"][-limit:]


def test_a_run_that_begins_in_the_folder_of_a_finished_one_is_the_one_that_goes_on(begin, caplog):
    trainer = begin()
    trainer.train()
    trainer.add_callback(StopAfter(1))
    trainer.train()
    folder = Path(trainer.args.output_dir)
    assert (names(folder), steps(folder)) == (["checkpoint-1"], [1])
    assert (names(folder / "_earlier-1"), steps(folder / "_earlier-1")) == (
        [f"checkpoint-{step}" for step in (1, 2, 3, 4)],
        [1, 2, 3, 4],
    )
    assert go_on(begin()) == 1


def test_a_kill_while_checkpoints_are_set_aside_leaves_a_run_that_goes_on(begin, monkeypatch):
    trainer = begin()
    trainer.train()
    folder = Path(trainer.args.output_dir)
    moved = []

    def killed(source, target):
        if moved:
            raise KeyboardInterrupt
        moved.append(source.name)
        source.rename(target)

    with monkeypatch.context() as patch:
        patch.setattr("trl_vade.trainer.checkpoint.line.replace_durably", killed)
        with pytest.raises(KeyboardInterrupt):
            go_on(begin(), str(folder / "checkpoint-1"))
    assert moved == ["checkpoint-4"]
    resumed = begin()
    assert go_on(resumed) == 3
    assert steps(folder) == [1, 2, 3, 4]
    assert_equal_weights(weights(resumed), weights(trainer))


# ---------------------------------------------------------------------------------------------- what is not whole


def test_a_checkpoint_without_the_state_of_the_entropy_controller_is_not_taken(begin):
    """TRL 1.16 writes it after the trainer's state; a process may be killed before or while it does."""
    trainer = begin(use_adaptive_entropy=True, max_steps=2)
    trainer.train()
    killed, before = (Path(trainer.args.output_dir) / f"checkpoint-{step}" for step in (2, 1))
    (killed / "vade_checkpoint.json").unlink(missing_ok=True)
    file = killed / "entropy_ctrl_state.json"
    for left in (12, 0, None):
        file.unlink() if left is None else os.truncate(file, left)
        with refused(CheckpointIncompleteError, names=[killed], offers=[before]):
            resolve_checkpoint(killed, killed.parent)
        assert resolve_checkpoint(True, killed.parent) == str(before)


@pytest.mark.parametrize("how", ["a bit flipped", "of another save"])
def test_a_state_that_was_altered_is_found_and_the_checkpoint_before_is_taken(checkpointed_run, caplog, how):
    _, folder = checkpointed_run()
    newest, before = folder / "checkpoint-2", folder / "checkpoint-1"
    for name in STATES:
        content = (newest / name).read_bytes()
        place = len(content) // 2
        flipped = content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
        (newest / name).write_bytes(flipped if how == "a bit flipped" else (before / name).read_bytes())
        caplog.clear()
        assert resolve_checkpoint(True, folder) == str(before)
        assert name in caplog.text
        with refused(CheckpointIncompleteError, names=[newest, name], offers=[before]):
            resolve_checkpoint(newest, folder)
        (newest / name).write_bytes(content)
    assert resolve_checkpoint(True, folder) == str(newest)


def test_states_and_a_log_that_are_missing_are_named_and_training_goes_on(begin, caplog):
    trainer = begin(stop=2, save_only_model=True)
    trainer.train()
    SelectionLog(trainer.args.output_dir).path.unlink()
    assert go_on(begin(save_only_model=True)) == 2
    assert steps(trainer.args.output_dir) == [3, 4]
    assert "it is missing" in caplog.text
    (said,) = [record.getMessage() for record in caplog.records if "optimizer.pt" in record.getMessage()]
    assert all(name in said for name in (*STATES[1:], "save_only_model"))


def test_the_last_complete_checkpoint_is_deleted_only_when_the_next_is_complete(begin, monkeypatch):
    """With `save_total_limit` the Trainer deletes it inside the save, before TRL has written its last file."""
    trainer = begin(save_total_limit=1)

    def full(folder, **about):
        if folder.name == "checkpoint-3":
            raise OSError(28, "No space left on device")
        return write_marker(folder, **about)

    monkeypatch.setattr("trl_vade.trainer.checkpoint.line.write_marker", full)
    with refused(CheckpointSaveError, names=["checkpoint-3"], offers=["checkpoint-2"]):
        trainer.train()
    folder = Path(trainer.args.output_dir)
    assert complete_checkpoints(folder) == [folder / "checkpoint-2"]
    assert trainer.args.save_total_limit == 1


def test_a_marker_names_every_file_that_a_resume_reads(checkpointed_run):
    _, folder = checkpointed_run("iterated")
    markers = [marker_of(folder, step) for step in (1, 2, 3)]
    for number, marker in enumerate(markers, start=1):
        there = {path.name for path in (folder / f"checkpoint-{number}").iterdir()}
        assert marker["files"].keys() == there - {"vade_checkpoint.json", "README.md"}
        assert {*STATES, "trainer_state.json", "vade_posterior.safetensors"} <= marker["files"].keys()
        assert ("vade_generation_batch_00000.safetensors" in marker["files"]) == (number != 2)
        assert marker["parent"] is None
    assert markers[0]["save"] < markers[1]["save"] < markers[2]["save"]
    assert len({marker["run"] for marker in markers}) == 1


WAYS_OUT = ["resume_from_checkpoint", "output_dir", "vade_overwrite_output_dir=True"]


def contents(folder):
    return {str(path): path.read_bytes() for path in sorted(Path(folder).rglob("*")) if path.is_file()}


@pytest.fixture
def start(text_model_path, text_rows, make_args):
    """A function that makes a trainer in the folder of `make_args`."""
    return lambda **changes: VADEGRPOTrainer(text_model_path, says_a_digit, make_args(**changes), text_rows)


@pytest.mark.parametrize("sampler", ["thompson", "uniform"])
def test_a_run_in_the_folder_of_another_one_is_refused_and_leaves_it_as_it_is(start, checkpointed_run, sampler):
    _, folder = checkpointed_run()
    before = contents(folder)
    trainer = start(vade_sampler=sampler, max_steps=1)
    with refused(ConfigurationError, [folder, "checkpoint-1", "checkpoint-2", "vade_selection.jsonl"], WAYS_OUT):
        trainer.train()
    assert contents(folder) == before


@pytest.mark.parametrize(
    "left", ["trainer_state.json", "vade_posterior.safetensors", "vade_selection.jsonl", "checkpoint-1", "run-0"]
)
def test_each_trace_of_a_run_is_enough(start, checkpointed_run, left):
    _, folder = checkpointed_run()
    (folder / "run-0").mkdir()  # a trial of a hyperparameter search
    shutil.copytree(folder / "checkpoint-1", folder / "run-0" / "checkpoint-1")
    shutil.copy(folder / "checkpoint-1" / "trainer_state.json", folder)
    for path in folder.iterdir():
        if path.name != left:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    with refused(ConfigurationError, [folder, left], WAYS_OUT):
        start(max_steps=1).train()


def test_a_folder_with_logs_completions_or_a_model_is_no_run(start, text_model_path, make_args):
    folder = Path(make_args().output_dir)
    shutil.copytree(text_model_path, folder)
    for name in ("completions/completions_00001.parquet", "runs/events.out.tfevents", "vade_selection.jsonl"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).touch()
    trainer = start(max_steps=1)
    trainer.train()
    assert trainer.state.global_step == 1


def test_a_run_that_is_resumed_from_its_own_checkpoint_goes_on(start, checkpointed_run):
    _, folder = checkpointed_run()
    trainer = start(max_steps=3, vade_overwrite_output_dir=True)  # which removes nothing of the run that goes on
    trainer.train(resume_from_checkpoint=str(folder / "checkpoint-1"))
    assert trainer.state.global_step == 3
    assert [line["step"] for line in SelectionLog(folder).read()] == [1, 2, 3]
    assert (folder / "_earlier-1" / "checkpoint-2").is_dir()


def test_a_checkpoint_of_another_folder_does_not_open_this_one(start, checkpointed_run, tmp_path):
    _, folder = checkpointed_run()
    shutil.copytree(folder, tmp_path / "elsewhere")
    with refused(ConfigurationError, [folder, "checkpoint-2"], WAYS_OUT):
        start(max_steps=3).train(resume_from_checkpoint=str(tmp_path / "elsewhere" / "checkpoint-2"))


def test_an_overwritten_run_is_gone_and_the_log_says_which_files(start, checkpointed_run, caplog):
    _, folder = checkpointed_run()
    (folder / "notes.txt").write_text("mine")
    (folder / OUTBOX_FOLDER / "waiting").mkdir(parents=True)
    trainer = start(vade_overwrite_output_dir=True, max_steps=1, save_strategy="steps", save_steps=1)
    trainer.train()
    assert sorted(path.name for path in folder.glob("checkpoint-*")) == ["checkpoint-1"]
    assert [line["step"] for line in SelectionLog(folder).read()] == [1]
    assert (folder / "notes.txt").read_text() == "mine"
    assert not (folder / OUTBOX_FOLDER).exists()
    [message] = [record.message for record in caplog.records if "vade_overwrite_output_dir" in record.message]
    assert "checkpoint-2" in message
    assert "vade_selection.jsonl" in message


def test_evaluation_is_never_refused(start, checkpointed_run, text_rows):
    checkpointed_run()
    assert start(per_device_eval_batch_size=8).evaluate(text_rows.select(range(4)))
