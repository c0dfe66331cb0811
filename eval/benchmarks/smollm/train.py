"""Vanilla GRPO, the default, and the default with replay, beside each other: through `VADEGRPOTrainer`."""

import argparse
import itertools
import json
import multiprocessing
import shutil
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from transformers import TrainerCallback

from trl_vade import VADEGRPOConfig, VADEGRPOTrainer
from trl_vade.files import save_whole

from ..learning.curves import share_interval, table
from .model import LONGEST, complete, exact_reward, load, prepare, rates_of

GROUPS, GENERATIONS = 64, 4
ARMS: dict[str, dict[str, Any]] = {
    "vanilla": {"vade_sampler": "uniform", "vade_down_sampling": "lossless"},  # the same weights, for less time
    "default": {},
    "default, replay": {"vade_replay": 4},
}
RATES = 1e-5, 4e-5, 1.6e-4  # what `--tune_batches` tries, with the `--tune_passes`
CHOSEN = 1, 4e-5  # of these, without a tuning: the best of both arms on two cores
FIRST = "first.json"  # the score of the weights from which all runs start


class Score(TrainerCallback):
    """Notes the score, the rollouts and the seconds by part."""

    def __init__(self, every: int, of: Any, tokenizer: Any, file: Path):
        self.every, self.of, self.tokenizer, self.file = every, of, tokenizer, file
        self.points = json.loads(file.read_text()) if file.exists() else []
        self.trainer: Any = None

    def look(self) -> None:
        trainer = self.trainer
        if trainer.state.global_step:
            trainer.model.eval()
            score = mean_score(trainer.model, self.tokenizer, self.of)
            trainer.model.train()
        else:
            score = json.loads((self.file.parents[1] / FIRST).read_text())
        feedback, passes = trainer.selection.feedback, trainer.args.num_iterations
        seconds = dict(feedback.seconds)
        seconds["seconds"] = seconds.pop("step")
        seconds["update"] = seconds["seconds"] - seconds["selection"] - seconds["generation"]
        point = {"batch": trainer.state.global_step // passes, "rollouts": feedback.rollouts, "score": score}
        self.points.append(point | seconds)
        save_whole(self.file, json.dumps(self.points).encode())

    def on_train_begin(self, args, state, control, **kwargs):
        if not self.points or self.points[-1]["batch"] < state.global_step // args.num_iterations:
            self.look()

    def on_save(self, args, state, control, **kwargs):
        self.look()


def mean_score(model: Any, tokenizer: Any, of: Any) -> float:
    """The share of right answers, four of each row."""
    return float(rates_of(model, tokenizer, of, 4).mean() / 4)


class ReadsPromptsOnce(VADEGRPOTrainer):
    """Generates by `complete` in place of transformers, which reads a prompt for each of its completions."""

    def _generate_single_turn(self, prompt_ids, *more, **named):
        tokens = {"eos": self.processing_class.eos_token_id, "pad": self.processing_class.pad_token_id}
        generator = torch.Generator(self.model.device).manual_seed(1_000_000 * self.args.seed + self.state.global_step)
        found = complete(self.model, prompt_ids[::GENERATIONS], GENERATIONS, generator, **tokens)
        return [answer for answers in found for answer in answers], None


def no_logits_of_prompts() -> Any:
    """Leave them out as on a GPU: where Triton is not, TRL 1.16 takes them, for 4 of 10 seconds with replay."""
    return patch("trl.trainer.utils._use_triton", lambda device: True)


@dataclass(frozen=True)
class Run:
    """What differs between runs."""

    arm: str
    passes: int
    rate: float
    seed: int

    def __str__(self) -> str:
        return f"{self.arm}, {self.passes}, {self.rate:g}, {self.seed}"


def train_one(options: argparse.Namespace, run: Run, batches: int) -> list[dict[str, float]]:
    """Train a run, or go on where it was; return its points."""
    folder, on_cpu = options.runs / str(run), not torch.cuda.is_available()
    folder.mkdir(parents=True, exist_ok=True)
    file, every = folder / "score.json", min(options.every, batches)
    if file.exists() and json.loads(file.read_text())[-1]["batch"] >= batches:
        return json.loads(file.read_text())
    torch.set_num_threads(max(torch.get_num_threads() // options.workers, 1))
    model, tokenizer, made = prepare(options)
    if on_cpu and not options.tiny:
        model.set_attn_implementation("eager")  # 1.5 s of an update of 90 rows; the default takes 9
        for layer in model.model.layers:  # a third of the update's seconds are casts and sums that are fused by it
            layer.compile(dynamic=True)
    score = Score(every, made["score"], tokenizer, file)
    pieces = 8 if "vade_replay" in ARMS[run.arm] else 4  # micro-batches; with replay all rows are trained on
    args = VADEGRPOConfig(
        str(folder / "run"),
        per_device_train_batch_size=GROUPS * GENERATIONS // pieces,
        gradient_accumulation_steps=pieces,
        num_generations=GENERATIONS,
        num_iterations=run.passes,
        max_completion_length=LONGEST,
        max_steps=batches * run.passes,
        learning_rate=run.rate,
        lr_scheduler_type="constant",
        beta=0.0,
        seed=run.seed,
        use_cpu=on_cpu,
        bf16=True,
        gradient_checkpointing=False,
        dataloader_pin_memory=False,
        save_strategy="steps",
        save_steps=every * run.passes,
        save_total_limit=1,
        report_to="none",
        logging_steps=every * run.passes,
        **ARMS[run.arm],
    )
    trainer = ReadsPromptsOnce(model, exact_reward, args, made["pool"], processing_class=tokenizer, callbacks=[score])
    score.trainer = trainer
    with no_logits_of_prompts():
        trainer.train("auto")
    return score.points


def train_all(options: argparse.Namespace, runs: list[Run], batches: int) -> list[dict[str, Any]]:
    """Train so many runs at a time as there are workers."""
    model, tokenizer, made = prepare(options)
    if not (first := options.runs / FIRST).exists():
        options.runs.mkdir(parents=True, exist_ok=True)
        save_whole(first, json.dumps(mean_score(model, tokenizer, made["score"])).encode())
    del model  # before the workers have theirs
    work = [options] * len(runs), runs, [batches] * len(runs)
    if options.workers == 1:
        made = [*map(train_one, *work)]
    else:
        with ProcessPoolExecutor(options.workers, multiprocessing.get_context("spawn")) as pool:
            made = [*pool.map(train_one, *work)]
    return [vars(run) | {"points": points} for run, points in zip(runs, made, strict=True)]


def train(options: argparse.Namespace) -> dict[str, Any]:
    """Tune vanilla and the default alike, if that is asked for, then train each arm on every seed; return all points.

    With replay the default has the passes and the rate that are best without it.
    """
    load(options.packed, tiny=options.tiny)
    best, tuned = {arm: Run(arm, *CHOSEN, 0) for arm in ARMS}, []
    if options.tune_batches:
        choices = itertools.product([*ARMS][:2], options.tune_passes, RATES)
        every = [Run(*choice, options.seed) for choice in choices]
        tuned = train_all(options, every, options.tune_batches)
        for run in every:  # gigabytes; their points stay
            shutil.rmtree(options.runs / str(run) / "run", ignore_errors=True)
        heights = {
            run: np.mean([point["score"] for point in each["points"]]) for run, each in zip(every, tuned, strict=True)
        }
        best = {arm: max((run for run in every if arm.startswith(run.arm)), key=heights.__getitem__) for arm in ARMS}
    seeds = range(options.seed + 1, options.seed + 1 + options.seeds)
    runs = [replace(run, arm=arm, seed=seed) for seed in seeds for arm, run in best.items()]
    return {"tuned": tuned, "runs": train_all(options, runs, options.batches)}


def tables(found: dict[str, Any]) -> list[str]:
    """A line for each run, and what the default saves."""
    lines = []
    head = ["passes", "learning rate", "seed", "batches", "rollouts", "seconds a batch: generation", "update"]
    head += ["score: first", "mean", "last"]
    for name in ("tuned", "runs"):
        if found.get(name):
            lines += ["", table([f"{name}: arm", *head], [line(each) for each in found[name]])]
    return [*lines, "", *against_vanilla(found["runs"])] if found.get("runs") else lines


def line(run: dict[str, Any]) -> list[Any]:
    last, scores = run["points"][-1], [point["score"] for point in run["points"]]
    of_run = [run["arm"], run["passes"], f"{run['rate']:g}", run["seed"], last["batch"], f"{last['rollouts']:,}"]
    seconds = [f"{last[part] / max(last['batch'], 1):.1f}" for part in ("generation", "update")]
    return [*of_run, *seconds, *(f"{height:.3f}" for height in (scores[0], np.mean(scores), scores[-1]))]


def against_vanilla(runs: list[dict[str, Any]]) -> list[str]:
    """Shares of vanilla's rollouts and seconds with which each arm reaches vanilla's last score, of all seeds."""
    arms = defaultdict(list)
    for run in runs:
        figures = {what: [point[what] for point in run["points"]] for what in ("rollouts", "seconds", "score")}
        arms[run["arm"]].append({"seed": run["seed"], "batches": figures["rollouts"][-1] / 256, **figures})
    said = []
    for arm in [arm for arm in arms if arm != "vanilla"]:
        shares = {what: share_interval(arms[arm], arms["vanilla"], what, up_to=4) for what in ("rollouts", "seconds")}
        told = [f"{share:.0%} of its {what} ({low:.0%} to {high:.0%})" for what, (share, low, high) in shares.items()]
        said.append(f"{arm}: vanilla's last score with {' and '.join(told)}.".replace("inf%", "never"))
    return said
