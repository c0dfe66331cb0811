"""A run whose files are damaged; what a sound one tells is in test_report.py."""

import json

import pytest

from tests.support.finished_run import HISTORY, write_run
from tests.support.refusals import refused
from trl_vade.errors import SnapshotCorruptError
from trl_vade.selection.report.record import TRAINER_STATE_FILE, read_run


def test_a_trainer_state_that_is_cut_off_is_named_wherever_that_is(tmp_path):
    path = write_run(tmp_path) / TRAINER_STATE_FILE
    whole = path.read_bytes()
    for size in range(0, len(whole), 50):
        path.write_bytes(whole[:size])
        with pytest.raises(SnapshotCorruptError) as error:
            read_run(tmp_path)
        assert str(path) in str(error.value)
        assert "trainer_state.json of the run's newest checkpoint" in str(error.value)


@pytest.mark.parametrize("content", [b"{}", b"[1]", b'{"log_history": 3}', b'{"log_history": [3]}', b"\xff" * 9])
def test_a_trainer_state_without_a_history_is_no_state(tmp_path, content):
    (write_run(tmp_path) / TRAINER_STATE_FILE).write_bytes(content)
    with refused(SnapshotCorruptError, names=["trainer_state.json"]):
        read_run(tmp_path)


def test_an_empty_history_is_one_as_the_message_says(tmp_path):
    (write_run(tmp_path) / TRAINER_STATE_FILE).write_text('{"log_history": []}')
    assert read_run(tmp_path).history == []


@pytest.mark.parametrize("score", [None, float("nan")])
def test_a_validation_without_a_score_is_left_out(tmp_path, score):
    run = read_run(write_run(tmp_path, history=[*HISTORY, {"step": 9, "eval_rewards/accuracy/mean": score}]))
    assert [entry["score"] for entry in run.validation] == [0.25, 0.5, 0.625]
    json.dumps(run.validation, allow_nan=False)
