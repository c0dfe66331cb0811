"""Runs of the trainer on the text model, by the settings in which they differ from `SMALL_RUN`."""

import itertools
from contextlib import contextmanager

import pytest

from tests.support.rows import make_text_rows
from tests.support.runs import SaveAt, StopAfter, make_trainer, says_a_digit
from trl_vade.trainer.batch import GenerationBatch
from trl_vade.trainer.thinning import Thinning


@pytest.fixture
def made(text_model_path, tmp_path):
    """A function that makes a trainer: reward, rows, settings, and by name `model`, `trainer_class` and `more`.

    Each is on `make_text_rows` and in a folder of its own, unless it is given others; see `make_trainer`.
    """
    numbers = itertools.count()

    def make(reward=says_a_digit, rows=None, *, model=text_model_path, **settings):
        rows = make_text_rows() if rows is None else rows
        return make_trainer(tmp_path / f"run-{next(numbers)}", model, rows, reward, **settings)

    return make


@pytest.fixture
def run(made):
    """`made`, and it trains."""

    def train(*arguments, **settings):
        trainer = made(*arguments, **settings)
        trainer.train()
        return trainer

    return train


@pytest.fixture
def resumed(made, run, tmp_path):
    """`run`, stopped a step after a checkpoint, from which another trainer goes on."""

    def go_on(*arguments, checkpoint=3, more=None, **settings):
        folder, stop = tmp_path / "resumed", {"callbacks": [SaveAt(checkpoint), StopAfter(checkpoint + 1)]}
        run(*arguments, output_dir=folder, more=stop | (more or {}), **settings)
        trainer = made(*arguments, output_dir=folder, more=more, **settings)
        trainer.train(resume_from_checkpoint=f"{folder}/checkpoint-{checkpoint}")
        return trainer

    return go_on


@pytest.fixture
def watched(monkeypatch):
    """A block that notes each prepared generation batch, whole, and each micro-batch whose loss is computed."""

    @contextmanager
    def watching():
        batches, micro_batches, prepare, loss_of = [], [], GenerationBatch.make, Thinning.loss_of

        def preparing(self, rows, make):
            batches.append(prepare(self, rows, make))
            return batches[-1]

        def losing(self, micro_batch):
            micro_batches.append(micro_batch)
            return loss_of(self, micro_batch)

        with monkeypatch.context() as patch:
            patch.setattr(GenerationBatch, "make", preparing)
            patch.setattr(Thinning, "loss_of", losing)
            yield batches, micro_batches

    return watching


@pytest.fixture
def one_refill(monkeypatch):
    """At most one refill of a generation batch, where ten would leave no group without a gradient."""
    monkeypatch.setattr("trl_vade.trainer.batch.MAX_REFILLS", 1)
