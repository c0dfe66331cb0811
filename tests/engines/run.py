"""One training run of the testbed model under an engine; `measure-<rank>-<step>.json` says what came of it.

usage: python -m tests.engines.on_cpu tests.engines.run FOLDER [--server URL] [OPTIONS]

`--without` takes a correction of `trl_vade.trainer.generation.corrections` out for some steps, which shows what it is
for.
"""

import argparse
import hashlib
import json
import logging
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from accelerate import PartialState
from accelerate.utils import DistributedType
from datasets import Dataset
from PIL import ImageOps
from transformers import AutoConfig, AutoProcessor, TrainerCallback

from tests.support.rows import with_variants
from trl_vade import VADEGRPOConfig, VADEGRPOTrainer
from trl_vade.testbed import load_testbed_dataset, load_testbed_model
from trl_vade.testbed.rewards import exact_answer_reward
from trl_vade.trainer.generation import colocated, engine_processor
from trl_vade.trainer.generation.corrections import vision_token_ids

SETTINGS = {
    "num_generations": 4,
    "per_device_train_batch_size": 32,
    "per_device_eval_batch_size": 8,
    "num_generations_eval": 2,
    "gradient_accumulation_steps": 1,
    "max_completion_length": 12,
    "learning_rate": 3e-4,
    "lr_scheduler_type": "constant",
    "beta": 0.0,
    "use_cpu": True,
    "bf16": False,
    "gradient_checkpointing": False,
    "model_init_kwargs": {"dtype": "float32"},
    "logging_steps": 1,
    "report_to": [],
    "dataloader_pin_memory": False,
    "disable_tqdm": True,
    "save_strategy": "steps",
    "eval_strategy": "steps",
    "eval_steps": 2,
    "vllm_gpu_memory_utilization": 0.1,
    "vllm_max_model_length": 128,
}
NUM_ROWS = 16  # every image comes again after two generation batches of eight


def rows(mixed: bool):
    """Rows of the testbed, for training and evaluation; `mixed`: every fourth has no image."""
    tables = load_testbed_dataset(seed=0)
    train, evaluation = tables["train"].select(range(NUM_ROWS)), tables["validation"].select(range(4))
    if mixed:
        train = train.map(
            lambda row, i: {"images": row["images"] if i % 4 else []},
            with_indices=True,
            features=train.features,
            keep_in_memory=True,
        )
    return train, evaluation


def with_mirrors(rows: Dataset) -> Dataset:
    """Add a variant of each row: the mirrored pictures and another prompt."""
    mirrored = [[ImageOps.mirror(image) for image in images] for images in rows["images"]]
    variants = [
        [{"kind": "mirror", "prompt": prompt * 2, "images": images}]
        for prompt, images in zip(rows["prompt"], mirrored, strict=True)
    ]
    return with_variants(rows, variants)


class Watch(TrainerCallback):
    """Notes what each step logged and where it led; takes corrections out for their steps."""

    def __init__(self, without: list[tuple[str, int, int]]):
        self.without = without
        self.steps, self.evaluations, self.completions = [], [], []
        self.trainer, self.put_back = None, []

    def on_step_begin(self, args, state, control, **kwargs):
        for correction, first, last in self.without:
            if state.global_step + 1 == first:
                self.put_back.append((last, take_out(correction, self.trainer)))

    def on_step_end(self, args, state, control, model, **kwargs):
        self.steps.append({"weights": digest(model.state_dict())})
        for last, put_back in self.put_back:
            if state.global_step == last:
                put_back()

    def on_log(self, args, state, control, logs, **kwargs):
        if "loss" in logs:
            self.steps[-1] |= logs
        if "eval_reward" in logs:
            self.evaluations.append(logs["eval_reward"])


def take_out(correction: str, trainer: VADEGRPOTrainer) -> Callable[[], None]:
    """Let `trainer` generate as the stock trainer does, in one respect; return what puts the correction back."""
    generation, placeholders = trainer.vllm_generation, vision_token_ids(trainer.model.config)
    place, name, stock = {
        "single_tokens": (colocated, "with_single_tokens", lambda ids, token: ids),
        "embeddings": (generation, "sync_weights", getattr(generation.sync_weights, "__wrapped__", None)),
        "placeholders": (generation, "generation_kwargs", {"logit_bias": dict.fromkeys(placeholders, 100.0)}),
    }[correction]
    corrected = getattr(place, name)
    setattr(place, name, stock)
    return lambda: setattr(place, name, corrected)


def exclude_from_the_head(model: torch.nn.Module, tokens: list[int]) -> None:
    """Give `tokens` no probability in the trainer's head, as in the engine: the rest of both is then comparable.

    The head is biased by a buffer that is neither saved nor synchronised. Without this, the log-probabilities differ
    by log(1 - p), p being the probability of the placeholders: up to 1e-3 where the policy sampled a rare token.
    """
    head = model.get_output_embeddings()
    bias = torch.zeros(len(head.weight), dtype=head.weight.dtype)
    bias[tokens] = -1e4
    del head.bias
    head.register_buffer("bias", bias, persistent=False)


class Said(logging.Handler):
    """Notes what trl_vade logs."""

    def __init__(self):
        super().__init__()
        self.messages = []
        logging.getLogger("trl_vade").addHandler(self)
        logging.getLogger("trl_vade").setLevel(logging.INFO)

    def emit(self, record):
        self.messages.append((record.levelname, record.getMessage()))


def digest(state: dict[str, torch.Tensor]) -> str:
    """SHA-256 of the weights."""
    sha = hashlib.sha256()
    for name, weight in sorted(state.items()):
        sha.update(name.encode() + np.ascontiguousarray(weight.detach().cpu()).tobytes())
    return sha.hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--resume", type=int)
    parser.add_argument("--server", metavar="URL")
    parser.add_argument("--model", help="folder; without it the testbed's")
    parser.add_argument("--mixed", action="store_true", help="rows without an image among the others")
    parser.add_argument("--without", nargs="*", default=[], metavar="CORRECTION@FIRST-LAST")
    parser.add_argument("--pixels", type=int, help="of each image, by a processor that the trainer is given")
    parser.add_argument("--folders-processor", action="store_true", help="leave the engine the model folder's own")
    parser.add_argument("--ask-for-placeholders", action="store_true", help="give them a bias of 100")
    parser.add_argument("--settings", type=json.loads, default={}, metavar="JSON")
    options = parser.parse_args()
    without = []
    for each in options.without:
        correction, steps = each.split("@")
        without.append((correction, *map(int, steps.split("-"))))
    watch, said = Watch(without), Said()

    def reward(completion_ids, **columns):
        watch.completions.append([[*map(int, ids)] for ids in completion_ids])
        return exact_answer_reward(completion_ids=completion_ids, **columns)

    engine = {"use_vllm": True, "vllm_mode": "server" if options.server else "colocate"}
    engine["vllm_server_base_url"] = options.server
    model = options.model or str(load_testbed_model(progress=False))
    placeholders = vision_token_ids(AutoConfig.from_pretrained(model))
    if options.ask_for_placeholders:  # as JSON on the command line has it: keys are strings
        engine["generation_kwargs"] = {"logit_bias": {str(token): 100.0 for token in placeholders}}
    processor = None
    if options.pixels:
        processor = AutoProcessor.from_pretrained(model, min_pixels=options.pixels, max_pixels=options.pixels)
    if options.folders_processor:
        engine_processor.image_settings = lambda processing_class, folder, **loading: {}
    settings = SETTINGS | engine | {"max_steps": options.steps, "save_steps": 3} | options.settings
    sharded = "ACCELERATE_USE_FSDP" in os.environ
    if sharded:  # accelerate 1.15 shards on GPUs alone; see tests/integration/sharded.py
        PartialState().distributed_type = DistributedType.MULTI_GPU
    train_rows, eval_rows = rows(options.mixed)
    if "vade_variants" in settings:
        train_rows = with_mirrors(train_rows)
    watch.trainer = trainer = VADEGRPOTrainer(
        model,
        reward,
        VADEGRPOConfig(str(options.folder), **settings),
        train_rows,
        eval_dataset=eval_rows,
        processing_class=processor,
        callbacks=[watch],
    )
    if not sharded:
        exclude_from_the_head(trainer.model, placeholders)
    error = None
    try:
        trainer.train(resume_from_checkpoint=options.resume and f"{options.folder}/checkpoint-{options.resume}")
    except Exception as raised:
        if not options.without:
            raise
        error = str(raised)
    name = f"measure-{os.environ.get('RANK', '0')}-{options.resume or 0}.json"
    noted = {key: getattr(watch, key) for key in ("steps", "evaluations", "completions")}
    (options.folder / name).write_text(
        json.dumps({**noted, "error": error, "placeholders": placeholders, "said": said.messages})
    )


if __name__ == "__main__":
    main()
    os._exit(0)  # gloo aborts now and then as a process exits (pytorch/pytorch#179291)
