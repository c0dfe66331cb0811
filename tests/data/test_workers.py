"""Rows that worker processes load: the rows of `__getitems__`, begun ahead, under seeds of the draw; and an end."""

import os
import random
import signal
import threading
import time

import numpy as np
import pytest
import torch

from tests.support.refusals import refused
from tests.support.rows import ids, numbered_rows, picture
from trl_vade.data.decoding import RowDecoder
from trl_vade.data.workers import Workers


def where(batch):
    """A transform that tells the process it ran in."""
    return batch | {"process": [os.getpid()] * len(batch["id"])}


def by_chance(batch):
    draws = [[random.random(), float(np.random.rand()), float(torch.rand(()))] for _ in batch["id"]]
    return batch | {"chance": draws}


def with_picture(batch):
    return {
        "id": batch["id"],
        "image": [picture(int(name[-1])) for name in batch["id"]],
        "n": torch.arange(len(batch["id"])),
    }


@pytest.fixture
def decoder_of():
    """A function that makes decoders with workers, which are forgotten after the test."""
    made = []

    def make(transform, number=2, count=9, **settings):
        made.append(RowDecoder(numbered_rows(count).with_transform(transform), Workers(number, **settings)))
        return made[-1]

    yield make
    for decoder in made:
        decoder.forget()


def processes():
    return {int(name) for name in os.listdir("/proc") if name.isdigit() and _parent(name) == os.getpid()}


def _parent(name):
    try:
        with open(f"/proc/{name}/stat") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except OSError:
        return None


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("persistent", [False, True])
def test_the_rows_are_those_of_getitems_loaded_by_that_many_other_processes(decoder_of, ahead, persistent):
    decoder = decoder_of(lambda batch: where(with_picture(batch)), persistent=persistent)
    for draw, rows in enumerate([[5, 2, 8, 1, 7], [0, 3], [4]]):
        if ahead:
            decoder.prefetch(rows, draw)
        loaded = decoder.load(rows, draw)
        expected = decoder.dataset.__getitems__(rows)
        assert ids(loaded) == ids(expected)
        assert [row["image"] for row in loaded] == [row["image"] for row in expected]
        seen = {row["process"] for row in loaded}
        assert len(seen) == min(2, len(rows))
        assert os.getpid() not in seen


def test_a_row_that_is_asked_for_twice_is_loaded_once(decoder_of):
    rows = decoder_of(by_chance).load([3, 3, 1])
    assert rows[0]["chance"] == rows[1]["chance"] != rows[2]["chance"]
    assert rows[0]["chance"] is not rows[1]["chance"]


def test_to_begin_does_not_wait_and_the_rows_are_loaded_meanwhile(decoder_of, tmp_path):
    def noting(batch):
        for name in batch["id"]:
            (tmp_path / name).touch()
        while not (tmp_path / "go").exists():
            time.sleep(0.01)
        return batch

    decoder = decoder_of(noting)
    decoder.prefetch([5, 2, 7])
    for _ in range(6000):
        if len(list(tmp_path.iterdir())) == 3:
            break
        time.sleep(0.01)
    assert {path.name for path in tmp_path.iterdir()} == {"row-5", "row-2", "row-7"}
    (tmp_path / "go").touch()
    for path in tmp_path.glob("row-*"):
        path.unlink()
    assert ids(decoder.load([5, 2, 7])) == ["row-5", "row-2", "row-7"]
    assert not list(tmp_path.glob("row-*"))  # nothing was loaded again


@pytest.mark.parametrize("persistent", [False, True])
def test_chance_follows_from_the_seed_and_the_draw_and_not_from_what_was_begun(decoder_of, persistent):
    def chances(ahead, seed=3, draw=4):
        decoder = decoder_of(by_chance, persistent=persistent, seed=seed)
        if ahead:
            decoder.prefetch([8, 6], draw - 1)  # another draw, which was not made
            decoder.load([1, 2], 1)
        if ahead:
            decoder.prefetch([5, 2, 7], draw)
        return [row["chance"] for row in decoder.load([5, 2, 7], draw)]

    assert chances(False) == chances(True)
    assert chances(False) != chances(False, draw=5)
    assert chances(False) != chances(False, seed=4)
    assert len({tuple(chance) for chance in chances(False)}) == 3


def test_the_random_numbers_of_the_process_that_trains_are_left_alone(decoder_of):
    torch.manual_seed(1), np.random.seed(1), random.seed(1)
    expected = [float(torch.rand(())), np.random.rand(), random.random()]
    torch.manual_seed(1), np.random.seed(1), random.seed(1)
    decoder = decoder_of(by_chance)
    decoder.prefetch([3, 4], 0)
    decoder.load([3, 4], 0)
    assert [float(torch.rand(())), np.random.rand(), random.random()] == expected


@pytest.mark.parametrize("persistent", [False, True])
def test_nothing_is_left_running(decoder_of, persistent):
    before, threads = processes(), threading.active_count()
    decoder = decoder_of(where, persistent=persistent)
    decoder.prefetch([1, 2], 0)
    assert len(processes() - before) == 2
    decoder.forget()
    assert processes() <= before
    decoder.load([1, 2], 1)
    decoder.begin_epoch()
    assert len(processes() - before) == (2 if persistent else 0)
    decoder.forget()
    decoder.forget()
    assert processes() <= before
    for _ in range(100):  # the threads of closed queues end by themselves
        time.sleep(0.1 * (threading.active_count() > threads))
    assert threading.active_count() <= threads


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_reaches_all_processes_leaves_the_rows_of_the_last_steps_to_be_loaded(decoder_of, number):
    """As Slurm sends it before a preemption: the trainer goes on to its last checkpoint."""
    before = processes()
    decoder = decoder_of(where)
    decoder.prefetch([1, 2], 0)
    decoder.load([1, 2], 0)
    for worker in processes() - before:
        os.kill(worker, number)
    time.sleep(0.3)
    assert ids(decoder.load([3, 4], 1)) == ["row-3", "row-4"]


def test_workers_are_those_of_an_epoch_and_then_see_what_was_changed_since_unless_they_persist(decoder_of):
    level = []
    transform = lambda batch: where(batch) | {"level": [len(level)] * len(batch["id"])}  # noqa: E731
    kept, fresh = decoder_of(transform, number=1, persistent=True), decoder_of(transform, number=1)
    first = [decoder.load([1], 0)[0] for decoder in (kept, fresh)]
    level.append(1)
    second = [decoder.load([1], 1)[0] for decoder in (kept, fresh)]
    kept.begin_epoch()
    fresh.begin_epoch()
    third = [decoder.load([1], 2)[0] for decoder in (kept, fresh)]
    assert [row["process"] for row in first] == [row["process"] for row in second]
    assert [row["process"] == before["process"] for row, before in zip(third, first, strict=True)] == [True, False]
    assert [row["level"] for row in first + second + third] == [0, 0, 0, 0, 0, 1]


# ------------------------------------------------------------------------------------------------------------- errors


def failing(batch):
    if "row-7" in batch["id"]:
        raise ValueError("no such file")
    return batch


@pytest.mark.parametrize("number", [0, 2])
def test_an_error_names_its_row_and_the_next_rows_can_be_loaded(decoder_of, number):
    decoder = decoder_of(failing, number=number)
    before = processes()
    decoder.prefetch([5, 2, 7, 1])
    with pytest.raises(ValueError, match="no such file") as caught:
        decoder.load([5, 2, 7, 1])
    said = " ".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    assert "row 7 of the training data" in said
    assert "row 5" not in said
    assert processes() <= before
    assert ids(decoder.load([5, 2])) == ["row-5", "row-2"]


def test_a_value_that_cannot_be_sent_is_an_error_that_says_what_to_set(decoder_of):
    decoder = decoder_of(lambda batch: batch | {"lock": [threading.Lock() for _ in batch["id"]]})
    with refused(TypeError, ["pickle"], ["dataloader_num_workers=0"]):
        decoder.load([1, 2])


# ----------------------------------------------------------------------------------------- where there are no workers


@pytest.mark.parametrize(
    "dataset",
    [numbered_rows(4), numbered_rows(4, image=picture), numbered_rows(4).with_transform(where)],
    ids=["text", "images", "no worker asked for"],
)
def test_no_process_is_started_for_rows_that_need_none(dataset):
    before = processes()
    decoder = RowDecoder(dataset, Workers(0 if dataset.format["type"] == "custom" else 2))
    decoder.prefetch([1, 2])
    assert processes() <= before
    assert ids(decoder.load([1, 2])) == ["row-1", "row-2"]
    assert processes() <= before
