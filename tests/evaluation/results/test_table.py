"""`results.json` is checked when it is read; its table stands beside the paper's figures only where they compare."""

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.refusals import refused, says
from trl_vade.errors import EvaluationError
from trl_vade.evaluation.benchmarks import BENCHMARKS, FIVE, PAPER
from trl_vade.evaluation.results.table import Results, digest_of, read_results


def results_of(*names, seeds=(0, 1), model="Qwen2.5-VL-7B-Instruct", limit=None, judge=None, decoding=None, **parts):
    """A `results.json` in which the i-th benchmark has the mean 10 * (i + 1) and the standard error 0.5."""
    error = 0.5 if len(seeds) > 1 else None
    run = {"score": 10.0, "questions": 4, "unscored": 0, "results_file": "r", "unreadable_verdicts": 0}
    benchmarks = {
        name: {
            **{key: getattr(BENCHMARKS[name], key) for key in ("title", "task", "metric", "dataset", "scorer")},
            "decoding": decoding or ("greedy" if BENCHMARKS[name].greedy else "temperature 0.6"),
            **{"questions": 4, "mean": 10.0 * number, "stderr": error, "identical_runs": False},
            "runs": [{"seed": seed, **run} for seed in seeds[: 1 if BENCHMARKS[name].greedy and not decoding else 99]],
        }
        for number, name in enumerate(names, 1)
    }
    for name, changes in parts.items():
        benchmarks[name] |= changes
    return {
        "format": 2,
        "model": {"name": model, "revision": None, "fingerprint": "ab"},
        **{"backend": "transformers", "seeds": list(seeds), "limit": limit},
        "generation": {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "max_new_tokens": 64, "repetition_penalty": 1.0},
        **{"system_prompt": None, "instruction": None, "data": {"testbed": "my-folder"}, "judge": judge},
        **{"command": "trl-vade evaluate", "versions": {}, "started": "2026", "finished": "2026"},
        "benchmarks": benchmarks,
        "average": {"of": list(names), "mean": 5.0 * (len(names) + 1), "stderr": error},
    }


def cells(table):
    """The rows of a Markdown table, without the line below its head, and the lines that follow."""
    lines = table.split("\n")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    assert [row[0] for row in rows[2:5]] == ["Questions", "Decoding", "Scorer"]
    return [rows[0], *rows[5:]], [line for line in lines if line and not line.startswith("|")]


# ---------------------------------------------------------------------------------- the table


def as_results(content):
    return Results(content)


def test_all_five_stand_beside_the_papers_rows_of_the_models_size():
    rows, notes = cells(as_results(results_of(*FIVE)).table())
    assert rows[0] == ["Model", *(BENCHMARKS[name].title for name in FIVE), "Average"]
    model = ["Qwen2.5-VL-7B-Instruct"]
    assert rows[1] == [*model, *(f"{mean}.00 ± 0.50" for mean in (10, 20, 30, 40, 50)), "30.00 ± 0.50"]
    assert rows[2] == ["Qwen2.5-VL-7B-Instruct, base (paper)", "69.30", "40.36", "18.55", "84.53", "80.40", "58.63"]
    assert [row[0] for row in rows[3:]] == [
        f"Qwen2.5-VL-7B-Instruct, {algorithm}, {method} (paper)"
        for algorithm in ("GRPO", "GSPO")
        for method in ("vanilla", "DAPO", "VADE")
    ]
    assert [row[-1] for row in rows[2:]] == ["58.63", "61.82", "63.67", "64.75", "62.56", "64.37", "64.57"]
    assert not [line for line in notes if "averages" in line or "not comparable" in line]


def test_the_papers_rows_are_of_the_size_that_the_models_name_says():
    sizes = {"you/qwen2.5-vl-3b-vade": {"3B"}, "Qwen2.5-VL-7B-Instruct": {"7B"}}
    sizes |= {name: {"7B", "3B"} for name in ("Qwen2.5-VL-72B-Instruct", "Some-1.7B", "checkpoint-100")}
    for model, of_size in sizes.items():
        rows, _ = cells(as_results(results_of("chartqa", model=model)).table())
        assert {row[0].split("-")[2] for row in rows[2:]} == of_size
        assert len(rows[2:]) == 7 * len(of_size)


@given(st.lists(st.sampled_from(FIVE), min_size=2, max_size=4, unique=True))
def test_over_fewer_than_five_the_papers_average_is_over_the_same(names):
    rows, notes = cells(as_results(results_of(*names, model="x")).table())
    assert rows[0][-1] == f"Average of these {len(names)}"
    for row, paper in zip(rows[2:], PAPER, strict=True):
        figures = [paper.scores[FIVE.index(name)] for name in names]
        assert row[1:-1] == [f"{figure:.2f}" for figure in figures]
        assert float(row[-1]) == pytest.approx(sum(figures) / len(figures), abs=0.00501)
    assert says(" ".join(notes), ", ".join(names))
    assert says(" ".join(notes), "5")


def test_a_single_benchmark_has_no_average_beside_it():
    rows, notes = cells(as_results(results_of("chartqa", model="x")).table())
    assert rows[0] == ["Model", "ChartQA (test)"]
    assert rows[2][1:] == ["80.40"]
    assert "average" not in " ".join(notes[1:]).replace("average@4", "")


def test_a_column_that_the_paper_does_not_have_is_empty_there_and_so_is_the_average():
    rows, notes = cells(as_results(results_of("chartqa", "mathvision_rules")).table())
    assert rows[2][1:] == ["80.40", "-", "-"]
    assert [note for note in notes if "average" in note and "paper" in note]


def test_without_a_benchmark_of_the_paper_none_of_its_rows_is_there():
    rows, notes = cells(as_results(results_of("testbed", "mixture")).table())
    assert len(rows) == 2
    assert "paper" not in " ".join(notes)


def test_one_run_has_no_standard_error():
    rows, notes = cells(as_results(results_of("chartqa", seeds=(7,))).table())
    assert rows[1][1:] == ["10.00"]
    assert notes[0] == "* Per cent, average@1: one run, seed 7."


def test_the_lines_below_say_what_the_figures_are_of():
    judge = {"model": "my-judge", "url": "http://secret-host:8000/v1"}
    runs = [{"seed": seed, "unscored": 2, "unreadable_verdicts": 3} for seed in (0, 1)]
    parts = {"testbed": {"dataset": None, "identical_runs": True, "runs": runs}}
    table = Results(results_of("chartqa", "testbed", limit=8, judge=judge, **parts)).table()
    _, notes = cells(table)
    assert notes[:6] == [
        "* Per cent, average@2: mean ± standard error of the mean over 2 runs (seeds 0, 1).",
        "* ChartQA (test): `relaxed_overall`, questions of lmms-lab-encoder/ChartQA.",
        "* Testbed (validation): `exact_answer`, questions of the embedded data set; 2 more have an unreadable "
        "reference.",
        "* Only the first 8 questions of each benchmark.",
        "* Judge: my-judge. The paper's judge is Qwen2.5-72B-Instruct. 6 of its answers had no verdict and count as "
        "wrong.",
        "* All runs of Testbed (validation) gave the same texts: they are not independent runs.",
    ]
    # A table is made to be shown; an address of a network is not.
    assert "secret-host" not in table


def test_the_papers_own_judge_is_not_named_twice():
    table = as_results(
        results_of("mathverse", judge={"model": "Qwen/Qwen2.5-72B-Instruct-AWQ", "url": "http://h"})
    ).table()
    assert table.count("Qwen2.5-72B-Instruct") == 1


# ---------------------------------------------------------------------------------- lines of a card


# ---------------------------------------------------------------------------------- results.json


WRITTEN = results_of("chartqa", "testbed", judge={"model": "j", "url": "u"})
WRITTEN["digest"] = digest_of(WRITTEN)


def test_results_are_read_as_they_were_written(tmp_path):
    (tmp_path / "results.json").write_text(json.dumps(WRITTEN))
    assert read_results(tmp_path).content == WRITTEN
    (tmp_path / "results.json").write_text(json.dumps(WRITTEN | {"command": "without local paths"}))
    assert read_results(tmp_path)["seeds"] == WRITTEN["seeds"]


def test_results_that_are_not_there_are_refused_with_what_to_do(tmp_path):
    with refused(EvaluationError, [tmp_path / "results.json"], ["command again"]):
        read_results(tmp_path)


def test_no_prefix_of_results_is_taken_for_them(tmp_path):
    content = json.dumps(WRITTEN)
    for length in range(0, len(content), 7):
        (tmp_path / "results.json").write_text(content[:length])
        with refused(EvaluationError, [tmp_path / "results.json", "JSON"]):
            read_results(tmp_path)


def test_a_figure_that_another_program_changed_or_removed_is_refused(tmp_path):
    for *path, last in (("seeds",), ("benchmarks", "chartqa", "mean"), ("benchmarks", "chartqa", "runs", 0, "score")):
        for value in (..., 99.0, True):
            results = part = copy.deepcopy(WRITTEN)
            for key in path:
                part = part[key]
            part[last] = value
            if value is ...:
                del part[last]
            (tmp_path / "results.json").write_text(json.dumps(results))
            with refused(EvaluationError, [tmp_path / "results.json", "digest"]):
                read_results(tmp_path)


def test_what_is_of_no_known_format_is_refused(tmp_path):
    for results in ([], None, {}, {"format": 1}, {"format": "2"}, "text"):
        (tmp_path / "results.json").write_text(json.dumps(results))
        with refused(EvaluationError, [tmp_path / "results.json", "format"], ["2"]):
            read_results(tmp_path)
