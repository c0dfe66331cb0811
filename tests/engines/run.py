"""One training run of the testbed model under an engine; `measure-<rank>-<step>.json` says what came of it.

usage: python -m tests.engines.on_cpu tests.engines.run FOLDER JSON

The JSON has the arguments of `main`.
"""

import hashlib
import json
import logging
import os
import sys
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
    """Notes what each step logged and where it led."""

    def __init__(self):
        self.steps, self.evaluations, self.completions = [], [], []

    def on_step_end(self, args, state, control, model, **kwargs):
        self.steps.append({"weights": digest(model.state_dict())})

    def on_log(self, args, state, control, logs, **kwargs):
        if "loss" in logs:
            self.steps[-1] |= logs
        if "eval_reward" in logs:
            self.evaluations.append(logs["eval_reward"])


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


def main(
    folder: Path,
    *,
    steps: int = 6,
    resume: int = 0,  # the step to go on from
    server: str | None = None,  # its address; None for an engine in the process
    model: str = "",  # its folder; "" for the testbed's
    mixed: bool = False,  # whether some rows are without an image among the others
    pixels: int = 0,  # of each image, by a processor that the trainer is given; 0 for the model's own
    asks_for_placeholders: bool = False,  # whether the user gives them a bias of 100
    **settings,  # of the trainer
) -> None:
    watch, said = Watch(), Said()

    def reward(completion_ids, **columns):
        watch.completions.append([[*map(int, ids)] for ids in completion_ids])
        return exact_answer_reward(completion_ids=completion_ids, **columns)

    engine = {"use_vllm": True, "vllm_mode": "server" if server else "colocate", "vllm_server_base_url": server}
    model = model or str(load_testbed_model(progress=False))
    placeholders = vision_token_ids(AutoConfig.from_pretrained(model))
    if asks_for_placeholders:  # as JSON on the command line has it: keys are strings
        engine["generation_kwargs"] = {"logit_bias": {str(token): 100.0 for token in placeholders}}
    processor = AutoProcessor.from_pretrained(model, min_pixels=pixels, max_pixels=pixels) if pixels else None
    settings = SETTINGS | engine | {"max_steps": steps, "save_steps": 3} | settings
    sharded = "ACCELERATE_USE_FSDP" in os.environ
    if sharded:  # accelerate 1.15 shards on GPUs alone; see tests/integration/sharded.py
        PartialState().distributed_type = DistributedType.MULTI_GPU
    train_rows, eval_rows = rows(mixed)
    if "vade_variants" in settings:
        train_rows = with_mirrors(train_rows)
    trainer = VADEGRPOTrainer(
        model,
        reward,
        VADEGRPOConfig(str(folder), **settings),
        train_rows,
        eval_dataset=eval_rows,
        processing_class=processor,
        callbacks=[watch],
    )
    if not sharded:
        exclude_from_the_head(trainer.model, placeholders)
    trainer.train(resume_from_checkpoint=f"{folder}/checkpoint-{resume}" if resume else None)
    noted = {key: getattr(watch, key) for key in ("steps", "evaluations", "completions")}
    noted |= {"placeholders": placeholders, "said": said.messages}
    (folder / f"measure-{os.environ.get('RANK', '0')}-{resume}.json").write_text(json.dumps(noted))


if __name__ == "__main__":
    main(Path(sys.argv[1]), **json.loads(sys.argv[2]))
    os._exit(0)  # gloo aborts now and then as a process exits (pytorch/pytorch#179291)
