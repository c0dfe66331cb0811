"""A run counts only if its files are whole and agree."""

import json
import math
import shutil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.evaluations import SCORES, TEXTS, results_file, samples_file, save, save_lines, write_run
from tests.support.refusals import refused
from trl_vade.errors import EvaluationError
from trl_vade.evaluation.benchmarks import BENCHMARKS
from trl_vade.evaluation.results.runs import finished_run, question_scores, read_run, run_folder
from trl_vade.evaluation.results.samples import FAILED_REQUEST


def lines_of(path):
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]


def does_not_count(folder, *names, name="chartqa", seed=0, limit=None):
    """The run is refused with the `names` and with what to do, and it is not taken for a finished one."""
    with refused(EvaluationError, [folder, *names], ["same command"]):
        read_run(folder, BENCHMARKS[name], seed, limit)
    assert finished_run(folder, BENCHMARKS[name], seed, limit) is None


# ---------------------------------------------------------------------------------- runs that count


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_whole_run_of_each_benchmark_is_read_in_per_cent(tmp_path, name):
    folder = run_folder(tmp_path, BENCHMARKS[name], 3)
    write_run(folder, name, seed=3)
    run = read_run(folder, BENCHMARKS[name], 3, None)
    assert folder == tmp_path / "runs" / f"{name}-seed3"
    assert (run.benchmark.name, run.seed, run.score, run.questions, run.unscored) == (name, 3, 75.0, 4, 0)
    assert run.scores == {0: 1.0, 1: 0.0, 2: 1.0, 3: 1.0}
    assert run.results_file == results_file(folder)
    assert run.unreadable_verdicts == (2 if BENCHMARKS[name].judged else 0)
    assert finished_run(folder, BENCHMARKS[name], 3, None) == run


def test_a_question_without_a_score_does_not_count(tmp_path):
    write_run(tmp_path / "run", "mixture", scores=[1.0, None, 0.0, None, 1.0])
    run = read_run(tmp_path / "run", BENCHMARKS["mixture"], 0, None)
    assert (run.questions, run.unscored, run.score) == (3, 2, pytest.approx(200 / 3))
    assert run.scores == {0: 1.0, 2: 0.0, 4: 1.0}


def test_the_submission_that_mathverse_writes_is_no_second_results_file(tmp_path):
    write_run(tmp_path / "run", "mathverse")
    (tmp_path / "run" / "submissions").mkdir()
    save(tmp_path / "run" / "submissions" / "mathverse_testmini_results.json", [])
    assert read_run(tmp_path / "run", BENCHMARKS["mathverse"], 0, None).score == 75.0


def test_a_limit_beyond_the_questions_asks_them_all(tmp_path):
    write_run(tmp_path / "run", limit=100)
    assert read_run(tmp_path / "run", BENCHMARKS["chartqa"], 0, 100).questions == 4


def test_the_digest_tells_other_texts_and_not_another_order_of_the_lines(tmp_path):
    digests = []
    for place, texts in [("a", TEXTS), ("b", TEXTS), ("c", ["4", *TEXTS[1:]]), ("d", TEXTS[::-1])]:
        write_run(tmp_path / place, texts=texts)
        if place == "b":  # several processes write their questions one after the other
            save_lines(samples_file(tmp_path / place), lines_of(samples_file(tmp_path / place))[::-1])
        digests.append(read_run(tmp_path / place, BENCHMARKS["chartqa"], 0, None).texts_digest)
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3


def test_the_response_is_the_unfiltered_one_where_lmms_eval_keeps_both(tmp_path):
    digests = []
    for place, response in [("a", ["<think>a</think>4"]), ("b", [["<think>b</think>4"]]), ("c", "<think>a</think>4")]:
        write_run(tmp_path / place)
        lines = lines_of(samples_file(tmp_path / place))
        lines[0]["resps"] = response
        save_lines(samples_file(tmp_path / place), lines)
        digests.append(read_run(tmp_path / place, BENCHMARKS["chartqa"], 0, None).texts_digest)
    assert digests[0] == digests[2] != digests[1]


def test_a_question_counts_with_its_mean_over_the_runs_in_which_it_has_a_score(tmp_path):
    runs = []
    for seed, scores in enumerate([[0.0, 1.0, None, 0.0], [0.0, 1.0, 1.0, 1.0], [0.0, 1.0, 0.0, 0.0]]):
        write_run(tmp_path / f"{seed}", "mixture", seed=seed, scores=scores)
        runs.append(read_run(tmp_path / f"{seed}", BENCHMARKS["mixture"], seed, None))
    assert question_scores(runs) == pytest.approx({0: 0, 1: 100, 2: 50, 3: 100 / 3})
    assert question_scores(runs[::-1]) == question_scores(runs)


# ---------------------------------------------------------------------------------- and those that do not


def test_a_run_that_left_nothing_is_refused(tmp_path):
    does_not_count(tmp_path / "nothing", "`<time>_results.json`")


def test_two_results_files_in_one_folder_are_refused(tmp_path):
    write_run(tmp_path / "run")
    shutil.copy(
        results_file(tmp_path / "run"), results_file(tmp_path / "run").with_name("20260801_130000_results.json")
    )
    does_not_count(tmp_path / "run", "2", "20260801_120000_results.json", "20260801_130000_results.json")


@pytest.mark.parametrize(("file", "word"), [(results_file, "JSON"), (samples_file, "last line")])
def test_no_prefix_of_a_file_is_taken_for_one(tmp_path, file, word):
    write_run(tmp_path / "run")
    path = file(tmp_path / "run")
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        assert finished_run(tmp_path / "run", BENCHMARKS["chartqa"], 0, None) is None, length
    does_not_count(tmp_path / "run", path.name, word)


NOTHING = st.sampled_from([None, True, "x", [], {}, [[]], -1, 10**400, math.nan, math.inf, 1.5])


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(chance=st.randoms(use_true_random=False), value=NOTHING, name=st.sampled_from(["chartqa", "mathvista"]))
def test_whatever_stands_in_the_files_a_run_is_read_or_refused(tmp_path, chance, value, name):
    """Any value anywhere may be another one: there is no other exception, and no figure out of range."""
    folder = tmp_path / "run"
    shutil.rmtree(folder, ignore_errors=True)  # of the example before
    write_run(folder, name)
    path = chance.choice([results_file(folder), samples_file(folder, name)])
    parts = lines_of(path) if path.suffix == ".jsonl" else [json.loads(path.read_bytes())]
    part = chance.choice(parts)
    while True:
        key = chance.choice(list(part))
        if not isinstance(part[key], dict) or not part[key] or chance.random() < 0.2:
            break
        part = part[key]
    part[key] = value
    save_lines(path, parts)
    try:
        run = read_run(folder, BENCHMARKS[name], 0, None)
    except EvaluationError:
        return
    assert (run.score, run.questions) == (75.0, 4)


NEEDED = [
    *(("results",), ("results", "vade_chartqa"), ("results", "vade_chartqa", "relaxed_overall,none")),
    *(("n-samples", "vade_chartqa", "effective"), ("config", "torch_seed")),
]


def test_a_results_file_without_what_is_needed_is_refused(tmp_path):
    for number, keys in enumerate(NEEDED):
        folder = tmp_path / f"{number}"
        results = part = write_run(folder)
        for key in keys[:-1]:
            part = part[key]
        del part[keys[-1]]
        save(results_file(folder), results)
        does_not_count(folder, repr(keys[-1]))


def test_a_metric_that_is_no_number_or_that_its_questions_contradict_is_refused(tmp_path):
    """An empty list is what lmms-eval writes for a metric without an aggregation."""
    values = [None, math.nan, math.inf, 10**400, "N/A", [], True]
    for number, (name, value) in enumerate(
        [*(("chartqa", value) for value in [*values, 0.75001, 75.0]), ("mathvista", 75.0), ("mathvision", 0.5)]
    ):
        write_run(tmp_path / f"{number}", name, value=value)
        does_not_count(tmp_path / f"{number}", BENCHMARKS[name].key, name=name)


def test_a_run_without_its_questions_is_refused(tmp_path):
    write_run(tmp_path / "run")
    samples_file(tmp_path / "run").unlink()
    does_not_count(tmp_path / "run", samples_file(tmp_path / "run").name)


def test_questions_that_are_missing_or_doubled_are_refused(tmp_path):
    write_run(tmp_path / "run")
    file = samples_file(tmp_path / "run")
    lines = lines_of(file)
    for changed in (lines[:-1], [*lines, lines[0]], lines * 2):
        save_lines(file, changed)
        does_not_count(tmp_path / "run", len(changed), "4")
    save_lines(file, [*lines[:3], lines[2]])
    does_not_count(tmp_path / "run", "4 lines", "3 questions")


@pytest.mark.parametrize("key", ["filtered_resps", "resps"])
def test_an_answer_that_lmms_eval_made_up_for_a_failed_request_is_refused(tmp_path, key):
    """It scores such an answer as a wrong one: the files agree with each other."""
    write_run(tmp_path / "run")
    lines = lines_of(samples_file(tmp_path / "run"))
    lines[1][key] = f"{FAILED_REQUEST} after 5 retries] Connection error."
    save_lines(samples_file(tmp_path / "run"), lines)
    does_not_count(tmp_path / "run", "question 1", "Connection error")


def test_a_question_with_a_score_that_is_none_is_refused(tmp_path):
    write_run(tmp_path / "run")
    lines = lines_of(samples_file(tmp_path / "run"))
    for score in ("True", -0.5, 2, 10**400, math.nan, {}):
        save_lines(samples_file(tmp_path / "run"), [lines[0] | {"relaxed_overall": score}, *lines[1:]])
        does_not_count(tmp_path / "run", "question 0", "relaxed_overall")
    save_lines(samples_file(tmp_path / "run"), [line | {"relaxed_overall": None} for line in lines])
    does_not_count(tmp_path / "run", "4 questions")


@pytest.mark.parametrize("limit", [None, 3, 5])
def test_a_run_with_more_or_fewer_questions_than_the_limit_says_is_refused(tmp_path, limit):
    write_run(tmp_path / "run", scores=SCORES, original=9, limit=4)
    assert read_run(tmp_path / "run", BENCHMARKS["chartqa"], 0, 4).questions == 4
    does_not_count(tmp_path / "run", "4 of 9", limit or "all", limit=limit)


def test_a_run_of_another_seed_is_refused(tmp_path):
    write_run(tmp_path / "run", seed=1)
    does_not_count(tmp_path / "run", "random_seed", "1", "0")


# ---------------------------------------------------------------------------------- the judge


def test_verdicts_that_cannot_be_read_are_counted_up_to_one_in_a_hundred(tmp_path):
    write_run(tmp_path / "run", "mathverse")
    save(tmp_path / "run" / "judge.json", {"calls": 300, "unreadable": 3, "example": "Well..."})
    assert read_run(tmp_path / "run", BENCHMARKS["mathverse"], 0, None).unreadable_verdicts == 3
    save(tmp_path / "run" / "judge.json", {"calls": 300, "unreadable": 4, "example": "Well..."})
    does_not_count(tmp_path / "run", "4", "300", "'Well...'", "1%", name="mathverse")


def test_what_a_judge_said_in_the_place_of_an_extracted_answer_counts_among_them(tmp_path):
    """lmms-eval took it for the model's answer, and scored it."""
    write_run(tmp_path / "run", "mathvista")
    file = samples_file(tmp_path / "run", "mathvista")
    lines = lines_of(file)
    for line, extraction in zip(lines, ["4", "(B)", "Try again later.", "The service is overloaded."], strict=True):
        line["extraction"] = extraction
    save_lines(file, lines)
    for calls, unreadable in [(100, 0), (300, 2)]:
        save(tmp_path / "run" / "judge.json", {"calls": calls, "unreadable": unreadable, "example": None})
        assert read_run(tmp_path / "run", BENCHMARKS["mathvista"], 0, None).unreadable_verdicts == unreadable + 1
    save(tmp_path / "run" / "judge.json", {"calls": 99, "unreadable": 0, "example": None})
    does_not_count(tmp_path / "run", "1", "99", "'The service is overloaded.'", name="mathvista")


def test_a_record_of_the_judge_that_makes_no_sense_or_is_not_there_is_refused(tmp_path):
    write_run(tmp_path / "run", "mathverse")
    odd = [{}, {"calls": 3}, {"calls": 3, "unreadable": 4}, {"calls": True, "unreadable": 0}, [], None]
    for judge in odd:
        save(tmp_path / "run" / "judge.json", judge)
        does_not_count(tmp_path / "run", "judge.json", name="mathverse")
    (tmp_path / "run" / "judge.json").unlink()
    does_not_count(tmp_path / "run", "judge.json", name="mathverse")
