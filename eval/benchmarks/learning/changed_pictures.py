"""How much harder do changed pictures make a row of the testbed? The quickstart policy's pass rate by kind and level.

    python -m eval.benchmarks.learning.changed_pictures --seeds 0 1 2

The rows are those that the policy gets right in nine of ten cases, as noise is for rows that are too easy. Pass rates
are exact, at the temperature of the quickstart.
"""

import argparse

import datasets
import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModelForImageTextToText, AutoProcessor

from examples.variants.pictures import IMAGE_KINDS, LEVELS, changed_image
from trl_vade.testbed import load_testbed_dataset, load_testbed_model

from .curves import mean_and_error, table
from .fast_policy import FastPolicy

EASY = 0.9


def changed(rows: datasets.Dataset, kind: str) -> datasets.Dataset:
    """Return the rows with their pictures as `kind` makes them."""
    return rows.map(
        lambda row: {"images": [changed_image(image, kind, row["id"]) for image in row["images"]]},
        features=rows.features,
    )


def pass_rates(seed: int, num_rows: int) -> dict[str, NDArray[np.float64]]:
    """Return the pass rates of the easy rows by kind, (N,) each; those of the rows as they are under "original"."""
    directory = load_testbed_model(seed, progress=False)
    model = AutoModelForImageTextToText.from_pretrained(directory)
    processor = AutoProcessor.from_pretrained(directory)
    rows = load_testbed_dataset(num_rows, seed=seed, progress=False)["train"]
    rates = FastPolicy(model, processor, rows).pass_rates()
    easy = np.flatnonzero(rates >= EASY)
    kinds = [f"{name}-{level}" for name in IMAGE_KINDS for level in LEVELS]
    found = {kind: FastPolicy(model, processor, changed(rows.select(easy), kind)).pass_rates() for kind in kinds}
    return {"original": rates[easy], **found}


def report(seeds: list[int], num_rows: int) -> str:
    """Return the mean pass rate of each kind and level over seeds, ± one standard error."""
    found = [pass_rates(seed, num_rows) for seed in seeds]

    def cell(kind: str) -> str:
        mean, error = mean_and_error([float(rates[kind].mean()) for rates in found])
        return f"{mean:.3f} ± {error:.3f}"

    lines = [[name, *(cell(f"{name}-{level}") for level in LEVELS)] for name in IMAGE_KINDS]
    counts = ", ".join(str(rates["original"].size) for rates in found)
    head = f"{counts} of {num_rows} rows have a pass rate of {EASY} or more, in the mean {cell('original')}."
    return f"{head}\n\n" + table(["kind", *(f"level {level}" for level in LEVELS)], lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m eval.benchmarks.learning.changed_pictures",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--rows", type=int, default=512, help="of the testbed's training rows")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(report(options.seeds, options.rows))


if __name__ == "__main__":
    main()
