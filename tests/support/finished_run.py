"""An output directory of a finished run, whose posterior and selection log come from the real sampler."""

import json

import numpy as np

from trl_vade import ThompsonSampler, save_snapshot
from trl_vade.checkpoints import TRAINER_STATE_FILE
from trl_vade.selection.log import SelectionLog
from trl_vade.selection.outcomes import group_outcomes
from trl_vade.selection.report.record import RUN_FILE

NAN = float("nan")
MIXED, SOLVED, UNSCORED = [1, 0], [1, 1], [NAN, NAN]
# Eight generation batches of two rows x two completions, two optimiser steps each: ratios .5 0 1 1, null, .5 1 .5
BATCHES = [
    (MIXED, SOLVED),
    (SOLVED, SOLVED),
    (MIXED, MIXED),
    (MIXED, MIXED),
    (UNSCORED, UNSCORED),
    (SOLVED, MIXED),
    (MIXED, MIXED),
    (MIXED, SOLVED),
]
SECONDS = {"selection": 1.5, "generation": 40.0, "step": 100.0}
HISTORY = [
    {"step": 0, "eval_rewards/accuracy/mean": 0.25, "eval_reward": 1.25},
    *(
        {
            "step": step,
            "reward": 0.5 + step / 100,
            "vade/mean_pass_rate": 0.6 - step / 100,
            "vade/trained_completions": float(5 * step // 4),
            "vade/coverage": step / 16,
        }
        for step in range(1, 17)
    ),
    {"step": 5, "eval_rewards/accuracy/mean": 0.5, "eval_runtime": 1.0},
    {"step": 16, "eval_rewards/accuracy/mean": 0.625, "eval_runtime": 1.5},
    {"step": 16, **{f"vade/{name}_seconds_total": each for name, each in SECONDS.items()}},
    {"step": 16, "train_runtime": 100.0},
]


def write_run(directory, sampler=None, *, batches=BATCHES, history=HISTORY, num_rows=6, refills=None, **about):
    sampler = sampler or ThompsonSampler(num_rows, seed=2)
    log, rollouts = SelectionLog(directory), 0
    for step, groups in enumerate(batches, start=1):
        rows = sampler.draw(2).sample_index
        outcomes = group_outcomes(np.array(groups, dtype=np.float64).ravel(), rows, threshold=0.5)
        sampler.observe(rows, outcomes.successes, outcomes.trials)
        rollouts += 4
        log.append(
            outcomes,
            step=step,
            global_step=2 * (step - 1),
            rollouts=rollouts,
            predicted_effective_ratio=step % 11 / 10,
            even_draw_ratio=1 / 3,
            **({"refill": refills[step]} if refills and step in refills else {}),
        )
    run = {"global_step": 2 * len(batches), "rollouts": rollouts}
    save_snapshot(directory, sampler, metadata={"success_reward": "accuracy", "run": run})
    state = {"global_step": run["global_step"], "log_history": history}
    (directory / TRAINER_STATE_FILE).write_text(json.dumps(state), encoding="utf-8")
    (directory / RUN_FILE).write_text(json.dumps({"sampler": "thompson", "success_reward": "accuracy"} | about))
    return directory
