"""Build the testbed and print the pass rates of its model: `python -m trl_vade.testbed`."""

import argparse
import time
from pathlib import Path

from transformers import AutoModelForImageTextToText, AutoProcessor

from . import load_testbed_dataset, load_testbed_model, measure_pass_rates
from .measure import pass_rate_report


def main() -> None:
    """Build or load the data set and the model, then measure and print the pass rates of a split."""
    parser = argparse.ArgumentParser(prog="python -m trl_vade.testbed", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="of data, weights and sampling (default 0)")
    parser.add_argument("--num_generations", type=int, default=8, help="completions of each row (default 8)")
    parser.add_argument("--split", choices=("train", "validation"), default="validation")
    parser.add_argument("--cache_dir", type=Path, default=None, help="default: trl_vade in the HF cache")
    args = parser.parse_args()

    start = time.perf_counter()
    dataset = load_testbed_dataset(seed=args.seed, cache_dir=args.cache_dir)
    directory = load_testbed_model(seed=args.seed, cache_dir=args.cache_dir)
    print(f"model in {directory} ({time.perf_counter() - start:.1f} s)")
    model = AutoModelForImageTextToText.from_pretrained(directory)
    processor = AutoProcessor.from_pretrained(directory)
    rows = dataset[args.split]
    rates = measure_pass_rates(model, processor, rows, args.num_generations, seed=args.seed)
    print(pass_rate_report(rates, rows))


if __name__ == "__main__":
    main()
