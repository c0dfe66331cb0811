"""Which run goes on: the newest of its folder, from whole files alone; nothing is mixed, moved or overwritten."""

import json
import os
import subprocess
import time
from pathlib import Path

import pytest
from peft import LoraConfig
from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState
from trl import GRPOTrainer

from tests.support.marks import slow
from tests.support.refusals import refused
from tests.support.runs import StopAfter
from trl_vade.checkpoints import complete_checkpoints
from trl_vade.errors import CheckpointIncompleteError, CheckpointSaveError, ConfigurationError
from trl_vade.selection.log import SelectionLog
from trl_vade.trainer.checkpoint.resuming import write_marker

STATES = ["model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth"]


@pytest.fixture
def begin(made, tmp_path):
    """A function that makes a trainer of 4 steps, which are all saved; it stops after the step given."""

    def make(stop=None, adapters=False, **changes):
        saves = {"output_dir": tmp_path / "run", "save_strategy": "steps", "save_steps": 1, "max_steps": 4}
        more = {"peft_config": LoraConfig(target_modules=["q_proj"])} if adapters else {}
        return made(**saves | changes, more=more | {"callbacks": [StopAfter(stop)] if stop else []})

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


def names(folder):
    return sorted(path.name for path in Path(folder).glob("checkpoint-*"))


def marker_of(folder, step):
    return json.loads((folder / f"checkpoint-{step}" / "vade_checkpoint.json").read_text())


def contents(folder):
    """The content of each file but the lock."""
    paths = [path for path in sorted(Path(folder).rglob("*")) if path.is_file() and path.name != "vade_lock.json"]
    return {str(path): path.read_bytes() for path in paths}


@pytest.mark.parametrize("limit", [1, slow(2)])
def test_a_clock_that_stepped_back_deletes_no_new_checkpoint(begin, tmp_path, limit):
    begin(stop=2, save_total_limit=limit).train()
    folder = tmp_path / "run"
    for path in folder.glob("checkpoint-*"):
        os.utime(path, (time.time() + 3600,) * 2)
    go_on(begin(save_total_limit=limit))
    assert names(folder) == ["checkpoint-3", "checkpoint-4"][-limit:]


def test_states_and_a_log_that_are_missing_are_named_and_training_goes_on(begin, caplog):
    trainer = begin(stop=2, save_only_model=True)
    assert go_on(trainer) == 0  # the same command as later
    log = SelectionLog(trainer.args.output_dir)
    log.path.unlink()
    assert go_on(begin(save_only_model=True)) == 2
    assert [line["step"] for line in log.read()] == [3, 4]
    assert "it is missing" in caplog.text
    (said,) = [record.getMessage() for record in caplog.records if "save_only_model" in record.getMessage()]
    assert all(name in said for name in ("random numbers", "optimizer", "scheduler"))


@pytest.mark.parametrize("changes", [{}, {"shuffle_dataset": False}], ids=["usual", "plain GRPO"])
def test_the_last_whole_checkpoint_is_deleted_only_when_the_next_is_whole(begin, tmp_path, monkeypatch, changes):
    """With `save_total_limit` the Trainer deletes it inside the save, before TRL has written its last file."""
    trainer = begin(save_total_limit=1, **changes)
    assert (trainer.selection is None) == bool(changes)

    def full(folder, line):
        if folder.name == "checkpoint-3":
            raise OSError(28, "No space left on device")
        return write_marker(folder, line)

    monkeypatch.setattr("trl_vade.trainer.checkpoint.resuming.write_marker", full)
    with refused(CheckpointSaveError, names=["checkpoint-3"], offers=["'auto'"]):
        trainer.train()
    folder = tmp_path / "run"
    assert complete_checkpoints(folder) == [folder / "checkpoint-2"]
    assert trainer.args.save_total_limit == 1
    assert not trainer.is_in_train  # in which no failed push raises
    monkeypatch.undo()
    assert go_on(begin(save_total_limit=1, **changes)) == 2  # what is left of checkpoint-3 is nobody else's
    assert names(folder) == ["checkpoint-4"]


def test_checkpoints_of_the_stock_trainer_stay_as_they_are(begin):
    stock = begin(stop=2, trainer_class=GRPOTrainer)
    stock.train()
    before = contents(stock.args.output_dir)
    for asked in (None, "auto"):
        with refused(ConfigurationError, ["checkpoint-1", "checkpoint-2"], ["another output_dir", "model", "mv"]):
            begin(save_total_limit=1).train(resume_from_checkpoint=asked)
    assert contents(stock.args.output_dir) == before


def test_a_run_that_goes_back_sets_aside_what_it_abandons_with_a_whole_log_each_time(begin, tmp_path, caplog):
    """By the command of the refusal, which goes on to work."""
    folder, logs = tmp_path / "run", []
    for number, temperature in enumerate((1.0, 0.2, 5.0)):
        if number:
            for _ in range(2):
                with refused(ConfigurationError, ["checkpoint-3", "checkpoint-4"], ["mv"]) as error:
                    begin().train(resume_from_checkpoint=folder / "checkpoint-2")
            subprocess.run(str(error.value).splitlines()[-1], shell=True, check=True)
            assert names(folder) == ["checkpoint-1", "checkpoint-2"]
            assert names(folder / f"_aside-{number}") == ["checkpoint-3", "checkpoint-4"]
            assert SelectionLog(folder / f"_aside-{number}").read() == logs[-1]
        trainer = begin(temperature=temperature)
        trainer.train(resume_from_checkpoint=folder / "checkpoint-2" if number else None)
        trainer.save_state()
        logs.append(SelectionLog(folder).read())
    assert logs[0] != logs[1] != logs[2]
    assert [line[:2] for line in logs] == [logs[0][:2]] * 3
    assert "cannot be continued" not in caplog.text
    for name in ("vade_posterior.safetensors", "trainer_state.json"):
        kept = {path.parent.name: path.read_bytes() for path in folder.glob(f"*/{name}")}
        assert kept["_aside-1"] != kept["_aside-2"], name
    with refused(ConfigurationError, ["checkpoint-4"], ["mv"]) as error:
        begin().train()
    subprocess.run(str(error.value).splitlines()[-1], shell=True, check=True)
    assert SelectionLog(folder / "_aside-3").read() == logs[-1]
    begin(stop=1).train()
    assert not [*folder.glob("vade_selection-*")]


def test_a_damaged_trainer_state_is_said_before_anything_is_loaded(begin, tmp_path):
    begin(stop=2).train()
    path = tmp_path / "run" / "checkpoint-2" / "trainer_state.json"
    content = path.read_bytes()
    for place in (0, content.index(b"max_steps"), content.index(b"global_step") + 13, len(content) // 2):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0x90]) + content[place + 1 :])
        with refused(CheckpointIncompleteError, [path], ["resume_from_checkpoint"]):
            begin().train(resume_from_checkpoint="auto")


@pytest.mark.parametrize("adapters", [False, True])
def test_a_whole_model_goes_on_with_no_adapters_and_adapters_with_no_whole_model(begin, adapters):
    begin(stop=2, adapters=adapters).train()
    with refused(ConfigurationError, ["checkpoint-2", "adapters", "a whole model"], ["peft_config", "output_dir"]):
        begin(adapters=not adapters).train(resume_from_checkpoint="auto")


def test_a_marker_names_every_file_that_a_resume_reads_and_the_runs_before(checkpointed_run):
    _, folder = checkpointed_run("iterated")
    markers = [marker_of(folder, step) for step in (1, 2, 3)]
    for number, marker in enumerate(markers, start=1):
        there = {path.name: path.stat().st_size for path in (folder / f"checkpoint-{number}").iterdir()}
        read = there.keys() - {"vade_checkpoint.json", "README.md", "training_args.bin"}
        assert marker["files"] == {name: there[name] for name in read}
        assert {*STATES, "trainer_state.json", "vade_posterior.safetensors"} <= marker["files"].keys()
        assert ("vade_generation_batch_00000.safetensors" in marker["files"]) == (number != 2)
        assert (marker["format"], marker["line"]) == (1, [[markers[0]["line"][0][0], number]])


def test_a_marker_names_the_checkpoints_that_its_run_goes_back_to(begin, tmp_path):
    for stop in (1, 3, 4):
        go_on(begin(stop))
    first, second, third = (marker_of(tmp_path / "run", step)["line"] for step in (1, 2, 4))
    assert second[:-1] == first
    assert third[:-1] == [*first, [second[-1][0], 3]]
    assert len({line[-1][0] for line in (first, second, third)}) == 3
