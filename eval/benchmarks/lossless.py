"""Does lossless down-sampling train the same model? The testbed with and without it, step by step.

    python -m eval.benchmarks.lossless --seeds 0 1 2 --steps 100                    # float64
    python -m eval.benchmarks.lossless --seeds 0 1 2 --steps 100 --dtype float32

Both runs of a seed draw the same rows and completions as long as their weights agree. Rounding may flip a sampled
token in the end, and from there on the runs differ in their data. So the table also names the last step with the same
rewards and rollouts. In float64 the rounding is too small for that.
"""

import argparse
import tempfile

import torch
from transformers import AutoModelForImageTextToText, AutoProcessor, PrinterCallback, TrainerCallback

from trl_vade import VADEGRPOConfig, VADEGRPOTrainer, VADEReportCallback
from trl_vade.testbed import exact_answer_reward, load_testbed_dataset, load_testbed_model

MODES = ("none", "lossless")


class Weights(TrainerCallback):
    """Keeps the weights after every step."""

    def __init__(self):
        self.steps = []

    def on_step_end(self, args, state, control, model=None, **kwargs):
        self.steps.append(flat(model))


def flat(model):
    return torch.cat([weight.detach().double().flatten() for weight in model.parameters()])


def train(mode, seed, options):
    """Return the weights before and after every step, and the history of the log."""
    folder = str(load_testbed_model(seed=options.testbed_seed, progress=False))
    model = AutoModelForImageTextToText.from_pretrained(folder, dtype=getattr(torch, options.dtype))
    weights = Weights()
    with tempfile.TemporaryDirectory() as output:
        args = VADEGRPOConfig(
            output_dir=output,
            vade_down_sampling=mode,
            num_generations=8,
            per_device_train_batch_size=8 * options.rows,
            max_steps=options.steps,
            learning_rate=options.learning_rate,
            lr_scheduler_type="constant",
            max_completion_length=12,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            seed=seed,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            dataloader_pin_memory=False,
            disable_tqdm=True,
        )
        trainer = VADEGRPOTrainer(
            model=model,
            args=args,
            reward_funcs=exact_answer_reward,
            train_dataset=load_testbed_dataset(seed=options.testbed_seed, progress=False)["train"],
            processing_class=AutoProcessor.from_pretrained(folder),
            callbacks=[weights],
        )
        trainer.remove_callback(VADEReportCallback)
        trainer.remove_callback(PrinterCallback)
        start = flat(trainer.model)
        trainer.train()
    return start, weights.steps, [entry for entry in trainer.state.log_history if "reward" in entry]


def compare(seed, options):
    """Return the figures of one seed."""
    (start, every, history), (_, kept, theirs) = (train(mode, seed, options) for mode in MODES)
    same = 0
    for one, other in zip(history, theirs, strict=True):
        if any(one[name] != other[name] for name in ("reward", "vade/coverage", "completions/mean_length")):
            break
        same += 1
    return {
        "seed": seed,
        "same_steps": same,
        "difference": float((every[same - 1] - kept[same - 1]).abs().max()) if same else float("nan"),
        "movement": float((every[-1] - start).abs().max()),
        "rewards": [sum(entry["reward"] for entry in each[-10:]) / len(each[-10:]) for each in (history, theirs)],
        "trained": [each[-1]["vade/trained_completions"] for each in (history, theirs)],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=100, help="optimiser steps (100)")
    parser.add_argument("--rows", type=int, default=16, help="of a generation batch, with 8 completions each (16)")
    parser.add_argument("--learning_rate", type=float, default=1e-4)
    parser.add_argument("--dtype", choices=("float64", "float32"), default="float64")
    parser.add_argument("--testbed_seed", type=int, default=0)
    options = parser.parse_args()
    print(
        "| seed | steps with the same data | largest difference of a weight after them | largest movement of a weight "
        "in all steps | mean reward of the last 10 steps, none / lossless | completions trained on, none / lossless |"
    )
    print("| ---: " * 6 + "|")
    for seed in options.seeds:
        found = compare(seed, options)
        rewards, trained = found["rewards"], found["trained"]
        print(
            f"| {seed} | {found['same_steps']} of {options.steps} | {found['difference']:.1e} | "
            f"{found['movement']:.1e} | {rewards[0]:.4f} / {rewards[1]:.4f} | {trained[0]:,.0f} / {trained[1]:,.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
