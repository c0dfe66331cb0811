"""Offline before anything else, profiles, and the fixtures that the tests share."""

import gc
import os
import sys
from functools import cache

# Before anything imports the Hub client: no test may reach a network, or report anything.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
# Before anything imports torch: pytest has a process for each core, and more threads would take three times as long.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from hypothesis import settings

pytest.register_assert_rewrite("tests.support")

# Timings never decide a test, and a run of CI must be able to be repeated.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")


NUM_FROZEN_MODULES = 0


def freeze():
    """Hide what was imported from the garbage collector, which each `train()` calls (accelerate's free_memory)."""
    global NUM_FROZEN_MODULES
    if len(sys.modules) > NUM_FROZEN_MODULES + 50:
        NUM_FROZEN_MODULES = len(sys.modules)
        gc.collect()
        gc.freeze()


def pytest_collection_finish():
    freeze()


def pytest_runtest_logfinish():
    freeze()


def pytest_unconfigure():
    gc.unfreeze()


@pytest.fixture(scope="session")
def text_model_path(tmp_path_factory):
    """Directory of the tiny text model; see `make_text_model`."""
    from tests.support.runs import make_text_model

    return make_text_model(tmp_path_factory.mktemp("text_model"))


@pytest.fixture(scope="session")
def vision_model_path(tmp_path_factory):
    """Directory of a real Qwen2.5-VL of the testbed's size, untrained."""
    from trl_vade.testbed.model import build_model
    from trl_vade.testbed.processor import build_processor

    path = str(tmp_path_factory.mktemp("vision_model"))
    processor = build_processor()
    build_model(processor).save_pretrained(path)
    processor.save_pretrained(path)
    return path


@pytest.fixture(scope="session")
def agent_model_path(tmp_path_factory):
    """Directory of the tiny text model that calls tools; see `make_agent_model`."""
    from tests.support.agents import make_agent_model

    return make_agent_model(tmp_path_factory.mktemp("agent_model"))


@pytest.fixture
def text_rows():
    """The 24 questions of `make_text_rows`."""
    from tests.support.rows import make_text_rows

    return make_text_rows()


@pytest.fixture
def ctrl_c():
    """SIGINT interrupts, as in the foreground: in a background job of a script the shell has it ignored."""
    import signal

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def drawn_pictures():
    """The pictures of reports are drawn, which takes longer than to train here."""


@pytest.fixture(autouse=True)
def _plain_pictures(request, monkeypatch):
    """In place of a report's picture a few bytes, other ones for other figures, but for `drawn_pictures`."""
    import hashlib
    from importlib.util import find_spec
    from pathlib import Path

    if "drawn_pictures" in request.fixturenames or find_spec("matplotlib") is None:
        return

    def draw(run, path):
        digest = hashlib.sha256(repr((run.about, run.selections, run.rows)).encode()).digest()
        Path(path).write_bytes(b"\x89PNG " + digest)
        return {}

    monkeypatch.setattr("trl_vade.selection.report.panels.draw_report", draw)


@pytest.fixture
def decoded_images(monkeypatch):
    """The numbers of the `picture`s that datasets has decoded, in order; a list that goes on growing."""
    import threading

    import datasets

    for thread in threading.enumerate():  # of an earlier test, which did not load what it had begun to decode
        if thread.name.startswith("trl_vade-decode"):
            thread.join(timeout=60)
    decode, decoded = datasets.Image.decode_example, []

    def counting(self, value, token_per_repo_id=None):
        image = decode(self, value, token_per_repo_id)
        decoded.append(image.getpixel((0, 0))[0])
        return image

    monkeypatch.setattr(datasets.Image, "decode_example", counting)
    return decoded


@pytest.fixture
def make_args(tmp_path):
    """Arguments of `SMALL_RUN` in a directory of the test's own, with the changes asked for."""
    from tests.support.runs import SMALL_RUN
    from trl_vade import VADEGRPOConfig

    def make(config_class=VADEGRPOConfig, **changes):
        return config_class(**({"output_dir": str(tmp_path / "out")} | SMALL_RUN | changes))

    return make


@pytest.fixture(scope="session")
def _checkpointed(text_model_path, tmp_path_factory):
    from tests.support.rows import make_text_rows
    from tests.support.runs import make_trainer

    steps = {"plain": {"max_steps": 2}, "iterated": {"max_steps": 3, "num_iterations": 2}}

    @cache
    def run(kind):
        saves = {"save_strategy": "steps", "save_steps": 1} | steps[kind]
        trainer = make_trainer(tmp_path_factory.mktemp(kind), text_model_path, make_text_rows(), **saves)
        trainer.train()
        return trainer

    return run


@pytest.fixture
def checkpointed_run(_checkpointed, make_args):
    """Some run on `text_rows` with a checkpoint of each step, copied to where `make_args` points: a function.

    Its argument is "plain", two generation batches of one step each, or "iterated", one of two steps and the first
    step of another. It returns the trainer, which is for looking at alone, and the folder.
    """
    import shutil
    from pathlib import Path

    def copy(kind="plain"):
        trainer, folder = _checkpointed(kind), Path(make_args().output_dir)
        shutil.copytree(trainer.args.output_dir, folder)
        return trainer, folder

    return copy


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """See `connected_hub`. Another token is `monkeypatch.setenv("HF_TOKEN", ...)`, none is `delenv`; `with offline():`
    is without a network."""
    from tests.support.hub import connected_hub

    with connected_hub(tmp_path / "hf_home") as running:
        try:
            yield running
        finally:  # what the test itself has set goes first: it would be put back to the values of this hub
            monkeypatch.undo()
