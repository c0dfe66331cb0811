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
from trl_vade.checkpoints import JIT_MARK, MARKER_FILE, UNMARKED, complete_checkpoints, look_at, remove, rotate
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
    "a run that was only stopped": ({3: ("a", []), 5: ("b", [("a", 3)]), 7: ("c", [("a", 3), ("b", 5)])}, 7),
}


def test_a_checkpoint_that_a_branch_abandoned_is_never_the_newest_whatever_its_step(tmp_path):
    for case, (found, newest) in BRANCHES.items():
        for step, (run, ancestors) in found.items():
            write_checkpoint(tmp_path / case, step, run=run, ancestors=ancestors)
        assert resolve_checkpoint("auto", tmp_path / case) == str(tmp_path / case / f"checkpoint-{newest}"), case


def test_a_damaged_checkpoint_still_tells_what_its_run_has_abandoned(tmp_path):
    for step, run, before in ((3, "a", []), (12, "a", []), (5, "b", [("a", 3)])):
        write_checkpoint(tmp_path, step, run=run, ancestors=before)
    (tmp_path / "checkpoint-5" / "model.safetensors").unlink()
    with refused(ConfigurationError, ["checkpoint-12", tmp_path / "checkpoint-3"]) as error:
        resolve_checkpoint("auto", tmp_path)
    set_aside(error)
    assert resolve_checkpoint("auto", tmp_path) == str(tmp_path / "checkpoint-3")


SIBLINGS = {
    "two branches": {3: ("a", []), 4: ("c", [("a", 3)]), 5: ("c", [("a", 3)]), 12: ("b", [("a", 3)])},
    "two branches of a run that is rotated away": {5: ("c", [("a", 3)]), 12: ("b", [("a", 3)])},
    "two runs": {5: ("b", []), 12: ("a", [])},
    "a branch, and what grew on the abandoned one": {5: ("b", [("a", 3)]), 12: ("c", [("a", 9)])},
    "a branch of a branch, and another branch": {5: ("d", [("a", 3), ("c", 4)]), 12: ("b", [("a", 3)])},
}


def set_aside(error):
    """Run the command of a refusal."""
    subprocess.run(str(error.value).splitlines()[-1], shell=True, check=True)


def test_of_two_runs_neither_of_which_goes_back_to_the_other_the_user_tells_the_newest(tmp_path):
    for number, (case, found) in enumerate(SIBLINGS.items()):
        for asked in ("auto", True, 5, 12):
            folder = tmp_path / f"{number}-{asked}"
            for step, (run, before) in found.items():
                write_checkpoint(folder, step, run=run, ancestors=before)
            names = {5: ["checkpoint-12"], 12: ["checkpoint-5"]}.get(asked, ["checkpoint-12", "checkpoint-5", 12, 5])
            wanted = folder / f"checkpoint-{asked}" if type(asked) is int else asked
            with refused(ConfigurationError, names, ["resume_from_checkpoint", "another output_dir"]) as error:
                resolve_checkpoint(wanted, folder)
            set_aside(error)
            left, aside = (complete_checkpoints(each) for each in (folder, folder / "_aside-1"))
            assert len(left) + len(aside) == len(found), case
            assert resolve_checkpoint(wanted, folder) == str(left[-1]), case
            assert type(asked) is not int or left[-1] == wanted, case


def test_the_step_is_read_in_the_marker(tmp_path):
    for step in (4, 5):
        write_checkpoint(tmp_path, step)
    renamed = (tmp_path / "checkpoint-4").rename(tmp_path / "checkpoint-99")
    assert look_at(renamed).step == 4
    assert resolve_checkpoint("auto", tmp_path) == str(tmp_path / "checkpoint-5")


@pytest.fixture
def stock(tmp_path):
    """A whole checkpoint of the stock trainer."""
    folder = write_checkpoint(tmp_path, 5)
    for name in (MARKER_FILE, "vade_posterior.safetensors", "vade_generation_batch_00000.safetensors"):
        (folder / name).unlink()
    return folder


@pytest.mark.parametrize("asked", [None, "auto", True])
def test_a_checkpoint_of_another_trainer_is_neither_resumed_nor_overwritten(tmp_path, stock, asked):
    """One that is behind the run is in nobody's way."""
    error = CheckpointIncompleteError if asked is True else ConfigurationError
    with refused(error, [stock.name, MARKER_FILE, "another trainer"], ["model", "output_dir"]) as raised:
        resolve_checkpoint(asked, tmp_path)
    with refused(CheckpointIncompleteError, [stock, "another trainer"], ["model"]):
        resolve_checkpoint(stock, tmp_path)
    ours = write_checkpoint(tmp_path, 4)
    with refused(ConfigurationError, [stock.name, "another trainer"], ["another output_dir", "mv"]) as raised:
        resolve_checkpoint(asked and ours, tmp_path)
    set_aside(raised)
    assert (tmp_path / "_aside-1" / stock.name).is_dir()
    shutil.copytree(tmp_path / "_aside-1" / stock.name, stock)
    newer = write_checkpoint(tmp_path, 6)
    assert resolve_checkpoint("auto", tmp_path) == str(newer)


@pytest.mark.parametrize("stopped", ["the deletion", "the save"])
def test_what_a_kill_leaves_of_a_checkpoint_is_not_taken_for_another_trainers(folder, monkeypatch, stopped):
    if stopped == "the save":
        (folder / MARKER_FILE).unlink()
    else:
        monkeypatch.setattr(shutil, "rmtree", lambda *_, **more: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            remove(folder)
    assert look_at(folder).fault == UNMARKED
    assert resolve_checkpoint("auto", folder.parent) is None


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
    set_aside(error)
    assert resolve_checkpoint(chosen, folder) == ((chosen and str(chosen)) or None)
    assert not (folder / "trainer_state.json").exists()
    assert {path.name for path in complete_checkpoints(folder)} == ({older.name} if chosen == older else set())
    assert complete_checkpoints(folder / "_aside-1")[-1] == folder / "_aside-1" / newer.name


def test_old_checkpoints_are_deleted_by_their_line_and_none_of_another_run(tmp_path, stock):
    """A link to one is deleted, and what it leads to stays."""
    for step, run in ((3, "a"), (4, "a"), (12, "a"), (6, "b"), (7, "b"), (11, "c")):
        write_checkpoint(tmp_path, step, run=run, ancestors=[] if run == "a" else [("a", 3)])
    elsewhere = (tmp_path / "checkpoint-4").rename(tmp_path / "elsewhere")
    (tmp_path / "checkpoint-4").symlink_to(elsewhere)
    others = [stock, tmp_path / "checkpoint-11"]
    for limit, left in ((5, [3, 4, 12, 6, 7]), (4, [4, 12, 6, 7]), (3, [12, 6, 7]), (2, [6, 7]), (1, [7])):
        rotate(tmp_path / "checkpoint-7", set(), limit)
        assert {*tmp_path.glob("checkpoint-*")} == {*others, *(tmp_path / f"checkpoint-{step}" for step in left)}
    assert look_at(elsewhere).fault is None


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
