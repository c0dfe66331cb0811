"""What a run logs beside TRL's: metrics of the task at an evaluation, each picture once, alerts."""

import sqlite3
import sys
from pathlib import Path

import pytest
from trl import GRPOTrainer

from tests.support.runs import first_letter, logged, rows_with_images, says_a_digit
from trl_vade import VADEGRPOTrainer

EVALUATED = {"eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 8, "max_steps": 2}
TRACKED = {"report_to": "trackio", "project": "vade", "trackio_space_id": None}


def test_a_reward_at_1_does_not_hide_that_the_accuracy_is_0(run, text_rows):
    seen = []

    def accuracy(given):
        seen.append(given)
        right = says_a_digit(given.predictions, [10**6] * len(given.predictions))
        return {"accuracy": sum(right) / len(right), "eval_mean_reward": given.label_ids.mean()}

    settings = EVALUATED | {"metric_for_best_model": "eval_accuracy", "save_strategy": "best"}
    more = {"eval_dataset": text_rows.select(range(8)), "compute_metrics": accuracy}
    trainer = run(lambda completions, **columns: [1.0] * len(completions), more=more, **settings)
    assert logged(trainer, "eval_reward") == logged(trainer, "eval_mean_reward") == [1.0, 1.0]
    assert logged(trainer, "eval_accuracy") == [0.0, 0.0]
    assert trainer.state.best_metric == 0.0
    assert [(len(each.predictions), each.label_ids.shape) for each in seen] == [(32, (32, 1))] * 2
    assert all(isinstance(text, str) for each in seen for text in each.predictions)


@pytest.fixture
def trackio_dir(tmp_path, monkeypatch):
    """The folder that trackio writes to. It has read TRACKIO_DIR when TRL imported it, hence its constants (0.43)."""
    from trackio.utils import TRACKIO_DIR

    for module in [module for name, module in sys.modules.items() if name.partition(".")[0] == "trackio"]:
        for name, value in vars(module).copy().items():
            if isinstance(value, Path) and value.is_relative_to(TRACKIO_DIR):
                monkeypatch.setattr(module, name, tmp_path / "trackio" / value.relative_to(TRACKIO_DIR))
    return tmp_path / "trackio"


@pytest.mark.parametrize("stock", [True, False])
def test_each_picture_of_a_table_is_one_file_and_stock_trl_still_writes_one_for_each_completion(
    run, vision_model_path, trackio_dir, stock
):
    """When `stock` writes 8, `trainer.logs.pictures_once` can go."""
    kind = GRPOTrainer if stock else VADEGRPOTrainer
    tracked = TRACKED | {"log_completions": True, "max_steps": 1}
    run(first_letter, rows_with_images(), model=vision_model_path, trainer_class=kind, **tracked)
    written = [*trackio_dir.glob("media/**/*.png")]
    assert len(written) == (32 if stock else 8)  # a table at the step, and one at the end


def test_a_warning_of_a_run_is_an_alert_too(run, trackio_dir):
    run(lambda completions, **columns: [float("nan")] * len(completions), max_steps=10, **TRACKED)
    (database,) = trackio_dir.glob("vade*.db")
    with sqlite3.connect(database) as connection:
        titles = [title for (title,) in connection.execute("SELECT title FROM alerts")]
    assert any("No group has had a gradient" in title for title in titles)
