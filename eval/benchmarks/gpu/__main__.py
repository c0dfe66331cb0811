"""What a GPU of 80 GB says: memory against the plan's estimate, the update at live shares, pictures, selection.

    python -m eval.benchmarks.gpu                          # one H100 or H200, 8 minutes
    python -m eval.benchmarks.gpu --output gpu.json
    python -m eval.benchmarks.gpu --tiny                   # the same program on a CPU: the testbed's widths

It needs torch, transformers, accelerate, peft, datasets and TRL, and neither vLLM nor a network. The model has the
dimensions of Qwen2.5-VL-3B and random weights, made on the GPU. The settings are those of the GRPO recipe for 3B with
these differences. Weights, gradients and optimiser states are bf16: with the recipe's float32 one process would hold
60 GB of them. Nothing is generated: completions and rewards are given (see `eval.benchmarks.step --live_shares`).

1. Pictures: seconds and bytes of the image processor's pixels.
2. Selection: seconds of a draw and of its outcomes.
3. Memory: two updates with the recipe's KL term, so with passes for old and reference log-probabilities. Prompts and
   completions are all long. The parts are those of `trl-vade plan` for the same settings.
4. Update: at each live share, stock TRL, ours without thinning and ours with it, in turn, without a KL term.

A part that would take the run past `--minutes` is not started, and named at the end. So is a part that failed. If the
estimate does not fit the GPU, the model gets fewer decoder layers, as many as fit.

Timings depend on the machine: they are reported and never tested.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import datasets
import torch
from transformers.utils import logging as transformers_logging

from trl_vade import VADEGRPOConfig
from trl_vade.cli.plan.memory_formulas import Lengths
from trl_vade.cli.plan.model_shape import model_shape

from ..step.given import Given
from ..step.live_shares import one_batch
from ..step.models import processor_and_config, random_model, random_rows
from ..step.one_run import trainer_settings
from . import tables
from .machine import machine, pictures, selection
from .parts import MeasuredParts, estimated, reference_in_memory

RECIPE = Path(__file__).resolve().parents[3] / "trl_vade/recipes/qwen2_5_vl_3b_grpo_vade.yaml"
SHARES = (0.1, 0.25, 0.5, 1.0)
TRAINERS = ("stock", "vade", "lossless")
MEMORY_SHARE = 0.25  # of ours; stock's memory does not depend on it
SIZES = {  # of a generation batch. The recipe's micro-batch has 4 completions of at most 2,048 tokens
    False: {"micro_batch": 4, "longest": 2048, "image_tokens": 1024, "prompt_tokens": 4096, "chosen": 512},
    True: {"micro_batch": 4, "longest": 24, "image_tokens": 64, "prompt_tokens": 96, "chosen": 8},
}


class Schedule:
    """Starts parts as long as there is time, and keeps what they found."""

    def __init__(self, minutes: float, save: Callable[[dict[str, Any]], None], clock: Any = time.perf_counter):
        self._clock, self._save = clock, save
        self._start, self._limit = clock(), 60 * minutes
        self._longest: dict[str, float] = {}
        self.found: dict[str, Any] = {"left out": [], "failed": {}}

    @property
    def seconds(self) -> float:
        return self._clock() - self._start

    def run(self, kind: str, name: str, work: Callable[[], Any]) -> None:
        """Do `work`, unless one of its kind took longer than what is left; its result is appended to `found[kind]`."""
        before = self.seconds
        if before + self._longest.get(kind, 0.0) > self._limit:
            self.found["left out"].append(name)
            return
        try:
            self.found.setdefault(kind, []).append(work())
        except Exception as error:  # the other parts are worth having
            self.found["failed"][name] = f"{type(error).__name__}: {error}"
        took = self.seconds - before
        self._longest[kind] = max(self._longest.get(kind, 0.0), took)
        self.found["seconds"] = self.seconds
        self._save(self.found)
        print(f"{self.seconds:6.0f} s  {name}", file=sys.stderr, flush=True)


class Bench:
    """The model, its rows and the settings of the parts."""

    def __init__(self, options: argparse.Namespace):
        self.options, self.sizes = options, SIZES[options.tiny]
        self.gpu = torch.cuda.get_device_properties(0).total_memory if torch.cuda.is_available() else 80 * 2**30
        self.processor, self.config = processor_and_config("small" if options.tiny else "3b")
        self.config.architectures = ["Qwen2_5_VLForConditionalGeneration"]
        text = self.config.text_config
        self.layers = options.layers or text.num_hidden_layers
        while True:
            text.num_hidden_layers, text.layer_types = self.layers, text.layer_types[: self.layers]
            self.shape = model_shape(self.config)
            if options.layers or self.layers == 1 or self.plan(self.memory_settings(), self.long()).fits:
                break
            self.layers -= 1
        self.model = random_model(self.config, self.processor.tokenizer)
        words = len(self.processor.tokenizer("the " * 100)["input_ids"]) / 100
        filler = int((self.sizes["prompt_tokens"] - self.sizes["image_tokens"]) / words)
        self.rows = random_rows(options.rows, self.sizes["image_tokens"])
        self.long_rows = random_rows(4, self.sizes["image_tokens"], max(filler, 0))

    def long(self) -> Lengths:
        """The lengths that part 3 asks for, about."""
        return Lengths(self.sizes["prompt_tokens"], self.sizes["image_tokens"], self.sizes["longest"])

    def settings(self, rows: int, updates: int, **changes: Any) -> dict[str, Any]:
        options = {
            "engine": "given",
            "recipe": str(RECIPE),
            "rows": rows,
            "generations": self.options.generations,
            "micro_batch": self.sizes["micro_batch"],
            "updates": updates,
            "completion_tokens": self.sizes["longest"],
            "settings": {"gradient_checkpointing": True, **changes},
        }
        settings = trainer_settings(options, "")
        del settings["model_init_kwargs"]  # the trainer gets a model
        return settings

    def memory_settings(self) -> dict[str, Any]:
        return self.settings(rows=4, updates=2)

    def given(self, rows: int, share: float, **named: Any) -> Given:
        sizes = (rows, self.options.generations, self.sizes["longest"])
        return Given(*sizes, share, self.processor.tokenizer, **named)

    def plan(self, settings: dict[str, Any], lengths: Lengths) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            return estimated(VADEGRPOConfig(**settings | {"output_dir": folder}), self.shape, lengths, self.gpu)

    def memory(self, name: str) -> dict[str, Any]:
        """Peaks of a generation batch, the second one of its run, and the parts of them."""
        parts, settings = MeasuredParts(), self.memory_settings()
        given = self.given(4, MEMORY_SHARE, all_longest=True)
        with reference_in_memory(self.model):
            batch = one_batch(
                name,
                given,
                self.model,
                self.long_rows,
                settings,
                self.processor,
                warmup=1,
                counting=not torch.cuda.is_available(),
                watch_more=parts.watch,
            )
        estimate = self.plan(settings, parts.lengths)
        return {"trainer": name, "lengths": asdict(parts.lengths), "lines": parts.table(batch, estimate)}

    def update(self, repeat: int, share: float, name: str) -> dict[str, Any]:
        rows = self.options.rows
        settings = self.settings(rows, updates=1, beta=0.0)
        batch = one_batch(name, self.given(rows, share), self.model, self.rows, settings, self.processor)
        return {"repeat": repeat, "share": share, **batch}


def measure(options: argparse.Namespace, schedule: Schedule) -> None:
    """Run every part, the shortest kinds first."""
    bench = Bench(options)
    schedule.found |= {"machine": machine(), "options": {**vars(options), "output": None}, "layers": bench.layers}
    schedule.found |= {"parameters": bench.shape.parameters, "seconds to make the model": schedule.seconds}
    sizes = bench.sizes
    images = (bench.rows, bench.processor, options.rows, options.generations, options.repeats)
    schedule.run("pictures", "pictures", lambda: pictures(*images))
    for rows in (9_471, 1_000_000):
        schedule.run("selection", f"selection, {rows:,} rows", lambda rows=rows: selection(rows, sizes["chosen"], 5))
    for name in ("stock", "live"):
        schedule.run("memory", f"memory, {name}", lambda name=name: bench.memory(name))
    for repeat in range(options.repeats):
        for share in SHARES:
            for place in range(len(TRAINERS)):
                name = TRAINERS[(place + repeat) % len(TRAINERS)]
                part = f"update, {share:.0%} live, {name}, repeat {repeat + 1}"
                schedule.run("update", part, lambda r=repeat, s=share, n=name: bench.update(r, s, n))


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m eval.benchmarks.gpu",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--tiny", action="store_true", help="the testbed's widths, on a CPU")
    parser.add_argument("--minutes", type=float, default=8, help="after which no part is started (8)")
    parser.add_argument("--repeats", type=int, default=2, help="of every part that is timed (2)")
    parser.add_argument("--rows", type=int, default=20, help="of a generation batch of part 4 (20)")
    parser.add_argument("--generations", type=int, default=4, help="completions of a row (4)")
    parser.add_argument("--layers", type=int, help="of the decoder (as many as fit)")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write all figures there, as JSON")
    options = parser.parse_args(arguments)
    if not options.tiny and not torch.cuda.is_available():
        parser.error("there is no GPU here. --tiny runs the same program on a CPU")
    return options


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    datasets.disable_progress_bars()
    transformers_logging.disable_progress_bar()

    def save(found: dict[str, Any]) -> None:
        if options.output:
            options.output.write_text(json.dumps(found, indent=1, default=str))

    schedule = Schedule(options.minutes, save)
    measure(options, schedule)
    print(tables.report(schedule.found))
    if schedule.found["failed"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
