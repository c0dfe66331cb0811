"""What does choosing cost? Wall time per step and image decodes, stock `GRPOTrainer` against `VADEGRPOTrainer`.

    python scripts/benchmark_overhead.py --repeats 5 --steps 8

Every repeat runs all arms in one process, in an order that rotates, so that a drift of the machine's speed falls on
all of them; the ratios are taken within a repeat. `uniform` does the same computation as stock, bit for bit, so its
ratio is the overhead of late binding and of the posterior; `thompson` generates for other rows, whose answers may be
shorter or longer. Timings depend on the machine: they are reported and never tested.
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import datasets
from datasets.utils.logging import disable_progress_bar
from transformers import TrainerCallback
from transformers.trainer_callback import PrinterCallback
from transformers.utils import logging as transformers_logging
from trl import GRPOConfig, GRPOTrainer

from trl_vade import VADEGRPOConfig, VADEGRPOTrainer
from trl_vade.testbed import exact_answer_reward, load_testbed_dataset, load_testbed_model

ARMS = ("stock", "uniform", "thompson")
WARM_UP = 2  # steps of each run that are not counted


class StepClock(TrainerCallback):
    """Wall seconds between the ends of consecutive optimiser steps: the loader's work counts too."""

    def __init__(self):
        self.ends = []

    def on_step_end(self, args, state, control, **kwargs):
        self.ends.append(time.perf_counter())

    def seconds_per_step(self):
        ends = self.ends[WARM_UP - 1 :]
        return (ends[-1] - ends[0]) / (len(ends) - 1)


class DecodeCounter:
    """Counts calls of `datasets.Image.decode_example` while it is entered."""

    def __enter__(self):
        self.count, self._original = 0, datasets.Image.decode_example

        def counting(feature, *args, **kwargs):
            self.count += 1
            return self._original(feature, *args, **kwargs)

        datasets.Image.decode_example = counting
        return self

    def __exit__(self, *exception):
        datasets.Image.decode_example = self._original


def run(arm, options, model, rows):
    """Train `options.steps` steps with one arm; return seconds per step and decodes per generation batch."""
    with tempfile.TemporaryDirectory() as output_dir:
        common = {
            "output_dir": output_dir,
            "per_device_train_batch_size": options.rows * options.num_generations // options.steps_per_generation,
            "steps_per_generation": options.steps_per_generation,
            "gradient_accumulation_steps": options.steps_per_generation,
            "num_generations": options.num_generations,
            "max_steps": options.steps + WARM_UP,
            "max_completion_length": 12,
            "learning_rate": 1e-6,  # the policy stays what it is, so the last steps cost what the first do
            "use_cpu": True,
            "bf16": False,
            "gradient_checkpointing": False,
            "dataloader_pin_memory": False,
            "logging_steps": 1,
            "save_strategy": "no",
            "report_to": "none",
            "disable_tqdm": True,
            # Without this a sampled video token ends the stock run; ours suppresses it by itself.
            "generation_kwargs": {"suppress_tokens": options.vision_tokens},
        }
        clock = StepClock()
        if arm == "stock":
            args, trainer_class = GRPOConfig(**common), GRPOTrainer
        else:
            # The preset that the figures on record were taken with; others choose other prompts, at the same cost.
            args, trainer_class = VADEGRPOConfig(**common, vade_sampler=arm, vade_preset="paper"), VADEGRPOTrainer
        trainer = trainer_class(model, exact_answer_reward, args, rows, callbacks=[clock])
        trainer.remove_callback(PrinterCallback)
        with DecodeCounter() as decodes:
            trainer.train()
        batches = options.steps + WARM_UP
        return clock.seconds_per_step(), decodes.count / batches


def spread(values):
    return f"{statistics.median(values):.3f} ({min(values):.3f} to {max(values):.3f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5, help="runs of each arm (default 5)")
    parser.add_argument("--steps", type=int, default=8, help=f"counted steps a run, after {WARM_UP} (default 8)")
    parser.add_argument("--rows", type=int, default=64, help="rows in a generation batch (default 64)")
    parser.add_argument("--num_generations", type=int, default=8, help="completions of each row (default 8)")
    parser.add_argument("--steps_per_generation", type=int, default=1, help="micro-batches a generation batch")
    parser.add_argument("--output", type=Path, help="write the figures as JSON here")
    options = parser.parse_args()
    disable_progress_bar()
    transformers_logging.disable_progress_bar()

    rows = load_testbed_dataset()["train"]
    model = str(load_testbed_model())
    config = json.loads((Path(model) / "config.json").read_text())
    options.vision_tokens = [config["image_token_id"], config["video_token_id"]]

    seconds = {arm: [] for arm in ARMS}
    decodes = {arm: [] for arm in ARMS}
    for repeat in range(options.repeats):
        for place in range(len(ARMS)):
            arm = ARMS[(place + repeat) % len(ARMS)]
            per_step, per_batch = run(arm, options, model, rows)
            seconds[arm].append(per_step)
            decodes[arm].append(per_batch)
            print(f"repeat {repeat + 1}/{options.repeats}  {arm:9} {per_step:.3f} s a step, {per_batch:.0f} decodes")

    print(f"\n{options.rows} rows x {options.num_generations}, {options.repeats} repeats of {options.steps} steps")
    print(f"{'':9}  {'seconds a step':26}  {'over stock, same repeat':26}  decodes a generation batch")
    figures = {}
    for arm in ARMS:
        ratios = [mine / stock for mine, stock in zip(seconds[arm], seconds["stock"], strict=True)]
        print(f"{arm:9}  {spread(seconds[arm]):26}  {spread(ratios):26}  {statistics.median(decodes[arm]):.0f}")
        figures[arm] = {"seconds_per_step": seconds[arm], "ratio_to_stock": ratios, "decodes_per_batch": decodes[arm]}
    if options.output:
        options.output.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
