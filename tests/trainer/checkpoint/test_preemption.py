"""A process that is asked to stop leaves a checkpoint from which the run goes on."""

import multiprocessing
import os
import signal

import pytest
from accelerate import Accelerator

from tests.support.runs import assert_same_end, says_a_digit
from trl_vade.trainer.callbacks import LastCheckpoint

pytestmark = pytest.mark.usefixtures("ctrl_c")


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
    made, run, tmp_path, terminated, caplog, number, ending
):
    """Also where workers were asked for: Slurm signals all processes, and one that ends would end the run."""
    changes = {"save_strategy": "steps", "save_steps": 100, "num_iterations": 2, "dataloader_num_workers": 1}
    calls, whole, changes = [], run(**changes), changes | {"output_dir": tmp_path / "parts"}

    def interrupted(completions, limit, **kwargs):
        calls.append(1)
        if len(calls) == 2:
            for pid in (*(worker.pid for worker in multiprocessing.active_children()), os.getpid()):
                os.kill(pid, number)
        return says_a_digit(completions, limit)

    interrupted.__name__ = "says_a_digit"  # the same success signal, or the resume is refused
    with pytest.raises(ending):
        run(interrupted, **changes)
    assert f"{number.name} received" in caplog.text
    assert [path.name for path in (tmp_path / "parts").glob("checkpoint-*")] == ["checkpoint-3"]
    resumed = made(**changes)
    resumed.train(resume_from_checkpoint=True)  # of step 3: inside the second generation batch
    assert_same_end(resumed, whole)


@pytest.mark.parametrize("changes", [{"save_strategy": "no"}, {"enable_jit_checkpoint": True}])
def test_where_no_checkpoint_is_wanted_an_interrupt_is_an_interrupt(run, tmp_path, changes):
    def interrupted(completions, **kwargs):
        os.kill(os.getpid(), signal.SIGINT)
        return [0.0] * len(completions)

    with pytest.raises(KeyboardInterrupt):
        run(interrupted, **changes)
    assert not list(tmp_path.glob("**/checkpoint-*"))


@pytest.fixture
def watched(make_args):
    """A `LastCheckpoint` and the arguments of its run."""
    return LastCheckpoint(Accelerator(cpu=True)), make_args(save_strategy="steps")


def test_an_error_after_a_signal_is_not_hidden_and_a_second_interrupt_does_not_wait(watched):
    last, args = watched
    reached = []

    def interrupted(then):
        with last.watching(args):
            signal.raise_signal(signal.SIGINT)
            assert last._received == signal.SIGINT
            then()
            reached.append(then)

    def fail():
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        interrupted(fail)
    with pytest.raises(KeyboardInterrupt):
        interrupted(lambda: signal.raise_signal(signal.SIGINT))
    assert reached == []
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in `python train.py &`; `ctrl_c` puts back what was before
    with last.watching(args):
        signal.raise_signal(signal.SIGINT)
        assert last._received is None
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
