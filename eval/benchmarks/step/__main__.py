"""What does a generation batch cost? Seconds of each phase, requests, images and memory, stock TRL beside ours.

    python -m eval.benchmarks.step                                  # a CPU, the testbed model, transformers' engine
    python -m eval.benchmarks.step --engine colocate --shape small  # vLLM
    python -m eval.benchmarks.step --engine colocate --shape 3b     # a GPU of 140 GB: its share of the recipe for 3B
    python -m eval.benchmarks.step --live_shares 0.1 0.25 0.5 1.0   # the update, where groups have no gradient
    python -m eval.benchmarks.step --shape small --rows 8 --image_tokens 1280 --micro_batch 4 \
        --trainers stock repeated once tower grouped --settings '{"vade_sampler": "uniform"}'  # images of 1 megapixel

Each (trainer, repeat) is a process of its own, since two colocated engines do not fit on a GPU; the trainers take
turns, and the turn of each repeat begins with another one. All completions have the same length. The rewards are a
stand-in that costs nothing. `vade` trains on every row, `lossless` and `live` are the values of `vade_down_sampling`,
and `unseeded` is `vade` without the seeds that its requests to vLLM have. `repeated` processes and keeps images TRL's
way, `once` does it once a row, `tower` also encodes them once a pass, and `grouped` also sorts the completions of an
optimiser step by row. With `vade_sampler="uniform"` all take the same rows as stock. `small`, `3b` and `7b` have
random weights and photographs of `--image_tokens`. What a server encodes cannot be counted from here.

Without CUDA, vLLM is its CPU build, run as for the tests (`tests/engines`). That cannot split a prompt with a seed, as
ours have ("CPU Generator does not use offset"): a generation batch may have about 4,096 prompt tokens there, and 2,048
with a server. A server has to serve the same model: `python -m eval.benchmarks.step.models SHAPE FOLDER ...` writes
it, and `--model FOLDER` takes it from there.

The stock loader decodes the whole generation batch, each image G times, again for every micro-batch, and holds those
of one update at a time. At the recipe's 256 micro-batches of 4 rows that is more than most machines have;
`--micro_batch 64` keeps rows and updates, and makes it a sixteenth.

With `--live_shares` nothing is generated. All trainers get the same completions, of lognormal lengths, and the same
rewards: exactly such a share of the groups has a gradient. They take turns in one process, a generation batch each, on
the same rows. A repeat of its own counts FLOPs (torch's `FlopCounterMode`) and, without CUDA, another one counts the
bytes of the tensors that exist at a time. An operation's own memory is not among these.

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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import yaml

from .tables import NAMES, live_table, table, total

ROOT = Path(__file__).resolve().parents[3]
ROWS_PER_BATCH_OF_DATA = 16  # the recipe's data set is 16 generation batches


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
    parser.add_argument(
        "--rows",
        type=int,
        help="of a generation batch in one process (the recipe's, or 8; small: 4; with --live_shares 20)",
    )
    parser.add_argument("--generations", type=int, help="completions of a row (the recipe's, or 8)")
    parser.add_argument("--micro_batch", type=int, help="completions of a pass (the recipe's, or all)")
    parser.add_argument("--updates", type=int, help="optimiser steps of a generation batch (the recipe's, or 1)")
    parser.add_argument("--image_tokens", type=int, help="of an image, about (3b, 7b: 1024; small: 256; testbed: 4)")
    parser.add_argument(
        "--completion_tokens",
        type=int,
        help="of every completion (the recipe's most, or 12; with --live_shares of the longest, 64)",
    )
    parser.add_argument("--trainers", nargs="+", choices=[*NAMES], help="(stock vade; with --live_shares one more)")
    parser.add_argument("--live_shares", type=float, nargs="+", help="shares of the groups that have a gradient")
    parser.add_argument("--beta", type=float, help="of the KL term (the recipe's, or 0)")
    parser.add_argument("--repeats", type=int, default=2, help="runs of each trainer (2)")
    parser.add_argument(
        "--batches", type=int, default=3, help="that count in each run (3; with --live_shares always 1)"
    )
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
    if options.beta is not None:
        options.settings["beta"] = options.beta
    if options.live_shares:
        of_live_shares(parser, options)
    options.trainers = options.trainers or ["stock", "vade"]
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


def of_live_shares(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Refuse what does not go with live shares, and choose the trainers."""
    if options.engine != "hf" or "unseeded" in (options.trainers or []):
        parser.error("--live_shares generates nothing, so it goes with neither --engine nor --trainers unseeded")
    from .given import live_groups  # trl and so vLLM are left to the processes of the runs otherwise

    options.engine = "given"
    for share in options.live_shares:
        try:
            live_groups(options.rows, share)
        except ValueError as error:
            parser.error(str(error))
    exact = not options.settings.get("beta") and options.updates == 1
    options.trainers = options.trainers or ["stock", "vade", "lossless" if exact else "live"]


def from_recipe(options: argparse.Namespace) -> dict[str, Any]:
    """What the options are where they are not given."""
    image_tokens = 1024 if options.shape in ("3b", "7b") else 256
    rows, longest = (
        20 if options.live_shares else 4 if options.shape == "small" else 8,
        64 if options.live_shares else 12,
    )
    figures = {
        "rows": rows,
        "generations": 8,
        "updates": 1,
        "completion_tokens": longest,
        "image_tokens": image_tokens,
    }
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
    if engine in ("colocate", "server") and not torch.cuda.is_available():
        from tests.engines.on_cpu import ENVIRONMENT

        environment |= ENVIRONMENT
        command, path = [*command, "tests.engines.on_cpu"], [ENVIRONMENT["PYTHONPATH"]]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    done = subprocess.run([*command, *arguments], env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{shlex.join(arguments)} ended with {done.returncode}:\n{done.stderr[-6000:]}")


def write_model(options: argparse.Namespace, model: Path) -> None:
    """Write the model and its rows, where they are not there yet."""
    if options.shape != "testbed" and not (model / "rows").exists():
        sizes = ["--rows", str(ROWS_PER_BATCH_OF_DATA * options.rows), "--image_tokens", str(options.image_tokens)]
        in_a_process("eval.benchmarks.step.models", options.shape, str(model), *sizes, engine=options.engine)


def run_live_shares(options: argparse.Namespace, model: Path) -> Iterator[dict[str, Any]]:
    """The generation batches of every repeat, live share and trainer, in turn; see `measure`."""
    from .live_shares import measure
    from .one_run import versions

    for batch in measure({**vars(options), "model": str(model)}):
        yield batch | {"versions": versions()}
        print(f"repeat {batch['repeat']}  {batch['share']:.0%} live  {NAMES[batch['trainer']]}", flush=True)


def run_all(options: argparse.Namespace, model: Path) -> Iterator[dict[str, Any]]:
    """The runs of every trainer and repeat, in turn."""
    figures = model / "figures.json"
    for repeat in range(options.repeats):
        for place in range(len(options.trainers)):
            trainer = options.trainers[(place + repeat) % len(options.trainers)]
            one = {name: value for name, value in vars(options).items() if name != "json"}
            one |= {"trainer": trainer, "model": str(model)}
            in_a_process("eval.benchmarks.step.one_run", json.dumps(one), str(figures), engine=options.engine)
            run = {"options": one, "repeat": repeat, **json.loads(figures.read_text())}
            yield run
            seconds = statistics.median(total(batch) for batch in run["batches"])
            print(f"repeat {repeat + 1}/{options.repeats}  {NAMES[trainer]}: {seconds:.2f} s a generation batch")


def main() -> None:
    options = parse()
    with tempfile.TemporaryDirectory() as folder:
        model = Path(options.model or folder)
        write_model(options, model)
        runs = []
        for run in (run_live_shares if options.live_shares else run_all)(options, model):
            runs.append(run)
            if options.json:
                with options.json.open("a") as file:
                    file.write(json.dumps(run) + "\n")
    print(f"\n{(live_table if options.live_shares else table)(runs)}\n")
    batches = 1 if options.live_shares else options.batches
    print(
        f"Median (lowest to highest) of {options.repeats} x {batches} generation batches: {options.rows} rows "
        f"x {options.generations} completions of {'at most ' * bool(options.live_shares)}{options.completion_tokens} "
        f"tokens, images of about {options.image_tokens} tokens, micro-batches of {options.micro_batch}, updates: "
        f"{options.updates}."
    )
    print(", ".join(f"{name} {version}" for name, version in runs[0]["versions"].items()))
    print(f"python -m eval.benchmarks.step {shlex.join(sys.argv[1:])}")


if __name__ == "__main__":
    main()
