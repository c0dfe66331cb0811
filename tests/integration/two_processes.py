"""Body of `test_two_processes.py`, run by torch.distributed.run on two processes over gloo, or by itself on one.

usage: two_processes.py MODEL_DIRECTORY[,OF_PICTURES] OUTPUT_DIRECTORY SCENARIO[-refilled][,SCENARIO...] [CHECKPOINT]

Every process writes what it saw to `rank-<n>.json` in the output directory. With CHECKPOINT (a step), the run goes on
from that checkpoint of the output directory. `-refilled` is with dynamic sampling. Several scenarios follow each other
in the same processes, whose start takes most of the time; each has a folder of its name in the output directory.
"""

import json
import os
import sys

import datasets
import numpy as np
import torch
from accelerate import PartialState
from accelerate.utils import gather_object
from datasets import Dataset
from PIL import Image
from transformers import TrainerCallback
from trl.trainer import grpo_trainer

from tests.support.rows import text_of, with_variants
from tests.support.runs import logged
from trl_vade import VADEGRPOConfig, VADEGRPOTrainer
from trl_vade.samplers.snapshot import state_digest

models, directory, named, *checkpoint = sys.argv[1:]
scenario = refilled = trainer = answered = chance = None  # of the run that goes on


def has_even_length(completions, **kwargs):
    divisor = 4 if refilled else 2  # rarer, so that there is something to refill
    steps = {"again": 1, "pictures": 2}.get(scenario)  # of a batch; every other one is dead, and the last comes again
    if steps and trainer.state.global_step // steps % 2:
        divisor = 1
    return [float(len(text_of(completion)) % divisor == 0) for completion in completions]


def rows_with_images():
    """A third of the rows have an image: now and then all rows of a process are text, and the other's are not."""
    rows = []
    for i in range(12):
        image = Image.fromarray(np.full((56, 56, 3), 20 * (i % 10), dtype=np.uint8))
        images = [image] if i % 3 == 0 else []
        question = f"What is {i % 10}?{'' if images else ' What is it?'}"  # as many tokens
        rows.append({"prompt": [{"role": "user", "content": question}], "images": images, "id": f"row-{i}"})
    return Dataset.from_list(rows).cast_column("images", datasets.List(datasets.Image()))


def rows_with_variants():
    hints = [[{"kind": "hint-1", "prompt": [{"role": "user", "content": f"say above {i % 10}"}]}] for i in range(13)]
    return with_variants(rows_of_text(), hints)


def rows_of_text():
    prompts = [[{"role": "user", "content": f"say a digit above {i % 10}"}] for i in range(13)]
    return Dataset.from_dict({"prompt": prompts, "id": [f"row-{i}" for i in range(13)]})


def by_chance(batch):
    """A transform that makes another prompt each time, with random numbers that differ between the processes."""
    asked = [f"{prompt[0]['content']} {chance.integers(10)}" for prompt in batch["prompt"]]
    return {**batch, "prompt": [[{"role": "user", "content": content}] for content in asked]}


class Answered(TrainerCallback):
    """Counts the completions that are trained on with a prompt that they are no answer to."""

    def __init__(self):
        self.pairs, self.strangers = set(), 0

    def note(self, prompts, completion_ids, **columns):
        for prompt, ids in zip(prompts, completion_ids, strict=True):
            asked = trainer.processing_class.apply_chat_template(prompt, add_generation_prompt=True)["input_ids"]
            self.pairs.add((*asked, *ids))
        return has_even_length(**columns)

    def on_step_end(self, args, state, control, **kwargs):
        pairs = set(gather_object(list(self.pairs)))
        for part in trainer._buffered_inputs:
            for i in range(len(part["prompt_ids"])):
                kept = [part[f"{name}_ids"][i][part[f"{name}_mask"][i].bool()] for name in ("prompt", "completion")]
                self.strangers += tuple(torch.cat(kept).tolist()) not in pairs


class SameCompletions(VADEGRPOTrainer):
    """Answers that depend on the prompt, the place in its group and the step alone, whatever the number of processes.

    Sampled ones cannot be the same: TRL gives each process a seed of its own.
    """

    def _generate_single_turn(self, prompt_ids, images, multimodal_fields, num_generations, **kwargs):
        answers = []
        for i, prompt in enumerate(prompt_ids, start=self.accelerator.process_index * len(prompt_ids)):
            noise = np.random.default_rng([*prompt, i % num_generations, self.state.global_step])
            answers.append(noise.integers(4, 20, size=noise.integers(1, 5)).tolist())
        return answers, None


class Perturb(TrainerCallback):
    """As a callback that touches the sampler on one process only would."""

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 2 and PartialState().process_index == 1:
            trainer.selection.sampler.observe([0], [1], [1])


def with_another_weight(*arguments, **named):
    """As on a machine whose cache has another copy of the model."""
    loaded = create_model_from_path(*arguments, **named)
    if PartialState().process_index == 1:
        next(loaded.parameters()).data[0, 0] += 1.0
    return loaded


create_model_from_path = grpo_trainer.create_model_from_path
BASE = {"vade_sampler": "thompson", "num_generations": 4, "optim": "adamw_torch", "learning_rate": 1e-2}
SYNCED = {"beta": 0.5, "sync_ref_model": True, "ref_model_sync_steps": 2}
SGD = {"optim": "sgd", "learning_rate": 0.1}
PUSHING = {"push_to_hub": True, "hub_model_id": "you/run", "hub_strategy": "checkpoint"}
SETTINGS = {
    "straddling": {"num_generations": 8},
    "odd": {"num_generations": 3},
    "default": {"vade_replay": 2},
    "iterations": {"vade_down_sampling": "d3s", "vade_keep_rollouts": [0.25, 0.75], "num_iterations": 2},
    "sizes": {"num_iterations": 2},
    "pictures": {"num_iterations": 2, "vade_replay": 2, "generation_kwargs": {"min_new_tokens": 4}},
    "rollout": {"vade_posterior_init": "rollout"},
    "warm": {"vade_posterior_init": "you/beliefs"},
    "images": {"vade_sampler": "uniform", "log_completions": True},
    "synced": SYNCED | {"vade_down_sampling": "live"},
    "copies": SYNCED,
    "same": SGD,
    "again": SGD | {"vade_replay": 1},
    "varied": SGD | {"vade_variants": "of", "vade_advantage": "diva"},
    "push": PUSHING | {"vade_posterior_hub_id": "you/beliefs"},
}


def play(output_dir):
    """Train by the present scenario and write what this process saw."""
    global trainer, answered, chance
    if scenario == "copies":
        grpo_trainer.create_model_from_path = with_another_weight
    size = (6 if scenario == "odd" else 8) // int(os.environ.get("WORLD_SIZE", 1))  # in all the same, but for `sizes`
    args = VADEGRPOConfig(
        output_dir=output_dir,
        per_device_train_batch_size=4 if scenario == "sizes" else size,
        vade_dynamic_sampling=refilled,
        max_completion_length=4,
        max_steps=6,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        logging_steps=1,
        save_strategy="steps",
        save_steps=3,
        report_to="none",
        disable_tqdm=True,
        **BASE | SETTINGS.get(scenario, {}),
    )
    answered = Answered()

    def noting_reward(completions, **columns):
        return answered.note(completions=completions, **columns)

    made = {"images": rows_with_images, "pictures": rows_with_images, "varied": rows_with_variants}
    rows = made.get(scenario, rows_of_text)()
    callbacks = {"perturbed": [Perturb()], "chance": [answered]}.get(scenario)
    trainer = (SameCompletions if scenario in ("same", "varied", "again") else VADEGRPOTrainer)(
        models.split(",")[-1 if scenario in ("images", "pictures") else 0],
        noting_reward if scenario == "chance" else has_even_length,
        args,
        rows.with_transform(by_chance) if scenario == "chance" else rows,
        callbacks=callbacks,
    )
    chance = np.random.default_rng(PartialState().process_index)
    loader, shares, loaded = trainer.selection.loader, [], []
    load, read = loader.load, loader.decoder.load

    def noting_the_rows(rows):
        loaded.append(list(dict.fromkeys(rows)))
        return read(rows)

    def noting(sample_index):
        rows = load(sample_index)
        shares.append([row["id"] for row in rows])
        return rows

    loader.load, loader.decoder.load = noting, noting_the_rows
    trainer.train(resume_from_checkpoint=f"{output_dir}/checkpoint-{checkpoint[0]}" if checkpoint else None)

    rank = PartialState().process_index
    posterior, history = trainer.selection.sampler.posterior, trainer.state.log_history
    reference = trainer.ref_model.parameters() if trainer.ref_model else []
    with open(f"{output_dir}/rank-{rank}.json", "w") as file:
        json.dump(
            {
                "shares": shares,
                "loaded": loaded,
                "digest": state_digest(trainer.selection.sampler),
                "alpha": posterior.alpha.tolist(),
                "visits": posterior.visits.tolist(),
                "rollouts": trainer.selection.feedback.rollouts,
                "strangers": [answered.strangers, len(answered.pairs)],
                "tokens": trainer.state.num_input_tokens_seen,
                "kept": logged(trainer, "vade/kept_rollouts"),
                "trained": logged(trainer, "vade/trained_tokens"),
                "replayed": [each.get("vade/replayed_rows") for each in history if "vade/kept_rollouts" in each],
                "refills": logged(trainer, "vade/refills"),
                "staleness": logged(trainer, "vade/staleness"),
                "weights": [p.double().sum().item() for p in trainer.model.parameters()],
                "reference": [p.double().sum().item() for p in reference],
            },
            file,
        )


for each in named.split(","):
    scenario, refilled = each.removesuffix("-refilled"), each.endswith("-refilled")
    play(f"{directory}/{each}" if "," in named else directory)
# Everything is written. torch 2.15 over gloo aborts now and then while the interpreter is torn down: a worker thread
# that still holds the last collective wants the GIL (pytorch/pytorch#179291, closed without a merge). So: no teardown.
if PartialState().num_processes > 1:
    torch.distributed.destroy_process_group()
os._exit(0)
