"""Numbers of rows that `datasets` keeps: for these rows, these image files, and what else they depend on."""

import os
from pathlib import Path

import datasets
import numpy as np
import pytest
from datasets import Dataset, disable_caching, enable_caching, load_dataset

from tests.support.rows import picture
from trl_vade.data.cached_values import row_values


@pytest.fixture
def rows(tmp_path):
    """300 rows in a file, more than two batches."""
    Dataset.from_dict({"n": range(300)}).to_parquet(tmp_path / "rows.parquet")
    file, cache = str(tmp_path / "rows.parquet"), str(tmp_path / "cache")
    return load_dataset("parquet", data_files=file, split="train", cache_dir=cache)


def squares(dataset, asked=None, depends_on=None):
    """The squares of column `n`; the numbers of the rows that were worked out are added to `asked`."""

    def compute(table, numbers):
        if asked is not None:
            asked.extend(numbers)
        return np.array(table["n"]) ** 2

    return row_values(dataset, compute, depends_on=depends_on, what="Squares", batch_size=128)


def folder_of(dataset):
    return Path(dataset.cache_files[0]["filename"]).parent


def test_they_are_kept_for_these_rows_in_this_order_and_what_they_depend_on(rows):
    asked, expected = [], [n**2 for n in range(300)]
    for _ in range(2):
        values = squares(rows, asked)
        assert (values.dtype, values.tolist()) == (np.int64, expected)
    assert asked == list(range(300))
    assert squares(rows.select([7, 3]), asked).tolist() == [49, 9]
    assert squares(rows, asked, depends_on=["another", 1]).tolist() == expected
    assert len(asked) == 300 + 2 + 300


def test_rows_in_memory_leave_no_file_and_no_rows_have_no_numbers():
    asked, held = [], Dataset.from_dict({"n": [1, 2]})
    assert squares(held, asked).tolist() == squares(held, asked).tolist() == [1, 4]
    assert asked == [0, 1, 0, 1]
    assert squares(held.select([]), asked).shape == (0,)


def test_no_file_is_read_where_the_user_wants_none_nor_written_where_none_may_be(rows, monkeypatch):
    asked, before = [], {*folder_of(rows).iterdir()}
    monkeypatch.setattr(os, "access", lambda folder, mode: False)  # the tests may run as root
    squares(rows)
    assert {*folder_of(rows).iterdir()} == before
    monkeypatch.undo()
    squares(rows)
    disable_caching()
    try:
        assert squares(rows, asked).tolist() == [n**2 for n in range(300)]
    finally:
        enable_caching()
    assert len(asked) == 300


def test_a_changed_image_file_is_read_again_wherever_its_name_stands(tmp_path):
    file, image = str(tmp_path / "a.png"), datasets.Image()
    for place, value, feature in (
        ("column", file, image),
        ("list", [file], [image]),
        ("prompt", [{"content": [{"image": file}]}], [{"content": [{"image": image}]}]),
    ):
        picture(1).save(file)
        rows, asked = str(tmp_path / f"{place}.parquet"), []
        Dataset.from_dict({"n": [1], "x": [value]}).to_parquet(rows)
        start = {"data_files": rows, "split": "train", "cache_dir": str(tmp_path / "cache")}
        for change in (lambda: None, lambda: None, lambda: os.utime(file, (1, 1)), lambda: os.unlink(file)):
            change()
            squares(load_dataset("parquet", **start).cast_column("x", feature), asked)
        assert asked == [0, 0, 0], place
