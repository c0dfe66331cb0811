"""Vanilla GRPO and the default, tuned alike, run beside each other: through `VADEGRPOTrainer`, with the real model."""

import argparse
import json
import multiprocessing
import time
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import TrainerCallback

from trl_vade import VADEGRPOConfig, VADEGRPOTrainer
from trl_vade.files import save_whole

from ..learning.curves import share_interval, table
from .model import LONGEST, exact_reward, load, prepare, rates_of

ARMS: dict[str, dict[str, Any]] = {"vanilla": {"vade_sampler": "uniform"}, "default": {}}
SHAPES, RATES = ((64, 4), (32, 8)), (1e-5, 4e-5)  # groups and completions of each; the first is the one untuned


class Score(TrainerCallback):
    """Notes score, rollouts and seconds; ends the run in time."""

    def __init__(self, minutes: float, every: int, of: Any, tokenizer: Any, file: Path):
        self.minutes, self.every, self.of, self.tokenizer, self.file = minutes, every, of, tokenizer, file
        self.start, self.points = 0.0, json.loads(file.read_text()) if file.exists() else []
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
        save_whole(self.file, json.dumps(self.points).encode())

    def on_train_begin(self, args, state, control, **kwargs):
        self.start = time.perf_counter()
        if not self.points:
            self.look()

    def on_step_end(self, args, state, control, **kwargs):
        control.should_training_stop |= self.before + time.perf_counter() - self.start > 60 * self.minutes
        control.should_save |= control.should_training_stop and args.save_strategy != "no"
        if state.global_step % self.every == 0 or control.should_training_stop:
            self.look()


@dataclass(frozen=True)
class Run:
    """What differs between runs."""

    arm: str
    groups: int
    generations: int
    rate: float
    seed: int

    def __str__(self) -> str:
        return f"{self.arm}-{self.groups}x{self.generations}-{self.rate:g}-{self.seed}"


def train_one(options: argparse.Namespace, run: Run, minutes: float) -> list[dict[str, float]]:
    """Train a run for so long in all; return its points. One of more than half an hour goes on where it was."""
    model, tokenizer, made = prepare(options)
    folder, on_cpu = options.runs / str(run), not torch.cuda.is_available()
    folder.mkdir(parents=True, exist_ok=True)
    if not (saves := minutes > 30):  # such a run begins anew
        (folder / "score.json").unlink(missing_ok=True)
    score = Score(minutes, options.every, made["score"], tokenizer, folder / "score.json")
    args = VADEGRPOConfig(
        str(folder / "run"),
        per_device_train_batch_size=run.groups * run.generations // 8,
        gradient_accumulation_steps=8,
        num_generations=run.generations,
        max_completion_length=LONGEST,
        max_steps=options.steps,
        learning_rate=run.rate,
        lr_scheduler_type="constant",
        beta=0.0,
        seed=run.seed,
        use_cpu=on_cpu,
        bf16=False,
        tf32=None if on_cpu else True,
        gradient_checkpointing=False,
        dataloader_pin_memory=False,
        save_strategy="steps" if saves else "no",
        save_steps=options.every,
        save_total_limit=1,
        report_to="none",
        logging_steps=options.every,
        **ARMS[run.arm],
    )
    trainer = VADEGRPOTrainer(model, exact_reward, args, made["pool"], processing_class=tokenizer, callbacks=[score])
    score.trainer = trainer
    trainer.train("auto")
    return score.points


def train_all(options: argparse.Namespace, runs: list[Run], minutes: float) -> list[dict[str, Any]]:
    """Train so many runs at a time as there are workers."""
    load(options.packed, tiny=options.tiny)  # once
    work = [options] * len(runs), runs, [minutes] * len(runs)
    if options.workers == 1:
        made = [*map(train_one, *work)]
    else:
        with ProcessPoolExecutor(options.workers, multiprocessing.get_context("spawn")) as pool:
            made = [*pool.map(train_one, *work)]
    return [vars(run) | {"points": points} for run, points in zip(runs, made, strict=True)]


def train(options: argparse.Namespace) -> dict[str, Any]:
    """Tune the arms if there is time for it, then train the best of each on every seed; return all points."""
    best, tuned = [Run(arm, *SHAPES[0], RATES[0], 0) for arm in ARMS], []
    if options.tune_minutes:
        every = [Run(arm, *shape, rate, options.seed) for arm in ARMS for shape in SHAPES for rate in RATES]
        tuned = train_all(options, every, options.tune_minutes)
        means = [np.mean([point["score"] for point in run["points"]]) for run in tuned]
        heights = dict(zip(every, means, strict=True))
        best = [max((run for run in every if run.arm == arm), key=heights.__getitem__) for arm in ARMS]
    seeds = range(options.seed + 1, options.seed + 1 + options.seeds)
    runs = [Run(*astuple(run)[:-1], seed) for seed in seeds for run in best]
    return {"tuned": tuned, "runs": train_all(options, runs, options.minutes)}


def tables(found: dict[str, Any]) -> list[str]:
    """A line for each run, and what the default saves."""
    lines = []
    head = ["batch", "learning rate", "seed", "steps", "rollouts", "seconds", "score: first", "mean", "last"]
    for name in ("tuned", "runs"):
        if found.get(name):
            lines += ["", table([f"{name}: arm", *head], [line(each) for each in found[name]])]
    return [*lines, "", against_vanilla(found["runs"])] if found.get("runs") else lines


def line(run: dict[str, Any]) -> list[Any]:
    last, scores = run["points"][-1], [point["score"] for point in run["points"]]
    of_run = [run["arm"], f"{run['groups']} x {run['generations']}", f"{run['rate']:g}", run["seed"]]
    heights = [f"{height:.3f}" for height in (scores[0], np.mean(scores), scores[-1])]
    return [*of_run, last["step"], f"{last['rollouts']:,}", f"{last['seconds']:.0f}", *heights]


def against_vanilla(runs: list[dict[str, Any]]) -> str:
    """Shares of vanilla's rollouts and seconds with which the default reaches vanilla's last score, of all seeds."""
    arms = defaultdict(list)
    for run in runs:
        figures = {what: [point[what] for point in run["points"]] for what in ("rollouts", "seconds", "score")}
        arms[run["arm"]].append({"seed": run["seed"], "batches": figures["rollouts"][-1] / 256, **figures})
    shares = {what: share_interval(arms["default"], arms["vanilla"], what) for what in ("rollouts", "seconds")}
    told = [f"{share:.0%} of its {what} ({low:.0%} to {high:.0%})" for what, (share, low, high) in shares.items()]
    return f"The default reaches vanilla's last score with {' and '.join(told)}."
