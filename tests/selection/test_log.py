"""`vade_selection.jsonl`: what was chosen and what came of it can be read back, shortened and replayed."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.refusals import refused
from trl_vade import BetaPosterior, ThompsonSampler, save_snapshot
from trl_vade.errors import SnapshotCorruptError
from trl_vade.samplers.snapshot import load_snapshot
from trl_vade.selection.log import SELECTION_LOG_FILE, SelectionLog
from trl_vade.selection.outcomes import group_outcomes
from trl_vade.selection.report.record import Run

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
    assert log.truncate(3) == 0
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
    assert log.truncate(last) == len(kept)
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


@pytest.mark.parametrize("left", [1, 40, -2])  # a single character, some of it, all but its closing brace
def test_a_last_line_that_was_cut_is_dropped_and_the_run_can_go_on(log, left):
    for step in (1, 2, 3):
        append(log, step)
    text = log.path.read_text(encoding="utf-8")
    *whole, last = text.splitlines(keepends=True)
    log.path.write_text("".join([*whole, last[:left]]), encoding="utf-8")
    assert steps(log) == [1, 2]
    log.truncate(2)
    append(log, 3)
    assert log.path.read_text(encoding="utf-8") == text


@pytest.mark.parametrize(
    "damaged",
    [
        b"damaged\n",
        b"\n",
        b"\xff\n",
        b"{}\n",
        b"[]\n",
        b'{"step": 1, "sample_index": [0], "successes": [1], "trials": [2]}\n',
        b'{"step": 2.0, "sample_index": [0], "successes": [1], "trials": [2]}\n',
        b'{"step": 2, "sample_index": [0.5], "successes": [1], "trials": [2]}\n',
        b'{"step": 2, "sample_index": [0, 1], "successes": [1], "trials": [2]}\n',
        b'{"step": 2, "sample_index": [0], "successes": [3], "trials": [2]}\n',
        b'{"step": 2, "sample_index": [0], "successes": [1]}\n',
    ],
)
def test_a_damaged_line_is_an_error_and_not_the_end_of_the_log(log, damaged):
    """Or the replay would give a posterior that the run never had."""
    for step in (1, 2, 3):
        append(log, step)
    lines = log.path.read_bytes().splitlines(keepends=True)
    log.path.write_bytes(lines[0] + damaged + lines[2])
    for act in (log.read, lambda: log.truncate(1)):
        with refused(SnapshotCorruptError, names=["Line 2", log.path]):
            act()
    assert log.path.read_bytes() == lines[0] + damaged + lines[2]


def test_a_last_line_that_lacks_only_its_line_break_is_whole(log):
    append(log, 1)
    append(log, 2)
    log.path.write_text(log.path.read_text(encoding="utf-8").rstrip("\n"), encoding="utf-8")
    assert steps(log) == [1, 2]
    log.truncate(2)
    append(log, 3)
    assert steps(log) == [1, 2, 3]


@pytest.mark.parametrize(
    "damage",
    [
        lambda line: bytes(len(line) - 1) + b"\n",
        lambda line: b"[" * 100_000 + b"\n",
        lambda line: line.replace(b'"step": 2', b'"step": ' + b"9" * 5000),
        lambda line: line.replace(b'"successes": [1.0', b'"successes": ["a"'),
    ],
)
def test_a_damaged_log_can_be_set_aside_as_it_is(log, damage):
    for step in (1, 2, 3):
        append(log, step)
    lines = log.path.read_bytes().splitlines(keepends=True)
    assert damage(lines[1]) != lines[1]
    content = lines[0] + damage(lines[1]) + lines[2]
    log.path.write_bytes(content)
    with refused(SnapshotCorruptError, names=["Line 2", log.path]):
        log.read()
    kept = log.set_aside()  # what vade_on_mismatch="reset" does with it
    assert kept.name == "vade_selection_until_000001.jsonl"
    assert kept.read_bytes() == content


def test_a_last_line_that_is_whole_and_damaged_is_refused_too(log):
    append(log, 1)
    append(log, 2)
    log.path.write_bytes(log.path.read_bytes().replace(b'"step": 2', b'"step" 2'))
    with refused(SnapshotCorruptError, names=["Line 2", log.path]):
        log.read()


@pytest.mark.parametrize(("content", "name"), [(b"", None), (b'{"step": ', "vade_selection_until_000000.jsonl")])
def test_half_a_first_line_is_set_aside_and_an_empty_file_is_not(log, content, name):
    log.path.parent.mkdir()
    log.path.write_bytes(content)
    kept = log.set_aside()
    assert (kept.name if kept else None) == name


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


# -------------------------------------------------------------------------------------------------- what is set aside


def test_a_log_that_is_set_aside_has_the_step_it_ends_at_in_its_name_and_is_the_same_to_the_byte(log):
    for step in (1, 2, 3):
        append(log, step)
    content = log.path.read_bytes()
    kept = log.set_aside()
    assert kept == log.path.parent / "vade_selection_until_000003.jsonl"
    assert kept.read_bytes() == content
    assert log.read() == []
    assert [path.name for path in log.path.parent.iterdir()] == [kept.name]


def test_where_there_is_nothing_there_is_nothing_to_set_aside(log):
    assert log.set_aside() is None
    append(log, 1)
    log.truncate(0)
    assert log.set_aside() is None
    assert [path.name for path in log.path.parent.iterdir()] == [SELECTION_LOG_FILE]


def test_two_logs_that_end_at_the_same_step_have_two_names(log):
    names = []
    for run in range(3):
        for step in (1, 2):
            append(log, step, rows=(run, 9))
        names.append(log.set_aside().name)
    assert names == [f"vade_selection_until_000002{number}.jsonl" for number in ("", "_2", "_3")]
    rows = [json.loads((log.path.parent / name).read_text().splitlines()[0])["sample_index"] for name in names]
    assert rows == [[0, 9], [1, 9], [2, 9]]


@pytest.mark.parametrize("step", [1, 4])
def test_the_lines_that_follow_are_in_a_file_of_their_own(log, step):
    for earlier in (1, 2, 3):
        append(log, earlier)
    kept = log.set_aside()
    content = kept.read_bytes()
    append(log, step, rows=(7, 8))
    log.truncate(step)
    assert [line["sample_index"] for line in log.read()] == [[7, 8]]
    assert kept.read_bytes() == content


def test_a_half_written_last_line_is_set_aside_with_the_others(log):
    append(log, 1)
    append(log, 2)
    log.path.write_bytes(log.path.read_bytes()[:-9])
    content = log.path.read_bytes()
    kept = log.set_aside()
    assert kept.name == "vade_selection_until_000001.jsonl"  # the last line that can be read
    assert kept.read_bytes() == content


def test_a_log_that_cannot_be_read_is_set_aside_all_the_same(log):
    log.path.parent.mkdir()
    log.path.write_bytes(b'{"step": 1, "sam')
    assert log.set_aside().name == "vade_selection_until_000000.jsonl"
    for step in (1, 2, 3):
        append(log, step)
    lines = log.path.read_bytes().splitlines(keepends=True)
    log.path.write_bytes(lines[0] + b"damaged\n" + lines[2])
    kept = log.set_aside()
    assert kept.name == "vade_selection_until_000001.jsonl"
    assert kept.read_bytes() == lines[0] + b"damaged\n" + lines[2]


@settings(max_examples=20)
@given(st.lists(st.integers(1, 3), max_size=6))
def test_no_line_is_ever_lost_by_setting_logs_aside(tmp_path_factory, lengths):
    log = SelectionLog(tmp_path_factory.mktemp("log"))
    for run, length in enumerate(lengths):
        for step in range(1, length + 1):
            append(log, step, rows=(run, 99))
        log.set_aside()
    lines = [
        json.loads(text)
        for path in log.path.parent.iterdir()
        for text in path.read_text(encoding="utf-8").splitlines()
    ]
    written = sorted((line["sample_index"][0], line["step"]) for line in lines)
    assert written == [(run, step) for run, length in enumerate(lengths) for step in range(1, length + 1)]


# ------------------------------------------------------------------------------------- the end of a reward outage


def play(log, posterior, batches):
    """Observe and write down (row, successes) of 4 trials; a third number is the step whose counts are put back."""
    states = [posterior.state_dict()]
    for step, (row, successes, *restored_to) in enumerate(batches, start=1):
        if restored_to:
            posterior.load_state_dict({**states[restored_to[0]], "step": posterior.step})
        outcome = outcomes([row], [1] * successes + [0] * (4 - successes))
        posterior.observe([row], outcome.successes, outcome.trials)
        extra = {"restored_to": restored_to[0]} if restored_to else {}
        log.append(outcome, step=step, global_step=step - 1, rollouts=4 * step, **extra)
        states.append(posterior.state_dict())
    return states


def run_of(log, **settings):
    sampler = ThompsonSampler(4, seed=0, **settings)
    save_snapshot(log.path.parent, sampler)
    return Run(load_snapshot(log.path.parent), log.read(), history=[])


def test_the_end_of_an_outage_worked_by_hand(log):
    settings = {"decay_sampled": 0.5, "decay_unsampled": 0.75}
    # Batches 3 and 4 are the outage: row 0 and row 2 fail, against what is known of row 0.
    play(log, BetaPosterior(4, **settings), [(0, 4), (1, 2), (0, 0), (2, 0), (1, 3, 2)])
    run = run_of(log, **settings)
    during, after = run.posterior_at(4), run.posterior_at(5)
    assert during.alpha.tolist() == [4 * 0.75 * 0.5 * 0.75, 2 * 0.75**2, 0, 0]
    assert during.visits.tolist() == [2, 1, 1, 0]
    # The counts of batch 2 (row 0 has 4 * 3/4) have decayed for the two batches of the outage and the one after it.
    assert after.alpha.tolist() == [4 * 0.75 * 0.75**3, 2 * 0.75**2 * 0.5 + 3, 0, 0]
    assert after.beta.tolist() == [0, 2 * 0.75**2 * 0.5 + 1, 0, 0]
    assert after.visits.tolist() == [1, 2, 0, 0]
    assert after.step == 5


@st.composite
def runs_with_outages(draw):
    """Batches of which some put the counts of an earlier step back; never of a step inside an outage before."""
    batches, lowest = [], 0
    for step in range(draw(st.integers(1, 12))):
        batch = (draw(st.integers(0, 3)), draw(st.integers(0, 4)))
        if step > lowest and draw(st.booleans()):
            batch += (draw(st.integers(lowest, step - 1)),)
            lowest = step
        batches.append(batch)
    return batches


@settings(max_examples=30)
@given(runs_with_outages())
def test_a_run_with_outages_replays_bit_for_bit_at_every_step(tmp_path_factory, batches):
    log = SelectionLog(tmp_path_factory.mktemp("log"))
    states = play(log, BetaPosterior(4), batches)
    run = run_of(log)
    for step, expected in enumerate(states):
        replayed = run.posterior_at(step).state_dict()
        assert {name: np.asarray(value).tolist() for name, value in replayed.items()} == {
            name: np.asarray(value).tolist() for name, value in expected.items()
        }


def test_a_run_with_many_outages_is_replayed_in_one_pass(log, monkeypatch):
    """Replaying up to `restored_to` at each would double the work with every outage."""
    batches = [(step % 4, step % 5, *([step - 1] if step % 3 == 2 else [])) for step in range(60)]
    states = play(log, BetaPosterior(4), batches)
    run, observe, calls = run_of(log), BetaPosterior.observe, itertools.count(1)

    def counting(*args):
        assert next(calls) <= 60
        observe(*args)

    monkeypatch.setattr(BetaPosterior, "observe", counting)
    assert run.posterior_at(60).state_dict()["alpha"].tolist() == states[-1]["alpha"].tolist()
