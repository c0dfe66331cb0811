"""A process that is asked to stop leaves a checkpoint from which the run goes on."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from accelerate import Accelerator

from tests.support.rows import numbered_rows
from tests.support.runs import SMALL_RUN, assert_equal_weights, says_a_digit, train, weights
from trl_vade import VADEGRPOConfig, VADEGRPOTrainer
from trl_vade.selection.log import SelectionLog
from trl_vade.trainer.checkpoint.folders import look_at
from trl_vade.trainer.checkpoint.preemption import LastCheckpoint

PROGRAM = """
import os, signal, subprocess
signal.signal(signal.SIGINT, signal.default_int_handler)  # see `ctrl_c` in conftest.py
from tests.support.rows import numbered_rows
from tests.support.runs import says_a_digit
from trl_vade import VADEGRPOConfig, VADEGRPOTrainer

calls = []

def reward(completions, limit, **kwargs):
    calls.append(1)
    if len(calls) == 3:  # in the middle of a step
        for number in {signals}:
            # The loader's workers, too, and by another process, as Slurm does.
            subprocess.run(["bash", "-c", f"kill -{{number}} -{{os.getpid()}}"])
    return says_a_digit(completions, limit)

VADEGRPOTrainer({model!r}, reward, VADEGRPOConfig(**{args!r}), numbered_rows(24, limit=lambda i: i % 10)).train()
print("came to the end")
"""

pytestmark = pytest.mark.usefixtures("ctrl_c")

WORKERS = {"dataloader_num_workers": 2, "gradient_accumulation_steps": 4, "per_device_train_batch_size": 4}
ARGS = SMALL_RUN | {"save_strategy": "steps", "save_steps": 100, "disable_tqdm": False}


def run(model, output_dir, signals, **changes):
    args = ARGS | {"output_dir": str(output_dir)} | changes
    program = PROGRAM.format(model=model, args=args, signals=signals)
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[3],
        start_new_session=True,
    )


@pytest.fixture(scope="module")
def whole(text_model_path, tmp_path_factory):
    """What the program above chooses when no signal comes. In this process: a fresh one is seconds of imports."""
    args = VADEGRPOConfig(**ARGS | {"output_dir": str(tmp_path_factory.mktemp("whole")), "save_strategy": "no"})
    trainer = train(text_model_path, numbered_rows(24, limit=lambda i: i % 10), args)
    return SelectionLog(trainer.args.output_dir).read()


@pytest.mark.slow
def test_a_signal_is_answered_by_a_checkpoint_and_then_takes_its_course(text_model_path, tmp_path, whole):
    stopped = run(text_model_path, tmp_path / "parts", [int(signal.SIGTERM)], **WORKERS)
    assert "SIGTERM received" in stopped.stdout + stopped.stderr
    assert stopped.returncode == -signal.SIGTERM
    assert "came to the end" not in stopped.stdout
    assert [path.name for path in (tmp_path / "parts").glob("checkpoint-*")] == ["checkpoint-3"]
    assert len(whole) == 6
    assert SelectionLog(tmp_path / "parts").read() == whole[:3]


@pytest.fixture
def terminated():
    """SIGTERM ends this process as an exception that a test can expect."""

    def end(number, frame):
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize(("number", "ending"), [(signal.SIGTERM, SystemExit), (signal.SIGINT, KeyboardInterrupt)])
def test_a_run_stopped_by_a_signal_resumes_as_if_it_had_not_been(
    text_model_path, text_rows, make_args, tmp_path, terminated, caplog, number, ending
):
    changes = {"save_strategy": "steps", "save_steps": 100, "num_iterations": 2}
    whole = train(text_model_path, text_rows, make_args(output_dir=str(tmp_path / "whole"), **changes))
    args = make_args(output_dir=str(tmp_path / "parts"), **changes)
    calls = []

    def interrupted(completions, limit, **kwargs):
        calls.append(1)
        if len(calls) == 2:
            os.kill(os.getpid(), number)
        return says_a_digit(completions, limit)

    interrupted.__name__ = "says_a_digit"  # the same success signal, or the resume is refused
    with pytest.raises(ending):
        VADEGRPOTrainer(text_model_path, interrupted, args, text_rows).train()
    assert f"{number.name} received" in caplog.text
    assert [path.name for path in (tmp_path / "parts").glob("checkpoint-*")] == ["checkpoint-3"]
    resumed = VADEGRPOTrainer(text_model_path, says_a_digit, args, text_rows)
    resumed.train(resume_from_checkpoint=True)  # of step 3: inside the second generation batch
    assert_equal_weights(weights(resumed), weights(whole))
    assert SelectionLog(tmp_path / "parts").read() == SelectionLog(tmp_path / "whole").read()


@pytest.mark.slow
def test_a_second_interrupt_does_not_wait(text_model_path, tmp_path):
    stopped = run(text_model_path, tmp_path, [int(signal.SIGINT)] * 2)
    assert "KeyboardInterrupt" in stopped.stderr
    assert not list(tmp_path.glob("checkpoint-*"))


@pytest.mark.parametrize("changes", [{"save_strategy": "no"}, {"enable_jit_checkpoint": True}])
def test_where_no_checkpoint_is_wanted_an_interrupt_is_an_interrupt(text_model_path, text_rows, make_args, changes):
    def interrupted(completions, **kwargs):
        os.kill(os.getpid(), signal.SIGINT)
        return [0.0] * len(completions)

    args = make_args(**changes)
    with pytest.raises(KeyboardInterrupt):
        VADEGRPOTrainer(text_model_path, interrupted, args, text_rows).train()
    assert not list(Path(args.output_dir).glob("checkpoint-*"))


@pytest.mark.slow
def test_a_checkpoint_of_transformers_own_preemption_is_whole_too(text_model_path, tmp_path):
    """It begins the folder with a mark of its own."""
    changes = {"enable_jit_checkpoint": True, "max_steps": 100_000, "save_steps": 100_000}  # it waits for 3 seconds
    run(text_model_path, tmp_path, [int(signal.SIGTERM)], **changes)
    (checkpoint,) = tmp_path.glob("checkpoint-*")
    assert look_at(checkpoint).fault is None


@pytest.fixture
def watched(make_args):
    """A `LastCheckpoint` and the arguments of its run."""
    return LastCheckpoint(Accelerator(cpu=True)), make_args(save_strategy="steps")


def test_an_error_after_a_signal_is_raised_and_not_hidden_by_it(watched):
    last, args = watched

    def fail():
        with last.watching(args):
            signal.raise_signal(signal.SIGINT)
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        fail()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_where_ctrl_c_is_ignored_it_stays_so(watched):
    """As in a background job of a script, `python train.py &`."""
    last, args = watched
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # `ctrl_c` puts back what was there before
    with last.watching(args):
        signal.raise_signal(signal.SIGINT)
        assert not last.asked
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
