"""Posteriors that somebody has made to harm: each is refused in our words, in seconds, and without much memory."""

import io
import json
import resource
import struct
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trl_vade.errors import VADEError
from trl_vade.samplers.snapshot import POSTERIOR_FILE

from .bench import Bench, expect, tally
from .result import Result

MOST_SECONDS, MOST_MEGABYTES = 5.0, 300.0
COUNTS = {"alpha": [1.0, 2.0], "beta": [3.0, 4.0], "visits": [1, 1], "pass_rate": [0.33, 0.37], "last_step": [1, 1]}
TABLE = {"sample_id": ["a", "b"], "index": [0, 1]} | COUNTS


def _table(columns: dict[str, Any] | pa.Table, **writing: Any) -> bytes:
    content = io.BytesIO()
    pq.write_table(columns if isinstance(columns, pa.Table) else pa.table(columns), content, **writing)
    return content.getvalue()


def _rows(count: int, **texts: str) -> bytes:
    """So many equal rows; the dictionary of a column holds its text once."""
    ones = pa.array(np.ones(min(count, 1_000_000)))
    numbers = pa.array(np.zeros(len(ones), dtype=np.int32))
    named = {"sample_id": "a"} | texts
    columns = {name: pa.DictionaryArray.from_arrays(numbers, [text]) for name, text in named.items()}
    whole = {
        name: pa.array(np.full(len(ones), value)) for name, value in (("index", -1), ("visits", 1), ("last_step", 1))
    }
    part, content = pa.table(columns | whole | dict.fromkeys(("alpha", "beta", "pass_rate"), ones)), io.BytesIO()
    with pq.ParquetWriter(content, part.schema, compression="zstd", dictionary_pagesize_limit=2**30) as file:
        for _ in range(count // len(ones)):
            file.write_table(part)
    return content.getvalue()


def _described(facts: bytes) -> bytes:
    return _table(pa.table(TABLE).replace_schema_metadata({b"trl_vade": facts}))


def _deep(levels: int) -> pa.DataType:
    kind = pa.string()
    for _ in range(levels):
        kind = pa.struct([("x", kind)])
    return kind


def _safetensors(header: bytes, body: bytes = b"", length: int | None = None) -> bytes:
    return struct.pack("<Q", len(header) if length is None else length) + header + body


def _header(**tensors: Any) -> bytes:
    return json.dumps(tensors).encode()


VECTOR = {"dtype": "F64", "shape": [2], "data_offsets": [0, 16]}
FILES: dict[str, Callable[[], bytes]] = {
    "a text of 1 MB in a dictionary, 5,000 times": lambda: _rows(5_000, sample_id="x" * 1_000_000),
    "a text of 100 kB as the task of 100,000 rows": lambda: _rows(100_000, task="x" * 100_000),
    "50 million rows": lambda: _rows(50_000_000),
    "a column more, of 100 MB a value": lambda: _rows(1000, more="x" * 100_000_000),
    "10,000 columns in place of counts": lambda: _table({f"c{n}": [n, n] for n in range(10_000)}),
    "structs in structs": lambda: _table(TABLE | {"task": pa.array([None, None], _deep(200))}),
    "facts of 50 MB": lambda: _described(json.dumps({"a": "x" * 50_000_000}).encode()),
    "facts in lists in lists": lambda: _described(b"[" * 200_000),
    "a number of 100,000 digits": lambda: _described(b'{"global_step": ' + b"9" * 100_000 + b"}"),
    "facts that are no JSON": lambda: _described(b"{"),
    "NaN as a fact": lambda: _described(b'{"format_version": 1, "global_step": NaN}'),
    "of a newer release": lambda: _described(b'{"format_version": 99}'),
    "a negative count": lambda: _table(TABLE | {"alpha": [-1.0, 2.0]}),
    "counts that are not numbers": lambda: _table(TABLE | {"alpha": [float("nan"), 2.0]}),
    "counts without end": lambda: _table(TABLE | {"beta": [float("inf"), 2.0]}),
    "counts of 1e300": lambda: _table(TABLE | {"beta": [1e300, 2.0]}),
    "two rows of one name": lambda: _table(TABLE | {"sample_id": ["a", "a"]}),
    "a row without a name": lambda: _table(TABLE | {"sample_id": ["a", None]}),
    "names that are numbers": lambda: _table(TABLE | {"sample_id": [1, 2]}),
    "no counts": lambda: _table({"sample_id": ["a"]}),
    "a column twice": lambda: _table(
        pa.table([pa.array(values) for values in [*TABLE.values(), [1.0, 1.0]]], [*TABLE, "alpha"])
    ),
    "an index twice": lambda: _table(TABLE | {"index": [0, 0]}),
    "half of a file": lambda: _table(TABLE)[:200],
    "no file of Parquet": lambda: b"PAR1" + b"\0" * 1000 + b"PAR1",
    "an empty file": lambda: b"",
}
SNAPSHOTS: dict[str, Callable[[], bytes]] = {
    "a header of 2^63 bytes": lambda: _safetensors(b"{}", length=2**63),
    "a header of 80 MB": lambda: _safetensors(b'{"__metadata__": {"a": "' + b"x" * 80_000_000 + b'"}}'),
    "a header in lists in lists": lambda: _safetensors(b'{"a":' + b"[" * 200_000),
    "a tensor of 2^60 numbers": lambda: _safetensors(_header(alpha=VECTOR | {"shape": [2**60]}), bytes(16)),
    "tensors in one place": lambda: _safetensors(_header(alpha=VECTOR, beta=VECTOR), bytes(16)),
    "no document": lambda: _safetensors(_header(alpha=VECTOR), np.ones(2).tobytes()),
    "a document that is no JSON": lambda: _safetensors(
        _header(__metadata__={"document": "{", "vade": "{"}, alpha=VECTOR), bytes(16)
    ),
    "an empty snapshot": lambda: b"",
}


def hostile_posteriors(bench: Bench) -> Result:
    """Load each in a process of its own."""
    cases = [(name, "posterior.parquet", make) for name, make in FILES.items()]
    cases += [(name, POSTERIOR_FILE, make) for name, make in SNAPSHOTS.items()]
    return tally("hostile posterior", {name: partial(_refused, bench, file, make) for name, file, make in cases})


def _refused(bench: Bench, name: str, make: Callable[[], bytes]) -> str:
    path = bench.folder() / name
    path.write_bytes(make())
    here, there = bench.context.Pipe(duplex=False)
    process = bench.context.Process(target=_load, args=(there, path if name.endswith("parquet") else path.parent))
    process.start()
    there.close()
    try:
        expect(here.poll(60.0), "nothing was said for a minute")
        kind, message, seconds, megabytes = here.recv()
    finally:
        process.kill()
        process.join()
        path.unlink()
    expect(kind == "refused", f"{kind}: {message}")
    expect(seconds < MOST_SECONDS, f"it took {seconds:.1f} s")
    expect(megabytes < MOST_MEGABYTES, f"it took {megabytes:.0f} MB")
    return f"refused in our words, in less than {MOST_SECONDS:.0f} s and {MOST_MEGABYTES:.0f} MB"


def _load(pipe: Connection, path: Path) -> None:
    from trl_vade import load_posterior

    resource.setrlimit(resource.RLIMIT_AS, (12 * 2**30,) * 2)  # the machine has other things to do
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    try:
        load_posterior(path)
        kind, message = "loaded", ""
    except VADEError as error:
        kind, message = "refused", str(error)[:300]
    except BaseException as error:
        kind, message = "raised", f"{type(error).__name__}: {error}"[:300]
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    pipe.send((kind, message, time.perf_counter() - start, (after - before) / 1024))
