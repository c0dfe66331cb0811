"""`vade_checkpoint.json`: what a checkpoint folder lacks, and whose it is."""

import json

import pytest

from tests.support.checkpoints import FILES, write_checkpoint
from trl_vade.trainer.checkpoint.folders import JIT_MARK, MARKER_FILE, OWN_FILES, missing_part
from trl_vade.trainer.trained_counts import TrainedCounts

STATE_FILE = "trainer_state.json"


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
    own = name.startswith("vade_posterior")  # what a resume may do without, if `vade_on_mismatch` says so
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
