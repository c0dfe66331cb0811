"""The benchmark of choosing: its contenders do what they say, and a whole one in small. No timing is tested."""

import copy
import json
from itertools import pairwise

import numpy as np
import pytest

from eval.benchmarks.selection import __main__ as benchmark
from eval.benchmarks.selection import precision, tables, workers
from eval.benchmarks.selection.contenders import CONTENDERS, Loop
from eval.benchmarks.selection.evidence import STEP, evidence, num_visited

OURS, NUMPY = CONTENDERS["ours"], CONTENDERS["numpy"]
REDRAWS = [CONTENDERS[name] for name in ("numpy", "numpy gamma", "loop")]


def counts(contender):
    """(2, N) alpha and beta now."""
    if isinstance(contender, Loop):
        return np.array([(prompt.alpha, prompt.beta) for prompt in contender.prompts]).T
    held = contender.sampler.posterior if isinstance(contender, OURS) else contender
    return np.array([held.alpha, held.beta])


@pytest.mark.parametrize("percent", [0.1, 10.0, 100.0])
def test_evidence_is_what_a_run_can_have_of_the_share_of_rows_asked_for(percent):
    [part] = evidence(9471, percent, 0)
    assert part.rows.size == num_visited(9471, percent) == int(9471 * percent / 100)
    assert (np.diff(part.rows) > 0).all()
    assert 0 <= part.rows[0] <= part.rows[-1] < 9471
    np.testing.assert_allclose(part.alpha + part.beta, 8 * (1 - 0.2**part.visits) / 0.8)
    assert ((part.last_update > STEP - 1001) & (part.last_update <= STEP)).all()


def test_evidence_comes_in_parts_that_go_on_where_the_last_one_ended():
    parts = list(evidence(3_000_000, 50, 0))
    assert [part.rows.size for part in parts] == [2**20, 1_500_000 - 2**20]
    assert parts[0].rows[-1] < parts[1].rows[0]


@pytest.mark.parametrize("percent", ["0", "30", "200", "-1"])
def test_a_share_that_is_not_one_row_in_a_whole_number_is_refused(percent, capsys):
    with pytest.raises(SystemExit):
        benchmark.parse(["--visited", percent])
    assert "take 100, 50, 10, 1 or 0.1" in capsys.readouterr().err


@pytest.mark.parametrize("kind", REDRAWS)
def test_a_redraw_takes_the_best_of_the_pass_rates_that_it_drew(kind):
    contender = kind(500, 10, 3)
    twin = copy.deepcopy(contender)
    if kind is Loop:
        p = np.array([twin.generator.betavariate(row.alpha + 1, row.beta + 1) for row in twin.prompts])
    else:
        p = twin.pass_rates()
    assert contender.draw(20).tolist() == np.argsort(-p * (1 - p) ** 2)[:20].tolist()


@pytest.mark.parametrize("kind", REDRAWS)
def test_decay_of_every_row_in_every_step_is_ours_which_waits(kind):
    ours, other, generator = OURS(300, 10, 0), kind(300, 10, 0), np.random.default_rng(1)
    np.testing.assert_allclose(counts(other), counts(ours), rtol=1e-5)
    for _ in range(30):
        rows, successes = generator.choice(300, 20, replace=False), generator.integers(9, size=20)
        ours.observe(rows, successes)
        other.observe(rows, successes)
    np.testing.assert_allclose(counts(other), counts(ours), rtol=1e-5)


@pytest.mark.parametrize("kind", REDRAWS)
def test_all_choose_from_the_same_distribution(kind):
    """300 draws of 40 rows of 1,000, of which half have evidence: the share of those, and the counts of the chosen."""
    known = np.isin(np.arange(1000), next(evidence(1000, 50, 0)).rows)
    figures = []
    for contender in (OURS(1000, 50, 0), kind(1000, 50, 0)):
        alpha, beta = counts(contender)
        draws = [contender.draw(40) for _ in range(300 if kind is not Loop else 100)]
        assert all(len(set(rows.tolist())) == 40 for rows in draws)
        figures.append([[known[rows].mean(), alpha[rows].mean(), beta[rows].mean()] for rows in draws])
    ours, theirs = (np.array(figure) for figure in figures)
    error = np.sqrt(ours.var(axis=0) / len(ours) + theirs.var(axis=0) / len(theirs))
    assert (np.abs(ours.mean(axis=0) - theirs.mean(axis=0)) < 4 * error).all()


@pytest.mark.parametrize("kind", [OURS, *REDRAWS])
def test_what_was_saved_is_loaded(kind, tmp_path):
    contender = kind(300, 10, 0)
    contender.observe(contender.draw(20), np.arange(20) % 9)
    before = counts(contender)
    contender.save(tmp_path)
    contender.observe(contender.draw(20), np.arange(20) % 9)
    contender.load(tmp_path)
    np.testing.assert_array_equal(counts(contender), before)


def test_torch_is_as_the_others(tmp_path):
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    try:
        contender, numpy = CONTENDERS["torch"](300, 10, 0), NUMPY(300, 10, 0)
        with torch.random.fork_rng():
            torch.manual_seed(5)
            p = torch._standard_gamma(contender.alpha + 1)
            p /= p + torch._standard_gamma(contender.beta + 1)
            torch.manual_seed(5)
            rows = contender.draw(20)
        assert rows.tolist() == torch.argsort(-p * (1 - p) ** 2)[:20].tolist()
        contender.observe(rows, np.arange(20) % 9)
        numpy.observe(rows, np.arange(20) % 9)
        np.testing.assert_allclose(counts(contender), counts(numpy), rtol=1e-5)
        before = counts(contender)
        contender.save(tmp_path)
        contender.load(tmp_path)
        contender.save(tmp_path)  # over the file that it was read from
        np.testing.assert_array_equal(counts(contender), before)
    finally:
        torch.set_num_threads(threads)


def test_memory_is_what_the_state_adds(tmp_path):
    bench = workers.Bench("numpy", tmp_path)
    bench.build(1_000_000, 1, 0)
    drawn = bench.draw(10)
    if drawn["peak_bytes"] is None:
        pytest.skip("no /proc")
    bench.observe()
    assert 12e6 < bench.held()["state_bytes"] < 24e6  # alpha and beta
    assert drawn["peak_bytes"] > 30e6  # and at least the pass rates and the gains


def test_a_whole_benchmark_in_small(tmp_path, capsys):
    flags = ["--rows", "1e3", "--visited", "100", "--contenders", "ours", "numpy", "loop", "--loop_rows", "500"]
    flags += ["--repeats", "2", "--batch", "16", "--directory", str(tmp_path)]
    benchmark.main([*flags, "--output", str(tmp_path / "figures.json")])
    table = capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["figures.json"]  # the states are gone
    ours, numpy, loop = json.loads((tmp_path / "figures.json").read_text())["cells"]
    for cell in (ours, numpy):
        assert [len(cell[verb]) for verb in tables.VERBS] == [2, 2, 2, 2]
        assert cell["failed"] is None
        assert cell["file_bytes"] > 16_000  # 1,000 rows of two float64 and more
    assert not set(tables.VERBS) & set(loop)
    rows = [[cell.strip() for cell in line.split("|")] for line in table.splitlines() if line.startswith("| 1,000")]
    assert [row[1:3] for row in rows] == [["1,000", "100 %"]] * 8
    assert all("-" not in row[3:5] and row[5] == "-" for row in rows)
    assert "loop, 1,000 rows: more than --loop_rows 500" in table
    benchmark.main(["--from", str(tmp_path / "figures.json"), "--picture", str(tmp_path / "picture.png")])
    assert capsys.readouterr().out.strip() in table
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_runs_of_several_sizes_are_read_as_one(tmp_path, capsys):
    for rows in (1000, 2000):
        cell = {"rows": rows, "percent": 1.0, "contender": "ours", "draw": [0.5]}
        (tmp_path / f"{rows}.json").write_text(json.dumps({"cells": [cell]}))
    benchmark.main(["--from", str(tmp_path / "1000.json"), str(tmp_path / "2000.json")])
    first = capsys.readouterr().out.split("\n\n")[0].splitlines()
    assert [line.split("|")[1].strip() for line in first[2:]] == ["1,000", "2,000"]
    assert all("500 ms (500 to 500)" in line for line in first[2:])


class Stand:
    """A worker that is no process: the verbs that it knows take a second."""

    asked = []

    def __init__(self, name, directory):
        self.name = name

    def ask(self, verb, *arguments):
        self.asked.append((self.name, verb))
        if self.name == "torch" and verb == "save":
            raise workers.ContenderError("save: the process ended with -9")
        return {"state_bytes": 5e6} if verb == "held" else {"seconds": 1.0, "peak_bytes": None}

    def close(self):
        self.asked.append((self.name, "close"))


def test_contenders_take_turns_and_one_that_dies_keeps_what_was_measured(monkeypatch, tmp_path):
    monkeypatch.setattr(benchmark, "Worker", Stand)
    monkeypatch.setattr(Stand, "asked", [])
    options = benchmark.parse(["--contenders", "ours", "torch", "--repeats", "2"])
    ours, torch = benchmark.measure(options, 1000, 10.0, tmp_path)
    draws = [name for name, verb in Stand.asked if verb == "draw"]
    assert draws == ["ours", "torch", "torch", "ours", "ours", "torch"]
    assert [verb for name, verb in Stand.asked if name == "torch"][-2:] == ["save", "close"]
    assert (ours["failed"], len(ours["load"])) == (None, 2)
    assert (torch["failed"], torch["draw"]) == ("save: the process ended with -9", [1.0, 1.0])
    report = tables.report({"cells": [ours, torch]})
    assert "torch, 1,000 rows: save: the process ended with -9" in report
    assert "| 1,000      | 10 %    | 1.00 s (1.00 to 1.00) | -     | -            | -                 |" in report


@pytest.mark.parametrize(
    ("seconds", "printed"),
    [
        ([0.002, 0.001, 0.0123], "2.00 ms (1.00 to 12.3)"),
        ([3.2e-7], "0.320 us (0.320 to 0.320)"),
        ([75.31, 1234.0, 7.0], "75.3 s (7.00 to 1234)"),
        ([], "-"),
        (None, "-"),
    ],
)
def test_seconds_are_the_median_with_the_lowest_and_the_highest(seconds, printed):
    assert tables.spread(seconds) == printed


def test_a_ratio_is_taken_within_a_repeat():
    assert tables.ratio([1.0, 2.0, 30.0], [10.0, 10.0, 10.0]) == "0.200"
    assert tables.ratio([1.0], None) == tables.ratio(None, [1.0]) == "-"


@pytest.mark.parametrize("aware", [False, True])
def test_the_stored_counts_are_close_to_float64(aware):
    result = precision.compare(100_000, 200, 256, 0, aware, check_every=50)
    assert max(result["alpha"][1], result["beta"][1], result["posterior mean"][1]) < 1e-5


def test_steps_of_the_precision_run_have_distinct_rows_of_which_a_changing_part_stays():
    steps = [rows for rows, _ in precision.outcomes(5000, 300, 64, 0)]
    assert all(np.unique(rows).size == 64 for rows in steps)
    stays = [np.isin(rows, before).mean() for before, rows in pairwise(steps)]
    assert min(stays) < 0.1
    assert max(stays) > 0.8
