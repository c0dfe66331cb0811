"""A run whose files are damaged or not all there yet; what a finished one tells is in test_summary.py."""

import json
import shutil

import numpy as np

from tests.support.finished_run import BATCHES, write_run
from tests.support.refusals import refused
from trl_vade.checkpoints import TRAINER_STATE_FILE, write_marker
from trl_vade.errors import SnapshotNotFoundError
from trl_vade.selection.log import SELECTION_LOG_FILE, SelectionLog
from trl_vade.selection.outcomes import group_outcomes
from trl_vade.selection.report.record import read_run
from trl_vade.selection.report.summary import summarise
from trl_vade.selection.report.writing import write_report


def test_without_a_whole_trainer_state_there_is_a_report_without_rewards_and_the_log_says_so(tmp_path, caplog):
    path = write_run(tmp_path) / TRAINER_STATE_FILE
    contents = [b"", b"{", b"{}", path.read_bytes()[:-9], b"\xff" * 9]
    for content in contents:
        path.write_bytes(content)
        assert read_run(tmp_path).history == []
    path.unlink()
    assert write_report(tmp_path)["validation"] == []
    assert [TRAINER_STATE_FILE in record.message for record in caplog.records] == [True] * (len(contents) + 1)


def test_without_the_whole_log_there_is_no_report(tmp_path):
    with refused(SnapshotNotFoundError, [f"no folder {tmp_path / 'nowhere'}"], ["output_dir"]):
        write_report(tmp_path / "nowhere")
    write_run(tmp_path, batches=[])
    with refused(SnapshotNotFoundError, names=[tmp_path / SELECTION_LOG_FILE]):
        write_report(tmp_path)
    outcomes = group_outcomes(np.array([1.0, 0.0]), np.array([3]), threshold=0.5)
    SelectionLog(tmp_path).append(outcomes, step=2)  # the run began elsewhere
    with refused(SnapshotNotFoundError, names=[tmp_path / SELECTION_LOG_FILE]):
        write_report(tmp_path)


def test_a_killed_run_is_read_from_its_selection_log_and_its_newest_whole_state(tmp_path):
    """It was stopped at step 5, with checkpoints of steps 2 and 4."""
    write_run(tmp_path, batches=BATCHES[:5])
    state = json.loads((tmp_path / TRAINER_STATE_FILE).read_text())
    (tmp_path / TRAINER_STATE_FILE).unlink()
    for step in (2, 4):
        (tmp_path / f"checkpoint-{step}").mkdir()
        saved = state | {"global_step": step, "log_history": [{"step": at} for at in range(1, step + 1)]}
        (tmp_path / f"checkpoint-{step}" / TRAINER_STATE_FILE).write_text(json.dumps(saved))
    summary = summarise(read_run(tmp_path))
    assert (summary["generation_batches"], summary["rollouts"], summary["seconds_until_step"]) == (5, 20, 0)
    for step, expected in ((3, 4), (9, 9)):
        newer = state | {"global_step": step, "log_history": [{"step": step}]}
        (tmp_path / TRAINER_STATE_FILE).write_text(json.dumps(newer))
        assert read_run(tmp_path).history[-1]["step"] == expected
    (tmp_path / TRAINER_STATE_FILE).unlink()
    abandoned = tmp_path / "checkpoint-9"  # by a run that went on from step 2, and brought back by a copy
    abandoned.mkdir()
    (abandoned / TRAINER_STATE_FILE).write_text(json.dumps(newer))
    for folder, line in ((abandoned, [("a", 9)]), (tmp_path / "checkpoint-4", [("a", 2), ("b", 4)])):
        write_marker(folder, line)
    assert read_run(tmp_path).history[-1]["step"] == 4
    shutil.rmtree(abandoned)
    (tmp_path / "checkpoint-4" / TRAINER_STATE_FILE).unlink()  # half deleted
    assert {entry["step"] for entry in read_run(tmp_path).history} == {1, 2}
