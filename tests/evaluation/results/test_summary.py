"""What is made of the runs: means, errors, results.json and results.md."""

import math
import random
import statistics
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.evaluations import write_run
from tests.support.refusals import refused
from trl_vade.errors import EvaluationError
from trl_vade.evaluation.benchmarks import BENCHMARKS
from trl_vade.evaluation.results.runs import Run, read_run, run_folder
from trl_vade.evaluation.results.summary import summarise_runs, write_results
from trl_vade.evaluation.results.table import read_results

TIME = "20260801_120000"
SCORES = [1.0, 0.0, 1.0, 1.0]
SAMPLED = dict.fromkeys(BENCHMARKS, "temperature 1")
TEXTS = ["<answer>4</answer>", "Yes", "no\u2028and \u0085 more", "\u00e9"]


# ---------------------------------------------------------------------------------- what is made of the runs


def a_run(name, seed, score, **changes):
    benchmark = BENCHMARKS[name]
    run = Run(benchmark, seed, score, 4, 0, Path(f"runs/{name}-seed{seed}/r.json"), 0, str(seed), {})
    return replace(run, **changes)


per_cent = st.floats(0, 100)


@given(
    scores=st.integers(1, 5).flatmap(
        lambda seeds: st.dictionaries(
            st.sampled_from(sorted(BENCHMARKS)), st.lists(per_cent, min_size=seeds, max_size=seeds), min_size=1
        )
    ),
    chance=st.randoms(use_true_random=False),
)
def test_means_and_standard_errors_are_those_of_the_runs_in_whatever_order_they_come(scores, chance):
    count = len(next(iter(scores.values())))
    seeds = chance.sample(range(100), count)
    runs = [a_run(name, seed, score) for name in scores for seed, score in zip(seeds, scores[name], strict=True)]
    summary = summarise_runs(runs, seeds, SAMPLED)
    assert summary == summarise_runs(random.Random(count).sample(runs, len(runs)), seeds, SAMPLED)
    assert summary["average"]["of"] == list(summary["benchmarks"]) == [name for name in BENCHMARKS if name in scores]

    averages = [statistics.mean(column) for column in zip(*scores.values(), strict=True)]
    for part, values in [*((summary["benchmarks"][n], scores[n]) for n in scores), (summary["average"], averages)]:
        assert part["mean"] == pytest.approx(statistics.mean(values), abs=1e-9)
        if count == 1:
            assert part["stderr"] is None
        else:
            assert part["stderr"] == pytest.approx(statistics.stdev(values) / math.sqrt(count), abs=1e-9)


def test_the_averages_error_is_over_the_averages_of_the_seeds():
    """Two benchmarks that move against each other: their average does not move at all."""
    runs = [a_run("chartqa", 0, 60), a_run("chartqa", 1, 80), a_run("testbed", 0, 40), a_run("testbed", 1, 20)]
    summary = summarise_runs(runs, [0, 1], SAMPLED)
    assert summary["average"] == {"of": ["chartqa", "testbed"], "mean": 50.0, "stderr": 0.0}
    assert summary["benchmarks"]["chartqa"]["stderr"] == pytest.approx(10.0)


def test_a_greedy_benchmark_has_one_run_which_counts_for_each_seed():
    runs = [a_run("chartqa", 0, 60), a_run("mathverse", 0, 40), a_run("mathverse", 1, 20)]
    summary = summarise_runs(runs, [0, 1], SAMPLED | {"chartqa": "greedy, repetition penalty 1"})
    assert summary["benchmarks"]["chartqa"]["stderr"] is None
    assert (summary["average"]["mean"], summary["average"]["stderr"]) == (45.0, pytest.approx(5.0))
    with refused(EvaluationError, ["chartqa", "[0, 1]", "[0]"]):
        summarise_runs([*runs, a_run("chartqa", 1, 60)], [0, 1], SAMPLED | {"chartqa": "greedy"})


@pytest.mark.parametrize(("digests", "identical"), [("aa", True), ("ab", False), ("a", False)])
def test_runs_that_gave_the_same_texts_are_told(digests, identical):
    runs = [a_run("chartqa", seed, 60, texts_digest=digest) for seed, digest in enumerate(digests)]
    summary = summarise_runs(runs, range(len(digests)), SAMPLED)
    assert summary["benchmarks"]["chartqa"]["identical_runs"] is identical


def test_runs_that_make_no_mean_are_refused():
    first, second = a_run("chartqa", 0, 1), a_run("chartqa", 1, 1)
    for runs in ([], [first], [first, second, second], [first, replace(second, questions=5)]):
        with refused(EvaluationError):
            summarise_runs(runs, [0, 1], SAMPLED)


FACTS = {
    "model": {"name": "Qwen2.5-VL-7B-Instruct", "revision": None, "fingerprint": "ab"},
    "backend": "transformers",
    "seeds": [0, 1],
    "limit": None,
    "decoding": SAMPLED,
    "generation": {"temperature": 1.0, "top_p": 1, "top_k": -1, "max_new_tokens": 2048, "repetition_penalty": 1.0},
    "system_prompt": None,
    "instruction": "Think.",
    "data": {"testbed": "testbed-folder"},
    "judge": {"model": "Qwen/Qwen2.5-72B-Instruct", "url": "http://host:8000/v1"},
    "command": "trl-vade evaluate",
    "versions": {"lmms-eval": "0.7.3"},
    "started": "2026-08-01T12:00:00+00:00",
    "finished": "2026-08-01T13:00:00+00:00",
}


def test_results_are_written_from_the_folders_of_the_runs_and_read_again(tmp_path):
    runs = []
    for name in ("testbed", "mathvista"):
        for seed in (1, 0):
            folder = run_folder(tmp_path, BENCHMARKS[name], seed)
            write_run(folder, name, seed, scores=[1.0, float(seed)])
            runs.append(read_run(folder, BENCHMARKS[name], seed, None))
    results = write_results(tmp_path, FACTS, runs)
    assert read_results(tmp_path) == results
    facts = {name: value for name, value in FACTS.items() if name != "decoding"}
    assert results.content == {"format": 2, **facts, **summarise_runs(runs, [0, 1], SAMPLED), **results.content}
    mathvista = results["benchmarks"]["mathvista"]
    assert (mathvista["mean"], mathvista["stderr"], mathvista["questions"]) == (75.0, 25.0, 2)
    assert (mathvista["metric"], mathvista["dataset"]) == ("llm_as_judge_eval", "AI4Math/MathVista")
    for part in results["benchmarks"].values():
        for run in part["runs"]:
            assert (tmp_path / run["results_file"]).is_file()
            assert not Path(run["results_file"]).is_absolute()
    assert "75.00 ± 25.00" in (tmp_path / "results.md").read_text(encoding="utf-8")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["results.json", "results.md", "runs"]


def test_a_folder_of_the_users_is_not_taken_for_the_data_set_of_the_hub(tmp_path):
    runs = [a_run("chartqa", seed, 50) for seed in (0, 1)]
    assert write_results(tmp_path, FACTS, runs)["benchmarks"]["chartqa"]["dataset"] == "lmms-lab-encoder/ChartQA"
    results = write_results(tmp_path, {**FACTS, "data": {"chartqa": "mine"}}, runs)
    assert results["benchmarks"]["chartqa"]["dataset"] is None
