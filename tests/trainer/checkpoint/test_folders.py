"""What a checkpoint folder lacks and whose it is (`vade_checkpoint.json`), and which folder a resume takes."""

import json
import logging
from pathlib import Path

import pytest
from accelerate import Accelerator
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.trainer_utils import get_last_checkpoint

from tests.support.checkpoints import FILES, write_checkpoint
from tests.support.refusals import refused
from trl_vade.errors import CheckpointIncompleteError
from trl_vade.trainer.checkpoint.folders import JIT_MARK, MARKER_FILE, OWN_FILES, complete_checkpoints, missing_part
from trl_vade.trainer.checkpoint.line import resolve_checkpoint
from trl_vade.trainer.trained_counts import TrainedCounts

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
    """The posterior says why then."""
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


@pytest.fixture
def folder(tmp_path):
    return write_checkpoint(tmp_path, 3)


def test_a_checkpoint_with_all_its_files_is_complete_also_with_files_that_came_later(folder):
    for name in ("notes.txt", "README.md", JIT_MARK):
        (folder / name).write_text("mine")
    assert missing_part(folder, contents=True) is None


@pytest.mark.parametrize("name", [*FILES, STATE_FILE])
def test_a_file_that_is_gone_cut_or_altered_is_named(folder, name):
    """The Trainer deletes an old checkpoint file by file, and would resume from what is left of it."""
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[:-1] + b"!")
    assert missing_part(folder) is None
    assert missing_part(folder, contents=True).startswith(f"{name} was altered")
    (folder / name).write_bytes(content[:4])
    assert missing_part(folder) == f"{name} has 4 bytes and had {len(content)} when it was saved"
    (folder / name).unlink()
    assert missing_part(folder) == f"{name} is missing"
    own = name.startswith("vade_posterior")  # which a checkpoint of `GRPOTrainer` has not
    assert (missing_part(folder, but_for=OWN_FILES, contents=True) is None) == own


def test_a_checkpoint_without_its_last_file_is_not_complete_however_far_the_save_came(tmp_path):
    assert missing_part(tmp_path / "checkpoint-3") == "there is no such folder"
    folder = write_checkpoint(tmp_path, 3, complete=False)
    assert missing_part(folder) == f"{STATE_FILE} is missing"
    write_checkpoint(tmp_path, 3)
    (folder / MARKER_FILE).unlink()
    assert missing_part(folder) == f"{MARKER_FILE} is missing, which is written last"


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"[]", b"null", b"{}", b"\xff\xfe", b"[" * 100_000, b"\0" * 4096),  # the last one of a power cut
        *({"files": value} for value in ([], "all", {"model.safetensors": 3}, {"model.safetensors": [None, ""]})),
        {"save": "1"},
    ],
)
def test_a_marker_that_nobody_wrote_is_recognised(folder, content):
    if isinstance(content, dict):
        content = json.dumps(json.loads((folder / MARKER_FILE).read_text()) | content).encode()
    (folder / MARKER_FILE).write_bytes(content)
    assert missing_part(folder) == f"its {MARKER_FILE} cannot be read"


def test_a_name_that_was_taken_out_of_the_marker_is_not_looked_for(folder):
    """The way out for somebody who has changed a file on purpose."""
    marker = json.loads((folder / MARKER_FILE).read_text())
    del marker["files"]["part/optimizer.bin"]
    (folder / MARKER_FILE).write_text(json.dumps(marker))
    (folder / "part/optimizer.bin").unlink()
    assert missing_part(folder, contents=True) is None


def test_a_checkpoint_of_the_stock_trainer_can_be_used_but_not_one_that_it_left_half_written(tmp_path):
    folder = write_checkpoint(tmp_path, 3, stock=True)
    assert missing_part(folder) is None
    content = (folder / STATE_FILE).read_bytes()
    for length in {0, 1, *range(0, len(content) - 1, 97)}:
        (folder / STATE_FILE).write_bytes(content[:length])
        assert missing_part(folder) == f"its {STATE_FILE} cannot be read", length
    (folder / STATE_FILE).write_bytes(content)
    (folder / JIT_MARK).touch()
    assert missing_part(folder) == f"it holds {JIT_MARK}"


def test_a_checkpoint_of_ours_that_lost_all_its_own_files_is_not_one_of_the_stock_trainer(tmp_path):
    folder = write_checkpoint(tmp_path, 3, stock=True)
    state = json.loads((folder / STATE_FILE).read_text())
    state["stateful_callbacks"] = {TrainedCounts.__name__: {}}
    (folder / STATE_FILE).write_text(json.dumps(state))
    assert missing_part(folder, but_for=OWN_FILES) == f"{MARKER_FILE} is missing, which is written last"
