"""`vade_selection.jsonl`: what was chosen and what came of it can be read back, shortened and replayed."""

import json

import numpy as np
import pytest

from tests.support.refusals import refused
from trl_vade import BetaPosterior, ThompsonSampler
from trl_vade.errors import CheckpointSaveError, SnapshotCorruptError
from trl_vade.selection.log import SelectionLog
from trl_vade.selection.outcomes import group_outcomes

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


def test_a_line_of_the_documented_file_holds_the_choice_and_its_outcome_without_nan(log):
    assert log.read() == []
    append(log, 1, rows=(5, 2), groups=([1, NAN], [1, 0]))
    append(log, 2, groups=([NAN, NAN], [NAN, NAN]))
    line, unscored = log.read()
    assert line == {
        **{"step": 1, "global_step": 0, "rollouts": 4},
        **{"predicted_effective_ratio": 0.25, "effective_gradient_ratio": 0.5},
        **{"sample_index": [5, 2], "successes": [1.0, 1.0], "trials": [1.0, 2.0]},
    }
    assert unscored["effective_gradient_ratio"] == 0.0
    text = log.path.read_text(encoding="utf-8")
    assert "NaN" not in text
    assert [json.loads(each)["step"] for each in text.splitlines()] == [1, 2]


@pytest.fixture
def written(log):
    """A log of five lines, the position after the third of them, which a checkpoint holds, and its content."""
    for step in (1, 2, 3):
        append(log, step)
    saved = json.loads(json.dumps(log.position._asdict()))
    append(log, 4)
    append(log, 5)
    return SelectionLog(log.path.parent), saved, log.path.read_bytes()


def test_a_resumed_run_writes_over_what_came_after_its_checkpoint_and_over_nothing_else(written):
    log, saved, content = written
    assert log.resume(saved) is None
    assert steps(log) == [1, 2, 3]
    assert log.path.read_bytes() == content  # until the run has a line of its own
    append(log, 4)
    append(log, 5)
    assert log.path.read_bytes() == content
    assert log.resume(saved) is None
    append(log, 4, rows=(7, 8))
    assert [line["sample_index"] for line in SelectionLog(log.path.parent).read()] == [[0, 1]] * 3 + [[7, 8]]
    assert list(log.path.parent.iterdir()) == [log.path]


ANOTHER = b"the log of another run"


def lines_of(content, *numbers):
    return b"".join(content.splitlines(keepends=True)[number - 1] for number in numbers)


DAMAGES = [  # what is left of the log
    *(lambda content: None, lambda content: b"", lambda content: lines_of(content, 1, 2)),
    *(lambda content: lines_of(content, 1, 3, 4), lambda content: lines_of(content, 3, 4)),
    *(lambda content: lines_of(content, 1, 2, 3)[:-1], lambda content: lines_of(content, 1) + b"[" * 100_000 + b"\n"),
    *(lambda content: bytes(len(content)) + b"\n", lambda content: ANOTHER),
]


def test_a_log_that_does_not_lead_to_the_checkpoint_is_kept_and_said_and_the_run_goes_on(written, tmp_path):
    """A removed, empty, cut or broken log, one that lacks a line or its beginning, and one of another run."""
    _, saved, content = written
    for number, damage in enumerate(DAMAGES):
        log, damaged = SelectionLog(tmp_path / str(number)), damage(content)
        if damaged == ANOTHER:
            for step in (1, 2, 3):
                append(log, step, rows=(70, 80))
            log, damaged = SelectionLog(log.path.parent), log.path.read_bytes()
        elif damaged is not None:
            log.path.parent.mkdir()
            log.path.write_bytes(damaged)
        notice = log.resume(saved)
        assert all(word in notice for word in (str(log.path), "3 lines", "training is not affected"))
        kept = [path.read_bytes() for path in log.path.parent.glob("vade_selection-*")]
        assert kept == ([damaged] if damaged else [])
        append(log, 4)
        assert steps(log) == [4]
        assert log.resume(log.position._asdict()) is None  # at the next resume there is nothing to say


def test_reading_refuses_a_line_that_was_damaged_by_its_number_and_leaves_out_half_a_last_one(written):
    log, _, content = written
    log.path.write_bytes(content[:-9])
    assert steps(log) == [1, 2, 3, 4]
    log.path.write_bytes(content.replace(b'"rollouts": 8', b'"rollouts": '))
    with refused(SnapshotCorruptError, names=["Line 2", log.path]):
        log.read()


def test_the_log_of_another_run_is_set_aside_by_the_first_line_and_a_log_that_is_gone_stops_the_run(written):
    log, _, content = written
    append(log, 1, rows=(7, 8))
    assert [line["sample_index"] for line in log.read()] == [[7, 8]]
    assert (log.path.parent / "vade_selection-1.jsonl").read_bytes() == content
    assert log.set_aside() == log.path.parent / "vade_selection-2.jsonl"
    assert (log.set_aside(), log.read()) == (None, [])
    append(log, 1)
    log.path.unlink()
    with refused(CheckpointSaveError, names=[log.path], offers=["resume_from_checkpoint='auto'"]):
        append(log, 2)


def test_replaying_the_log_gives_the_posterior_of_the_sampler_at_every_step_bit_for_bit(log):
    """Line 7 is of a reward outage: the posterior took a step without evidence."""
    sampler, random, counts, again = ThompsonSampler(10, seed=4), np.random.default_rng(0), [], BetaPosterior(10)
    for step in range(1, 31):
        rows = sampler.draw(3).sample_index
        rewards = random.random((3, 4))
        rewards[random.random((3, 4)) < 0.1] = NAN
        outcome = group_outcomes(rewards.ravel(), rows, threshold=None)
        sampler.observe(*([[]] * 3 if step == 7 else (rows, outcome.successes, outcome.trials)))
        more = {"observed": False} if step == 7 else {}
        log.append(outcome, step=step, global_step=step - 1, rollouts=12 * step, **more)
        counts.append(sampler.posterior.alpha.tolist())
    for line, expected in zip(log.read(), counts, strict=True):
        groups = [line[name] for name in ("sample_index", "successes", "trials")]
        again.observe(*groups) if line.get("observed", True) else again.observe([], [], [])
        assert again.alpha.tolist() == expected
    assert again.beta.tolist() == sampler.posterior.beta.tolist()
