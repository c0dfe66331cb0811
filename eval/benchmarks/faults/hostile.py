"""Posteriors made to harm, most with a right digest: each is refused in our words, soon, and without much memory."""

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
from safetensors.numpy import save

from trl_vade import ThompsonSampler, save_snapshot
from trl_vade.errors import VADEError
from trl_vade.samplers.snapshot import POSTERIOR_FILE, _digest

from .bench import Bench, expect, tally
from .result import Result

MOST_SECONDS, MOST_MEGABYTES = 5.0, 300.0
VECTOR = {"dtype": "F64", "shape": [2], "data_offsets": [0, 16]}


def _safetensors(header: bytes, body: bytes = b"", length: int | None = None) -> bytes:
    return struct.pack("<Q", len(header) if length is None else length) + header + body


def _header(**tensors: Any) -> bytes:
    return json.dumps(tensors).encode()


def _snapshot(folder: Path, change: Callable[[dict[str, Any], dict[str, Any]], None] = lambda *_: None) -> bytes:
    """A snapshot of 3 of 10 rows with a right digest, and what `change` makes of its document and its arrays."""
    sampler = ThompsonSampler(10)
    sampler.observe([1, 4, 7], [1, 2, 3], [4, 4, 4])
    save_snapshot(folder, sampler, metadata={"run": {"global_step": 1}}, sample_key=np.arange(10))
    content = (folder / POSTERIOR_FILE).read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    document = json.loads(header.pop("__metadata__")["vade_posterior"])
    start = 8 + int.from_bytes(content[:8], "little")
    kinds = {"I64": np.int64, "F64": np.float64}
    arrays = {
        name: np.frombuffer(
            content[slice(*(start + at for at in about["data_offsets"]))], kinds[about["dtype"]]
        ).copy()
        for name, about in header.items()
    }
    change(document, arrays)
    text = json.dumps(document | {"document_sha256": "0" * 64}, sort_keys=True, separators=(",", ":"))
    made = save(arrays, metadata={"vade_posterior": text})
    return made.replace(b"0" * 64, _digest(made).encode(), 1)


def _count(name: str, value: float) -> Callable[[Path], bytes]:
    def change(document: dict[str, Any], arrays: dict[str, Any]) -> None:
        arrays[name][1] = value

    return lambda folder: _snapshot(folder, change)


def _fact(*path: str, value: Any) -> Callable[[Path], bytes]:
    def change(document: dict[str, Any], arrays: dict[str, Any]) -> None:
        for name in path[:-1]:
            document = document[name]
        document[path[-1]] = value

    return lambda folder: _snapshot(folder, change)


def _without_keys(document: dict[str, Any], arrays: dict[str, Any]) -> None:
    del arrays["sample_key"]


STATE = ("sampler", "posterior")
FILES: dict[str, Callable[[Path], bytes]] = {
    "a header of 2^63 bytes": lambda _: _safetensors(b"{}", length=2**63),
    "a header of 80 MB": lambda _: _safetensors(b'{"__metadata__": {"a": "' + b"x" * 80_000_000 + b'"}}'),
    "a header in lists in lists": lambda _: _safetensors(b'{"a":' + b"[" * 200_000),
    "a tensor of 2^60 numbers": lambda _: _safetensors(_header(alpha=VECTOR | {"shape": [2**60]}), bytes(16)),
    "tensors in one place": lambda _: _safetensors(_header(alpha=VECTOR, beta=VECTOR), bytes(16)),
    "no document": lambda _: _safetensors(_header(alpha=VECTOR), np.ones(2).tobytes()),
    "a document that is no JSON": lambda _: _safetensors(
        _header(__metadata__={"vade_posterior": "{"}, alpha=VECTOR), bytes(16)
    ),
    "an empty file": lambda _: b"",
    "half of a file": lambda folder: _snapshot(folder)[:700],
    "another byte": lambda folder: _snapshot(folder)[:-1] + b"\x7e",
    "a Parquet file": lambda _: b"PAR1" + bytes(1000) + b"PAR1",
    "of a newer release": _fact("format_version", value=99),
    "2^60 rows": _fact(*STATE, "num_samples", value=2**60),
    "no rows": _fact(*STATE, "num_samples", value=0),
    "a step before its rows": _fact(*STATE, "step", value=0),
    "a decay above 1": _fact(*STATE, "decay_unsampled", value=2.0),
    "a step of 100 digits": _fact("metadata", "run", "global_step", value=10**100),
    "a step that is a text": _fact("metadata", "run", "global_step", value="1"),
    "a sampler that is a list": _fact("sampler", value=[]),
    "a negative count": _count("alpha", -1.0),
    "counts that are not numbers": _count("alpha", float("nan")),
    "counts without end": _count("beta", float("inf")),
    "counts of 1e300": _count("beta", 1e300),
    "a row that is not there": _count("sample_index", 10),
    "a row twice": _count("sample_index", 1),
    "more visits than steps": _count("visits", 2),
    "rows without keys": lambda folder: _snapshot(folder, _without_keys),
}


def hostile_posteriors(bench: Bench) -> Result:
    """Load each in a process of its own."""
    return tally("hostile posterior", {name: partial(_refused, bench, make) for name, make in FILES.items()})


def _refused(bench: Bench, make: Callable[[Path], bytes]) -> str:
    path = bench.folder() / POSTERIOR_FILE
    path.write_bytes(make(path.parent))
    here, there = bench.context.Pipe(duplex=False)
    process = bench.context.Process(target=_load, args=(there, path.parent))
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
