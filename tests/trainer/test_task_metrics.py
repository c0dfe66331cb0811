"""What a run logs beside TRL's: metrics of the task at an evaluation, each picture once, alerts."""

import inspect
import sqlite3
import sys
from pathlib import Path

import pytest
from trl import GRPOConfig, GRPOTrainer

from tests.support.runs import first_letter, logged, rows_with_images, says_a_digit, train
from trl_vade import VADEGRPOConfig, VADEGRPOTrainer

EVALUATED = {"eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 8, "max_steps": 2}


def test_a_reward_at_1_does_not_hide_that_the_accuracy_is_0(text_model_path, text_rows, make_args):
    seen = []

    def always_right(completions, **columns):
        return [1.0] * len(completions)

    def accuracy(given):
        seen.append(given)
        right = says_a_digit(given.predictions, [10**6] * len(given.predictions))
        return {"accuracy": sum(right) / len(right), "eval_mean_reward": given.label_ids.mean()}

    args = make_args(**EVALUATED, metric_for_best_model="eval_accuracy", save_strategy="best")
    rows = text_rows.select(range(8))
    trainer = train(text_model_path, text_rows, args, always_right, eval_dataset=rows, compute_metrics=accuracy)
    assert logged(trainer, "eval_reward") == [1.0, 1.0]
    assert logged(trainer, "eval_accuracy") == [0.0, 0.0]
    assert logged(trainer, "eval_mean_reward") == [1.0, 1.0]
    assert trainer.state.best_metric == 0.0
    assert [(len(each.predictions), each.label_ids.shape) for each in seen] == [(32, (32, 1))] * 2
    assert all(isinstance(text, str) for each in seen for text in each.predictions)


def test_trl_still_has_no_metrics_of_the_task():
    """When this fails, `trainer.logs.TaskMetrics` can go: TRL then takes `compute_metrics` itself."""
    assert "compute_metrics" not in inspect.signature(GRPOTrainer.__init__).parameters


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
    vision_model_path, make_args, trackio_dir, stock
):
    """When `stock` writes 8, `trainer.logs.pictures_once` can go."""
    tracked = {"report_to": "trackio", "project": "vade", "trackio_space_id": None, "log_completions": True}
    args = make_args(GRPOConfig if stock else VADEGRPOConfig, max_steps=1, **tracked)
    kind = GRPOTrainer if stock else VADEGRPOTrainer
    train(vision_model_path, rows_with_images(), args, first_letter, trainer_class=kind)
    assert len([*trackio_dir.glob("media/**/*.png")]) == (
        32 if stock else 8
    )  # a table at the step, and one at the end


def test_a_warning_of_a_run_is_an_alert_too(text_model_path, text_rows, make_args, trackio_dir):
    def breaks_down(completions, **columns):
        return [float("nan")] * len(completions)

    tracked = {"report_to": "trackio", "project": "vade", "trackio_space_id": None}
    train(text_model_path, text_rows, make_args(max_steps=10, **tracked), breaks_down)
    (database,) = trackio_dir.glob("vade*.db")
    with sqlite3.connect(database) as connection:
        titles = [title for (title,) in connection.execute("SELECT title FROM alerts")]
    assert any("No group has had a gradient" in title for title in titles)
