"""Does another run's posterior pay? The first generation batches with and without one, in the quickstart.

    OMP_NUM_THREADS=1 python -m eval.benchmarks.warm_start                      # about half an hour on two cores
    python -m eval.benchmarks.warm_start --only report --results FILE           # the table again

A first run of `--first_steps` optimiser steps trains the testbed's model, through `VADEGRPOTrainer`, with the
quickstart's settings (64 rows x 8 completions a generation batch, one update each), and saves its posterior. Then each
seed trains the *same base model* anew, once for each arm:

    prior              every row starts as Beta(1, 1)
    warm               the first run's posterior at the default discount, 0.2
    warm, all counts   the same at discount 1.0
    rollout            Algorithm 1, lines 1-4: rollouts of every row first, which are counted

Figures, of the effective gradient ratio (the share of groups with right and wrong answers):

* Its mean over the first 10 and 20 generation batches, and over all.
* Generation batches and rollouts until the mean over 5 batches first reaches the *target*: the mean over the second
  half of the `prior` run of that seed. All arms of a seed have this one target. It is what that run comes to by
  itself, so it is a level that the model can have, it does not depend on the arm in question, and a level that
  was picked afterwards cannot flatter one. (The prior run meets it too, and a little early, since a mean of 5 varies.)
* The score on the validation rows at the end, worked out exactly: the ratio is a means, the score is the end.

The first run has another seed than the others: other draws, other completions. Its posterior is that of its *last*
step, so it describes a policy that was trained, and not the one that the others begin with. The rollouts of the first
run are not counted: the question is what a posterior is worth that is there anyway.
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

FIRST_SEED = 0
WINDOW = 5  # generation batches in the mean that is held against the target
ARMS = {
    "prior": lambda source: {"vade_posterior_init": "prior"},
    "warm": lambda source: {"vade_posterior_init": source},
    "warm, all counts": lambda source: {"vade_posterior_init": source, "vade_warm_start_discount": 1.0},
    "rollout": lambda source: {"vade_posterior_init": "rollout"},
}
FIGURES = (
    ("generation batches to the target", "batches_to_target", "{:.0f}"),
    ("rollouts to the target", "rollouts_to_target", "{:,.0f}"),
    ("ratio, first 10", "first_10", "{:.3f}"),
    ("ratio, first 20", "first_20", "{:.3f}"),
    ("ratio, all", "whole", "{:.3f}"),
    ("validation score", "score", "{:.3f}"),
)


def train(output_dir, seed, steps, **changes):
    """Train the testbed's model; return (ratio, rollouts so far) of each generation batch, and the final score."""
    import torch
    from transformers import AutoModelForImageTextToText, AutoProcessor

    from trl_vade import VADEGRPOConfig, VADEGRPOTrainer
    from trl_vade.selection.log import SelectionLog
    from trl_vade.testbed import exact_answer_reward, load_testbed_dataset, load_testbed_model

    from .learning.fast_policy import FastPolicy

    torch.set_num_threads(1)
    directory, dataset = load_testbed_model(seed=0), load_testbed_dataset(seed=0)
    model, processor = AutoModelForImageTextToText.from_pretrained(directory), AutoProcessor.from_pretrained(directory)
    args = VADEGRPOConfig(
        str(output_dir),
        vade_preset="frontier",
        num_generations=8,
        per_device_train_batch_size=512,
        max_steps=steps,
        learning_rate=1e-4,
        lr_scheduler_type="constant",
        beta=0.0,
        max_completion_length=12,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        dataloader_pin_memory=False,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        logging_steps=1000,
        seed=seed,
        **changes,
    )
    trainer = VADEGRPOTrainer(model, exact_answer_reward, args, dataset["train"], processing_class=processor)
    trainer.train()
    trainer.save_model()
    # Neither a warm start nor the initial rollouts are a generation batch: both come before the first choice.
    lines = [line for line in SelectionLog(output_dir).read() if "warm_start" not in line]
    lines = lines[changes.get("vade_posterior_init") == "rollout" :]
    score = float(FastPolicy(model.eval(), processor, dataset["validation"]).pass_rates().mean())
    return [line["effective_gradient_ratio"] for line in lines], [line["rollouts"] for line in lines], score


def reached(ratios, target):
    """The generation batch, from 1, with which the mean over the last `WINDOW` first is at least `target`, or None."""
    means = {end: statistics.mean(ratios[end - WINDOW : end]) for end in range(WINDOW, len(ratios) + 1)}
    return next((end for end, mean in means.items() if mean >= target), None)


def figures(record, prior):
    """The figures of a run, held against the `prior` run of its seed."""
    ratios, target = record["ratio"], statistics.mean(prior["ratio"][len(prior["ratio"]) // 2 :])
    batches = reached(ratios, target)
    return {
        "target": target,
        "batches_to_target": batches,
        "rollouts_to_target": None if batches is None else record["rollouts"][batches - 1],
        "first_10": statistics.mean(ratios[:10]),
        "first_20": statistics.mean(ratios[:20]),
        "whole": statistics.mean(ratios),
        "score": record["score"],
    }


def table(records):
    """Mean over the seeds (lowest to highest) of each figure and arm, as Markdown."""
    priors = {record["seed"]: record for record in records if record["arm"] == "prior"}
    arms = [arm for arm in ARMS if any(record["arm"] == arm for record in records)]
    found = {arm: [figures(r, priors[r["seed"]]) for r in records if r["arm"] == arm] for arm in arms}
    targets = ", ".join(f"{seed}: {figures(priors[seed], priors[seed])['target']:.3f}" for seed in sorted(priors))
    lines = [f"Targets by seed: {targets}", "", f"| | {' | '.join(arms)} |", "| --- |" + " --- |" * len(arms)]
    for name, figure, form in FIGURES:
        cells = [spread([one[figure] for one in found[arm]], form) for arm in arms]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def spread(values, form):
    """Mean (lowest to highest); where the target was not reached in some run, how often it was."""
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return f"reached in {len(known)} of {len(values)}"
    return f"{form.format(statistics.mean(known))} ({form.format(min(known))} to {form.format(max(known))})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--first_steps", type=int, default=60, help="optimiser steps of the first run")
    parser.add_argument("--steps", type=int, default=40, help="of all other runs")
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS))
    parser.add_argument("--results", type=Path, default=Path("vade-warm-start.jsonl"), help="a run a line, appended")
    parser.add_argument("--only", choices=["report"], help="train nothing")
    options = parser.parse_args()
    if options.only is None:
        with tempfile.TemporaryDirectory() as directory, options.results.open("a") as file:
            run_all(options, Path(directory), file)
    print(table([json.loads(line) for line in options.results.read_text().splitlines()]))


def run_all(options, directory, file):
    source = directory / "first"
    ratios, _, score = train(source, FIRST_SEED, options.first_steps)
    print(f"first run: ratio {statistics.mean(ratios):.3f}, score {score:.3f}", flush=True)
    for seed in options.seeds:
        for arm in options.arms:
            start = time.perf_counter()
            settings = ARMS[arm](str(source))
            ratios, rollouts, score = train(directory / f"{arm}-{seed}", seed, options.steps, **settings)
            record = {"arm": arm, "seed": seed, "ratio": ratios, "rollouts": rollouts, "score": score}
            record["seconds"] = round(time.perf_counter() - start, 1)
            file.write(json.dumps(record) + "\n")
            file.flush()
            print(f"{arm}, seed {seed}: ratio {statistics.mean(ratios):.3f}, {record['seconds']} s", flush=True)


if __name__ == "__main__":
    main()
