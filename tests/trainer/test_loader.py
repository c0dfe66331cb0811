"""Loading ahead in real training on images: nothing but time comes of it."""

import threading
from functools import partial

import datasets
import pytest
from datasets import Dataset
from PIL import Image

from tests.support.marks import slow, slow_but
from tests.support.refusals import refused
from tests.support.rows import numbered_rows
from tests.support.runs import StopAfter, assert_same_end, odd_length
from trl_vade.errors import ImageDecodeError
from trl_vade.samplers.snapshot import state_digest
from trl_vade.selection.log import SelectionLog
from trl_vade.selection.on_time import OnTimeSelection


def rows_with_pictures():
    """12 rows, 4 a generation batch: the red of a picture is the row's number."""
    rows = numbered_rows(12, image=lambda number: Image.new("RGB", (56, 56), (number, 0, 0)))
    return rows.map(lambda row: {"prompt": [{"role": "user", "content": row["prompt"]}]})


@pytest.fixture
def start(made, vision_model_path):
    """Make a trainer of four steps on `rows_with_pictures`."""
    return lambda reward=odd_length, rows=None, **settings: made(
        reward, rows or rows_with_pictures(), model=vision_model_path, **{"max_steps": 4} | settings
    )


@pytest.fixture
def prefetches(monkeypatch):
    """The generation batches after which the next one was begun; a list that goes on growing."""
    prefetch, after = OnTimeSelection.prefetch, []

    def noting(self):
        after.append(self.sampler.posterior.step)
        prefetch(self)

    monkeypatch.setattr(OnTimeSelection, "prefetch", noting)
    return after


def assert_nothing_runs_on(trainer):
    for thread in threading.enumerate():
        if thread.name.startswith("trl_vade-decode"):
            thread.join(timeout=60)
            assert not thread.is_alive()
    assert not trainer.selection.loader.decoder._begun


CASES = {
    "default": {},
    "uniform, with loader workers asked for": {"vade_sampler": "uniform", "dataloader_num_workers": 2},
    "two iterations of two accumulations": {"num_iterations": 2, "steps_per_generation": 2, "max_steps": 6},
    "dynamic sampling": {"vade_dynamic_sampling": True},
}


@pytest.mark.parametrize("case", slow_but(["default"], CASES))
def test_a_run_that_loads_ahead_is_the_run_that_does_not(start, case, monkeypatch, prefetches):
    ahead = start(**CASES[case])
    ahead.train()
    assert prefetches
    monkeypatch.setattr(OnTimeSelection, "prefetch", lambda self: None)
    plain = start(**CASES[case])
    plain.train()
    assert_same_end(ahead, plain)
    assert state_digest(ahead.selection.sampler) == state_digest(plain.selection.sampler)


@pytest.mark.parametrize("column", slow_but(["images"], ["image", "images"]))
def test_each_image_is_decoded_once_a_generation_batch_and_none_for_a_batch_that_never_comes(
    start, column, decoded_images, prefetches
):
    rows = rows_with_pictures()
    if column == "images":
        rows = rows.map(lambda row: {"images": [row["image"]]}, remove_columns="image")
        rows = rows.cast_column("images", datasets.List(datasets.Image()))
    trainer = start(rows=rows)
    decoded_images.clear()
    trainer.train()
    lines = SelectionLog(trainer.args.output_dir).read()
    assert prefetches == [1, 2, 3]
    assert sorted(decoded_images) == sorted(row for line in lines for row in line["sample_index"])
    assert_nothing_runs_on(trainer)


@pytest.mark.parametrize(
    ("changes", "after"),
    [
        ({"max_steps": 3, "gradient_accumulation_steps": 2, "steps_per_generation": 1}, [1, 2, 3, 4, 5]),
        slow({"num_iterations": 2}, [1]),
        slow({"steps_per_generation": 2, "gradient_accumulation_steps": 2}, [1, 2, 3]),
        slow({"max_steps": -1, "num_train_epochs": 1}, [1, 2]),
        # Every group is refused, so a batch has refills, each a step of the posterior, until too few rows are left.
        ({"reward": lambda completions, **columns: [0.0] * len(completions), **CASES["dynamic sampling"]}, [3, 6, 8]),
    ],
)
def test_the_next_batch_is_begun_after_each_but_the_last_and_after_its_last_refill(start, changes, after, prefetches):
    start(**changes).train()
    assert prefetches == after


def fails_later(completions, trainer_state, **columns):
    if trainer_state.global_step == 1:
        raise ConnectionError("the judge is gone")
    return odd_length(completions)


def test_a_run_that_ends_early_gives_up_what_it_had_begun(start, prefetches):
    stopped = start(more={"callbacks": [StopAfter(2)]})
    stopped.train()
    assert prefetches == [1, 2]
    assert_nothing_runs_on(stopped)
    failed = start(fails_later)
    with pytest.raises(ConnectionError):
        failed.train()
    assert prefetches == [1, 2, 1]
    assert_nothing_runs_on(failed)


def test_a_damaged_image_ends_the_run_at_the_batch_that_chose_its_row_and_names_it(start, prefetches):
    start = partial(start, vade_sampler="uniform", max_steps=3)
    whole = start()
    whole.train()
    third = SelectionLog(whole.args.output_dir).read()[2]["sample_index"][1]
    raw = rows_with_pictures().cast_column("image", datasets.Image(decode=False)).to_list()
    raw[third]["image"] = {"bytes": b"not a picture", "path": None}
    trainer = start(rows=Dataset.from_list(raw).cast_column("image", datasets.Image()))
    with refused(ImageDecodeError, [third, f"row-{third}", "image"]):
        trainer.train()
    assert trainer.state.global_step == trainer.selection.sampler.posterior.step == 2
    assert_nothing_runs_on(trainer)
