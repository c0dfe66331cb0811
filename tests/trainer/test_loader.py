"""Loading ahead in real training on images: nothing but time comes of it."""

import threading
import time
from itertools import product

import datasets
import pytest
from datasets import Dataset
from trl.trainer.utils import RepeatSampler

from tests.support.checkpoints import without_later
from tests.support.marks import slow, slow_but
from tests.support.refusals import refused
from tests.support.rows import numbered_rows, text_of
from tests.support.runs import StopAfter, assert_same_end
from trl_vade import VADEGRPOTrainer, VADEReportCallback
from trl_vade.errors import ImageDecodeError
from trl_vade.samplers.snapshot import state_digest
from trl_vade.selection.log import SelectionLog
from trl_vade.selection.on_time import OnTimeSelection
from trl_vade.trainer.loader import TicketDataset, TicketSampler


def picture(number):
    from PIL import Image

    return Image.new("RGB", (56, 56), (number, 0, 0))


def rows_with_pictures(count=12):
    rows = numbered_rows(count, image=picture)
    return rows.map(lambda row: {"prompt": [{"role": "user", "content": row["prompt"]}]})


def is_short(completions, **kwargs):
    return [float(len(text_of(completion)) % 2) for completion in completions]


@pytest.fixture
def start(vision_model_path, make_args, tmp_path):
    """Make a trainer of six steps on 12 rows with a picture each, 4 rows a generation batch, so two epochs."""

    def make(folder="out", rows=None, reward=is_short, callbacks=None, **changes):
        args = make_args(output_dir=str(tmp_path / folder), **changes)
        rows = rows or rows_with_pictures()
        trainer = VADEGRPOTrainer(vision_model_path, reward, args, rows, callbacks=callbacks)
        trainer.remove_callback(VADEReportCallback)  # it shows pictures, too
        return trainer

    return make


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
    for _ in range(600):
        if not any(thread.name.startswith("trl_vade-decode") for thread in threading.enumerate()):
            break
        time.sleep(0.1)
    assert not any(thread.name.startswith("trl_vade-decode") for thread in threading.enumerate())
    assert not trainer.selection.loader.decoder._begun


CASES = {
    "default": {},
    "uniform, and loader workers that are forked anew in the second epoch": {
        "vade_sampler": "uniform",
        "dataloader_num_workers": 2,
    },
    "two iterations of two accumulations": {"num_iterations": 2, "steps_per_generation": 2, "max_steps": 6},
    "dynamic sampling": {"vade_dynamic_sampling": True, "vade_max_refills": 1},
}


@pytest.mark.parametrize("case", slow_but(["default"], CASES))
def test_a_run_that_loads_ahead_is_the_run_that_does_not_and_resumes_to_it(start, case, monkeypatch, prefetches):
    changes = {"save_steps": 2, "max_steps": 4} | CASES[case]
    start("parts", callbacks=[StopAfter(3)], save_strategy="steps", **changes).train()
    resumed = start("parts", **changes)
    resumed.train(resume_from_checkpoint=without_later(f"{resumed.args.output_dir}/checkpoint-2"))
    assert prefetches
    monkeypatch.setattr(OnTimeSelection, "prefetch", lambda self: None)
    plain = start("plain", **changes)
    plain.train()
    assert_same_end(resumed, plain)
    assert state_digest(resumed.selection.sampler) == state_digest(plain.selection.sampler)


@pytest.mark.parametrize("column", slow_but(["images"], ["image", "images"]))
def test_each_image_is_decoded_once_a_generation_batch_and_none_for_a_batch_that_never_comes(
    start, column, decoded_images, prefetches
):
    rows = rows_with_pictures()
    if column == "images":
        rows = rows.map(lambda row: {"images": [row["image"]]}, remove_columns="image")
        rows = rows.cast_column("images", datasets.List(datasets.Image()))
    trainer = start(rows=rows, max_steps=4)
    decoded_images.clear()
    trainer.train()
    lines = SelectionLog(trainer.args.output_dir).read()
    assert prefetches == [1, 2, 3]
    assert sorted(decoded_images) == sorted(row for line in lines for row in line["sample_index"])
    assert_nothing_runs_on(trainer)


@pytest.mark.parametrize(
    ("changes", "batches"),
    [
        ({"max_steps": 3, "gradient_accumulation_steps": 2, "steps_per_generation": 1}, 6),
        slow({"max_steps": 4, "num_iterations": 2}, 2),
        slow({"max_steps": 4, "steps_per_generation": 2, "gradient_accumulation_steps": 2}, 4),
        slow({"max_steps": -1, "num_train_epochs": 1}, 3),
    ],
    ids=str,
)
def test_the_next_batch_is_begun_after_each_but_the_last(start, changes, batches, prefetches):
    start(**changes).train()
    assert prefetches == [*range(1, batches)]


def test_with_dynamic_sampling_it_waits_for_the_last_refill(start, prefetches):
    """Every group is refused, so each batch has one refill: two steps of the posterior a batch."""
    trainer = start(
        reward=lambda completions, **kwargs: [0.0] * len(completions),
        max_steps=3,
        vade_dynamic_sampling=True,
        vade_max_refills=1,
    )
    trainer.train()
    assert prefetches == [2, 4]


def test_a_run_that_a_callback_ends_gives_up_what_it_had_begun(start, prefetches):
    trainer = start(callbacks=[StopAfter(2)])
    trainer.train()
    assert prefetches == [1, 2]
    assert_nothing_runs_on(trainer)


def test_a_run_that_an_error_ends_gives_up_what_it_had_begun(start, prefetches):
    def fails_later(completions, trainer_state, **kwargs):
        if trainer_state.global_step == 1:
            raise ConnectionError("the judge is gone")
        return is_short(completions)

    trainer = start(reward=fails_later)
    with pytest.raises(ConnectionError):
        trainer.train()
    assert prefetches == [1]
    assert_nothing_runs_on(trainer)


def test_a_damaged_image_ends_the_run_at_the_batch_that_chose_its_row_and_names_it(start, prefetches):
    whole = start("whole", vade_sampler="uniform", max_steps=3)
    whole.train()
    third = SelectionLog(whole.args.output_dir).read()[2]["sample_index"][1]
    raw = rows_with_pictures().cast_column("image", datasets.Image(decode=False)).to_list()
    raw[third]["image"] = {"bytes": b"not a picture", "path": None}
    damaged = Dataset.from_list(raw).cast_column("image", datasets.Image())
    trainer = start("damaged", rows=damaged, vade_sampler="uniform", max_steps=3)
    with refused(ImageDecodeError, names=[third, f"row-{third}", "image"]):
        trainer.train()
    assert trainer.state.global_step == 2
    assert trainer.selection.sampler.posterior.step == 2
    assert_nothing_runs_on(trainer)


def test_a_ticket_is_its_number_and_there_is_one_for_each_row():
    tickets = TicketDataset(7)
    assert len(tickets) == 7
    assert [tickets[i] for i in range(7)] == list(range(7))


def test_there_are_as_many_tickets_as_the_stock_sampler_has_items():
    """TRL's own length has to be what it gives: the loader, and so the number of steps, would else differ."""
    for num_rows, repeats, batch_size, rounds in product([0, 1, 7, 24], [1, 3], [1, 4, 30], [1, 2]):
        stock = RepeatSampler(TicketDataset(num_rows), repeats, batch_size, rounds, seed=1)
        tickets = TicketSampler(stock)
        assert len(tickets) == len(list(tickets)) == len(list(stock)) == len(list(tickets))
        assert set(tickets) <= {0}
