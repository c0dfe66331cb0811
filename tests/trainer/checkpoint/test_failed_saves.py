"""What is said where a checkpoint cannot be written, and what is left of one that is written again."""

import os
from types import SimpleNamespace

import pytest
import torch
from accelerate import Accelerator

from tests.support.checkpoints import write_checkpoint
from tests.support.refusals import refused
from trl_vade.checkpoints import complete_checkpoints, look_at
from trl_vade.errors import CheckpointSaveError, ReplicaDivergenceError
from trl_vade.trainer.checkpoint.resuming import checkpoint_being_saved


@pytest.fixture
def saving(tmp_path):
    """A save of step 6."""
    Accelerator(cpu=True)  # else no barrier and no logger
    trainer = SimpleNamespace(
        args=SimpleNamespace(should_save=True, save_total_limit=None),
        state=SimpleNamespace(global_step=6, best_model_checkpoint=None),
        _get_output_dir=lambda trial: str(tmp_path),
        _line=("a run", ()),
    )
    return checkpoint_being_saved(trainer, None)


def fill_the_disk(_):
    if not os.path.exists("/dev/full"):
        raise OSError(28, "No space left on device")
    with open("/dev/full", "wb") as full:
        full.write(b"weights")


@pytest.mark.parametrize(
    ("write", "cause"),
    [(fill_the_disk, OSError), (lambda blocked: torch.save({}, blocked / "optimizer.pt"), RuntimeError)],
    ids=["full disk", "torch"],
)
def test_whatever_a_writer_makes_of_a_disk_that_refuses_the_way_out_is_named(saving, tmp_path, write, cause):
    write_checkpoint(tmp_path, 6)  # of an earlier run
    with (
        refused(CheckpointSaveError, ["checkpoint-6"], ["save_total_limit", "permissions", "'auto'"]) as error,
        saving,
    ):
        (tmp_path / "checkpoint-6").mkdir()
        (tmp_path / "blocked").write_text("a file where a folder should be")
        write(tmp_path / "blocked")
    assert isinstance(error.value.__cause__, cause)
    assert str(error.value.__cause__) in str(error.value)
    assert complete_checkpoints(tmp_path) == []


@pytest.mark.parametrize("error", [ReplicaDivergenceError("the replicas differ"), KeyboardInterrupt()])
def test_what_is_no_failure_of_the_disk_passes_in_its_own_words(saving, error):
    with pytest.raises(type(error)) as passed, saving:
        raise error
    assert passed.value is error


def test_a_checkpoint_that_is_written_again_is_deleted_first_and_what_somebody_keeps_of_it_stays(saving, tmp_path):
    """torch would write into a file that is there; one that could not be pushed yet has a link to it."""
    os.link(write_checkpoint(tmp_path, 6) / "model.safetensors", tmp_path / "kept")
    with saving as folder:
        assert look_at(folder).fault == "there is no such folder"
        (write_checkpoint(tmp_path, 6, complete=False) / "model.safetensors").write_bytes(b"new")
    assert complete_checkpoints(tmp_path) == [folder]
    assert (tmp_path / "kept").read_bytes() == b"content"


def test_of_a_link_to_a_checkpoint_a_save_deletes_the_link_alone(saving, tmp_path):
    elsewhere = write_checkpoint(tmp_path / "another disk", 6)
    (tmp_path / "checkpoint-6").symlink_to(elsewhere)
    with saving:
        write_checkpoint(tmp_path, 6, complete=False)
    assert not (tmp_path / "checkpoint-6").is_symlink()
    assert look_at(elsewhere).fault is None
