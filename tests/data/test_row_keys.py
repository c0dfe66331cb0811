"""Tickets, lists of images, and the identity of a training set and of its rows."""

import hashlib
import json
import os
import shutil
from itertools import product
from pathlib import Path

import datasets
import numpy as np
import pytest
from datasets import Dataset, load_dataset
from hypothesis import given, settings
from hypothesis import strategies as st
from trl.trainer.utils import RepeatSampler

from tests.support.rows import numbered_rows, picture
from trl_vade.data import row_keys as data
from trl_vade.data.loading import with_image_lists
from trl_vade.data.row_keys import dataset_fingerprint, find_rows, sample_keys
from trl_vade.trainer.loader import TicketDataset, TicketSampler


def keys_of(dataset):
    return sample_keys(dataset)[0].tolist()


def fingerprint(dataset):
    return dataset_fingerprint(sample_keys(dataset)[0])


def picture_of_its_own(number):
    return picture(number).resize((8 + number, 8))


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


def test_of_a_batch_that_lacks_an_image_each_row_has_a_list_and_another_is_left_as_it_is():
    for rows, lists in (
        ([{"images": ["a", "b"]}, {"images": None}, {"images": []}], [["a", "b"], [], []]),
        ([{"images": None}, {"images": None}], [[], []]),
        ([{"image": "a"}, {"image": None}], [["a"], []]),
        ([{"image": None}, {"image": None}], [[], []]),
    ):
        before = [dict(row) for row in rows]
        assert [row["images"] for row in with_image_lists(rows)] == lists
        assert rows == before  # the user's rows are not written into
    for whole in ([{"image": "a"}, {"image": "b"}], [{"prompt": "none"}], [{"images": ["a"]}, {"images": ["b"]}]):
        assert with_image_lists(whole) == whole


# ------------------------------------------------------------------------------------------------- the fingerprint


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
        fingerprint(dataset) for dataset in (rows, whole, parts, joined, there_and_back, back, transformed)
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
    fingerprints = {name: fingerprint(dataset) for name, dataset in others.items()}
    assert fingerprint(rows) not in fingerprints.values()
    assert len(set(fingerprints.values())) == len(others)


def test_with_ids_the_other_columns_do_not_count():
    rows = numbered_rows(5)
    edited = rows.map(lambda row: {"prompt": row["prompt"] + " please", "extra": 1})
    assert fingerprint(edited) == fingerprint(rows)


def test_without_ids_the_prompts_are_the_identity():
    rows = numbered_rows(5).remove_columns("id")
    edited = rows.map(lambda row, i: {"prompt": "new"} if i == 3 else {}, with_indices=True)
    with_more = rows.add_column("level", [1] * 5)
    assert fingerprint(rows) != fingerprint(edited)
    assert fingerprint(rows) == fingerprint(with_more)
    assert fingerprint(rows) != fingerprint(numbered_rows(5))


def test_conversational_prompts_have_a_fingerprint(text_rows, tmp_path):
    rows = text_rows.remove_columns("id")
    rows.to_parquet(tmp_path / "rows.parquet")
    loaded = Dataset.from_parquet(str(tmp_path / "rows.parquet"), cache_dir=str(tmp_path / "cache"))
    assert fingerprint(loaded) == fingerprint(rows)
    assert fingerprint(rows.select(range(23))) != fingerprint(rows)


def test_taking_the_fingerprint_decodes_no_image(decoded_images):
    for columns in ("id", "prompt", "image"), ("prompt", "image"):
        fingerprint(numbered_rows(4, image=picture).select_columns(list(columns)))
    assert decoded_images == []


# ------------------------------------------------------------------------------------------------- who the rows are


def prompts(*texts, **columns):
    return Dataset.from_dict({"prompt": list(texts), **columns})


@pytest.fixture
def image_files(tmp_path):
    """Three image files in a folder."""
    folder = tmp_path / "here"
    folder.mkdir()
    for number in range(3):
        picture(number).save(folder / f"{number}.png")
    return sorted(folder.iterdir())


def with_files(files, **columns):
    """A data set that holds the names of the files and not their content."""
    columns = {"prompt": ["what?"] * len(files), "image": [str(file) for file in files], **columns}
    return Dataset.from_dict(columns).cast_column("image", datasets.Image())


def test_keys_are_these_numbers_since_they_are_saved_in_files():
    """64 bits of a hash of the row as JSON; another number would make every saved snapshot impossible to join."""

    def key(row):
        return int.from_bytes(hashlib.blake2b(row.encode(), digest_size=8).digest(), "little", signed=True)

    assert keys_of(numbered_rows(2)) == [key('{"id": "row-0"}'), key('{"id": "row-1"}')]
    one, two = key('{"prompt": "one"}'), key('{"prompt": "two"}')
    assert keys_of(prompts("one", "two", "one")) == [one, two, key(json.dumps({"copy": 1, "of": one}))]


def test_keys_are_64_bit_integers_one_for_each_row():
    keys, num_copies = sample_keys(numbered_rows(2500))  # more than two of the batches that are read at a time
    assert (keys.dtype, keys.shape, num_copies) == (np.int64, (2500,), 0)
    assert np.unique(keys).size == 2500
    assert (keys < 0).any()  # all 64 bits are used


def test_an_id_that_each_row_has_for_itself_is_who_it_is():
    rows = prompts("one", "one", "one", id=["a", "b", "c"])
    assert sample_keys(rows)[1] == 0
    assert keys_of(prompts("other", "words", "now", id=["a", "b", "c"])) == keys_of(rows)
    assert keys_of(prompts("one", "one", "one", id=["c", "a", "b"])) == [keys_of(rows)[i] for i in (2, 0, 1)]


def test_ids_may_be_numbers_and_those_that_several_rows_share_are_nobodys():
    assert keys_of(prompts("one", "one", id=[7, 8])) == keys_of(prompts("two", "two", id=[7, 8]))
    for shared in (["a", "b", "a"], [None, None, "c"], [0.5, float("nan"), float("nan")]):
        rows = prompts("one", "two", "three", id=shared)
        assert sample_keys(rows)[1] == 0
        assert keys_of(rows) == keys_of(prompts("one", "two", "three"))


def test_the_same_prompt_with_another_image_is_another_row(image_files):
    keys = keys_of(with_files(image_files))
    assert len(set(keys)) == 3
    assert sample_keys(with_files(image_files))[1] == 0
    assert not set(keys) & set(keys_of(with_files(image_files, prompt=["where?"] * 3)))
    assert not set(keys) & set(keys_of(prompts("what?", "why?", "when?")))


def test_the_order_and_the_number_of_several_images_count():
    lists = [[0, 1], [1, 0], [0], [0, 1, 1], []]
    images = [[picture(number) for number in each] for each in lists]
    dataset = prompts(*["what?"] * 5, images=images).cast_column("images", datasets.List(datasets.Image()))
    assert len(set(keys_of(dataset))) == 5
    assert sample_keys(dataset)[1] == 0


def test_the_same_images_in_another_folder_or_in_the_table_itself_are_the_same(image_files, tmp_path):
    files = with_files(image_files)
    elsewhere = [shutil.copy(file, tmp_path / f"renamed-{file.name}") for file in image_files]
    content = [{"bytes": file.read_bytes(), "path": None} for file in image_files]
    named = [{"bytes": file.read_bytes(), "path": "there.png"} for file in image_files]
    in_table = Dataset.from_dict({"prompt": ["what?"] * 3, "image": content}).cast_column("image", datasets.Image())
    with_names = Dataset.from_dict({"prompt": ["what?"] * 3, "image": named}).cast_column("image", datasets.Image())
    files.to_parquet(tmp_path / "rows.parquet")  # which takes the content of the files along
    loaded = Dataset.from_parquet(str(tmp_path / "rows.parquet"), cache_dir=str(tmp_path / "cache"))
    undecoded = files.cast_column("image", datasets.Image(decode=False))
    for dataset in (with_files(elsewhere), in_table, with_names, loaded, undecoded):
        assert keys_of(dataset) == keys_of(files)


def test_another_image_under_the_same_name_is_another_row(image_files):
    before = keys_of(with_files(image_files))
    shutil.copy(image_files[2], image_files[1])
    after = keys_of(with_files(image_files))
    assert [old == new for old, new in zip(before, after, strict=True)] == [True, False, False]  # the last is a copy
    assert after[1] == before[2]
    assert sample_keys(with_files(image_files))[1] == 1


def test_images_that_are_not_there_yet_are_known_by_their_names(tmp_path):
    keys, num_copies = sample_keys(with_files([tmp_path / "a.png", tmp_path / "b.png", tmp_path / "a.png"]))
    assert (len(set(keys.tolist())), num_copies) == (3, 1)


def test_with_ids_no_image_file_is_read(image_files):
    before = keys_of(with_files(image_files, id=["a", "b", "c"]))
    for file in image_files:
        file.unlink()
    assert keys_of(with_files(image_files, id=["a", "b", "c"])) == before


def test_a_row_without_an_image_is_the_row_of_a_text_data_set():
    text = prompts("one", "two")
    both = prompts("one", "three", image=[None, picture(0)]).cast_column("image", datasets.Image())
    assert keys_of(both)[0] == keys_of(text)[0]


def test_a_field_that_only_another_row_uses_changes_nothing():
    """Arrow gives such a field to every row of a table, so a row that comes would otherwise be felt by all."""
    message = {"role": "user", "content": "hello"}
    few = Dataset.from_list([{"prompt": [message]}])
    more = Dataset.from_list([{"prompt": [message]}, {"prompt": [message | {"name": "Ada"}]}])
    assert more.features != few.features
    assert keys_of(more)[0] == keys_of(few)[0]
    assert sample_keys(more)[1] == 0


def test_copies_are_counted_and_told_apart_by_their_order():
    rows = prompts("one", "two", "one", "three", "two", "one")
    keys, num_copies = sample_keys(rows)
    assert num_copies == 3
    assert len(set(keys.tolist())) == 6
    assert keys[[0, 1, 3]].tolist() == keys_of(prompts("one", "two", "three"))
    assert keys_of(prompts("two", "one", "one", "one", "two")) == keys[[1, 0, 2, 5, 4]].tolist()


def test_rows_whose_prompts_an_environment_writes_are_told_apart_by_what_it_is_given():
    rows = Dataset.from_dict({"environment": ["maze", "maze", "chess", "maze"], "seed": [1, 2, 1, 1]})
    keys, num_copies = sample_keys(rows)
    assert (len(set(keys.tolist())), num_copies) == (4, 1)  # the last equals the first
    order = [2, 1, 0, 3]
    assert keys_of(rows.select(order)) == keys[order].tolist()


def test_rows_of_one_prompt_are_told_apart_by_their_other_columns():
    order = [2, 0, 1]
    for columns in ({"seed": [1, 2, 3]}, {"board": [[1], [2], [1, 2]]}, {"id": ["a", "b", "b"], "n": [1, 2, 3]}):
        rows = prompts("play", "play", "play", **columns)
        keys, num_copies = sample_keys(rows)
        assert num_copies == 0
        assert keys_of(rows.select(order)) == keys[order].tolist()  # wherever a row stands, it has its key


def test_rows_of_one_prompt_are_told_apart_by_other_images_too(image_files):
    rows = with_files(image_files, prompt=["look"] * 3).rename_column("image", "goal")
    assert sample_keys(rows)[1] == 0
    again = with_files([image_files[0], image_files[0]], prompt=["look"] * 2).rename_column("image", "goal")
    assert sample_keys(again)[1] == 1


def test_other_columns_are_read_for_rows_alone_that_need_them():
    one, two = keys_of(prompts("one", "two"))
    keys = keys_of(prompts("one", "two", "two", answer=["a", "b", "c"]))
    assert keys[0] == one
    assert two not in keys


# ------------------------------------------------------------------------------------- what the next start need not do


def on_disk(dataset, directory):
    """`dataset` in a file of Arrow that outlives the run, as `load_dataset` gives it; called again, as a new start."""
    file, cache = directory / "rows.parquet", str(directory / "cache")
    if not file.exists():
        dataset.to_parquet(file)
    return load_dataset("parquet", data_files=str(file), split="train", cache_dir=cache)


def named_on_disk(files, directory):
    """The same with the names of image files in place of images."""
    rows = Dataset.from_dict({"prompt": ["what?"] * len(files), "image": [str(file) for file in files]})
    return on_disk(rows, directory).cast_column("image", datasets.Image())


@pytest.fixture
def hashed(monkeypatch):
    """The rows that were hashed; a list that goes on growing."""
    rows, real = [], data._digest
    monkeypatch.setattr(data, "_digest", lambda row: rows.append(row) or real(row))
    return rows


def cache_files_of(dataset):
    return {file.name for file in Path(dataset.cache_files[0]["filename"]).parent.glob("cache-*")}


def test_a_second_start_hashes_no_image(tmp_path, hashed):
    rows = numbered_rows(300, image=picture_of_its_own).remove_columns("id")  # more than two batches
    keys = keys_of(on_disk(rows, tmp_path))
    assert keys == keys_of(rows)
    assert len(hashed) == 600
    hashed.clear()
    assert keys_of(on_disk(rows, tmp_path)) == keys
    assert hashed == []
    assert keys_of(on_disk(rows, tmp_path).select([7, 3, 299])) == [keys[row] for row in (7, 3, 299)]
    assert len(hashed) == 3


def test_a_second_start_reads_no_image_file(image_files, tmp_path):
    keys = keys_of(named_on_disk(image_files, tmp_path))
    assert keys == keys_of(with_files(image_files))
    state, size = image_files[1].stat(), image_files[1].stat().st_size
    image_files[1].write_bytes(b"x" * size)
    os.utime(image_files[1], ns=(state.st_atime_ns, state.st_mtime_ns))
    assert keys_of(with_files(image_files)) != keys  # what would be found by reading it
    assert keys_of(named_on_disk(image_files, tmp_path)) == keys


@pytest.mark.parametrize("change", ["content", "time", "gone"])
def test_a_changed_image_file_is_read_again(image_files, tmp_path, change):
    before, state = keys_of(named_on_disk(image_files, tmp_path)), image_files[1].stat()
    if change == "gone":
        image_files[1].unlink()
    elif change == "content":
        shutil.copy(image_files[2], image_files[1])
    else:
        image_files[1].write_bytes(b"x" * state.st_size)
    after = keys_of(named_on_disk(image_files, tmp_path))
    assert after == keys_of(with_files(image_files))
    assert [old == new for old, new in zip(before, after, strict=True)] == [True, False, change != "content"]


def test_the_cache_is_that_of_the_columns_with_the_content(tmp_path, hashed):
    rows = on_disk(
        numbered_rows(3, image=picture_of_its_own).remove_columns("id").add_column("level", [1, 2, 3]), tmp_path
    )
    whole = keys_of(rows)
    assert len(cache_files_of(rows)) == 1
    hashed.clear()
    assert not set(keys_of(rows.remove_columns("image"))) & set(whole)
    assert len(hashed) == 3
    assert len(cache_files_of(rows)) == 2
    assert keys_of(rows) == whole
    assert len(hashed) == 3


def test_a_second_start_hashes_no_id(tmp_path, hashed):
    rows = on_disk(numbered_rows(3), tmp_path)
    keys, _ = sample_keys(rows)
    assert (len(hashed), len(cache_files_of(rows))) == (3, 1)
    again, num_copies = sample_keys(on_disk(numbered_rows(3), tmp_path))
    assert (again.tolist(), num_copies, len(hashed)) == (keys.tolist(), 0, 3)
    assert not again.flags.writeable  # mapped into memory: the pages of all processes that read it


def test_keys_of_images_are_these_numbers_too(image_files):
    """Also under many threads, in order, and where a prompt holds bytes that belong to no image."""

    def key(**row):
        text = json.dumps(row, sort_keys=True)
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)

    digests = [hashlib.blake2b(file.read_bytes()).hexdigest() for file in image_files]
    many = [image_files[i % 3] for i in range(200)]
    prompts = [f"{i}?" for i in range(200)]
    expected = [key(prompt=f"{i}?", image=digests[i % 3]) for i in range(200)]
    assert keys_of(with_files(many, prompt=prompts)) == expected
    assert keys_of(Dataset.from_dict({"prompt": ["raw"], "image": [b"bytes"]})) == [
        key(prompt="raw", image="b'bytes'")
    ]


@settings(max_examples=40)
@given(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=10), st.randoms(use_true_random=False))
def test_reordered_rows_have_their_keys_reordered_copy_for_copy(texts, random):
    order = random.sample(range(len(texts)), len(texts))
    keys, num_copies = sample_keys(prompts(*texts))
    moved, num_moved = sample_keys(prompts(*[texts[row] for row in order]))
    assert num_copies == num_moved == len(texts) - len(set(texts))
    for text in set(texts):  # the first of a text has the first key of that text, and so on
        of_text = [key for key, each in zip(keys.tolist(), texts, strict=True) if each == text]
        assert [key for key, row in zip(moved.tolist(), order, strict=True) if texts[row] == text] == of_text
    if not num_copies:
        assert moved.tolist() == keys[order].tolist()


@settings(max_examples=40)
@given(st.lists(st.text(max_size=3), min_size=1, max_size=10, unique=True), st.data())
def test_rows_that_come_and_go_leave_the_keys_of_the_others_alone(texts, data):
    split = data.draw(st.integers(1, len(texts)))
    assert keys_of(prompts(*texts))[:split] == keys_of(prompts(*texts[:split]))


def test_the_fingerprint_is_the_sha256_of_the_keys_little_endian():
    keys = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, 1000)
    assert dataset_fingerprint(keys) == hashlib.sha256(keys.astype("<i8").tobytes()).hexdigest()
    assert dataset_fingerprint(keys[:0]) == hashlib.sha256().hexdigest()


A_KEY = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(A_KEY, min_size=1, max_size=9, unique=True), st.lists(A_KEY, max_size=6), st.data())
def test_rows_are_found_as_in_a_dictionary(sample_key, others, more):
    wanted = more.draw(st.permutations(others + more.draw(st.lists(st.sampled_from(sample_key), max_size=6))))
    found, rows = find_rows(np.array(wanted, dtype=np.int64), np.array(sample_key, dtype=np.int64))
    row_of = {key: row for row, key in enumerate(sample_key)}
    assert found.tolist() == [key in row_of for key in wanted]
    assert rows[found].tolist() == [row_of[key] for key in wanted if key in row_of]
