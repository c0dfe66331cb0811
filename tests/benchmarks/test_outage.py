import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(*arguments):
    command = [sys.executable, "-m", "eval.benchmarks.outage", *arguments]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=ROOT)
    assert finished.returncode == 0, finished.stderr[-3000:]
    return finished.stdout


def test_the_table_has_both_arms_and_the_guard_brings_the_error_down_again():
    sizes = ["--rows", "200", "--batch", "20", "--before", "30", "--outage_steps", "8", "--after", "20"]
    arguments = [*sizes, "--seeds", "0", "1", "--rules", "symmetric gain", "--drift", "0.02"]
    printed = run(*arguments)
    assert run(*arguments) == printed
    title, _, *table = printed.splitlines()
    assert "Outage of 8 generation batches after 30; 200 rows, 20 x 8" in title
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    assert {len(cells) for cells in rows} == {14}
    names = [cells[:3] for cells in rows[2:]]
    assert names == [[f"all {value}", "symmetric gain", arm] for value in (0, 1) for arm in ("on", "off")]
    figures = [dict(zip(rows[0][3:], cells[3:], strict=True)) for cells in rows[2:]]
    for guarded, plain in (figures[:2], figures[2:]):
        for column in ("before", "error before"):
            assert guarded[column] == plain[column]  # nothing differs before the outage begins
        assert guarded["outage batches observed"] == "0.0 (0 to 0)"
        assert float(guarded["10 later"].split()[0]) < 0.8 * float(plain["10 later"].split()[0])
