import errno
import os
import shutil
import threading

import pytest

from tests.support.refusals import refused
from trl_vade.hub import staging
from trl_vade.hub.staging import LARGE, Upload, break_hard_links, discard, keep_only, new_folder, stage, unsent_folders


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def contents(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture
def run(tmp_path):
    """An output directory as it is when a checkpoint was just written."""
    out = tmp_path / "out"
    for folder in (out, out / "checkpoint-4"):
        write(folder / "model.safetensors", b"4" * LARGE)
        write(folder / "config.json", b"{}")
    write(out / "checkpoint-4" / "optimizer.pt", b"moments")
    write(out / "README.md", b"card of 4")
    write(out / "_notes" / "mine.txt", b"private")
    return out


def uploads(out):
    return [Upload(out, "", ("_*", "checkpoint-*")), Upload(out / "checkpoint-4", "last-checkpoint")]


def test_a_staged_folder_has_the_layout_of_the_repository(run):
    staged = stage("checkpoint-000004", run, uploads(run), run / "checkpoint-4")
    assert staged == run / "_hub" / "checkpoint-000004"
    root = {"model.safetensors": b"4" * LARGE, "config.json": b"{}", "README.md": b"card of 4"}
    checkpoint = {name: content for name, content in root.items() if name != "README.md"} | {
        "optimizer.pt": b"moments"
    }
    assert contents(staged) == root | {f"last-checkpoint/{name}": content for name, content in checkpoint.items()}


def test_what_training_does_next_does_not_change_it(run):
    staged = stage("checkpoint-000004", run, uploads(run), run / "checkpoint-4")
    before = contents(staged)
    write(run / "model.safetensors", b"8" * LARGE)  # in place, as the Trainer copies
    write(run / "config.json", b"[]")
    write(run / "README.md", b"card of 8")
    for file in (run / "checkpoint-4").iterdir():
        file.unlink()
    assert contents(staged) == before


def test_large_files_of_a_checkpoint_take_no_room(run):
    staged = stage("checkpoint-000004", run, uploads(run), run / "checkpoint-4")
    checkpoint = (run / "checkpoint-4" / "model.safetensors").stat().st_ino
    assert (staged / "model.safetensors").stat().st_ino == checkpoint
    assert (staged / "last-checkpoint" / "model.safetensors").stat().st_ino == checkpoint
    assert (staged / "README.md").stat().st_ino != (run / "README.md").stat().st_ino


def test_a_large_file_that_only_the_output_directory_has_is_copied(run):
    write(run / "plot.bin", b"p" * LARGE)
    staged = stage("checkpoint-000004", run, uploads(run), run / "checkpoint-4")
    write(run / "plot.bin", b"q" * LARGE)
    assert (staged / "plot.bin").read_bytes() == b"p" * LARGE


def test_where_there_are_no_hard_links_files_are_copied(run, monkeypatch):
    def refuse(*_):
        raise OSError("Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    staged = stage("checkpoint-000004", run, uploads(run), run / "checkpoint-4")
    assert (staged / "last-checkpoint" / "optimizer.pt").read_bytes() == b"moments"


def test_the_later_of_two_uploads_has_its_way(run):
    write(run / "last-checkpoint" / "optimizer.pt", b"of a run that was downloaded")
    staged = stage("checkpoint-000004", run, uploads(run), run / "checkpoint-4")
    assert (staged / "last-checkpoint" / "optimizer.pt").read_bytes() == b"moments"


def test_a_disk_that_is_full_leaves_nothing_half_staged(run, monkeypatch):
    stage("checkpoint-000004", run, uploads(run), run / "checkpoint-4")
    before = contents(run)

    def refuse(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(staging.shutil, "copy2", refuse)
    with refused(OSError, ["[Errno 28]"]):
        stage("checkpoint-000004", run, uploads(run), run / "checkpoint-4")
    assert contents(run) == before


def test_what_an_earlier_process_left_is_found_and_its_halves_are_deleted(run):
    staged = stage("checkpoint-000004", run, uploads(run), run / "checkpoint-4")
    write(run / "_hub" / ".unfinished-checkpoint-000008" / "config.json", b"{}")
    assert unsent_folders(run) == [staged]
    assert [path.name for path in (run / "_hub").iterdir()] == ["checkpoint-000004"]


def test_the_same_step_staged_again_is_another_folder(run):
    first = stage("checkpoint-000004", run, uploads(run), run / "checkpoint-4")
    write(run / "README.md", b"another card")
    second = stage("checkpoint-000004", run, uploads(run), run / "checkpoint-4")
    assert (first.name, second.name) == ("checkpoint-000004", "checkpoint-000004.2")
    assert (first / "README.md").read_bytes() == b"card of 4"
    discard(first)
    assert (second / "README.md").read_bytes() == b"another card"


def test_without_a_checkpoint_all_but_the_weights_is_copied(run):
    staged = stage("model-000004", run, uploads(run)[:1], None)
    linked = {path.name for path in staged.iterdir() if path.stat().st_nlink > 1}
    assert linked == {"model.safetensors"}
    break_hard_links(run)
    shutil.copy(__file__, run / "model.safetensors")  # as the Trainer does: into the file that is there
    assert (staged / "model.safetensors").read_bytes() == b"4" * LARGE


def test_a_link_in_the_output_directory_is_followed(run):
    write(run.parent / "elsewhere.safetensors", b"weights")
    (run / "adapter.safetensors").symlink_to("../elsewhere.safetensors")
    staged = stage("model-000004", run, uploads(run)[:1], None)
    assert (staged / "adapter.safetensors").read_bytes() == b"weights"


def test_of_a_staged_folder_parts_can_be_kept(run):
    staged = stage("checkpoint-000004", run, uploads(run), run / "checkpoint-4")
    keep_only(staged, ["last-checkpoint"])
    assert [path.name for path in staged.iterdir()] == ["last-checkpoint"]
    assert (staged / "last-checkpoint" / "optimizer.pt").exists()


def test_folders_are_staged_while_others_are_discarded(run):
    """A push that is over is deleted in the background; a walk into that folder would fail, and with it this push."""
    over = threading.Event()

    def discard_others():
        while not over.is_set():
            folder = new_folder("other", run)
            for number in range(40):
                write(folder / str(number) / "config.json", b"{}")
            discard(folder)

    thread = threading.Thread(target=discard_others)
    thread.start()
    try:
        for _ in range(40):
            staged = stage("checkpoint-000004", run, uploads(run), run / "checkpoint-4")
            assert len(contents(staged)) == 6
            discard(staged)
    finally:
        over.set()
        thread.join()


def test_a_checkpoint_that_is_not_there_any_more_is_an_error(run):
    shutil.rmtree(run / "checkpoint-4")
    with refused(FileNotFoundError, [repr(str(run / "checkpoint-4"))]):
        stage("checkpoint-000004", run, uploads(run), run / "checkpoint-4")
    assert unsent_folders(run) == []


def test_weights_are_those_of_the_output_directory_where_the_checkpoint_is_an_older_one(run):
    write(run / "model.safetensors", b"8" * LARGE)  # a later save, of the same size
    staged = stage("checkpoint-000004", run, uploads(run), run / "checkpoint-4", late=True)
    assert (staged / "model.safetensors").read_bytes() == b"8" * LARGE
    assert (staged / "last-checkpoint" / "model.safetensors").read_bytes() == b"4" * LARGE


def test_a_folder_that_may_not_be_read_is_passed_over_and_no_other_fault(run, monkeypatch):
    def refuse(code):
        def scandir(path, real=os.scandir):
            if str(path).endswith("lost+found"):
                raise OSError(code, "refused", str(path))
            return real(path)

        return scandir

    (run / "lost+found").mkdir()
    with monkeypatch.context() as patched:  # root, whom CI may be, may read everything
        patched.setattr(os, "scandir", refuse(errno.EACCES))
        assert "model.safetensors" in contents(stage("one", run, uploads(run), run / "checkpoint-4"))
        patched.setattr(os, "scandir", refuse(errno.EIO))
        with refused(OSError, ["[Errno 5]", "lost"]):
            stage("two", run, uploads(run), run / "checkpoint-4")


def test_the_last_folder_that_is_discarded_takes_the_staging_area_along(run):
    first = stage("checkpoint-000004", run, uploads(run), run / "checkpoint-4")
    second = stage("model-000004", run, uploads(run), None)
    discard(first)
    assert (run / "_hub").is_dir()
    discard(second)
    assert not (run / "_hub").exists()
    assert unsent_folders(run) == []
