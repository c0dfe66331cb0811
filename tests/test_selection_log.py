"""`vade_selection.jsonl`: what was chosen and what came of it can be read back, shortened and replayed."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trl_vade import ThompsonSampler, save_snapshot
from trl_vade.feedback import group_outcomes
from trl_vade.report import Run
from trl_vade.selection_log import SELECTION_LOG_FILE, SelectionLog
from trl_vade.snapshot import load_snapshot

NAN = float("nan")


def outcomes(rows, *groups):
    return group_outcomes(np.array(groups, dtype=np.float64).ravel(), np.array(rows), threshold=0.5)


def append(log, step, rows=(0, 1), groups=([1, 0], [0, 0])):
    numbers = {"global_step": step - 1, "rollouts": 4 * step, "predicted_effective_ratio": 0.25}
    log.append(outcomes(rows, *groups), step=step, **numbers)


def steps(log):
    return [line["step"] for line in log.read()]


@pytest.fixture
def log(tmp_path):
    return SelectionLog(tmp_path / "out")


def test_a_line_holds_the_choice_and_its_outcome(log):
    append(log, 1, rows=(5, 2), groups=([1, NAN], [1, 0]))
    assert log.read() == [
        {
            "step": 1,
            "global_step": 0,
            "rollouts": 4,
            "predicted_effective_ratio": 0.25,
            "effective_gradient_ratio": 0.5,
            "sample_index": [5, 2],
            "successes": [1.0, 1.0],
            "trials": [1.0, 2.0],
        }
    ]


def test_the_file_has_the_documented_name_and_one_json_object_a_line(log, tmp_path):
    append(log, 1)
    append(log, 2)
    text = (tmp_path / "out" / SELECTION_LOG_FILE).read_text(encoding="utf-8")
    assert SELECTION_LOG_FILE == "vade_selection.jsonl"
    assert text.endswith("\n")
    assert [json.loads(line)["step"] for line in text.splitlines()] == [1, 2]


def test_where_there_is_no_log_there_are_no_lines(log):
    assert log.read() == []
    log.truncate(3)
    assert not log.path.exists()


def test_a_batch_without_any_score_is_written_as_null_and_not_as_nan(log):
    append(log, 1, groups=([NAN, NAN], [NAN, NAN]))
    assert log.read()[0]["effective_gradient_ratio"] is None
    assert "NaN" not in log.path.read_text(encoding="utf-8")


def test_step_1_starts_the_log_anew(log):
    for step in (1, 2, 3):
        append(log, step)
    append(log, 1, rows=(7, 8))
    assert steps(log) == [1]
    assert log.read()[0]["sample_index"] == [7, 8]


@pytest.mark.parametrize(("last", "kept"), [(0, []), (2, [1, 2]), (4, [1, 2, 3, 4]), (9, [1, 2, 3, 4])])
def test_truncating_drops_the_lines_after_a_step_and_no_others(log, last, kept):
    for step in (1, 2, 3, 4):
        append(log, step)
    before = log.read()
    log.truncate(last)
    assert log.read() == before[: len(kept)]
    assert steps(log) == kept
    assert [path.name for path in log.path.parent.iterdir()] == [SELECTION_LOG_FILE]  # no temporary file is left


def test_a_resumed_run_appends_after_what_was_kept(log):
    for step in (1, 2, 3, 4):
        append(log, step)
    log.truncate(2)
    append(log, 3, rows=(7, 8))
    assert steps(log) == [1, 2, 3]
    assert log.read()[-1]["sample_index"] == [7, 8]


@given(st.integers(1, 10_000))
def test_a_last_line_that_was_cut_anywhere_is_dropped_and_the_run_can_go_on(tmp_path_factory, cut):
    log = SelectionLog(tmp_path_factory.mktemp("log"))
    for step in (1, 2, 3):
        append(log, step)
    text = log.path.read_text(encoding="utf-8")
    last_line = len(text.splitlines(keepends=True)[-1])
    # From a single character of the last line left, up to all but its closing brace.
    log.path.write_text(text[: len(text) - 2 - cut % (last_line - 2)], encoding="utf-8")
    assert steps(log) == [1, 2]
    log.truncate(2)
    append(log, 3)
    assert log.path.read_text(encoding="utf-8") == text


def test_a_last_line_that_lacks_only_its_line_break_is_whole(log):
    append(log, 1)
    append(log, 2)
    log.path.write_text(log.path.read_text(encoding="utf-8").rstrip("\n"), encoding="utf-8")
    assert steps(log) == [1, 2]
    log.truncate(2)
    append(log, 3)
    assert steps(log) == [1, 2, 3]


def test_replaying_the_log_gives_the_posterior_of_the_sampler_at_every_step_bit_for_bit(log):
    sampler = ThompsonSampler(10, seed=4)
    random, counts = np.random.default_rng(0), []
    for step in range(1, 31):
        rows = sampler.draw(3).sample_index
        rewards = random.random((3, 4))
        rewards[random.random((3, 4)) < 0.1] = NAN
        outcome = group_outcomes(rewards.ravel(), rows, threshold=None)
        sampler.observe(outcome.sample_index, outcome.successes, outcome.trials)
        log.append(outcome, step=step, global_step=step - 1, rollouts=12 * step)
        counts.append((sampler.posterior.alpha.tolist(), sampler.posterior.beta.tolist()))
    save_snapshot(log.path.parent, sampler)
    run = Run(load_snapshot(log.path.parent), log.read(), history=[])
    for step, expected in enumerate(counts, start=1):
        replayed = run.posterior_at(step)
        assert (replayed.alpha.tolist(), replayed.beta.tolist()) == expected
    assert run.posterior_at(30).visits.tolist() == sampler.posterior.visits.tolist()
    assert run.posterior_at(30).step == 30
