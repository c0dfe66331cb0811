"""Tickets, lists of images, and the identity of a training set."""

import datasets
import numpy as np
import pytest
from conftest import numbered_rows
from datasets import Dataset, load_dataset
from PIL import Image

from trl_vade.data import TicketDataset, dataset_fingerprint, with_image_lists


def test_a_ticket_is_its_number_and_there_is_one_for_each_row():
    tickets = TicketDataset(7)
    assert len(tickets) == 7
    assert [tickets[i] for i in range(7)] == list(range(7))


def test_a_row_without_images_gets_an_empty_list():
    rows = [{"images": ["a", "b"]}, {"images": None}, {"images": []}]
    assert with_image_lists(rows) == [{"images": ["a", "b"]}, {"images": []}, {"images": []}]


def test_a_batch_of_rows_without_images_gets_empty_lists():
    assert with_image_lists([{"images": None}, {"images": None}]) == [{"images": []}, {"images": []}]


def test_a_missing_image_turns_the_batch_into_lists_of_images():
    lists = [row["images"] for row in with_image_lists([{"image": "a"}, {"image": None}])]
    assert lists == [["a"], []]


def test_a_batch_whose_images_are_all_missing_is_text_only():
    assert [row["images"] for row in with_image_lists([{"image": None}, {"image": None}])] == [[], []]


@pytest.mark.parametrize(
    "rows", [[{"image": "a"}, {"image": "b"}], [{"prompt": "no images here"}], [{"images": ["a"]}, {"images": ["b"]}]]
)
def test_a_batch_that_lacks_nothing_is_left_as_it_is(rows):
    assert with_image_lists(rows) == rows


def test_the_users_rows_are_not_written_into():
    rows = [{"images": None}, {"images": ["a"]}]
    with_image_lists(rows)
    assert rows == [{"images": None}, {"images": ["a"]}]


def test_the_same_rows_loaded_in_another_way_have_the_same_fingerprint(tmp_path):
    rows = numbered_rows(2500)  # more than two of the batches that are read at a time
    rows.to_parquet(tmp_path / "rows.parquet")
    rows.select(range(700)).to_parquet(tmp_path / "part-0.parquet")
    rows.select(range(700, 2500)).to_parquet(tmp_path / "part-1.parquet")
    cache = str(tmp_path / "cache")
    whole = load_dataset("parquet", data_files=str(tmp_path / "rows.parquet"), split="train", cache_dir=cache)
    parts = load_dataset("parquet", data_files=str(tmp_path / "part-*.parquet"), split="train", cache_dir=cache)
    joined = datasets.concatenate_datasets([rows.select(range(1234)), rows.select(range(1234, 2500))])
    there_and_back = rows.select(list(reversed(range(2500)))).select(list(reversed(range(2500))))
    shuffled = rows.shuffle(seed=1)
    back = shuffled.select(np.argsort([int(name.split("-")[1]) for name in shuffled["id"]]))
    transformed = rows.with_transform(lambda batch: {"id": ["changed"] * len(batch["id"])})
    fingerprints = {
        dataset_fingerprint(dataset) for dataset in (rows, whole, parts, joined, there_and_back, back, transformed)
    }
    assert len(fingerprints) == 1


def test_other_rows_have_another_fingerprint():
    rows = numbered_rows(30)
    others = {
        "reordered": rows.select([1, 0, *range(2, 30)]),
        "shuffled": rows.shuffle(seed=1),
        "longer": numbered_rows(31),
        "shorter": rows.select(range(29)),
        "changed": rows.map(lambda row, i: {"id": "new"} if i == 17 else {}, with_indices=True),
        "a row twice": rows.select([*range(29), 28]),
    }
    fingerprints = {name: dataset_fingerprint(dataset) for name, dataset in others.items()}
    assert dataset_fingerprint(rows) not in fingerprints.values()
    assert len(set(fingerprints.values())) == len(others)


def test_with_ids_the_other_columns_do_not_count():
    rows = numbered_rows(5)
    edited = rows.map(lambda row: {"prompt": row["prompt"] + " please", "extra": 1})
    assert dataset_fingerprint(edited) == dataset_fingerprint(rows)


def test_without_ids_the_prompts_are_the_identity():
    rows = numbered_rows(5).remove_columns("id")
    edited = rows.map(lambda row, i: {"prompt": "new"} if i == 3 else {}, with_indices=True)
    with_more = rows.add_column("level", [1] * 5)
    assert dataset_fingerprint(rows) != dataset_fingerprint(edited)
    assert dataset_fingerprint(rows) == dataset_fingerprint(with_more)
    assert dataset_fingerprint(rows) != dataset_fingerprint(numbered_rows(5))


def test_conversational_prompts_have_a_fingerprint(text_rows, tmp_path):
    rows = text_rows.remove_columns("id")
    rows.to_parquet(tmp_path / "rows.parquet")
    loaded = Dataset.from_parquet(str(tmp_path / "rows.parquet"), cache_dir=str(tmp_path / "cache"))
    assert dataset_fingerprint(loaded) == dataset_fingerprint(rows)
    assert dataset_fingerprint(rows.select(range(23))) != dataset_fingerprint(rows)


def test_taking_the_fingerprint_decodes_no_image(monkeypatch):
    picture = Image.new("RGB", (4, 4))
    dataset = numbered_rows(4, image=lambda i: picture)

    def refuse(*args, **kwargs):
        raise AssertionError("an image was decoded")

    monkeypatch.setattr(datasets.Image, "decode_example", refuse)
    dataset_fingerprint(dataset)
