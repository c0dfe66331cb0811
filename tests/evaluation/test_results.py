"""What is made of the runs: means, errors, `results.json`, and a table beside the paper's."""

import json
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest

from tests.support.evaluations import FACTS
from tests.support.refusals import refused
from trl_vade.errors import ConfigurationError, EvaluationError
from trl_vade.evaluation.benchmarks import BENCHMARKS, FIVE, PAPER, find_benchmarks
from trl_vade.evaluation.results import read_results, table_of, write_results
from trl_vade.evaluation.run_files import Run


def a_run(name, seed, score, **changes):
    run = Run(BENCHMARKS[name], seed, score, 4, 0, Path(f"runs/{name}-seed{seed}/r.json"), 0, {})
    return replace(run, **changes)


def results_of(folder, runs, **facts):
    return write_results(folder, FACTS | facts, [replace(run, results_file=folder / run.results_file) for run in runs])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("results")


def test_the_averages_error_is_over_the_averages_of_the_seeds_and_a_greedy_run_counts_for_each(folder):
    """Two benchmarks that move against each other: their average does not move at all."""
    runs = [a_run("chartqa", 0, 60), a_run("chartqa", 1, 80), a_run("testbed", 0, 40), a_run("testbed", 1, 20)]
    results = results_of(folder, runs)
    assert results["average"] == {"of": ["chartqa", "testbed"], "mean": 50.0, "stderr": 0.0}
    assert results["benchmarks"]["chartqa"]["stderr"] == pytest.approx(10.0)
    results = results_of(folder, [runs[0], *runs[2:]], decoding=FACTS["decoding"] | {"chartqa": "greedy"})
    assert results["benchmarks"]["chartqa"]["stderr"] is None
    assert (results["average"]["mean"], results["average"]["stderr"]) == (45.0, pytest.approx(5.0))


def test_results_are_read_as_they_were_written_and_nothing_else_is(tmp_path):
    runs = [a_run("mathvista", seed, 50, results_file=Path("runs/r.json")) for seed in (0, 1)]
    results = results_of(tmp_path, runs)
    assert read_results(tmp_path) == results
    part = results["benchmarks"]["mathvista"]
    assert (part["metric"], part["dataset"], part["questions"]) == ("llm_as_judge_eval", "AI4Math/MathVista", 4)
    assert [run["results_file"] for run in part["runs"]] == ["runs/r.json"] * 2
    assert (tmp_path / "results.md").read_text(encoding="utf-8").strip() == table_of(results)
    mine = results_of(tmp_path, runs, data={"mathvista": "mine"})
    assert mine["benchmarks"]["mathvista"]["dataset"] is None  # and no data set of the Hub
    (tmp_path / "results.json").write_text(json.dumps(results)[:-9])
    for place in (tmp_path, tmp_path / "nowhere"):
        with refused(EvaluationError, [place / "results.json"], ["command again"]):
            read_results(place)


def table(folder, *names, seeds=(0, 1), model="Qwen2.5-VL-7B-Instruct", **facts):
    """The rows and the notes of a table in which the i-th benchmark has the mean 10 * (i + 1)."""
    runs = [a_run(name, seed, 10 * i) for i, name in enumerate(names, 1) for seed in seeds]
    facts = {"model": FACTS["model"] | {"name": model}, "seeds": list(seeds)} | facts
    lines = table_of(results_of(folder, facts.pop("runs", runs), **facts)).split("\n")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    assert [row[0] for row in rows[2:5]] == ["Questions", "Decoding", "Scorer"]
    return [rows[0], *rows[5:]], [line for line in lines if line and not line.startswith("|")]


def test_all_five_stand_beside_the_papers_rows_of_the_models_size(folder):
    rows, _ = table(folder, *FIVE)
    assert rows[0] == ["Model", *(BENCHMARKS[name].title for name in FIVE), "Average"]
    means = [f"{mean}.00 ± 0.00" for mean in (10, 20, 30, 40, 50, 30)]
    assert rows[1] == ["Qwen2.5-VL-7B-Instruct", *means]
    assert rows[2] == ["Qwen2.5-VL-7B-Instruct, base (paper)", "69.30", "40.36", "18.55", "84.53", "80.40", "58.63"]
    assert [row[-1] for row in rows[2:]] == ["58.63", "61.82", "63.67", "64.75", "62.56", "64.37", "64.57"]
    sizes = {"you/qwen2.5-vl-3b-vade": {"3B"}, "mine": {"7B", "3B"}, "Qwen2.5-VL-72B-Instruct": {"7B", "3B"}}
    for model, of_size in sizes.items():
        rows, _ = table(folder, "chartqa", model=model)
        assert {row[0].split("-")[2] for row in rows[2:]} == of_size


def test_there_is_an_average_and_a_row_of_the_paper_only_where_they_mean_something(folder):
    rows, notes = table(folder, "chartqa", model="x", seeds=(7,))
    assert (rows[0], rows[1][1:], rows[2][1:]) == (["Model", "ChartQA (test)"], ["10.00"], ["80.40"])
    assert notes[0] == "* Per cent, average@1: one run, seeds 7."
    rows, notes = table(folder, "chartqa", "mathvision_rules")
    assert rows[2][1:] == ["80.40", "-", "-"]
    rows, notes = table(folder, "testbed", "mixture")
    assert len(rows) == 2
    assert "paper" not in " ".join(notes)


def test_the_lines_below_say_what_the_figures_are_of(folder):
    judge = {"model": "my-judge", "url": "http://secret-host:8000/v1"}
    runs = [a_run("chartqa", seed, 10, unscored=2, unreadable_verdicts=3) for seed in (0, 1)]
    rows, notes = table(folder, "chartqa", runs=runs, limit=8, judge=judge, data={"chartqa": "mine"})
    assert notes[:4] == [
        "* Per cent, average@2: mean ± standard error of the mean over seeds 0, 1.",
        "* ChartQA (test): `relaxed_overall`, questions of the user's folder mine; 2 more have an unreadable "
        "reference.",
        "* Only the first 8 questions of each benchmark.",
        "* Judge: my-judge. The paper's judge is Qwen2.5-72B-Instruct. 6 of its answers had no verdict and count as "
        "wrong.",
    ]
    assert "secret-host" not in str([rows, notes])  # a table is made to be shown


def test_the_papers_table_has_its_averages():
    assert [round(fmean(scores), 2) for scores in PAPER.values()] == [
        *(58.63, 61.82, 63.67, 64.75, 62.56, 64.37, 64.57),
        *(50.65, 55.56, 58.51, 57.32, 56.01, 55.10, 56.38),
    ]


def test_benchmarks_come_in_the_order_of_the_command_and_each_once_and_no_others_are_known():
    chosen = find_benchmarks(["testbed", "chartqa", "testbed"])
    assert [benchmark.name for benchmark in chosen] == ["testbed", "chartqa"]
    for names in (["chartqa", "charrtqa"], ["ChartQA"], [""], []):
        with refused(ConfigurationError, ["--tasks", *names[-1:]], BENCHMARKS):
            find_benchmarks(names)
