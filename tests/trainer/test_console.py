"""The console: what a run shows, where, and that it changes nothing else."""

import io
import os
import signal

import pytest
from transformers import ProgressCallback

from tests.support.runs import assert_equal_weights, logged, says_a_digit, train, weights
from trl_vade import VADEConsoleCallback, VADEGRPOTrainer
from trl_vade.trainer.console import duration, header

TIMES = ("step_time", "runtime", "per_second", "seconds")


def run(model, rows, make_args, reward=says_a_digit, evaluated=None, stock=False, **settings):
    args = make_args(output_dir=f"{make_args().output_dir}-{stock}", **settings)
    trainer = VADEGRPOTrainer(model, reward, args, rows, eval_dataset=evaluated or rows.select(range(4)))
    if stock:
        trainer.remove_callback(VADEConsoleCallback)
        trainer.add_callback(ProgressCallback)
    trainer.train()
    return trainer


def without_times(log_history):
    return [
        {name: value for name, value in entry.items() if not any(word in name for word in TIMES)}
        for entry in log_history
    ]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def a_terminal(monkeypatch):
    """What a terminal shows of both streams."""
    file = Terminal()
    monkeypatch.setattr("sys.stdout", file)
    monkeypatch.setattr("sys.stderr", file)
    return file


EVALUATED = {"eval_strategy": "steps", "eval_steps": 2, "per_device_eval_batch_size": 4, "max_steps": 4}


def test_a_file_gets_a_header_a_line_a_logging_step_events_and_the_verdict(
    text_model_path, text_rows, make_args, capsys
):
    trainer = run(text_model_path, text_rows, make_args, save_strategy="steps", save_steps=2, **EVALUATED)
    lines = capsys.readouterr().out.splitlines()
    assert "thompson, balanced" in lines[0]
    assert "24 rows" in lines[1]
    assert "4 rows x 4 = 16 completions" in lines[1]
    assert "too rarely" in lines[2]  # 16 of the 24 rows
    steps = [line for line in lines if " step " in line and "useful" in line and "/4" in line]
    assert len(steps) == 4
    assert "predicted" in steps[0]
    kept = [entry["vade/kept_rollouts"] for entry in trainer.state.log_history if "vade/kept_rollouts" in entry]
    saved = [f"saved {1 - each / 16:.0%}" if each < 16 else "" for each in kept]
    assert any(saved)
    assert all(part in line for part, line in zip(saved, steps, strict=True))
    assert sum("validation at step" in line for line in lines) == 2
    assert any("checkpoint-2 written" in line for line in lines)
    assert "Too few groups" in lines[-5]
    assert "validation score" in lines[-4]
    assert "±" in lines[-4]
    assert all(trainer.args.output_dir in line for line in lines[-3:])
    assert "--vade_sampler uniform" in lines[-1]


@pytest.mark.slow
def test_a_terminal_gets_the_same_lines_above_the_bar_and_no_weight_and_no_metric_changes(
    text_model_path, text_rows, make_args, monkeypatch
):
    terminal = a_terminal(monkeypatch)
    stock = run(text_model_path, text_rows, make_args, stock=True, disable_tqdm=False, **EVALUATED)
    assert "{'loss'" in terminal.getvalue()  # the dictionaries of transformers
    assert "s/step left" not in terminal.getvalue()
    for disable_tqdm in (True, False):
        terminal = a_terminal(monkeypatch)
        ours = run(text_model_path, text_rows, make_args, disable_tqdm=disable_tqdm, **EVALUATED)
        shown = terminal.getvalue()
        assert sum("useful" in line and "seen" in line for line in shown.splitlines()) == 4
        assert ("4/4 [" in shown, "s/step left" in shown) == (not disable_tqdm, disable_tqdm)
        assert "{'loss'" not in shown
    assert_equal_weights(weights(stock), weights(ours))
    assert without_times(stock.state.log_history) == without_times(ours.state.log_history)


def test_a_plain_grpo_run_has_lines_too(text_model_path, text_rows, make_args, capsys):
    args = make_args(vade_sampler="uniform", shuffle_dataset=False, max_steps=2)
    trainer = train(text_model_path, text_rows, args)
    assert trainer.selection is None
    lines = capsys.readouterr().out.splitlines()
    assert sum("loss" in line for line in lines) == 2
    assert logged(trainer, "loss")


def test_a_run_without_any_score_keeps_console_and_report(text_model_path, text_rows, make_args, caplog):
    def unscored(completions, **columns):
        return [None] * len(completions)

    train(text_model_path, text_rows, make_args(max_steps=2), reward=unscored)
    assert "The training is not affected" not in caplog.text


@pytest.mark.parametrize(
    ("settings", "size", "share", "warns"),
    [
        ({}, "4 rows x 4 = 16", "1.0 epochs", True),
        ({"max_steps": 12}, "4 rows x 4 = 16", "2.0 epochs", False),
        ({"max_steps": 12, "num_iterations": 2}, "4 rows x 4 = 16", "6 batches = 1.0 epochs", True),
        ({"steps_per_generation": 2}, "8 rows x 4 = 32 completions;", "3 batches = 1.0 epochs", True),
        ({"per_device_train_batch_size": 4}, "1 row x 4 = 4 completions (few rows:", "25 % of the rows", True),
        ({"vade_dynamic_sampling": True}, "4 rows x 4 = 16", "at least 1.0 epochs", True),
        ({"vade_sampler": "uniform"}, "4 rows x 4 = 16", "1.0 epochs", False),
        ({"vade_posterior_init": "rollout"}, "4 rows x 4 = 16", "1.0 epochs", False),
    ],
)
def test_the_start_says_how_much_of_the_data_the_run_visits(
    text_model_path, text_rows, make_args, settings, size, share, warns
):
    trainer = VADEGRPOTrainer(text_model_path, says_a_digit, make_args(**settings), text_rows)
    lines = list(header(trainer, trainer.args.max_steps))
    assert trainer.args.output_dir in lines[0]
    assert size in lines[1]
    assert lines[1].endswith(share)
    assert (len(lines) == 3) == warns


def test_a_duration_is_no_time_of_day():
    cases = {0.4: "0 s", 48: "48 s", 588: "9 min 48 s", 3600: "1 h 0 min", 11_520: "3 h 12 min", 266_400: "3 d 2 h"}
    assert {seconds: duration(seconds) for seconds in cases} == cases


def test_each_validation_set_is_held_against_its_own_first_score(text_model_path, text_rows, make_args, capsys):
    named = {"few": text_rows.select(range(2)), "many": text_rows.select(range(8))}
    trainer = run(text_model_path, text_rows, make_args, evaluated=named, eval_on_start=True, **EVALUATED)
    lines = [line for line in capsys.readouterr().out.splitlines() if "validation on" in line]
    assert len(lines) == 6  # two sets, at the start and twice
    scores = {name: [] for name in named}
    for entry in trainer.state.log_history:
        for name in named:
            if f"eval_{name}_runtime" in entry:
                scores[name].append(entry["eval_reward"])
    for name, values in scores.items():
        last = [line for line in lines if f"validation on {name}" in line][-1]
        assert f": {100 * values[-1]:.1f} ±" in last
        assert f"({100 * (values[-1] - values[0]):+.1f} points" in last


def test_an_error_of_the_console_switches_it_off_and_the_training_goes_on(
    text_model_path, text_rows, make_args, monkeypatch, capsys, caplog
):
    def broken(*arguments, **named):
        raise ZeroDivisionError("no figure")

    monkeypatch.setattr("trl_vade.trainer.console.figures", broken)
    trainer = run(text_model_path, text_rows, make_args, max_steps=2)
    assert trainer.state.global_step == 2
    assert "done at step" not in capsys.readouterr().out
    assert caplog.text.count("ZeroDivisionError: no figure") == 1


@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupted_run_says_last_how_to_go_on(text_model_path, text_rows, make_args, capsys):
    calls = []

    def interrupted(**columns):
        calls.append(1)
        if len(calls) == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return says_a_digit(**columns)

    with pytest.raises(KeyboardInterrupt):
        run(text_model_path, text_rows, make_args, interrupted, save_strategy="steps", save_steps=100)
    *_, last = capsys.readouterr().out.splitlines()
    assert last.startswith("Stopped at step 2")
    assert 'resume_from_checkpoint="auto"' in last
