"""Every case of `python -m eval.benchmarks.faults`, in its shortened form; `-m slow` has the kills and the rest."""

import subprocess
import sys
from pathlib import Path

import pytest

from eval.benchmarks.faults import __main__ as faults
from eval.benchmarks.faults import bench as benches
from eval.benchmarks.faults.bench import Result
from eval.benchmarks.faults.disks import WriteProtected
from eval.benchmarks.faults.kills import KilledRuns

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def bench():
    with faults.bench(quick=True) as bench:
        yield bench


def survived(bench, name, tries):
    """The row of a case, of which nothing may be lost."""
    (row,) = faults.run_case(name, bench)
    assert (row.tries, row.survived, row.lost) == (tries, tries, 0), row.note
    return row


@pytest.mark.slow
@pytest.mark.parametrize(("name", "tries"), [("kill-random", 6), ("kill-in-save", 6), ("kill-in-second-save", 3)])
def test_a_run_killed_again_and_again_comes_to_the_end_of_the_one_that_was_not(bench, name, tries):
    row = survived(bench, name, tries)
    assert "all checkpoints that look complete are whole" in row.note
    assert " 0 runs came to the end" not in row.note


@pytest.mark.slow
@pytest.mark.parametrize("name", ["disk-full", "permission"])
def test_where_nothing_can_be_written_the_run_stops_with_an_error_and_the_checkpoint_before_is_whole(bench, name):
    row = survived(bench, name, 4)
    assert row.note == "CheckpointSaveError, and the checkpoint before goes on to the undisturbed end"


def may_write(directory):
    try:
        (directory / "file").touch()
        (directory / "file").unlink()
    except PermissionError:
        return False
    return True


def test_the_right_to_write_comes_back(tmp_path):
    """A test that took it from all that follow would be worse than none."""
    protected = tmp_path / "protected"
    protected.mkdir(mode=0o555)
    before = may_write(protected)  # root may, as a rule
    with WriteProtected(tmp_path):
        assert not may_write(tmp_path)
        assert not may_write(protected)
    assert may_write(tmp_path)
    assert may_write(protected) is before


@pytest.mark.slow
def test_a_reward_function_that_misbehaves_stops_the_run_or_is_left_out_of_the_posterior(bench):
    row = survived(bench, "reward", 6)
    assert row.note == (
        "3 x stopped before an update, and once mended goes on to the undisturbed end; "
        "3 x the run goes on; no score is no trial"
    )


@pytest.mark.slow
def test_a_reward_outage_does_not_poison_the_posterior(bench):
    row = survived(bench, "outage", 5)
    assert "3 x the posterior is that of before the outage, and exact" in row.note


@pytest.mark.slow
def test_whatever_the_hub_does_to_a_run_that_pushes_nothing_is_lost(bench):
    passing, lasting = rows = faults.run_case("hub", bench)
    assert [(row.tries, row.lost) for row in rows] == [(4, 0), (3, 0)], [row.note for row in rows]
    assert passing.note == "the newest state and its posterior are on the Hub, and it was said"
    assert "another start brings the newest state to the Hub" in lasting.note


@pytest.mark.slow
def test_nothing_is_lost_of_pushes(bench):
    survived(bench, "kill-pushing", 3)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["kinds", "resumes", "checkpoint-files"])
def test_each_kind_of_run_and_each_file_of_a_checkpoint_survives(bench, name):
    (row,) = faults.run_case(name, bench)
    assert row.tries >= 4
    assert row.lost == 0, row.note


# ------------------------------------------------------------------------------------------------ the bench itself


def test_a_try_that_fails_is_lost_and_named():
    def raises():
        raise OSError("no room")

    row = benches.tally("case", {"a": lambda: "fine", "b": raises, "c": lambda: "fine"})
    assert row == Result("case", 3, 2, 1, "2 x fine; LOST b: OSError: no room")


def test_a_run_that_ends_elsewhere_is_told_from_the_undisturbed_one():
    with pytest.raises(AssertionError, match="another weights than"):
        benches.expect_equal({"step": "6", "weights": "a"}, {"step": "6", "weights": "b"})


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


def test_the_table_has_a_line_for_each_row_and_its_words_at_the_end():
    lines = faults.table([Result("kill -9", 50, 49, 1, "LOST one"), Result("disk full", 4, 4, 0, "fine")]).splitlines()
    assert lines[0].split() == ["case", "tries", "survived", "lost", "what", "happened"]
    assert lines[1].endswith("50        49       1  LOST one")
    assert lines[2].startswith("disk full  ")


@pytest.mark.slow
def test_the_report_is_one_command_and_its_status_says_whether_anything_was_lost():
    command = [sys.executable, "-m", "eval.benchmarks.faults", "--report", "--quick", "--only", "permission"]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert finished.returncode == 0, finished.stderr[-3000:]
    assert "permission denied" in finished.stdout
    assert "4 tries, 0 lost" in finished.stdout


@pytest.mark.slow
def test_a_run_that_is_refused_where_it_should_go_on_counts(bench):
    runs = KilledRuns(bench, max_steps=2, save_total_limit=None)
    runs.look(runs.undisturbed)
    for weights in runs.undisturbed.glob("checkpoint-*/model.safetensors"):
        weights.unlink()
    kind, content, _ = runs.live(runs.undisturbed)
    runs.compare(kind, content)
    row = runs.result("kill")
    assert (row.tries, row.survived, row.lost) == (1, 0, 1)
    assert "LOST the run after kill 1: raised: CheckpointIncompleteError" in row.note
