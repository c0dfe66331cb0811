"""What does a generation batch cost? Seconds of each phase, requests, images and memory, stock TRL beside ours.

    python -m eval.benchmarks.step                                  # a CPU, the testbed model, transformers' engine
    python -m eval.benchmarks.step --engine colocate --shape small  # vLLM
    python -m eval.benchmarks.step --engine colocate --shape 3b     # a GPU of 140 GB: its share of the recipe for 3B

Each (trainer, repeat) is a process of its own, since two colocated engines do not fit on a GPU; the trainers take
turns, and the turn of each repeat begins with another one. All completions have the same length. The rewards are a
stand-in that costs nothing. `unseeded` is ours without the seeds that its requests to vLLM have. `small`, `3b` and
`7b` have random weights and photographs of `--image_tokens`. What a server encodes cannot be counted from here.

Without CUDA, vLLM is its CPU build, run as for the tests (`tests/engines`). That cannot split a prompt with a seed, as
ours have ("CPU Generator does not use offset"): a generation batch may have about 4,096 prompt tokens there, and 2,048
with a server. A server has to serve the same model: `python -m eval.benchmarks.step.models SHAPE FOLDER ...` writes
it, and `--model FOLDER` takes it from there.

The stock loader decodes the whole generation batch, each image G times, again for every micro-batch, and holds those
of one update at a time. At the recipe's 256 micro-batches of 4 rows that is more than most machines have;
`--micro_batch 64` keeps rows and updates, and makes it a sixteenth.

Timings depend on the machine: they are reported and never tested.
"""

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import yaml

ROOT = Path(__file__).resolve().parents[3]
ROWS_PER_BATCH_OF_DATA = 16  # the recipe's data set is 16 generation batches
SECONDS = {
    "rows": "choose and load rows",
    "tokenise": "tokenise prompts",
    "sync": "weight sync",
    "generate": "generate",
    "rewards": "rewards (a stand-in)",
    "observe": "scores to the posterior",
    "inputs": "inputs of the training forward",
    "score": "score log-probabilities",
    "update": "forward and backward",
    "optimise": "optimiser step",
    "other": "everything else",
}
COUNTS = {
    "calls": "calls of the engine",
    "requests": "requests to the engine",
    "encoded by the engine": "images encoded by the engine",
    "encoded by the trainer": "images encoded by the trainer's passes",
    "processed": "images through an image processor, in this process",
    "decoded": "images decoded",
    "prompt tokens in the engine": "prompt tokens in the engine, over all completions",
}
NAMES = {"stock": "stock TRL", "vade": "trl_vade", "unseeded": "trl_vade without seeds"}


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m eval.benchmarks.step",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--engine", choices=["hf", "colocate", "server"], default="hf")
    parser.add_argument("--server", metavar="URL", help="of the vLLM server")
    parser.add_argument("--shape", choices=["testbed", "small", "3b", "7b"], default="testbed")
    parser.add_argument("--model", metavar="FOLDER", help="of a random model: taken from there, or written there")
    parser.add_argument("--recipe", metavar="FILE", help="settings (3b and 7b: the GRPO recipe of that size)")
    parser.add_argument("--rows", type=int, help="of a generation batch in one process (the recipe's, or 8; small: 4)")
    parser.add_argument("--generations", type=int, help="completions of a row (the recipe's, or 8)")
    parser.add_argument("--micro_batch", type=int, help="completions of a pass (the recipe's, or all)")
    parser.add_argument("--updates", type=int, help="optimiser steps of a generation batch (the recipe's, or 1)")
    parser.add_argument("--image_tokens", type=int, help="of an image, about (3b, 7b: 1024; small: 256; testbed: 4)")
    parser.add_argument("--completion_tokens", type=int, help="of every completion (the recipe's most, or 12)")
    parser.add_argument("--trainers", nargs="+", choices=[*NAMES], default=["stock", "vade"])
    parser.add_argument("--repeats", type=int, default=2, help="runs of each trainer (2)")
    parser.add_argument("--batches", type=int, default=3, help="generation batches that count, in each run (3)")
    parser.add_argument("--warmup", type=int, default=1, help="generation batches before them (1)")
    parser.add_argument("--settings", type=json.loads, default={}, metavar="JSON", help="more of the trainers'")
    parser.add_argument("--json", type=Path, metavar="FILE", help="append the figures of each run, a line each")
    options = parser.parse_args(arguments)
    if (options.engine == "server") != bool(options.server):
        parser.error("--engine server goes with --server URL")
    if options.recipe is None and options.shape in ("3b", "7b"):
        options.recipe = str(ROOT / f"trl_vade/recipes/qwen2_5_vl_{options.shape}_grpo_vade.yaml")
    for name, value in from_recipe(options).items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    if options.shape == "testbed":
        options.image_tokens = 4
    completions = options.rows * options.generations
    if options.micro_batch is None:
        options.micro_batch = completions // options.updates
    if completions % (options.micro_batch * options.updates):
        parser.error(
            f"{completions} completions do not divide into {options.updates} updates of whole micro-batches of "
            f"{options.micro_batch}. Choose --rows, --generations, --micro_batch and --updates so that they do."
        )
    return options


def from_recipe(options: argparse.Namespace) -> dict[str, Any]:
    """What the options are where they are not given."""
    image_tokens = 1024 if options.shape in ("3b", "7b") else 256
    rows = 4 if options.shape == "small" else 8
    figures = {"rows": rows, "generations": 8, "updates": 1, "completion_tokens": 12, "image_tokens": image_tokens}
    if options.recipe is None:
        return figures
    recipe = yaml.safe_load(Path(options.recipe).read_text())
    generations, micro_batch = recipe.get("num_generations", 8), recipe.get("per_device_train_batch_size", 8)
    accumulation = recipe.get("gradient_accumulation_steps", 1)
    steps = recipe.get("steps_per_generation") or accumulation
    return figures | {
        "rows": micro_batch * steps // generations,
        "generations": generations,
        "micro_batch": micro_batch,
        "updates": steps // accumulation,
        "completion_tokens": recipe.get("max_completion_length", 256),
    }


def in_a_process(*arguments: str, engine: str) -> None:
    """Run a module of this folder as a command; where vLLM has no GPU, as the tests run its CPU build."""
    environment = dict(os.environ)
    command, path = [sys.executable, "-m"], [str(ROOT), environment.get("PYTHONPATH", "")]
    if engine != "hf" and not torch.cuda.is_available():
        from tests.engines.on_cpu import ENVIRONMENT

        environment |= ENVIRONMENT
        command, path = [*command, "tests.engines.on_cpu"], [ENVIRONMENT["PYTHONPATH"]]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    done = subprocess.run([*command, *arguments], env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{shlex.join(arguments)} ended with {done.returncode}:\n{done.stderr[-6000:]}")


def run_all(options: argparse.Namespace, model: Path) -> list[dict[str, Any]]:
    """The runs of every trainer and repeat, in turn."""
    if options.shape != "testbed" and not (model / "rows").exists():
        sizes = ["--rows", str(ROWS_PER_BATCH_OF_DATA * options.rows), "--image_tokens", str(options.image_tokens)]
        in_a_process("eval.benchmarks.step.models", options.shape, str(model), *sizes, engine=options.engine)
    runs, figures = [], model / "figures.json"
    for repeat in range(options.repeats):
        for place in range(len(options.trainers)):
            trainer = options.trainers[(place + repeat) % len(options.trainers)]
            one = {name: value for name, value in vars(options).items() if name != "json"}
            one |= {"trainer": trainer, "model": str(model)}
            in_a_process("eval.benchmarks.step.one_run", json.dumps(one), str(figures), engine=options.engine)
            runs.append({"repeat": repeat, **json.loads(figures.read_text())})
            seconds = statistics.median(total(batch) for batch in runs[-1]["batches"])
            print(f"repeat {repeat + 1}/{options.repeats}  {NAMES[trainer]}: {seconds:.2f} s a generation batch")
            if options.json:
                with options.json.open("a") as file:
                    file.write(json.dumps({"options": one, **runs[-1]}) + "\n")
    return runs


def total(batch: dict[str, Any]) -> float:
    return sum(batch["seconds"].values())


def table(runs: list[dict[str, Any]]) -> str:
    """Markdown: a line for each figure that any run has, a column for each trainer."""
    batches: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        batches.setdefault(run["trainer"], []).extend(run["batches"])
    trainers = [name for name in NAMES if name in batches]
    lines = ["| a generation batch | " + " | ".join(NAMES[name] for name in trainers) + " |"]
    lines.append("| --- |" + " ---: |" * len(trainers))

    def line(what: str, figure: Any, digits: int) -> None:
        cells = [[figure(batch) for batch in batches[name]] for name in trainers]
        if any(map(any, cells)):
            lines.append(f"| {what} | " + " | ".join(spread(values, digits) for values in cells) + " |")

    line("seconds", total, 2)
    for phase, what in SECONDS.items():
        line(f"- {what}", lambda batch, phase=phase: batch["seconds"].get(phase, 0.0), 3)
    every = {count for each in batches.values() for batch in each for count in batch["counts"]}
    for count in [*COUNTS, *sorted(every - COUNTS.keys())]:
        line(COUNTS.get(count, count), lambda batch, count=count: batch["counts"].get(count, 0), 0)
    for kind in ("allocated", "reserved", "in use"):
        for phase, what in SECONDS.items():
            peak = f"peak GPU memory, GiB, {kind}: {what}"
            line(peak, lambda batch, p=phase, k=kind: batch["memory"].get(p, {}).get(k, 0.0), 1)
    return "\n".join(lines)


def spread(values: list[float], digits: int) -> str:
    """Median (lowest to highest); one figure where they are the same, `-` where there is none."""
    low, high = min(values), max(values)
    if not high:
        return "-"
    if low == high and digits == 0:
        return f"{low:,.0f}"
    return f"{statistics.median(values):,.{digits}f} ({low:,.{digits}f} to {high:,.{digits}f})"


def main() -> None:
    options = parse()
    with tempfile.TemporaryDirectory() as folder:
        model = Path(options.model or folder)
        runs = run_all(options, model)
    print(f"\n{table(runs)}\n")
    print(
        f"Median (lowest to highest) of {options.repeats} x {options.batches} generation batches: {options.rows} rows "
        f"x {options.generations} completions of {options.completion_tokens} tokens, images of about "
        f"{options.image_tokens} tokens, micro-batches of {options.micro_batch}, updates: {options.updates}."
    )
    print(", ".join(f"{name} {version}" for name, version in runs[0]["versions"].items()))
    print(f"python -m eval.benchmarks.step {shlex.join(sys.argv[1:])}")


if __name__ == "__main__":
    main()
