"""The console: what a run shows, where, and that it changes nothing else."""

import io
import os
import signal

import pytest
from transformers import ProgressCallback

from tests.support.as_stock import full_history
from tests.support.runs import assert_equal_weights, says_a_digit, weights
from trl_vade import VADEConsoleCallback
from trl_vade.trainer.console import duration, header

EVALUATED = {"eval_strategy": "steps", "eval_steps": 2, "per_device_eval_batch_size": 4, "max_steps": 4}


@pytest.fixture
def evaluated(run, text_rows):
    """`run` with an evaluation on four rows."""
    more = {"eval_dataset": text_rows.select(range(4))}
    return lambda *given, **settings: run(*given, **{"more": more} | EVALUATED | settings)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def a_terminal(monkeypatch):
    """What a terminal shows of both streams."""
    file = Terminal()
    monkeypatch.setattr("sys.stdout", file)
    monkeypatch.setattr("sys.stderr", file)
    return file


def test_a_file_gets_a_header_a_line_a_logging_step_events_and_the_verdict(evaluated, capsys):
    trainer = evaluated(save_strategy="steps", save_steps=2)
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
    ends = ("Too few groups", "validation score", *[trainer.args.output_dir] * 2, "--vade_sampler uniform")
    assert all(words in line for words, line in zip(ends, lines[-5:], strict=True))


def test_the_run_to_compare_with_leaves_out_what_it_would_refuse(run, capsys):
    run(max_steps=1, vade_replay=2, vade_stratify_by="limit", vade_cooldown=0.2)
    assert capsys.readouterr().out.rstrip().endswith("-uniform, without vade_stratify_by, vade_replay (did it help?)")


@pytest.mark.slow
def test_a_terminal_gets_the_same_lines_above_the_bar_and_no_weight_and_no_metric_changes(
    evaluated, made, text_rows, monkeypatch
):
    terminal = a_terminal(monkeypatch)
    stock = made(more={"eval_dataset": text_rows.select(range(4))}, disable_tqdm=False, **EVALUATED)
    stock.remove_callback(VADEConsoleCallback)
    stock.add_callback(ProgressCallback)
    stock.train()
    assert "{'loss'" in terminal.getvalue()  # the dictionaries of transformers
    assert "s/step left" not in terminal.getvalue()
    for disable_tqdm in (True, False):
        terminal = a_terminal(monkeypatch)
        ours = evaluated(disable_tqdm=disable_tqdm)
        shown = terminal.getvalue()
        assert sum("useful" in line and "seen" in line for line in shown.splitlines()) == 4
        assert ("4/4 [" in shown, "s/step left" in shown) == (not disable_tqdm, disable_tqdm)
        assert "{'loss'" not in shown
    assert_equal_weights(weights(stock), weights(ours))
    assert full_history(stock) == full_history(ours)


def test_a_plain_grpo_run_has_lines_too(run, capsys):
    assert run(vade_sampler="uniform", shuffle_dataset=False, max_steps=2).selection is None
    assert sum("loss" in line for line in capsys.readouterr().out.splitlines()) == 2


def test_a_run_without_any_score_keeps_its_console(run, caplog):
    run(lambda completions, **columns: [None] * len(completions), max_steps=2)
    assert "The training is not affected" not in caplog.text


@pytest.mark.parametrize(
    ("settings", "size", "share", "warns"),
    [
        ({"max_steps": 12}, "4 rows x 4 = 16", "2.0 epochs", False),
        ({"max_steps": 12, "num_iterations": 2}, "4 rows x 4 = 16", "6 batches = 1.0 epochs", True),
        ({"steps_per_generation": 2}, "8 rows x 4 = 32 completions;", "3 batches = 1.0 epochs", True),
        ({"per_device_train_batch_size": 4}, "1 row x 4 = 4 completions (few rows:", "25 % of the rows", True),
        ({"vade_dynamic_sampling": True}, "4 rows x 4 = 16", "at least 1.0 epochs", True),
        ({"vade_sampler": "uniform"}, "4 rows x 4 = 16", "1.0 epochs", False),
        ({"vade_posterior_init": "rollout"}, "4 rows x 4 = 16", "1.0 epochs", False),
    ],
)
def test_the_start_says_how_much_of_the_data_the_run_visits(made, settings, size, share, warns):
    trainer = made(**settings)
    lines = list(header(trainer, trainer.args.max_steps))
    assert trainer.args.output_dir in lines[0]
    assert size in lines[1]
    assert lines[1].endswith(share)
    assert (len(lines) == 3) == warns


def test_a_duration_is_no_time_of_day():
    cases = {0.4: "0 s", 48: "48 s", 588: "9 min 48 s", 3600: "1 h 0 min", 11_520: "3 h 12 min", 266_400: "3 d 2 h"}
    assert {seconds: duration(seconds) for seconds in cases} == cases


def test_each_validation_set_is_held_against_its_own_first_score(evaluated, text_rows, capsys):
    more = {"eval_dataset": {"few": text_rows.select(range(2)), "many": text_rows.select(range(8))}}
    history = evaluated(more=more, eval_on_start=True).state.log_history
    lines = [line for line in capsys.readouterr().out.splitlines() if "validation on" in line]
    assert len(lines) == 6  # two sets, at the start and twice
    for name in more["eval_dataset"]:
        values = [entry["eval_reward"] for entry in history if f"eval_{name}_runtime" in entry]
        last = [line for line in lines if f"validation on {name}" in line][-1]
        assert f": {100 * values[-1]:.1f} ±" in last
        assert f"({100 * (values[-1] - values[0]):+.1f} points" in last


def test_an_error_of_the_console_switches_it_off_and_the_training_goes_on(run, monkeypatch, capsys, caplog):
    monkeypatch.setattr("trl_vade.trainer.console.figures", lambda *given, **named: 1 / 0)
    assert run(max_steps=2).state.global_step == 2
    assert "done at step" not in capsys.readouterr().out
    assert caplog.text.count("ZeroDivisionError: division by zero") == 1


@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupted_run_says_last_how_to_go_on(run, capsys):
    calls = []

    def interrupted(**columns):
        calls.append(1)
        if len(calls) == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return says_a_digit(**columns)

    with pytest.raises(KeyboardInterrupt):
        run(interrupted, save_strategy="steps", save_steps=100)
    *_, last = capsys.readouterr().out.splitlines()
    assert last.startswith("Stopped at step 2")
    assert 'resume_from_checkpoint="auto"' in last
