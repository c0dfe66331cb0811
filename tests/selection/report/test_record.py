"""A run whose files are damaged or not all there yet; what a finished one tells is in test_summary.py."""

import json
import shutil
from pathlib import Path

import pytest
from transformers import TrainerCallback

from tests.support.finished_run import HISTORY, write_run
from tests.support.refusals import refused
from tests.support.runs import says_a_digit
from trl_vade import VADEGRPOTrainer
from trl_vade.errors import SnapshotCorruptError
from trl_vade.selection.report.record import TRAINER_STATE_FILE, read_run
from trl_vade.selection.report.summary import summarise, summary_rows
from trl_vade.selection.report.writing import write_report


def test_a_trainer_state_that_is_cut_off_is_named_wherever_that_is(tmp_path):
    path = write_run(tmp_path) / TRAINER_STATE_FILE
    whole = path.read_bytes()
    for size in range(0, len(whole), 50):
        path.write_bytes(whole[:size])
        with pytest.raises(SnapshotCorruptError) as error:
            read_run(tmp_path)
        assert str(path) in str(error.value)
        assert '{"log_history": []}' in str(error.value)


def test_a_trainer_state_without_a_history_is_no_state_and_an_empty_one_is_as_the_message_says(tmp_path):
    path = write_run(tmp_path) / TRAINER_STATE_FILE
    for content in (b"{}", b"[1]", b'{"log_history": 3}', b'{"log_history": [3]}', b"\xff" * 9):
        path.write_bytes(content)
        with refused(SnapshotCorruptError, names=["trainer_state.json"]):
            read_run(tmp_path)
    path.write_text('{"log_history": []}')
    assert read_run(tmp_path).history == []


@pytest.mark.parametrize("score", [None, float("nan")])
def test_a_validation_without_a_score_is_left_out(tmp_path, score):
    run = read_run(write_run(tmp_path, history=[*HISTORY, {"step": 9, "eval_rewards/accuracy/mean": score}]))
    assert [entry["score"] for entry in run.validation] == [0.25, 0.5, 0.625]
    json.dumps(run.validation, allow_nan=False)


# ------------------------------------------------------------------- a run that goes on, was killed, or saved no state


@pytest.fixture
def killed(text_model_path, text_rows, make_args):
    """The folder of a run that was stopped at step 5, with checkpoints of steps 2 and 4 and a selection log."""
    args = make_args(save_strategy="steps", save_steps=2)
    trainer = VADEGRPOTrainer(text_model_path, says_a_digit, args, text_rows)

    class Killed(Exception):
        pass

    class KillAt(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == 5:
                raise Killed

    trainer.add_callback(KillAt())
    with pytest.raises(Killed):
        trainer.train()
    return Path(args.output_dir)


def test_a_killed_run_is_read_from_its_newest_checkpoint_and_its_selection_log(killed):
    assert not (killed / TRAINER_STATE_FILE).exists()
    summary = summarise(read_run(killed))
    assert (summary["generation_batches"], summary["rollouts"]) == (5, 5 * 16)
    assert (summary["steps"], summary["seconds_until_step"]) == (4, 4)
    assert {entry["step"] for entry in read_run(killed).history} == {1, 2, 3, 4}


def test_a_checkpoint_that_is_half_written_or_half_deleted_is_passed_over(killed):
    (killed / "checkpoint-4" / "trainer_state.json").unlink()
    assert {entry["step"] for entry in read_run(killed).history} == {1, 2}
    (killed / "checkpoint-2" / "trainer_state.json").write_text("{")
    assert read_run(killed).history == []
    assert dict(summary_rows(summarise(read_run(killed))))["seconds counted until step"] == "0"


def test_the_newer_of_two_states_is_taken_wherever_it_is(killed):
    state = json.loads((killed / "checkpoint-2" / "trainer_state.json").read_text())
    for step, expected in ((3, 4), (4, 4), (9, 9)):
        (killed / "trainer_state.json").write_text(
            json.dumps(state | {"global_step": step, "log_history": [{"step": step}]})
        )
        assert max(entry["step"] for entry in read_run(killed).history) == expected


def test_a_run_that_was_killed_before_its_first_checkpoint_has_a_report(killed):
    for path in killed.glob("checkpoint-*"):
        shutil.rmtree(path)
    summary = write_report(killed)
    assert (summary["generation_batches"], summary["rollouts"], summary["validation"]) == (5, 5 * 16, [])
