"""Pools of millions of rows, for `rows.py`: their keys, and 512 of them read or decoded.

A table is written 1,000 rows at a time, as `datasets` does it, so that to build one takes no memory.
"""

import json
import statistics
import subprocess
import sys
import threading
import time
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from datasets import Dataset, Features, Image, Value, disable_progress_bars, load_dataset
from PIL import Image as Pictures

from trl_vade.data import row_keys as data
from trl_vade.data.loading import RowLoader

ROWS_OF_A_PART = 1000
CHOSEN = 512
POLL_SECONDS = 0.05
PROMPT = "What is the sum of the two bars, and how many shapes are there?"


def ids_figures(directory, options):
    """Seconds of `sample_keys` with `dataset_fingerprint`, and the most memory they took, in fresh processes."""
    if not Path(directory, "rows.parquet").exists():
        write_ids(Path(directory, "rows.parquet"), options.ids)
        start(directory)  # makes the file of Arrow
    figures, seen = {}, set()
    for _ in range(options.repeats):
        for file in Path(start(directory).cache_files[0]["filename"]).parent.glob("cache-*.npy"):
            file.unlink()
        for arm in ("keys", "keys again"):
            taken = watched([sys.executable, __file__, str(directory)])
            seen.add(taken.pop("fingerprint"))
            for name, value in taken.items():
                figures.setdefault(f"{arm}: {name}", []).append(value)
    assert len(seen) == 1, seen
    return figures


def write_ids(path, number):
    """A Parquet file with a string `id` of its own and a prompt for each of `number` rows."""
    schema = pa.schema({"id": pa.string(), "prompt": pa.string()})
    with pq.ParquetWriter(path, schema) as writer:
        for first in range(0, number, 100 * ROWS_OF_A_PART):
            ids = [f"row-{row:09d}" for row in range(first, min(first + 100 * ROWS_OF_A_PART, number))]
            prompts = [f"{PROMPT} {row}" for row in ids]
            writer.write_table(pa.table({"id": ids, "prompt": prompts}, schema=schema))


def start(directory):
    """The rows as a start of a run gets them."""
    file, cache = str(Path(directory, "rows.parquet")), str(Path(directory, "cache"))
    return load_dataset("parquet", data_files=file, split="train", cache_dir=cache)


def keys_of_a_start(directory):
    """In a process of its own: print the seconds as JSON. The imports and the loading of the table are not in them."""
    rows = start(directory)
    print("loaded", flush=True)
    sys.stdin.readline()
    begin = time.perf_counter()
    keys, num_copies = data.sample_keys(rows)
    done = time.perf_counter()
    fingerprint = data.dataset_fingerprint(keys)
    seconds = {"seconds of the keys": done - begin, "seconds of the fingerprint": time.perf_counter() - done}
    assert (len(keys), num_copies) == (len(rows), 0)
    print(json.dumps(seconds | {"fingerprint": fingerprint}), flush=True)
    sys.stdin.readline()  # until its memory was looked at


def watched(command):
    """What a process prints, and the memory of it and all its children meanwhile, in MB.

    The memory is the sum of their proportional set sizes (PSS): a page that several of them have counts once. It is
    looked at every 50 ms, before the work begins and at its most, with and without the pages of mapped files, which
    the kernel takes back when it needs them.
    """
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "loaded\n"
    before, most, over = memory_of(process.pid), [0, 0], threading.Event()

    def watch():
        while not over.wait(POLL_SECONDS):
            most[:] = map(max, most, memory_of(process.pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    process.stdin.write("\n")
    process.stdin.flush()
    answer = process.stdout.readline()
    over.set()
    watcher.join()
    most[:] = map(max, most, memory_of(process.pid))
    process.stdin.close()  # it may end
    assert process.wait() == 0
    names = ("MB of all pages", "MB without mapped files")
    memory = {
        f"{name}, {when}": value
        for when, values in (("before", before), ("most", most))
        for name, value in zip(names, values, strict=True)
    }
    return json.loads(answer) | memory


def memory_of(process_id):
    """MB of a process and its children: all pages, and those of no file."""
    pages = np.zeros(2)
    try:
        for process in (psutil.Process(process_id), *psutil.Process(process_id).children(recursive=True)):
            lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
            sizes = {line.split(":")[0]: int(line.split()[1]) for line in lines[1:]}
            pages += (sizes["Pss"], sizes["Pss_Anon"])
    except (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
        pass  # it has ended meanwhile
    return (pages * 1024 / 1e6).tolist()


def table_figures(directory, options):
    """Milliseconds of 512 rows of tables of several sizes: text by `__getitems__`, images by `RowLoader`."""
    figures, random = {}, np.random.default_rng(0)
    for number in options.tables:
        for kind in ("text", "images"):
            path = Path(directory, f"{kind}-{number}.arrow")
            whole = write_table(path, number, kind == "images")
            views = {"as it is": whole, "shuffled": whole.shuffle(seed=0)}
            views["every second"] = whole.select(np.arange(0, number, 2))
            for view, rows in views.items():
                arms = loading_arms(rows) if kind == "images" else {"__getitems__": (rows.__getitems__, None)}
                for arm, (load, after) in arms.items():
                    taken = figures[f"{kind}, {number:,} rows {view}: {arm}"] = []
                    for repeat in range(options.repeats + 1):
                        chosen = random.integers(0, len(rows), CHOSEN)  # hardly any twice
                        begin = time.perf_counter()
                        load(chosen if kind == "images" else chosen.tolist())
                        if repeat:  # the first is not counted: it loads Pillow's formats
                            taken.append((time.perf_counter() - begin) * 1000)
                        if after:
                            after()
            path.unlink()
    return figures


def loading_arms(rows):
    """What a process does with the rows of a batch, and what ends it."""
    loader = RowLoader(rows, num_generations=1, accelerator=SimpleNamespace(num_processes=1, process_index=0))
    return {"load": (loader.load, None), "prefetch": (loader.prefetch, loader.decoder.forget)}


def write_table(path, number, with_images):
    """A table on disk of parts of 1,000 rows, mapped into memory; all its images are one, of 64 pixels."""
    file = BytesIO()
    Pictures.new("RGB", (8, 8), (200, 30, 30)).save(file, "PNG")
    kinds = {"id": Value("string"), "prompt": Value("string")} | ({"image": Image()} if with_images else {})
    schema = Features(kinds).arrow_schema
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
        for first in range(0, number, ROWS_OF_A_PART):
            ids = [f"row-{row}" for row in range(first, min(first + ROWS_OF_A_PART, number))]
            columns = {"id": ids, "prompt": [f"{PROMPT} {row}" for row in ids]}
            if with_images:
                columns["image"] = [{"bytes": file.getvalue(), "path": None}] * len(ids)
            writer.write_batch(pa.record_batch(columns, schema=schema))
    return Dataset.from_file(str(path))


def spread(values):
    """Median (lowest to highest)."""
    return f"{statistics.median(values):.3f} ({min(values):.3f} to {max(values):.3f})"


if __name__ == "__main__":
    disable_progress_bars()
    keys_of_a_start(sys.argv[1])
