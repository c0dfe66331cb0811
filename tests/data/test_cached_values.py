"""Numbers of rows that are kept in a file: what is trusted of it, who may read it, and what is left of it."""

import io
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from datasets import (
    Dataset,
    disable_caching,
    disable_progress_bars,
    enable_caching,
    enable_progress_bars,
    load_dataset,
)

from tests.support.refusals import refused
from trl_vade.data import cached_values as row_values
from trl_vade.data.cached_values import by_batch, file_state

TITLE = "Working out the numbers"


@pytest.fixture
def rows(tmp_path):
    """300 rows in a file, more than two batches."""
    Dataset.from_dict({"n": range(300)}).to_parquet(tmp_path / "rows.parquet")
    file, cache = str(tmp_path / "rows.parquet"), str(tmp_path / "cache")
    return load_dataset("parquet", data_files=file, split="train", cache_dir=cache)


def squares(dataset, asked=None, depends_on=None):
    """The squares of column `n`; the numbers of the rows that were worked out are added to `asked`."""

    def compute(batch, numbers):
        if asked is not None:
            asked.extend(numbers)
        return np.array(batch["n"], dtype=np.int64) ** 2

    return row_values.row_values(dataset, by_batch(dataset, compute), depends_on=depends_on, what=TITLE)


def folder_of(dataset):
    return Path(dataset.cache_files[0]["filename"]).parent


def files_of(dataset):
    return sorted(folder_of(dataset).glob("cache-*"))


def test_the_second_time_they_are_read_and_the_pages_are_those_of_the_file(rows):
    asked, expected = [], [n**2 for n in range(300)]
    for _ in range(2):
        values = squares(rows, asked)
        assert (values.dtype, values.tolist()) == (np.int64, expected)
        assert not values.flags.writeable  # mapped, the first time as well
    assert asked == list(range(300))
    [file] = files_of(rows)
    assert np.load(file).tolist()[:-1] == expected  # a plain file of numpy, and a checksum


def test_they_are_those_of_these_rows_in_this_order_and_of_what_they_depend_on(rows):
    asked = []
    squares(rows, asked)
    assert squares(rows.select([7, 3]), asked).tolist() == [49, 9]
    assert squares(rows, asked, depends_on=["another", 1]).tolist() == squares(rows).tolist()
    assert len(asked) == 300 + 2 + 300
    assert len(files_of(rows)) == 3


def test_rows_in_memory_leave_no_file_and_no_rows_have_no_numbers():
    asked, held = [], Dataset.from_dict({"n": [1, 2]})
    assert squares(held, asked).tolist() == squares(held, asked).tolist() == [1, 4]
    assert asked == [0, 1, 0, 1]
    assert squares(held.select([]), asked).shape == (0,)


def test_no_file_is_read_or_written_where_the_user_wants_none(rows):
    asked = []
    squares(rows)
    disable_caching()
    try:
        squares(rows, asked)
        squares(rows, depends_on="else")
    finally:
        enable_caching()
    assert (len(asked), len(files_of(rows))) == (300, 1)


def saved(values, **options):
    """The bytes of a file of numpy."""
    np.save(file := io.BytesIO(), values, **options)
    return file.getvalue()


DAMAGES = {
    "cut": lambda whole: whole[:-9],
    "longer": lambda whole: whole.replace(b"(301,)", b"(302,)") + bytes(8),
    "empty": lambda whole: b"",
    "bit": lambda whole: whole[:1000] + bytes([whole[1000] ^ 1]) + whole[1001:],
    "header": lambda whole: whole.replace(b"'descr'", b"(((((((", 1),
    "pickle": lambda whole: saved(np.array([print] * 301, dtype=object), allow_pickle=True),
    "other": lambda whole: saved(np.arange(301)),
    "type": lambda whole: saved(np.load(io.BytesIO(whole)).astype(np.float64)),
}


def test_a_damaged_file_is_not_trusted_and_made_anew(rows):
    expected = squares(rows).tolist()
    [file] = files_of(rows)
    whole = file.read_bytes()
    for damage, damaged in DAMAGES.items():
        file.write_bytes(damaged(whole))
        asked = []
        assert squares(rows, asked).tolist() == expected, damage
        assert len(asked) == 300
        assert file.read_bytes() == whole
    assert files_of(rows) == [file]


def test_no_byte_of_the_header_can_be_changed_to_another_result(rows):
    values = squares(rows).tolist()
    [file] = files_of(rows)
    whole, random = file.read_bytes(), np.random.default_rng(0)
    for place in random.integers(0, 128, 60).tolist():
        file.write_bytes(whole[:place] + bytes([random.integers(256)]) + whole[place + 1 :])
        assert squares(rows).tolist() == values


def test_a_disk_that_refuses_costs_the_file_and_not_the_numbers(rows, monkeypatch, caplog):
    def full(*names):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert squares(rows).tolist() == [n**2 for n in range(300)]
    assert files_of(rows) == []
    assert "[Errno 28] No space left on device" in caplog.text


def test_what_a_process_that_was_ended_left_is_cleared_up_when_it_is_old(rows):
    old, young = (folder_of(rows) / f"cache-{name * 32}.npy.{name * 8}.tmp" for name in "ab")
    for file in (old, young):
        file.write_bytes(b"half")
    os.utime(old, (time.time() - 7200,) * 2)
    squares(rows)
    assert [file.name for file in files_of(rows) if file.name.endswith(".tmp")] == [young.name]


def test_an_error_on_the_way_leaves_nothing_behind(rows):
    def fails(batch, numbers):
        if numbers[0]:
            raise ValueError("the second batch")
        return np.zeros(len(numbers), dtype=np.int64)

    with refused(ValueError, ["the second batch"]):
        row_values.row_values(rows, by_batch(rows, fails), depends_on=None, what=TITLE)
    assert files_of(rows) == []
    with refused(RuntimeError, [TITLE, "2", "300"]):
        row_values.row_values(rows, [np.arange(2)], depends_on=None, what=TITLE)


def test_those_that_come_at_the_same_time_all_get_the_numbers_and_leave_one_file(rows):
    with ThreadPoolExecutor(4) as pool:  # as processes of a node do; these share no lock either
        results = list(pool.map(lambda _: squares(rows).tolist(), range(12)))
    assert results == [[n**2 for n in range(300)]] * 12
    assert [file.suffix for file in files_of(rows)] == [".npy"]


def test_the_progress_bar_is_that_of_datasets(rows, capfd):
    try:
        disable_progress_bars()
        squares(rows)
        assert TITLE not in capfd.readouterr().err
        enable_progress_bars()
        squares(rows, depends_on="once more")
        assert f"{TITLE}: 100%" in capfd.readouterr().err
    finally:
        enable_progress_bars()


def test_a_file_that_is_not_there_has_a_name_only(tmp_path):
    (tmp_path / "a").write_bytes(b"four")
    assert file_state(str(tmp_path / "a"))[:2] == (str(tmp_path / "a"), 4)
    assert file_state(str(tmp_path / "b")) == (str(tmp_path / "b"),)
    assert file_state("\0") == ("\0",)
