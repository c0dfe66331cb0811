"""Whatever is read back works exactly or is refused with an exception of our own."""

import pytest

from eval.benchmarks.faults import fuzz, fuzz_files


@pytest.mark.parametrize(
    "case",
    [fuzz_files.fuzz_snapshots, fuzz_files.fuzz_selection_logs],
    ids=lambda case: case.__name__,
)
def test_a_damaged_file_loads_exactly_or_is_refused(case, tmp_path):
    result = case(300, 7, tmp_path)
    assert (result.survived, result.lost) == (300, 0), result.note


@pytest.mark.slow
def test_10_000_mutations_lose_nothing(tmp_path):
    results = fuzz.fuzz_everything(10_000, 0, tmp_path)
    assert sum(result.survived for result in results) == 10_000, [result.note for result in results]
