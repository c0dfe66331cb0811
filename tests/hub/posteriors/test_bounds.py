"""Parquet files of a stranger that unpack to many times their size, and sound files that are packed well."""

import io
import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.posteriors import example_table, same
from trl_vade.files import encode_document
from trl_vade.hub.posteriors.columns import ROWS_DIGEST
from trl_vade.hub.posteriors.table import METADATA_KEY, PosteriorTable, read_table, write_table

READ_ALL = """
import json, resource, sys, time
from trl_vade.errors import SnapshotCorruptError
from trl_vade.hub.posteriors.table import read_table
resource.setrlimit(resource.RLIMIT_DATA, (2**31, 2**31))
peak = lambda: int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) / 1024  # MiB
for path in sys.argv[1:]:
    open("/proc/self/clear_refs", "w").write("5")  # sets the peak to what is in use
    before, start = peak(), time.process_time()
    try:
        read_table(path)
        print(json.dumps([path, "was read", 0, 0]))
    except SnapshotCorruptError as error:
        print(json.dumps([path, str(error), peak() - before, time.process_time() - start]))
"""


def rows(number, **columns):
    """`number` rows of a posterior, all alike but for `columns`."""
    zeros, ones = np.zeros(number), np.ones(number, dtype=np.int64)
    alike = {"sample_id": ["a"] * number, "index": np.arange(number), "alpha": zeros, "beta": zeros}
    return pa.table(alike | {"visits": ones, "pass_rate": zeros + 0.5, "last_step": ones} | columns)


def all_alike(text, number):
    """A text that is in the file once, and in the table in each of the rows."""
    return pa.DictionaryArray.from_arrays(np.zeros(number, dtype=np.int32), [text])


def distinct(number):
    return np.array([f"{place:x}" for place in range(number)], dtype=object)


def described(table):
    """The table with the facts of a run. All is sound but the digest, which is compared at the very end."""
    facts = {"format_version": 1, "global_step": 1, "generation_batches": 1, "num_samples": 500_000}
    return table.replace_schema_metadata({METADATA_KEY: encode_document(facts | {ROWS_DIGEST: "0" * 64})})


def wide(columns):
    return pa.table({f"{number:x}": pa.array([0], pa.int8()) for number in range(columns)})


def write_groups(path, table, times=1, **options):
    options = {"write_statistics": False, "store_schema": bool(table.schema.metadata)} | options
    with pq.ParquetWriter(path, table.schema, **options) as writer:
        for _ in range(times):
            writer.write_table(table)


def read_the_same_bytes_again(path, times):
    """Change the footer of a file, so that its only row group is there many times."""
    footer = pq.read_metadata(path)
    for _ in range(times):
        footer.append_row_groups(pq.read_metadata(path))
    footer.write_metadata_file(alone := io.BytesIO())
    length = int.from_bytes(path.read_bytes()[-8:-4], "little")
    path.write_bytes(path.read_bytes()[: -8 - length] + alone.getvalue()[4:])


def write_bombs(folder):
    """Write a file for each way of unpacking too much; return the paths by what is in the message."""
    names, plain = distinct(100_000), {"compression": "none"}
    nested = pa.ListArray.from_arrays(pa.array([0, 10**7]), pa.array(np.zeros(10**7)))
    prefixed = plain | {"use_dictionary": ["task"], "column_encoding": {"sample_id": "DELTA_BYTE_ARRAY"}}
    padded = plain | {"use_dictionary": False}
    long_text = all_alike("t" * 2**20, len(names))
    one_long = pa.array(["a", "b", "c" * 5 * 10**7])
    bombs = {
        "rows": (rows(200_000, index=np.zeros(200_000, dtype=np.int64)), {"times": 10}),
        "compression other than Snappy": (
            rows(3, sample_id=one_long),
            {"compression": "zstd"},
        ),
        "bytes if unpacked": (rows(3, sample_id=one_long), {}),
        "alpha has list": (rows(1, alpha=nested), {}),
        "DeltaByteArray": (rows(5_000, sample_id=pa.array("b" * 10_000 + names[:5_000])), prefixed),
        "sample_id must differ": (rows(100_000, sample_id=long_text), plain),
        "alpha must be": (rows(100_000, sample_id=names, task=long_text, alpha=np.full(100_000, -1.0)), plain),
        "size limit": (wide(5_000), {}),
        "limit": (wide(1), {"times": 5_000}),
        "packed bytes": (rows(1_000, sample_id=["s" * 5_000] * 1_000), padded),
        "rows differ": (described(rows(150_000, sample_id=distinct(150_000), task=["a task"] * 150_000)), padded),
        "its rows differ": (described(rows(3, sample_id=pa.array(["a", "b", "c" * 30_000_000]))), {}),
    }
    for number, (table, options) in enumerate(bombs.values()):
        write_groups(folder / f"{number}.parquet", table, **options)
    read_the_same_bytes_again(folder / f"{list(bombs).index('packed bytes')}.parquet", 99)
    return {str(folder / f"{number}.parquet"): rule for number, rule in enumerate(bombs)}


@pytest.mark.slow
def test_no_file_below_10_megabytes_takes_much_memory_or_time_to_be_refused(tmp_path):
    bombs = write_bombs(tmp_path)
    assert max((tmp_path / path).stat().st_size for path in bombs) < 10 * 2**20
    done = subprocess.run([sys.executable, "-c", READ_ALL, *bombs], capture_output=True, text=True, timeout=300)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(path, bombs[path] in message) for path, message, *_ in told] == [(path, True) for path in bombs]
    assert max(megabytes for *_, megabytes, _ in told) < 300
    assert max(seconds for *_, seconds in told) < 5


def test_many_rows_that_are_alike_are_read_again(tmp_path):
    """However well a table packs, what this package writes it can read."""
    size = 200_000
    columns = rows(size, sample_id=distinct(size)).to_pydict()
    numbers = {name: np.array(values) for name, values in columns.items() if name != "sample_id"}
    metadata = example_table(num_samples=size).metadata
    table = PosteriorTable(sample_id=columns["sample_id"], task=None, metadata=metadata, **numbers)
    write_table(table, tmp_path / "alike.parquet")
    same(read_table(tmp_path / "alike.parquet"), table)


@pytest.mark.parametrize("options", [{"compression": "none"}, {"data_page_version": "2.0"}])
def test_a_sound_file_is_read_however_it_is_packed(tmp_path, options):
    write_table(example_table(), tmp_path / "ours.parquet")
    content = pq.read_table(tmp_path / "ours.parquet")
    pq.write_table(content, tmp_path / "theirs.parquet", row_group_size=2, **options)
    same(read_table(tmp_path / "theirs.parquet"), example_table())
