"""What a checkpoint folder lacks (`vade_checkpoint.json`), which one is the newest, and what stands in a run's way."""

import json
import logging
import shutil
import subprocess

import pytest
from accelerate import Accelerator
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.trainer_utils import get_last_checkpoint

from tests.support.checkpoints import FILES, write_checkpoint
from tests.support.refusals import refused
from trl_vade.checkpoints import JIT_MARK, MARKER_FILE, UNMARKED, complete_checkpoints, look_at
from trl_vade.errors import CheckpointIncompleteError, ConfigurationError
from trl_vade.trainer.checkpoint.resuming import resolve_checkpoint


@pytest.fixture(autouse=True)
def accelerator():
    """accelerate's loggers need to know which process this is."""
    return Accelerator(cpu=True)


@settings(max_examples=15)
@given(st.dictionaries(st.integers(0, 10**6), st.booleans(), max_size=6), st.sampled_from([True, "auto"]))
def test_the_whole_checkpoint_of_the_highest_step_is_the_one_to_go_on_from(tmp_path_factory, steps, asked):
    output_dir = tmp_path_factory.mktemp("run")
    for step, complete in steps.items():
        write_checkpoint(output_dir, step, complete=complete)
    whole = sorted(step for step, complete in steps.items() if complete)
    assert complete_checkpoints(output_dir) == [output_dir / f"checkpoint-{step}" for step in whole]
    if whole or asked == "auto":
        newest = str(output_dir / f"checkpoint-{whole[-1]}") if whole else None
        assert resolve_checkpoint(asked, output_dir) == newest
    else:
        with refused(CheckpointIncompleteError, names=["no whole checkpoint"], offers=["auto"]):
            resolve_checkpoint(asked, output_dir)


BRANCHES = {
    "a branch": ({12: ("a", []), 5: ("b", [("a", 3)])}, 5),
    "a branch of a branch": ({12: ("a", []), 5: ("b", [("a", 3)]), 4: ("c", [("a", 3), ("b", 3)])}, 4),
    "a branch whose first run is rotated away": ({12: ("a", []), 6: ("c", [("a", 3), ("b", 5)])}, 6),
    "what grew on the abandoned one": ({12: ("c", [("a", 9)]), 5: ("b", [("a", 3)])}, 5),
    "a run that was only stopped": ({3: ("a", []), 5: ("b", [("a", 3)]), 7: ("c", [("a", 3), ("b", 5)])}, 7),
}


def test_a_checkpoint_that_a_branch_abandoned_is_never_the_newest_whatever_its_step(tmp_path):
    for case, (found, newest) in BRANCHES.items():
        for step, (run, ancestors) in found.items():
            write_checkpoint(tmp_path / case, step, run=run, ancestors=ancestors)
        assert resolve_checkpoint("auto", tmp_path / case) == str(tmp_path / case / f"checkpoint-{newest}"), case


def test_the_trainers_own_choice_is_a_half_written_folder_and_ours_is_not(tmp_path, caplog):
    write_checkpoint(tmp_path, 2, complete=False)  # an older one is not worth a word
    write_checkpoint(tmp_path, 4)
    half = write_checkpoint(tmp_path, 6, complete=False)
    assert get_last_checkpoint(str(tmp_path)) == str(half)  # why this module is needed
    with caplog.at_level(logging.WARNING):
        assert resolve_checkpoint(True, tmp_path) == str(tmp_path / "checkpoint-4")
    (said,) = [record.getMessage() for record in caplog.records]
    assert f"{half} is skipped: {UNMARKED}" in said
    assert f"continues from {tmp_path / 'checkpoint-4'}" in said


def test_an_incomplete_folder_that_was_asked_for_is_refused_with_the_newest_that_is_whole(tmp_path):
    whole, half = write_checkpoint(tmp_path, 4), write_checkpoint(tmp_path, 6, complete=False)
    with refused(CheckpointIncompleteError, names=[half, MARKER_FILE], offers=[whole]):
        resolve_checkpoint(str(half), tmp_path)
    (whole / "part" / "optimizer.bin").unlink()
    with refused(CheckpointIncompleteError, names=[whole, "part/optimizer.bin"], offers=["output_dir"]):
        resolve_checkpoint(whole, tmp_path)


def test_a_downloaded_checkpoint_counts_by_its_step(tmp_path):
    downloaded = write_checkpoint(tmp_path, 6).rename(tmp_path / "last-checkpoint")
    assert resolve_checkpoint(True, tmp_path) == str(downloaded)
    write_checkpoint(tmp_path, 4)
    assert resolve_checkpoint(True, tmp_path) == str(downloaded)
    same = write_checkpoint(tmp_path, 6)
    assert resolve_checkpoint(True, tmp_path) == str(same)
    assert resolve_checkpoint(downloaded, tmp_path) == str(downloaded)


@pytest.mark.parametrize("asked", [True, "auto", None])
def test_checkpoints_that_were_whole_are_no_remains_of_a_start(tmp_path, asked):
    """A run is not begun over weeks of training because a file was lost."""
    short, lost = (write_checkpoint(tmp_path, step) for step in (6, 8))
    (short / "model.safetensors").write_bytes(b"con")
    (lost / "part" / "optimizer.bin").unlink()
    downloaded = write_checkpoint(tmp_path, 10, complete=False).rename(tmp_path / "last-checkpoint")
    files = ["model.safetensors", "part/optimizer.bin", MARKER_FILE]
    with refused(CheckpointIncompleteError, [short, lost, downloaded, *files], ["Put back", "output_dir"]):
        resolve_checkpoint(asked, tmp_path)


@pytest.mark.parametrize("asked", [None, False, "checkpoint-4", "elsewhere"])
def test_a_run_that_would_leave_newer_checkpoints_behind_is_refused_until_they_are_moved(tmp_path, asked):
    """By the command that the refusal names, and not where they only lie in another folder."""
    folder = tmp_path / "it's $HOME; a run"
    older, newer = write_checkpoint(folder, 4), write_checkpoint(folder, 6)
    (folder / "trainer_state.json").touch()  # else a report would mix the runs
    elsewhere = shutil.copytree(newer, tmp_path / "elsewhere" / "checkpoint-6")
    chosen = {"checkpoint-4": older, "elsewhere": elsewhere}.get(asked, asked)
    with refused(ConfigurationError, [newer.name], ["resume_from_checkpoint='auto'", "another output_dir"]) as error:
        resolve_checkpoint(chosen, folder)
    subprocess.run(str(error.value).splitlines()[-1], shell=True, check=True)
    assert resolve_checkpoint(chosen, folder) == ((chosen and str(chosen)) or None)
    assert not (folder / "trainer_state.json").exists()
    assert {path.name for path in complete_checkpoints(folder)} == ({older.name} if chosen == older else set())
    assert complete_checkpoints(folder / "_aside")[-1] == folder / "_aside" / newer.name


@pytest.fixture
def folder(tmp_path):
    return write_checkpoint(tmp_path, 3)


def test_a_file_that_is_gone_or_cut_is_named(tmp_path):
    """The Trainer deletes an old checkpoint file by file, and would resume from what is left of it."""
    for later in ("notes.txt", "README.md", JIT_MARK):
        (write_checkpoint(tmp_path, 3) / later).write_text("mine")
    for name in (*FILES, "trainer_state.json"):
        folder = write_checkpoint(tmp_path, 3)
        assert look_at(folder).fault is None
        (folder / name).write_bytes(b"cont")
        assert name in look_at(folder).fault
        (folder / name).unlink()
        assert name in look_at(folder).fault
    (folder / MARKER_FILE).unlink()
    assert look_at(folder).fault == UNMARKED


def test_a_marker_that_nobody_wrote_is_recognised(folder):
    written = json.loads((folder / MARKER_FILE).read_text())
    broken = [json.dumps(written | {"files": value}).encode() for value in ([], "all", None)]
    broken += [json.dumps(written | {"line": value}).encode() for value in (None, 3, [["a"]], [["a", "b"]])]
    for content in (*broken, b"", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b"\0" * 4096):  # of a power cut
        (folder / MARKER_FILE).write_bytes(content)
        assert look_at(folder).fault == f"its {MARKER_FILE} cannot be read"


@pytest.mark.parametrize("form", [2, None])
def test_a_marker_of_another_form_is_said_and_its_checkpoint_is_neither_passed_over_nor_overwritten(folder, form):
    marker = json.loads((folder / MARKER_FILE).read_text())
    (folder / MARKER_FILE).write_text(json.dumps(marker | {"format": form}))
    for asked in (True, "auto", None):
        with refused(CheckpointIncompleteError, [folder, repr(form)], ["the release of trl_vade that wrote it"]):
            resolve_checkpoint(asked, folder.parent)
    write_checkpoint(folder.parent, 2)
    for asked in (True, "auto", None):
        with refused(ConfigurationError, [folder.name, repr(form)], ["output_dir", "mv"]):
            resolve_checkpoint(asked, folder.parent)
    newer = write_checkpoint(folder.parent, 4)
    assert resolve_checkpoint("auto", folder.parent) == str(newer)


def test_the_settings_in_a_checkpoint_may_lack_as_they_are_not_pushed(folder):
    marker = json.loads((folder / MARKER_FILE).read_text())
    marker["files"]["training_args.bin"] = 7  # by release 0.1.0
    (folder / MARKER_FILE).write_text(json.dumps(marker))
    assert look_at(folder).fault is None
