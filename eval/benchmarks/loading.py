"""How long do images keep a step waiting? Loading one generation batch of photographs, one after the other and ahead.

    python -m eval.benchmarks.loading --rows 512 --megapixels 1

Every repeat runs all arms in one process, in an order that rotates:

* `stock`: what the stock loader decodes for a generation batch, each row once for every completion (and once more for
  every further micro-batch, which is not counted here). It is measured on one G-th of the rows, that is on as many
  decodes as the batch has rows, and multiplied by G: whole, it would hold G times the images.
* `getitems`: `Dataset.__getitems__` of the chosen rows, each once.
* `N threads`: the same rows from `RowDecoder`.
* `after S s`: what is left of it in `OnTimeSelection.choose` when S seconds lie between `prefetch` (`to begin`) and
  the choice. They are slept: while a GPU computes, the processor is nearly idle. A step that keeps all cores busy
  leaves fewer of them to decode with. The rows are loaded for one completion each.

The images come from memory, so a slow disk is not in the figures. Timings depend on the machine: they are reported and
never tested.
"""

import argparse
import gc
import json
import statistics
import tempfile
import time
from io import BytesIO
from pathlib import Path

import numpy as np
from accelerate import Accelerator
from datasets import Dataset, Features, Image, List, Value
from PIL import Image as Pictures

from trl_vade import UniformSampler
from trl_vade.data import decoding
from trl_vade.data.decoding import RowDecoder
from trl_vade.selection.feedback import Feedback
from trl_vade.selection.log import SelectionLog
from trl_vade.selection.on_time import OnTimeSelection


def photographs(count, megapixels, seed=0):
    """Yield `count` JPEG files, 4:3, of smooth colours with some grain: about 0.25 MB a megapixel at quality 90."""
    random = np.random.default_rng(seed)
    width, height = round((megapixels * 1e6 * 4 / 3) ** 0.5), round((megapixels * 1e6 * 3 / 4) ** 0.5)
    large = np.full((2 * height, 2 * width, 3), 128, np.float32)
    for cells, strength in ((8, 70), (40, 40), (160, 25), (640, 10)):
        coarse = Pictures.fromarray(random.integers(0, 256, (cells, cells, 3), dtype=np.uint8))
        large += strength * (
            np.asarray(coarse.resize((2 * width, 2 * height), Pictures.BICUBIC)) / np.float32(128) - 1
        )
    large += 4 * random.standard_normal((2 * height, 2 * width, 1), dtype=np.float32)
    large = large.clip(0, 255).astype(np.uint8)
    for top, left in random.integers(0, (height, width), (count, 2)):
        file = BytesIO()
        Pictures.fromarray(large[top : top + height, left : left + width]).save(file, "JPEG", quality=90)
        yield file.getvalue()


def data_set(files):
    columns = {"prompt": ["What is this?"] * len(files), "images": [[{"bytes": each, "path": None}] for each in files]}
    return Dataset.from_dict(columns, features=Features({"prompt": Value("string"), "images": List(Image())}))


def seconds(function, *arguments):
    """Wall seconds of a call, whose result is held until the clock has stopped, as a batch is."""
    gc.collect()
    start = time.perf_counter()
    result = function(*arguments)
    taken = time.perf_counter() - start
    del result
    return taken


def left_to_wait(dataset, step):
    """Wall seconds of `prefetch`, and of `choose` `step` seconds later."""
    with tempfile.TemporaryDirectory() as directory:
        feedback = Feedback(UniformSampler(len(dataset)), num_generations=1, log=SelectionLog(directory))
        selection = OnTimeSelection(feedback, dataset, num_groups=len(dataset), accelerator=Accelerator(cpu=True))
        begin = seconds(selection.prefetch)
        time.sleep(step)
        return begin, seconds(selection.choose)


def spread(values):
    return f"{statistics.median(values):.3f} ({min(values):.3f} to {max(values):.3f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=512, help="rows in a generation batch (default 512)")
    parser.add_argument("--megapixels", type=float, default=1.0, help="size of each image (default 1)")
    parser.add_argument("--num_generations", type=int, default=8, help="completions of each row (default 8)")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2, 4, 8], help="sizes of the pool (1 2 4 8)")
    parser.add_argument("--steps", type=float, nargs="+", default=[1.0, 5.0, 10.0], help="seconds slept (1 5 10)")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each arm (default 5)")
    parser.add_argument("--output", type=Path, help="write the figures as JSON here")
    options = parser.parse_args()

    files = list(photographs(options.rows, options.megapixels))
    dataset = data_set(files)
    width, height = dataset[0]["images"][0].size
    every_row, as_set = list(range(options.rows)), decoding.THREADS
    ahead = 4 * width * height * options.rows / 2**30  # Pillow keeps four bytes for a pixel of RGB
    print(
        f"{options.rows} JPEG files of {width} x {height}, {statistics.median(map(len, files)) / 1000:.0f} kB each "
        f"(median); decoded they take {ahead:.2f} GiB"
    )

    def stock():
        part = every_row[: max(1, options.rows // options.num_generations)]
        repeated = [row for row in part for _ in range(options.num_generations)]
        return {"stock": seconds(dataset.__getitems__, repeated) * options.rows / len(part)}

    def with_threads(number):
        decoding.THREADS = number
        try:
            return {f"{number} threads": seconds(RowDecoder(dataset).load, every_row)}
        finally:
            decoding.THREADS = as_set

    def after(step):
        begin, wait = left_to_wait(dataset, step)
        return {f"after {step:g} s": wait, "to begin": begin}

    arms = [stock, lambda: {"getitems": seconds(dataset.__getitems__, every_row)}]
    arms += [lambda number=number: with_threads(number) for number in options.threads]
    arms += [lambda step=step: after(step) for step in options.steps]
    with_threads(as_set)  # not counted: the first batch of a process also loads Pillow's formats
    figures = {}
    for repeat in range(options.repeats):
        for place in range(len(arms)):
            for name, taken in arms[(place + repeat) % len(arms)]().items():
                figures.setdefault(name, []).append(taken)
        print(f"repeat {repeat + 1}/{options.repeats}")

    names = ["stock", "getitems", *(f"{number} threads" for number in options.threads), "to begin"]
    names += [f"after {step:g} s" for step in options.steps]
    print(f"\n{'':12}  seconds a generation batch, median (lowest to highest) of {options.repeats}")
    for name in names:
        print(f"{name:12}  {spread(figures[name])}")
    if options.output:
        options.output.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
