"""What is said where a checkpoint cannot be written, and what is left of one that is written again."""

import os

import pytest
import torch
from accelerate import Accelerator
from safetensors import SafetensorError
from safetensors.torch import save_file

from tests.support.checkpoints import write_checkpoint
from tests.support.refusals import refused
from trl_vade.errors import CheckpointSaveError, ReplicaDivergenceError
from trl_vade.files import save_whole
from trl_vade.trainer.checkpoint.folders import complete_checkpoints, look_at
from trl_vade.trainer.checkpoint.resuming import explaining_failed_saves


@pytest.fixture(autouse=True)
def accelerator():
    """accelerate's loggers need to know which process this is."""
    return Accelerator(cpu=True)


def fill_the_disk(_):
    with open("/dev/full", "wb") as full:
        full.write(b"weights")


@pytest.mark.parametrize(
    ("write", "cause"),
    [
        pytest.param(
            fill_the_disk,
            OSError,
            marks=pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here"),
        ),
        (lambda blocked: save_whole(blocked / "posterior", b""), OSError),
        (lambda blocked: torch.save({}, blocked / "optimizer.pt"), RuntimeError),
        (lambda blocked: save_file({}, blocked / "model.safetensors"), SafetensorError),
    ],
    ids=["full disk", "a file in the way", "torch", "safetensors"],
)
def test_whatever_a_writer_makes_of_a_disk_that_refuses_the_way_out_is_named(tmp_path, write, cause):
    whole, folder = write_checkpoint(tmp_path, 4), write_checkpoint(tmp_path, 6, complete=False)
    blocked = folder / "blocked"

    def save():
        with explaining_failed_saves(folder):
            folder.mkdir()
            blocked.write_text("a file where a folder should be")
            write(blocked)

    with pytest.raises(CheckpointSaveError) as error:
        save()
    assert isinstance(error.value.__cause__, cause)
    way_out = f"{whole} is whole. Free disk space, set save_total_limit, or check the permissions, and then train("
    for part in (str(folder), str(error.value.__cause__), way_out):
        assert part in str(error.value)


def test_a_folder_that_cannot_be_made_is_an_error_of_the_save_too(tmp_path):
    (tmp_path / "checkpoint-6").write_text("a file")
    folder = tmp_path / "checkpoint-6"
    with refused(CheckpointSaveError, names=["checkpoint-6"]), explaining_failed_saves(folder):
        save_whole(folder / "model.safetensors", b"")


def test_without_an_earlier_checkpoint_the_way_out_is_to_start_again(tmp_path):
    write_checkpoint(tmp_path, 2, complete=False)
    folder = tmp_path / "checkpoint-6"
    with refused(CheckpointSaveError, offers=["resume_from_checkpoint='auto'"]), explaining_failed_saves(folder):
        raise OSError(28, "No space left on device")


def test_the_folder_that_could_not_be_written_is_not_the_way_out_although_an_earlier_run_left_it_whole(tmp_path):
    whole, folder = write_checkpoint(tmp_path, 4), write_checkpoint(tmp_path, 6)
    with refused(CheckpointSaveError, offers=[whole]), explaining_failed_saves(folder):
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize("error", [ReplicaDivergenceError("the replicas differ"), KeyboardInterrupt()])
def test_what_is_no_failure_of_the_disk_passes_in_its_own_words(tmp_path, error):
    with pytest.raises(type(error)) as passed, explaining_failed_saves(tmp_path / "checkpoint-6"):
        raise error
    assert passed.value is error


def test_a_save_that_succeeds_is_left_alone(tmp_path):
    with explaining_failed_saves(tmp_path / "checkpoint-6"):
        write_checkpoint(tmp_path, 6)
    assert look_at(tmp_path / "checkpoint-6").fault is None


def test_a_checkpoint_that_is_written_again_is_deleted_first_and_what_somebody_keeps_of_it_stays(tmp_path):
    """torch would write into a file that is there; one that could not be pushed yet has a link to it."""
    folder = write_checkpoint(tmp_path, 6)
    os.link(folder / "model.safetensors", tmp_path / "kept")
    with explaining_failed_saves(folder):
        assert look_at(folder).fault == "there is no such folder"
        write_checkpoint(tmp_path, 6, complete=False)
    assert complete_checkpoints(tmp_path) == []
    assert (tmp_path / "kept").read_bytes() == b"content"
    with explaining_failed_saves(folder, writes=False):  # another process deletes it
        assert folder.is_dir()
