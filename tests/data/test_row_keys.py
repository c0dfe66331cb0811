"""The identity of a training set and of its rows."""

import hashlib
import shutil
from datetime import date

import datasets
import numpy as np
import pytest
from datasets import Dataset, load_dataset
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.prompts import asked
from tests.support.rows import numbered_rows, picture
from trl_vade.data.row_keys import dataset_fingerprint, find_rows, sample_keys


def keys_of(dataset):
    return sample_keys(dataset).tolist()


def fingerprint(dataset):
    return dataset_fingerprint(sample_keys(dataset))


def prompts(*texts, **columns):
    return Dataset.from_dict({"prompt": list(texts), **columns})


def stored(number, path=None):
    return {"bytes": b"picture-%d" % number, "path": path}


def of_pictures(column, *pictures, kind=None, **columns):
    rows = Dataset.from_dict({"prompt": ["what?"] * len(pictures), column: list(pictures), **columns})
    return rows.cast_column(column, kind or datasets.Image())


LISTS = [[stored(0), stored(1)], [stored(1), stored(0)], [], None]
GOLDEN = {  # rows and their keys, of commit 418822d
    "ids": (prompts("a", "b", id=["row-0", "Zoë"]), [3895935349179561361, 2007109978278718739]),
    "numbers as ids": (prompts("a", "a", id=[7, 8]), [-6408369425759800123, 2386552977871519886]),
    "texts": (prompts("one", "one"), [-8363872284606787905, 6753202002658019146]),
    "messages": (
        Dataset.from_list([{"prompt": asked("hello")}, {"prompt": [asked("hello")[0] | {"name": "Ada"}]}]),
        [-3758998677086759885, 8757723060930557299],
    ),
    "one picture": (of_pictures("image", stored(0, "a.png"), None), [5362189905912775379, 7089869781924512376]),
    "pictures": (
        of_pictures("images", *LISTS, kind=datasets.List(datasets.Image()), prompt=[asked("what?")] * 4),
        [5948574721571442930, -8034153502160456403, -7887497293341290987, 7306145159120949098],
    ),
    "by all columns": (
        prompts("play", "play", "play", seed=[1, 2, 2], level=[0.5, 1.0, 1.0], day=[date(2026, 1, 2)] * 3),
        [7734135216730966363, 5708647156308472366, 8598147859768990109],
    ),
    "no prompt": (
        Dataset.from_dict({"environment": ["maze", "chess"], "seed": [1, 1]}),
        [7354526610364996380, 1811843083489412816],
    ),
    "a missing file": (of_pictures("image", "/nowhere/a.png"), [287163441063480483]),
}


def test_keys_are_these_numbers_since_they_are_saved_in_files():
    """Another number would make every saved posterior impossible to join."""
    for name, (rows, keys) in GOLDEN.items():
        assert keys_of(rows) == keys, name
        if name not in ("texts", "by all columns"):  # which have copies
            assert keys_of(rows.select([*range(len(rows))][::-1])) == keys[::-1]


def test_the_fingerprint_is_the_sha256_of_the_keys_little_endian():
    keys = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, 1000)
    assert dataset_fingerprint(keys) == hashlib.sha256(keys.astype("<i8").tobytes()).hexdigest()


def test_the_same_rows_loaded_in_another_way_have_the_same_fingerprint(tmp_path):
    rows = numbered_rows(5000)  # more than a batch
    rows.to_parquet(tmp_path / "rows.parquet")
    rows.select(range(700)).to_parquet(tmp_path / "part-0.parquet")
    rows.select(range(700, 5000)).to_parquet(tmp_path / "part-1.parquet")
    cache = str(tmp_path / "cache")
    whole = load_dataset("parquet", data_files=str(tmp_path / "rows.parquet"), split="train", cache_dir=cache)
    parts = load_dataset("parquet", data_files=str(tmp_path / "part-*.parquet"), split="train", cache_dir=cache)
    joined = datasets.concatenate_datasets([rows.select(range(1234)), rows.select(range(1234, 5000))])
    there_and_back = rows.select(list(reversed(range(5000)))).select(list(reversed(range(5000))))
    transformed = rows.with_transform(lambda batch: {"id": ["changed"] * len(batch["id"])})
    for column in ("id", "prompt"):
        others = (whole, parts, joined, there_and_back, transformed)
        assert len({fingerprint(each.select_columns([column])) for each in (rows, *others)}) == 1


def test_other_rows_have_another_fingerprint():
    rows = numbered_rows(30)
    reordered, shorter, twice = (rows.select(order) for order in ([1, 0, *range(2, 30)], range(29), [*range(29), 28]))
    changed = rows.map(lambda row, i: {"id": "new"} if i == 17 else {}, with_indices=True)
    others = (numbered_rows(31), reordered, shorter, twice, changed, rows.remove_columns("id"))
    assert len({fingerprint(each) for each in (rows, *others)}) == 7


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
    return of_pictures("image", *map(str, files), **columns)


def test_an_id_that_each_row_has_for_itself_is_who_it_is_and_others_are_nobodys():
    rows = prompts("one", "one", "one", id=["a", "b", "c"])
    assert keys_of(prompts("other", "words", "now", id=["a", "b", "c"], level=[1, 2, 3])) == keys_of(rows)
    for shared in (["a", "b", "a"], [None, None, "c"], [0.5, float("nan"), float("nan")]):
        assert keys_of(prompts("one", "two", "three", id=shared)) == keys_of(prompts("one", "two", "three"))


def test_the_same_images_in_another_folder_or_in_the_table_itself_are_the_same(image_files, tmp_path, decoded_images):
    files = with_files(image_files)
    elsewhere = [shutil.copy(file, tmp_path / f"renamed-{file.name}") for file in image_files]
    content = [{"bytes": file.read_bytes(), "path": None} for file in image_files]
    named = [{"bytes": file.read_bytes(), "path": "there.png"} for file in image_files]
    files.to_parquet(tmp_path / "rows.parquet")  # which takes the content of the files along
    loaded = Dataset.from_parquet(str(tmp_path / "rows.parquet"), cache_dir=str(tmp_path / "cache"))
    undecoded = files.cast_column("image", datasets.Image(decode=False))
    in_table = [of_pictures("image", *each) for each in (content, named)]
    for dataset in (with_files(elsewhere), *in_table, loaded, undecoded):
        assert keys_of(dataset) == keys_of(files)
    assert decoded_images == []


def test_another_image_under_the_same_name_is_another_row_and_with_ids_no_image_file_is_read(image_files):
    before, named = keys_of(with_files(image_files)), keys_of(with_files(image_files, id=["a", "b", "c"]))
    shutil.copy(image_files[2], image_files[1])
    after = keys_of(with_files(image_files))
    assert [old == new for old, new in zip(before, after, strict=True)] == [True, False, False]  # the last is a copy
    assert after[1] == before[2]
    for file in image_files:
        file.unlink()
    assert keys_of(with_files(image_files, id=["a", "b", "c"])) == named


def test_what_only_another_row_has_changes_nothing():
    """Arrow gives its fields and columns to every row of a table, so a row that comes would be felt by all."""
    few = Dataset.from_list([{"prompt": asked("hello")}])
    more = Dataset.from_list([{"prompt": asked("hello")}, {"prompt": [asked("hello")[0] | {"name": "Ada"}]}])
    assert keys_of(more)[0] == keys_of(few)[0]
    assert keys_of(of_pictures("image", None, stored(0)))[0] == keys_of(prompts("what?"))[0]


def test_rows_of_one_prompt_are_told_apart_by_their_other_columns(image_files):
    order = [2, 0, 1]
    boards = prompts(*["play"] * 3, board=[[1], [2], [1, 2]])
    half = prompts(*["play"] * 3, id=["a", "b", "b"], n=[1, 2, 3])
    for rows in (boards, half, with_files(image_files).rename_column("image", "goal")):
        assert keys_of(rows.select(order)) == sample_keys(rows)[order].tolist()  # wherever a row stands
    one, two = keys_of(prompts("one", "two"))
    keys = keys_of(prompts("one", "two", "two", answer=["a", "b", "c"]))  # only for rows that need them
    assert keys[0] == one
    assert two not in keys


@settings(max_examples=40)
@given(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=10), st.randoms(use_true_random=False))
def test_reordered_rows_have_their_keys_reordered_copy_for_copy(texts, random):
    order = random.sample(range(len(texts)), len(texts))
    keys, moved = sample_keys(prompts(*texts)), sample_keys(prompts(*[texts[row] for row in order]))
    assert len({*keys.tolist()}) == len(texts)
    for text in set(texts):  # the first of a text has the first key of that text, and so on
        of_text = [key for key, each in zip(keys.tolist(), texts, strict=True) if each == text]
        assert [key for key, row in zip(moved.tolist(), order, strict=True) if texts[row] == text] == of_text
    if len(texts) == len({*texts}):
        assert moved.tolist() == keys[order].tolist()


@settings(max_examples=40)
@given(st.lists(st.text(max_size=3), min_size=1, max_size=10, unique=True), st.data())
def test_rows_that_come_and_go_leave_the_keys_of_the_others_alone(texts, data):
    split = data.draw(st.integers(1, len(texts)))
    assert keys_of(prompts(*texts))[:split] == keys_of(prompts(*texts[:split]))


A_KEY = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(A_KEY, min_size=1, max_size=9, unique=True), st.lists(A_KEY, max_size=6), st.data())
def test_rows_are_found_as_in_a_dictionary(sample_key, others, more):
    wanted = more.draw(st.permutations(others + more.draw(st.lists(st.sampled_from(sample_key), max_size=6))))
    found, rows = find_rows(np.array(wanted, dtype=np.int64), np.array(sample_key, dtype=np.int64))
    row_of = {key: row for row, key in enumerate(sample_key)}
    assert found.tolist() == [key in row_of for key in wanted]
    assert rows[found].tolist() == [row_of[key] for key in wanted if key in row_of]
