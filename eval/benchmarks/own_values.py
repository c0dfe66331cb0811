"""What does it cost that each completion has its row's values to itself? Time and memory of one generation batch.

    python -m eval.benchmarks.own_values --rows 8 --num_generations 8 --megapixels 1

Each arm runs in a process of its own, which reports its peak memory:

* `stock`: TRL's loader, which decodes the row once for each completion.
* `shared`: each row decoded once, its values shared by the completions: wrong where somebody writes into them.
* `own`: `RowLoader`, each row decoded once and its values copied.

After the load follows what the trainer does with the prompts: TRL's `deepcopy` of all of them, and with vLLM
`equal_neighbours`. Timings depend on the machine: they are reported and never tested.
"""

import argparse
import copy
import multiprocessing
import resource
import statistics
import time

import numpy as np
from accelerate import Accelerator
from trl.data_utils import prepare_multimodal_messages

from eval.benchmarks.loading import data_set, photographs
from trl_vade.data.loading import RowLoader
from trl_vade.trainer.generation.repeated_prompts import equal_neighbours

PARTS = ("load", "deepcopy", "neighbours")


def loaders(dataset, num_rows, num_generations):
    loader = RowLoader(dataset, num_generations=num_generations, accelerator=Accelerator(cpu=True))
    each = [row for row in range(num_rows) for _ in range(num_generations)]
    return {
        "stock": lambda: dataset.__getitems__(each),
        "shared": lambda: [dict(row) for row in loader.decoder.load(range(num_rows)) for _ in range(num_generations)],
        "own": lambda: loader.load(np.arange(num_rows)),
    }


def measure(arm, files, num_generations, answer):
    """Put the seconds of `PARTS` and the peak in MiB into the queue `answer`."""
    load = loaders(data_set(files), len(files), num_generations)[arm]
    loaders(data_set(files), 1, 1)["own"]()  # Pillow loads its formats when it first needs them
    stamps = [time.perf_counter()]
    rows = load()
    stamps.append(time.perf_counter())
    asked = [[{"role": "user", "content": "What is this?"}]]
    prompts = copy.deepcopy([prepare_multimodal_messages(*asked, images=row["images"]) for row in rows])
    stamps.append(time.perf_counter())
    assert len(equal_neighbours(prompts)) == len(files)
    stamps.append(time.perf_counter())
    answer.put([*np.diff(stamps).tolist(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024])


def in_a_process(arm, files, num_generations):
    context = multiprocessing.get_context("spawn")
    answer = context.Queue()
    process = context.Process(target=measure, args=(arm, files, num_generations, answer))
    process.start()
    figures = answer.get()
    process.join()
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=8, help="rows in a generation batch (default 8)")
    parser.add_argument("--num_generations", type=int, default=8, help="completions of each row (default 8)")
    parser.add_argument("--megapixels", type=float, default=1.0, help="size of each image (default 1)")
    parser.add_argument("--repeats", type=int, default=5, help="processes of each arm (default 5)")
    options = parser.parse_args()
    files = list(photographs(options.rows, options.megapixels))
    figures = {arm: [] for arm in ("stock", "shared", "own")}
    for _ in range(options.repeats):
        for arm, values in figures.items():
            values.append(in_a_process(arm, files, options.num_generations))
    print(f"{'':8}" + "".join(f"{name:>24}" for name in (*(f"{part}, s" for part in PARTS), "peak, MiB")))
    for arm, values in figures.items():
        columns = zip(*values, strict=True)
        cells = (f"{statistics.median(each):.3f} ({min(each):.3f}-{max(each):.3f})" for each in columns)
        print(f"{arm:8}" + "".join(f"{cell:>24}" for cell in cells))


if __name__ == "__main__":
    main()
