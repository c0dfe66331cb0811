"""What looking at every row before training costs: the lengths of the prompts, and the keys that name the rows.

    python -m eval.benchmarks.rows --rows 4000
    python -m eval.benchmarks.rows --ids 10000000 --repeats 3
    python -m eval.benchmarks.rows --tables 10000 100000 1000000

The second measures `sample_keys` and `dataset_fingerprint` of rows with a string `id` of their own in a Parquet file:
seconds and memory, each start in a fresh process. The third measures how long 512 rows take to be read and decoded out
of tables of these sizes, also of shuffled and selected ones. See `many_rows.py` for both.

In the first, the rows have one image each, half of them JPEG and half PNG, inside a Parquet file, and no `id` column.
Before every repeat what the one before it left in files is removed, and lengths and keys take turns at being first:

* `lengths`: `prompt_lengths`, what `vade_max_prompt_length` does, with the image processor of Qwen2.5-VL as it comes;
  measured on `--whole` rows.
* `lengths again`: the same in the next start, from the cache.
* `keys, 1 thread`: the content of each row hashed in a loop of one thread, without a cache.
* `keys`: `sample_keys`, in threads.
* `keys again`: the same in the next start, from the cache.

The file system's own cache is warm, so a slow disk is not in the figures. The tokenizer is that of the testbed: one of
Qwen's size takes 0.2 s more to digest, once a start. Timings depend on the machine: they are reported, never tested.
"""

import argparse
import json
import tempfile
import time
from io import BytesIO
from pathlib import Path

import numpy as np
from datasets import Dataset, Features, Image, List, Value, disable_progress_bars, load_dataset
from PIL import Image as Pictures
from transformers import Qwen2VLImageProcessor

from trl_vade.data import row_keys as data
from trl_vade.data.prompt_lengths import prompt_lengths
from trl_vade.data.row_keys import keys_of_columns
from trl_vade.testbed.processor import build_processor

from .many_rows import ids_figures, spread, table_figures


def image_files(count, kilobytes, seed=0):
    """Yield `count` files, JPEG and PNG in turn, of about `kilobytes` (a JPEG of that size shows more than a PNG)."""
    random = np.random.default_rng(seed)
    height, width = (1500, 2000)
    large = np.full((2 * height, 2 * width, 3), 128, np.float32)
    for cells, strength in ((8, 70), (40, 40), (160, 25)):
        coarse = Pictures.fromarray(random.integers(0, 256, (cells, cells, 3), dtype=np.uint8))
        large += strength * (np.asarray(coarse.resize((2 * width, 2 * height))) / np.float32(128) - 1)
    large = (large + 4 * random.standard_normal((2 * height, 2 * width, 1), dtype=np.float32)).clip(0, 255)
    large = Pictures.fromarray(large.astype(np.uint8))
    for number in range(count):
        format, bytes_a_pixel = (("JPEG", 0.25), ("PNG", 1.7))[number % 2]
        area, ratio = random.uniform(0.5, 1.5) * kilobytes * 1000 / bytes_a_pixel, random.uniform(0.5, 2)
        size = int(min((area * ratio) ** 0.5, 2 * width)), int(min((area / ratio) ** 0.5, 2 * height))
        left, top = random.integers(0, (large.width - size[0] + 1, large.height - size[1] + 1))
        file = BytesIO()
        large.crop((left, top, left + size[0], top + size[1])).save(file, format, quality=90, compress_level=1)
        yield file.getvalue()


def write_parquet(path, files):
    question = "What is the sum of the two bars? How many shapes are there?"
    prompts = [[{"role": "user", "content": f"{question} {number}"}] for number in range(len(files))]
    images = [[{"bytes": file, "path": None}] for file in files]
    message = {"role": Value("string"), "content": Value("string")}
    features = Features({"prompt": [message], "images": List(Image())})
    Dataset.from_dict({"prompt": prompts, "images": images}, features=features).to_parquet(path)


def full_size_processor():
    processor = build_processor()
    processor.image_processor = Qwen2VLImageProcessor()
    return processor


def keys_in_one_thread(dataset):
    batches = dataset.with_format("arrow").iter(batch_size=100)
    return np.concatenate([keys_of_columns(batch.to_pydict()) for batch in batches])


def forget(dataset):
    """Drop what earlier starts have kept of the rows."""
    for file in Path(dataset.cache_files[0]["filename"]).parent.glob("cache-*.arrow"):
        file.unlink()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4000, help="rows with one image each (default 4000)")
    parser.add_argument("--kilobytes", type=float, default=100, help="of an image, about (default 100)")
    parser.add_argument("--whole", type=int, default=40, help="rows that go through the processor (default 40)")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each arm (default 5)")
    parser.add_argument("--ids", type=int, help="measure the keys of so many rows with an id, and nothing else")
    parser.add_argument("--tables", type=int, nargs="+", help="measure tables of so many rows, and nothing else")
    parser.add_argument("--output", type=Path, help="write the figures as JSON here")
    options = parser.parse_args()
    disable_progress_bars()
    title, measured = f"seconds for {options.rows} rows", measure
    if options.ids:
        title, measured = f"{options.ids:,} rows with an id", ids_figures
    elif options.tables:
        title, measured = "milliseconds for 512 rows", table_figures
    with tempfile.TemporaryDirectory() as directory:
        figures = measured(Path(directory), options)
    width = max(map(len, figures))
    print(f"\n{'':{width}}  {title}, median (lowest to highest) of {options.repeats}")
    for name, values in figures.items():
        print(f"{name:{width}}  {spread(values)}")
    if options.output:
        options.output.write_text(json.dumps(figures, indent=2) + "\n")


def measure(directory, options):
    """Seconds of every arm, in each repeat, by name."""
    files = list(image_files(options.rows, options.kilobytes))
    write_parquet(directory / "rows.parquet", files)
    print(f"{len(files)} images, {sum(map(len, files)) / len(files) / 1000:.0f} kB each (mean)")

    def start():
        file, cache = str(directory / "rows.parquet"), str(directory / "cache")
        return load_dataset("parquet", data_files=file, split="train", cache_dir=cache)

    def seconds(function, dataset, scale=1.0):
        begin = time.perf_counter()
        result = function(dataset)
        return (time.perf_counter() - begin) * scale, result

    def lengths():
        part = min(options.whole, options.rows)
        first, result = seconds(count, start().select(range(part)), options.rows / part)
        again, same = seconds(count, start().select(range(part)))
        assert (result == same).all()
        return {"lengths": first, "lengths again": again}

    def count(dataset):
        return prompt_lengths(dataset, full_size_processor())

    def keys():
        before, result = seconds(keys_in_one_thread, start())
        first, (same, _) = seconds(data.sample_keys, start())
        again, (cached, _) = seconds(data.sample_keys, start())
        assert (result == same).all()
        assert (result == cached).all()
        return {"keys, 1 thread": before, "keys": first, "keys again": again}

    figures = {}
    for repeat in range(options.repeats + 1):
        forget(start())
        taken = lengths() | keys() if repeat % 2 else dict(reversed((keys() | lengths()).items()))
        if repeat:  # the first is not counted: it loads Pillow's formats and warms the disk's cache
            for name in taken:
                figures.setdefault(name, []).append(taken[name])
    return figures


if __name__ == "__main__":
    main()
