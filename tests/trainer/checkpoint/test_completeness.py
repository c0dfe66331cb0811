"""Which checkpoint folders are whole, and what is said where one cannot be written."""

import json
import logging
import os
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from hypothesis import given
from hypothesis import strategies as st
from safetensors import SafetensorError
from safetensors.torch import save_file
from transformers import TrainerState
from transformers.trainer_utils import get_last_checkpoint

from tests.support.refusals import refused
from tests.support.runs import train
from trl_vade.errors import CheckpointIncompleteError, CheckpointSaveError, ReplicaDivergenceError
from trl_vade.files import save_whole
from trl_vade.trainer.checkpoint.completeness import CheckpointFiles, explaining_failed_saves, resolve_checkpoint
from trl_vade.trainer.checkpoint.folders import complete_checkpoints, missing_part

STATE_FILE = "trainer_state.json"


@pytest.fixture(autouse=True)
def accelerator():
    """accelerate's loggers need to know which process this is."""
    return Accelerator(cpu=True)


def write_checkpoint(output_dir, step, *, complete=True):
    """A checkpoint as the Trainer writes it: the weights first, its state, which names the other files, last."""
    folder = output_dir / f"checkpoint-{step}"
    (folder / "part").mkdir(parents=True)
    for name in ("model.safetensors", "part/optimizer.bin", "vade_posterior.json"):
        (folder / name).write_bytes(b"content")
    if complete:
        write_state(folder, step)
    return folder


def write_state(folder, step):
    files = CheckpointFiles()
    files.folder = folder
    TrainerState(global_step=step, log_history=[{"loss": 0.5}], stateful_callbacks=[files]).save_to_json(
        str(folder / STATE_FILE)
    )


# --------------------------------------------------------------------------------------------- what a folder lacks


def test_a_checkpoint_with_the_trainers_last_file_is_whole(tmp_path):
    assert missing_part(write_checkpoint(tmp_path, 3)) is None


def test_a_checkpoint_without_the_trainers_last_file_is_not(tmp_path):
    assert missing_part(write_checkpoint(tmp_path, 3, complete=False)) == f"{STATE_FILE} is missing"


def test_a_folder_that_is_not_there_is_told_from_one_that_is_half_written(tmp_path):
    assert missing_part(tmp_path / "checkpoint-3") == "there is no such folder"
    (tmp_path / "checkpoint-4").write_text("a file")
    assert missing_part(tmp_path / "checkpoint-4") == "there is no such folder"


def test_a_truncation_of_the_trainers_state_is_recognised_wherever_it_is(tmp_path):
    folder = write_checkpoint(tmp_path, 3)
    content = (folder / STATE_FILE).read_bytes()
    end = len(content.rstrip())
    for length in {0, 1, end - 1, *range(0, end, 97)}:
        (folder / STATE_FILE).write_bytes(content[:length])
        assert missing_part(folder) == f"its {STATE_FILE} cannot be read", length
    (folder / STATE_FILE).write_bytes(content.rstrip())
    assert missing_part(folder) is None


@pytest.mark.parametrize("content", [b"[]", b"null", b"3", b"{}", b"\xff\xfe", b"[" * 100_000, b"\0" * 4096])
def test_a_file_that_is_no_trainer_state_is_recognised(tmp_path, content):
    """The last one is what a power cut leaves of a file whose length was on the disk before its content."""
    folder = write_checkpoint(tmp_path, 3)
    (folder / STATE_FILE).write_bytes(content)
    assert missing_part(folder) == f"its {STATE_FILE} cannot be read"


@pytest.mark.parametrize("name", ["model.safetensors", "part/optimizer.bin", "vade_posterior.json"])
def test_a_file_that_was_there_when_the_checkpoint_was_saved_is_missed(tmp_path, name):
    """The Trainer deletes an old checkpoint file by file, and resumes from what is left of it."""
    folder = write_checkpoint(tmp_path, 3)
    (folder / name).unlink()
    assert missing_part(folder) == f"{name} is missing"


def test_a_file_that_was_cut_is_recognised_by_its_size(tmp_path):
    folder = write_checkpoint(tmp_path, 3)
    (folder / "model.safetensors").write_bytes(b"cont")
    assert missing_part(folder) == "model.safetensors has 4 bytes and had 7 when it was saved"


def test_a_file_that_came_later_is_no_harm(tmp_path):
    folder = write_checkpoint(tmp_path, 3)
    (folder / "notes.txt").write_text("mine")
    assert missing_part(folder) is None


def test_a_checkpoint_of_the_stock_trainer_names_no_files_and_is_whole_with_its_state(tmp_path):
    folder = write_checkpoint(tmp_path, 3, complete=False)
    TrainerState(global_step=3).save_to_json(str(folder / STATE_FILE))
    assert missing_part(folder) is None


def test_what_a_resume_can_do_without_may_lack(tmp_path):
    folder = write_checkpoint(tmp_path, 3)
    (folder / "vade_posterior.json").write_bytes(b"dam")
    assert missing_part(folder, but_for="vade_") is None
    (folder / "part" / "optimizer.bin").unlink()
    assert missing_part(folder, but_for="vade_") == "part/optimizer.bin is missing"


# ------------------------------------------------------------------------------------------------ which one it is


def test_checkpoints_are_in_the_order_of_their_steps_and_not_of_their_names(tmp_path):
    for step in (100, 20, 3):
        write_checkpoint(tmp_path, step)
    assert [path.name for path in complete_checkpoints(tmp_path)] == [
        "checkpoint-3",
        "checkpoint-20",
        "checkpoint-100",
    ]


def test_other_folders_and_files_are_no_checkpoints(tmp_path):
    write_checkpoint(tmp_path, 3)
    for name in (
        "checkpoint-",
        "checkpoint-best",
        "checkpoint-3-old",
        "checkpoint--1",
        "checkpoint-²",
        "checkpoints-9",
    ):
        write_checkpoint(tmp_path, 9).rename(tmp_path / name)
    (tmp_path / "checkpoint-12").write_text("a file")
    assert [path.name for path in complete_checkpoints(tmp_path)] == ["checkpoint-3"]


@given(st.dictionaries(st.integers(0, 10**6), st.booleans(), max_size=6))
def test_the_newest_complete_checkpoint_is_the_one_to_go_on_from(tmp_path_factory, steps):
    output_dir = tmp_path_factory.mktemp("run")
    for step, complete in steps.items():
        write_checkpoint(output_dir, step, complete=complete)
    whole = sorted(step for step, complete in steps.items() if complete)
    assert complete_checkpoints(output_dir) == [output_dir / f"checkpoint-{step}" for step in whole]
    if whole:
        assert resolve_checkpoint(True, output_dir) == str(output_dir / f"checkpoint-{whole[-1]}")
    else:
        with refused(CheckpointIncompleteError, names=["no complete checkpoint"]):
            resolve_checkpoint(True, output_dir)


def test_the_trainers_own_choice_is_a_half_written_folder_and_ours_is_not(tmp_path, caplog):
    write_checkpoint(tmp_path, 4)
    half = write_checkpoint(tmp_path, 6, complete=False)
    assert get_last_checkpoint(str(tmp_path)) == str(half)  # why this module is needed
    with caplog.at_level(logging.WARNING):
        assert resolve_checkpoint(True, tmp_path) == str(tmp_path / "checkpoint-4")
    assert f"{half} is skipped: {STATE_FILE} is missing" in caplog.text
    assert f"continues from {tmp_path / 'checkpoint-4'}" in caplog.text


def test_a_half_written_folder_that_is_older_is_not_worth_a_word(tmp_path, caplog):
    write_checkpoint(tmp_path, 4, complete=False)
    write_checkpoint(tmp_path, 6)
    assert resolve_checkpoint(True, tmp_path) == str(tmp_path / "checkpoint-6")
    assert caplog.text == ""


@pytest.mark.parametrize("asked", [None, False])
def test_a_run_that_does_not_resume_looks_at_no_folder(tmp_path, asked):
    write_checkpoint(tmp_path, 6)
    assert resolve_checkpoint(asked, tmp_path) is None
    assert resolve_checkpoint(asked, tmp_path / "nowhere") is None


@pytest.mark.parametrize("form", [str, Path])
def test_a_complete_folder_that_was_asked_for_is_taken_although_a_newer_one_is_there(tmp_path, form):
    older, _ = write_checkpoint(tmp_path, 4), write_checkpoint(tmp_path, 6)
    assert resolve_checkpoint(form(older), tmp_path) == str(older)
    assert resolve_checkpoint(form(older), tmp_path / "another_output_dir") == str(older)


def test_a_half_written_folder_that_was_asked_for_is_refused_with_the_newest_that_is_complete(tmp_path):
    whole, half = write_checkpoint(tmp_path, 4), write_checkpoint(tmp_path, 6, complete=False)
    with pytest.raises(CheckpointIncompleteError) as refusal:
        resolve_checkpoint(str(half), tmp_path)
    assert str(refusal.value).startswith(f"The run cannot resume from {half}: {STATE_FILE} is missing.")
    assert f"The newest complete checkpoint is {whole}. If a file was changed" in str(refusal.value)


def test_a_checkpoint_whose_posterior_alone_is_gone_is_the_last_resort(tmp_path):
    """`vade_on_mismatch` decides then; it must get to see it."""
    whole, newer = write_checkpoint(tmp_path, 4), write_checkpoint(tmp_path, 6)
    (newer / "vade_posterior.json").unlink()
    assert resolve_checkpoint(newer, tmp_path) == str(newer)
    assert resolve_checkpoint(True, tmp_path) == str(whole)
    (whole / "model.safetensors").unlink()
    assert resolve_checkpoint(True, tmp_path) == str(newer)


def test_where_no_checkpoint_is_complete_the_refusal_says_so(tmp_path):
    half = write_checkpoint(tmp_path, 6, complete=False)
    with refused(CheckpointIncompleteError, names=[tmp_path]):
        resolve_checkpoint(half, tmp_path)
    with refused(CheckpointIncompleteError, names=["no such folder"]):
        resolve_checkpoint(tmp_path / "checkpoint-8", tmp_path)


@pytest.mark.parametrize("output_dir", ["", "nowhere"])
def test_the_last_checkpoint_of_a_run_that_never_was_is_refused_with_a_way_out(tmp_path, output_dir):
    with refused(CheckpointIncompleteError, offers=["resume_from_checkpoint"]):
        resolve_checkpoint(True, tmp_path / output_dir)


# ------------------------------------------------------------------------------------------- what cannot be written


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
    blocked.write_text("a file where a folder should be")
    with pytest.raises(CheckpointSaveError) as error, explaining_failed_saves(folder):
        write(blocked)
    assert isinstance(error.value.__cause__, cause)
    way_out = f"{whole} is complete. Free disk space, set save_total_limit, or check the permissions, and then train("
    for part in (str(folder), str(error.value.__cause__), way_out):
        assert part in str(error.value)


def test_a_folder_that_cannot_be_made_is_an_error_of_the_save_too(tmp_path):
    (tmp_path / "checkpoint-6").write_text("a file")
    folder = tmp_path / "checkpoint-6"
    with refused(CheckpointSaveError, names=["checkpoint-6"]), explaining_failed_saves(folder):
        save_whole(folder / "model.safetensors", b"")


def test_without_an_earlier_checkpoint_the_way_out_is_to_start_again(tmp_path):
    write_checkpoint(tmp_path, 2, complete=False)
    folder = str(tmp_path / "checkpoint-6")
    with refused(CheckpointSaveError, offers=["start again"]), explaining_failed_saves(folder):
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
    assert missing_part(tmp_path / "checkpoint-6") is None


def test_a_checkpoint_that_is_written_again_is_not_whole_before_it_is_finished(tmp_path):
    folder = write_checkpoint(tmp_path, 6)
    with explaining_failed_saves(folder):
        assert missing_part(folder) == f"{STATE_FILE} is missing"
        write_state(folder, 6)
    assert missing_part(folder) is None


def test_what_somebody_keeps_of_a_checkpoint_is_not_written_into(tmp_path):
    """torch writes into a file that is there; one that could not be pushed yet has a link to it."""
    folder = write_checkpoint(tmp_path, 6)
    kept = tmp_path / "kept.pt"
    torch.save({"step": 6}, folder / "optimizer.pt")
    os.link(folder / "optimizer.pt", kept)
    with explaining_failed_saves(folder):
        torch.save({"step": "6 of another run"}, folder / "optimizer.pt")
    assert torch.load(kept) == {"step": 6}
    assert torch.load(folder / "optimizer.pt") == {"step": "6 of another run"}


# ------------------------------------------------------------------------------------------ what was whole once


def finish(folder, step):
    """Write the trainer's state as a run of trl_vade does, with the names and sizes of the files beside it."""
    files = CheckpointFiles()
    files.folder = folder
    state = TrainerState(global_step=step, stateful_callbacks={"CheckpointFiles": files.state()})
    state.save_to_json(str(folder / STATE_FILE))


@pytest.fixture
def whole(tmp_path):
    """A checkpoint that names its files."""
    folder = write_checkpoint(tmp_path, 6, complete=False)
    for name in ("optimizer.pt", "vade_posterior.json", "shards/0.distcp"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(name.encode())
    finish(folder, 6)
    return folder


NAMES = ["model.safetensors", "optimizer.pt", "vade_posterior.json", "shards/0.distcp"]


@pytest.mark.parametrize("name", NAMES)
def test_a_checkpoint_of_which_a_file_was_deleted_is_not_whole(whole, name):
    """As it is with `save_total_limit`, when the process is killed while it deletes an old checkpoint."""
    assert missing_part(whole) is None
    (whole / name).unlink()
    assert missing_part(whole) == f"{name} is missing"
    assert complete_checkpoints(whole.parent) == []


@pytest.mark.parametrize("name", NAMES)
def test_a_checkpoint_of_which_a_file_was_cut_is_not_whole(whole, name):
    size = (whole / name).stat().st_size
    os.truncate(whole / name, 3)
    assert missing_part(whole) == f"{name} has 3 bytes and had {size} when it was saved"


def test_a_file_that_was_added_later_does_no_harm(whole):
    (whole / "notes.txt").write_text("the good one")
    assert missing_part(whole) is None


def test_a_checkpoint_without_its_posterior_is_taken_where_it_is_asked_for_or_the_only_one(whole):
    """`load_snapshot` says more of it, and `vade_on_mismatch` may go on without."""
    (whole / "vade_posterior.json").unlink()
    assert resolve_checkpoint(str(whole), whole.parent) == str(whole)
    assert resolve_checkpoint(True, whole.parent) == str(whole)
    earlier = write_checkpoint(whole.parent, 4)
    assert resolve_checkpoint(str(whole), whole.parent) == str(whole)
    assert resolve_checkpoint(True, whole.parent) == str(earlier)


def test_a_checkpoint_without_its_optimiser_is_refused_although_it_is_asked_for(whole):
    """transformers 5.23 would go on with a new one, and not say so."""
    (whole / "optimizer.pt").unlink()
    with refused(CheckpointIncompleteError, names=["optimizer.pt"]):
        resolve_checkpoint(str(whole), whole.parent)


@pytest.mark.parametrize("files", [[], "all", {"model.safetensors": "big"}, {"model.safetensors": None}])
def test_names_that_nobody_wrote_are_recognised(whole, files):
    state = json.loads((whole / STATE_FILE).read_text())
    state["stateful_callbacks"]["CheckpointFiles"]["attributes"]["files"] = files
    (whole / STATE_FILE).write_text(json.dumps(state))
    assert missing_part(whole) == f"its {STATE_FILE} cannot be read"


def test_a_checkpoint_that_is_written_again_is_incomplete_until_that_is_done(whole):
    with explaining_failed_saves(whole):
        assert complete_checkpoints(whole.parent) == []
        finish(whole, 6)
    assert complete_checkpoints(whole.parent) == [whole]
    with pytest.raises(CheckpointSaveError), explaining_failed_saves(whole):
        raise OSError(28, "No space left on device")
    assert complete_checkpoints(whole.parent) == []


def test_the_checkpoints_of_a_run_name_all_their_files(text_model_path, text_rows, make_args):
    args = make_args(save_strategy="steps", save_steps=1, num_iterations=2, max_steps=2)
    train(text_model_path, text_rows, args)
    for checkpoint in complete_checkpoints(args.output_dir):
        state = json.loads((checkpoint / STATE_FILE).read_text())
        files = state["stateful_callbacks"]["CheckpointFiles"]["attributes"]["files"]
        there = {path.name: path.stat().st_size for path in checkpoint.iterdir() if path.name != STATE_FILE}
        assert files == there
        assert {"model.safetensors", "optimizer.pt", "vade_posterior.json"} <= files.keys()
        assert ("vade_generation_batch_00000.safetensors" in files) == (checkpoint.name == "checkpoint-1")
