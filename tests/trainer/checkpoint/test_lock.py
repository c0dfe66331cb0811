"""One run a folder: a second one is refused in words, any death frees it, and a folder that takes no file is named."""

import json
import os
import shutil
import signal
import socket
import sys
import time
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from accelerate import Accelerator
from transformers import TrainerCallback

from tests.support.refusals import refused, says
from trl_vade.checkpoints import LOCK_FILE
from trl_vade.errors import CheckpointSaveError, ConfigurationError
from trl_vade.trainer.run_start import holding


@pytest.fixture(autouse=True)
def accelerator():
    """accelerate's loggers need to know which process this is."""
    return Accelerator(cpu=True)


@contextmanager
def another_process(work):
    """Fork a process that does `work(say)`; yields its id and what it says first."""
    here, there = os.pipe()
    if (pid := os.fork()) == 0:
        os.close(here)
        try:
            work(lambda text: os.write(there, text.encode()))
        except BaseException as error:
            os.write(there, f"{type(error).__name__}: {error}".encode())
        os._exit(0)
    os.close(there)
    try:
        yield pid, os.read(here, 10_000).decode()
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(here)


def test_a_folder_that_another_process_trains_in_is_refused_until_that_dies(tmp_path):
    def hold(say):
        with holding(tmp_path / "run"):
            if (worker := os.fork()) == 0:
                time.sleep(60)  # as a data-loader worker, which outlives its parent
                os._exit(0)
            shutil.copytree(tmp_path / "run", tmp_path / "copy")  # which closes the file of the lock, too
            say(str(worker))
            time.sleep(60)

    with another_process(hold) as (pid, worker):
        about = json.loads((tmp_path / "run" / LOCK_FILE).read_text())
        assert (about["pid"], about["host"]) == (pid, socket.gethostname())
        names = ["output_dir", tmp_path / "run", pid, about["host"]]
        with refused(ConfigurationError, names, ["another output_dir"]), holding(tmp_path / "run"):
            pass
        with holding(tmp_path / "another"):
            pass
    os.kill(int(worker), 0)
    with holding(tmp_path / "run"):
        assert json.loads((tmp_path / "run" / LOCK_FILE).read_text())["pid"] == os.getpid()
    os.kill(int(worker), signal.SIGKILL)


def test_a_second_run_that_starts_at_the_same_moment_is_refused(made, tmp_path):
    said, args = [], {"output_dir": tmp_path, "max_steps": 1}
    second = made(**args)

    class Twin(TrainerCallback):
        def on_train_begin(self, args, state, control, **kwargs):
            with another_process(lambda say: second.train()) as (_, text):
                said.append(text)

    made(more={"callbacks": [Twin()]}, **args).train()
    assert said[0].startswith("ConfigurationError")
    assert says(said[0], str(os.getpid()))
    second.train()  # it is free again


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="not even root may write there")
def test_a_folder_that_cannot_be_written_is_found_before_anything_is_generated(made):
    trainer = made(lambda **columns: 1 / 0, output_dir="/proc", max_steps=1)
    with refused(CheckpointSaveError, ["/proc"], ["permissions", "output_dir"]):
        trainer.train()


@pytest.mark.parametrize("module", [None, SimpleNamespace(LOCK_EX=2, LOCK_NB=4, flock=lambda *_: os.close(-1))])
def test_where_there_are_no_locks_a_run_goes_without(tmp_path, monkeypatch, module):
    """As on Windows, and on some file systems."""
    monkeypatch.setitem(sys.modules, "fcntl", module)
    with holding(tmp_path):
        assert (tmp_path / LOCK_FILE).exists()
