"""Every case of `python -m eval.benchmarks.faults`, in its shortened form; `-m slow` has the kills and the rest."""

from pathlib import Path

import pytest

from eval.benchmarks.faults import __main__ as faults
from eval.benchmarks.faults import bench as benches
from eval.benchmarks.faults.bench import Result
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
@pytest.mark.parametrize("name", ["kinds", "resumes"])
def test_each_kind_of_run_survives(bench, name):
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
    """A checkpoint whose weights were overwritten, as no kill does it, is found; and so is a run that is refused."""
    runs = KilledRuns(bench, max_steps=2, save_total_limit=None)
    weights = runs.undisturbed / "checkpoint-2" / "model.safetensors"
    weights.write_bytes(b"\0" * weights.stat().st_size)
    runs.look(runs.undisturbed)
    assert "LOST kill 1: SafetensorError" in runs.result("kill").note
    for weights in runs.undisturbed.glob("checkpoint-*/model.safetensors"):
        weights.unlink()
    kind, content, _ = runs.live(runs.undisturbed)
    runs.compare(kind, content)
    row = runs.result("kill")
    assert (row.tries, row.survived, row.lost) == (1, 0, 1)
    assert "LOST the run after kill 1: raised: CheckpointIncompleteError" in row.note
