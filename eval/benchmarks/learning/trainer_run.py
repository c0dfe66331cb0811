"""A run of the benchmark through `VADEGRPOTrainer` itself, scored like those of the fast loop."""

import tempfile
import time
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForImageTextToText, AutoProcessor, TrainerCallback

from trl_vade import VADEGRPOConfig, VADEGRPOTrainer
from trl_vade.selection.log import SelectionLog

from ..machine import machine
from .arms import RULES, Arm
from .fast_policy import FastPolicy
from .one_run import ROLLOUTS_A_BATCH, fast_policy, rounded
from .pools import load_regime
from .regimes import REGIMES


class Judge(TrainerCallback):
    """Scores the validation rows exactly at the start, every so many rollouts, and at the end; stops at the budget."""

    def __init__(self, policy: FastPolicy, max_rollouts: int, apart: int):
        self.policy, self.max_rollouts, self.apart = policy, max_rollouts, apart
        self.rollouts, self.score, self.next = [], [], 0
        self.trainer: Any = None

    def look(self) -> None:
        training = self.policy.model.training
        self.policy.model.eval()
        self.rollouts.append(self.trainer.selection.feedback.rollouts)
        self.score.append(float(self.policy.pass_rates().mean()))
        self.policy.model.train(training)
        self.next = self.rollouts[-1] + self.apart

    def on_train_begin(self, args, state, control, **kwargs):
        self.look()

    def on_step_end(self, args, state, control, **kwargs):
        rollouts = self.trainer.selection.feedback.rollouts
        control.should_training_stop = rollouts >= self.max_rollouts
        if rollouts >= self.next or control.should_training_stop:
            self.look()


def run(
    regime: str, arm: str, learning_rate: float, seed: int, batches: int, *, evaluate_every: int
) -> dict[str, Any]:
    """As `one_run.run`, with fewer figures."""
    start = time.perf_counter()
    torch.set_num_threads(1)
    directory, pool, validation = load_regime(regime, seed, progress=False)
    model = AutoModelForImageTextToText.from_pretrained(directory)
    processor = AutoProcessor.from_pretrained(directory)
    described, of = REGIMES[regime], Arm.of(arm)
    judge = Judge(
        fast_policy(described, model, processor, validation),
        batches * ROLLOUTS_A_BATCH,
        evaluate_every * ROLLOUTS_A_BATCH,
    )
    with tempfile.TemporaryDirectory() as output_dir:
        args = VADEGRPOConfig(
            output_dir,
            per_device_train_batch_size=of.groups * of.size,
            num_generations=of.size,
            num_iterations=of.passes,
            vade_replay=of.replay,
            vade_down_sampling="lossless",  # the same weights, for less time
            max_steps=batches * of.passes,
            learning_rate=learning_rate,
            lr_scheduler_type="constant",
            beta=0.0,
            seed=seed,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            dataloader_pin_memory=False,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            logging_steps=1000,
            temperature=described.temperature,
            max_completion_length=described.max_completion_length,
            **described.settings,
            **RULES[of.rule],
        )
        trainer = VADEGRPOTrainer(model, described.reward, args, pool, processing_class=processor, callbacks=[judge])
        judge.trainer = trainer
        trainer.train()
        lines = SelectionLog(output_dir).read()
    groups = [len(line["successes"]) for line in lines]
    ratio = np.average([line["effective_gradient_ratio"] for line in lines], weights=groups)
    return {
        "regime": regime,
        "arm": arm,
        "learning_rate": learning_rate,
        "seed": seed,
        "batches": batches,
        "seconds": round(time.perf_counter() - start, 1),
        **machine(),
        "rollouts": judge.rollouts,
        "score": rounded(judge.score),
        "mean_ratio": round(float(ratio), 4),
    }
