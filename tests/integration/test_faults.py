"""Every case of `python -m eval.benchmarks.faults`, in its shortened form."""

import pytest

from eval.benchmarks.faults import cases as faults
from eval.benchmarks.faults.disks import WriteProtected
from eval.benchmarks.faults.kills import KilledRuns

WHOLE = "all checkpoints that look complete are whole"
REFUSED = "CheckpointSaveError, and the checkpoint before goes on to the undisturbed end"
CASES = {  # the tries, of which nothing may be lost, and what is said of them
    "kill-in-second-save": (3, WHOLE),
    "kill-random": (6, WHOLE),
    "kill-in-save": (6, WHOLE),
    "kill-pushing": (3, ""),
    "disk-full": (4, REFUSED),
    "permission": (4, REFUSED),
    "reward": (7, "3 x stopped before an update, and once mended goes on to the undisturbed end; 3 x the run goes on"),
    "rows": (5, "the run comes to its end and says what it sees"),
    "outage": (5, "3 x the posterior is that of before the outage, and exact"),
    "hostile": (27, ""),
    "processes": (4, ""),
    **dict.fromkeys(("kinds", "resumes", "checkpoint-files", "log"), (None, "")),
}


@pytest.fixture(scope="module")
def bench():
    with faults.bench(quick=True) as bench:
        yield bench


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_nothing_is_lost(bench, name):
    (row,) = faults.run_case(name, bench)
    tries, note = CASES[name]
    assert (row.survived, row.lost) == (row.tries, 0), row.note
    assert row.tries == tries or (tries is None and row.tries >= 4)
    assert note in row.note


@pytest.mark.slow
def test_whatever_the_hub_does_to_a_run_that_pushes_nothing_is_lost(bench):
    passing, lasting = rows = faults.run_case("hub", bench)
    assert [(row.tries, row.lost) for row in rows] == [(4, 0), (3, 0)], [row.note for row in rows]
    assert passing.note == "the newest state and its posterior are on the Hub, and it was said"
    assert "another start brings the newest state to the Hub" in lasting.note


@pytest.mark.slow
def test_a_kill_that_loses_something_counts(bench):
    """A checkpoint whose weights were overwritten, as no kill does it, is found."""
    runs = KilledRuns(bench, max_steps=2, save_total_limit=None)
    weights = runs.undisturbed / "checkpoint-2" / "model.safetensors"
    weights.write_bytes(b"\0" * weights.stat().st_size)
    runs.look(runs.undisturbed)
    row = runs.result("kill")
    assert (row.tries, row.survived, row.lost) == (1, 0, 1)
    assert "LOST kill 1: SafetensorError" in row.note


def may_write(directory):
    try:
        (directory / "file").touch()
        (directory / "file").unlink()
    except PermissionError:
        return False
    return True


def test_the_right_to_write_comes_back(tmp_path):
    """A test that took it from all that follow would be worse than none."""
    before = may_write(tmp_path)
    with WriteProtected(tmp_path):
        assert not may_write(tmp_path)
    assert may_write(tmp_path) is before
