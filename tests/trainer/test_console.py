"""The console: what a run shows, where, and that it changes nothing else."""

import io
import logging

import pytest
from rich.console import Console as Screen

from tests.support.runs import assert_equal_weights, logged, says_a_digit, train, weights
from trl_vade import VADEGRPOTrainer
from trl_vade.trainer.console import install

TIMES = ("step_time", "runtime", "per_second", "seconds")


def run(model, rows, make_args, style, **settings):
    args = make_args(vade_console=style, output_dir=f"{make_args().output_dir}-{style}", **settings)
    trainer = VADEGRPOTrainer(model, says_a_digit, args, rows, eval_dataset=rows.select(range(4)))
    trainer.train()
    return trainer


def without_times(log_history):
    return [
        {name: value for name, value in entry.items() if not any(word in name for word in TIMES)}
        for entry in log_history
    ]


def on_a_terminal(monkeypatch, width):
    file = Terminal()
    monkeypatch.setattr(
        install, "Screen", lambda **named: Screen(file=file, force_terminal=True, width=width, height=40, **named)
    )
    return file


class Terminal(io.StringIO):
    def isatty(self):
        return True


EVALUATED = {"eval_strategy": "steps", "eval_steps": 2, "per_device_eval_batch_size": 4, "max_steps": 4}


def test_a_file_gets_a_header_a_line_a_logging_step_events_and_the_verdict(
    text_model_path, text_rows, make_args, capsys
):
    trainer = run(text_model_path, text_rows, make_args, "auto", save_strategy="steps", save_steps=2, **EVALUATED)
    lines = capsys.readouterr().out.splitlines()
    assert "thompson, frontier" in lines[0]
    assert "24 rows" in lines[1]
    assert "4 x 4 = 16 completions" in lines[1]
    assert "too rarely" in lines[2]  # 16 of the 24 rows
    steps = [line for line in lines if " step " in line and "useful" in line and "/4" in line]
    assert len(steps) == 4
    assert "predicted" in steps[0]
    assert sum("validation at step" in line for line in lines) == 2
    assert any("checkpoint-2 written" in line for line in lines)
    assert "an even draw" in lines[-2]
    assert "validation score" in lines[-2]
    assert trainer.args.output_dir in lines[-1]


@pytest.mark.parametrize(("width", "remarks"), [(80, False), (120, True), (200, True)])
def test_a_terminal_gets_a_panel_with_remarks_where_there_is_room(
    text_model_path, text_rows, make_args, monkeypatch, width, remarks
):
    file = on_a_terminal(monkeypatch, width)
    run(text_model_path, text_rows, make_args, "auto", max_steps=3)
    shown = file.getvalue()
    assert "useful groups" in shown
    assert ("an even draw" in shown.split("done at step")[0]) == remarks
    panel = shown.split("done at step")[0].splitlines()
    assert max(len(line) for line in panel if "pass rate of all" in line) <= width + 40  # with its escape codes


def test_a_warning_scrolls_above_the_panel(text_model_path, text_rows, make_args, monkeypatch):
    file = on_a_terminal(monkeypatch, 100)
    monkeypatch.setattr("sys.stderr", io.StringIO())
    warner = logging.getLogger("somebody")
    handler = logging.StreamHandler()
    warner.addHandler(handler)

    def warning_reward(**columns):
        warner.warning("the judge is slow")
        return says_a_digit(**columns)

    args = make_args(vade_console="panel", max_steps=2)
    try:
        train(text_model_path, text_rows, args, warning_reward)
    finally:
        warner.removeHandler(handler)
    assert "the judge is slow" in file.getvalue()
    assert handler.stream is not None


@pytest.mark.parametrize("style", ["panel", "lines"])
def test_the_console_changes_no_weight_and_no_metric(text_model_path, text_rows, make_args, monkeypatch, style):
    on_a_terminal(monkeypatch, 120)
    stock, shown = (run(text_model_path, text_rows, make_args, each, **EVALUATED) for each in ("stock", style))
    assert_equal_weights(weights(stock), weights(shown))
    assert without_times(stock.state.log_history) == without_times(shown.state.log_history)


def test_an_error_gives_the_terminal_back(text_model_path, text_rows, make_args, monkeypatch):
    file = on_a_terminal(monkeypatch, 100)

    def breaks(**columns):
        raise RuntimeError("no judge")

    with pytest.raises(RuntimeError, match="no judge"):
        train(text_model_path, text_rows, make_args(vade_console="panel"), breaks)
    assert file.getvalue().rstrip().endswith("\x1b[?25h")  # the cursor is shown again


def test_a_plain_grpo_run_has_lines_too(text_model_path, text_rows, make_args, capsys):
    args = make_args(vade_sampler="uniform", shuffle_dataset=False, max_steps=2)
    trainer = train(text_model_path, text_rows, args)
    assert trainer.selection is None
    lines = capsys.readouterr().out.splitlines()
    assert sum("loss" in line for line in lines) == 2
    assert logged(trainer, "loss")
