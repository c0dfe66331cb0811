"""Which checkpoint folder a resume takes."""

import logging
from pathlib import Path

import pytest
from accelerate import Accelerator
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.trainer_utils import get_last_checkpoint

from tests.support.checkpoints import write_checkpoint
from tests.support.refusals import refused
from trl_vade.errors import CheckpointIncompleteError
from trl_vade.trainer.checkpoint.folders import complete_checkpoints
from trl_vade.trainer.checkpoint.line import resolve_checkpoint

STATE_FILE = "trainer_state.json"


@pytest.fixture(autouse=True)
def accelerator():
    """accelerate's loggers need to know which process this is."""
    return Accelerator(cpu=True)


def test_other_folders_and_files_are_no_checkpoints(tmp_path):
    write_checkpoint(tmp_path, 3)
    for name in ("", "best", "3-old", "-1", "²"):
        write_checkpoint(tmp_path, 9).rename(tmp_path / f"checkpoint-{name}")
    write_checkpoint(tmp_path, 9).rename(tmp_path / "checkpoints-9")
    (tmp_path / "checkpoint-12").write_text("a file")
    assert [path.name for path in complete_checkpoints(tmp_path)] == ["checkpoint-3"]


@settings(max_examples=15)
@given(st.dictionaries(st.integers(0, 10**6), st.tuples(st.booleans(), st.integers(1, 9)), max_size=6))
def test_the_complete_checkpoint_that_was_saved_last_is_the_one_to_go_on_from(tmp_path_factory, steps):
    output_dir = tmp_path_factory.mktemp("run")
    for step, (complete, save) in steps.items():
        write_checkpoint(output_dir, step, complete=complete, save=save)
    whole = sorted((save, step) for step, (complete, save) in steps.items() if complete)
    assert complete_checkpoints(output_dir) == [output_dir / f"checkpoint-{step}" for _, step in whole]
    if whole:
        assert resolve_checkpoint(True, output_dir) == str(output_dir / f"checkpoint-{whole[-1][1]}")
    else:
        with refused(CheckpointIncompleteError, names=["no complete checkpoint"]):
            resolve_checkpoint(True, output_dir)


def test_the_trainers_own_choice_is_a_half_written_folder_and_ours_is_not(tmp_path, caplog):
    write_checkpoint(tmp_path, 2, complete=False)  # an older one is not worth a word
    write_checkpoint(tmp_path, 4)
    half = write_checkpoint(tmp_path, 6, complete=False)
    assert get_last_checkpoint(str(tmp_path)) == str(half)  # why this module is needed
    with caplog.at_level(logging.WARNING):
        assert resolve_checkpoint(True, tmp_path) == str(tmp_path / "checkpoint-4")
    (said,) = [record.getMessage() for record in caplog.records]
    assert f"{half} is skipped: {STATE_FILE} is missing" in said
    assert f"continues from {tmp_path / 'checkpoint-4'}" in said


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


def test_an_incomplete_folder_that_was_asked_for_is_refused_with_the_newest_that_is_complete(tmp_path):
    whole, half = write_checkpoint(tmp_path, 4), write_checkpoint(tmp_path, 6, complete=False)
    with refused(CheckpointIncompleteError, names=[half, STATE_FILE], offers=[whole]):
        resolve_checkpoint(str(half), tmp_path)
    (whole / "part" / "optimizer.bin").unlink()
    with refused(CheckpointIncompleteError, names=[whole, "part/optimizer.bin", "no complete one"]):
        resolve_checkpoint(whole, tmp_path)


def test_a_checkpoint_whose_posterior_alone_is_gone_is_the_last_resort(tmp_path):
    """`vade_on_mismatch` decides then; it must get to see it."""
    whole, newer = write_checkpoint(tmp_path, 4), write_checkpoint(tmp_path, 6)
    (newer / "vade_posterior.safetensors").unlink()
    assert resolve_checkpoint(newer, tmp_path) == str(newer)
    assert resolve_checkpoint(True, tmp_path) == str(whole)
    (whole / "model.safetensors").unlink()
    assert resolve_checkpoint(True, tmp_path) == str(newer)


def test_a_checkpoint_of_the_stock_trainer_is_taken_where_there_is_no_other_and_what_is_unknown_is_said(
    tmp_path, caplog
):
    stock = write_checkpoint(tmp_path, 8, stock=True)
    assert resolve_checkpoint(True, tmp_path) == resolve_checkpoint(stock, tmp_path) == str(stock)
    assert caplog.text.count("not known whether its files are whole") == 2
    ours = write_checkpoint(tmp_path, 4)
    assert resolve_checkpoint(True, tmp_path) == str(ours)


def test_a_downloaded_checkpoint_counts_by_its_save(tmp_path):
    downloaded = write_checkpoint(tmp_path, 6).rename(tmp_path / "last-checkpoint")
    assert resolve_checkpoint(True, tmp_path) == str(downloaded)
    write_checkpoint(tmp_path, 4)
    assert resolve_checkpoint(True, tmp_path) == str(downloaded)
    same = write_checkpoint(tmp_path, 6)
    assert resolve_checkpoint(True, tmp_path) == str(same)


def test_without_a_complete_checkpoint_each_folder_is_named_with_what_it_lacks(tmp_path):
    half, short, lost = (write_checkpoint(tmp_path, step, complete=step > 4) for step in (4, 6, 8))
    (short / "model.safetensors").write_bytes(b"con")
    (lost / "part" / "optimizer.bin").unlink()
    downloaded = write_checkpoint(tmp_path, 10, complete=False).rename(tmp_path / "last-checkpoint")
    folders, files = [half, short, lost, downloaded], [STATE_FILE, "model.safetensors", "part/optimizer.bin"]
    with refused(CheckpointIncompleteError, names=[*folders, *files], offers=["vade_overwrite_output_dir=True"]):
        resolve_checkpoint(True, tmp_path)


@pytest.mark.parametrize("output_dir", ["", "nowhere"])
def test_the_last_checkpoint_of_a_run_that_never_was_is_refused_with_a_way_out(tmp_path, output_dir):
    with refused(CheckpointIncompleteError, offers=["resume_from_checkpoint"]):
        resolve_checkpoint(True, tmp_path / output_dir)
