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
and `replay` is `lossless` after four other batches, whose groups it trains on again.
`repeated` processes and keeps images TRL's way, `once` does it once a row, `tower` also encodes them once a pass, and
`grouped` also sorts the completions of an optimiser step by row. With `vade_sampler="uniform"` all take the same rows
as stock. `small` and `3b` have random weights and photographs of `--image_tokens`.

Without CUDA, vLLM is its CPU build, run as for the tests (`tests/engines`). That cannot split a prompt with a seed, as
ours have ("CPU Generator does not use offset"): a generation batch may have about 4,096 prompt tokens there.

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

from .tables import NAMES, in_turn, live_table, table, total

ROOT = Path(__file__).resolve().parents[3]
RECIPE = ROOT / "trl_vade/recipes/qwen2_5_vl_3b_grpo_vade.yaml"
ROWS_PER_BATCH_OF_DATA = 16  # the recipe's data set is 16 generation batches


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m eval.benchmarks.step",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--engine", choices=["hf", "colocate"], default="hf")
    parser.add_argument("--shape", choices=["testbed", "small", "3b"], default="testbed")
    parser.add_argument("--rows", type=int, help="of a generation batch (8; small: 4; with --live_shares 20; 3b: 128)")
    parser.add_argument("--generations", type=int, help="completions of a row (8)")
    parser.add_argument("--micro_batch", type=int, help="completions of a pass (all; 3b: the recipe's)")
    parser.add_argument("--image_tokens", type=int, help="of an image, about (3b: 1024; small: 256; testbed: 4)")
    parser.add_argument("--trainers", nargs="+", choices=[*NAMES], help="(stock vade; with --live_shares one more)")
    parser.add_argument("--live_shares", type=float, nargs="+", help="shares of the groups that have a gradient")
    parser.add_argument("--beta", type=float, help="of the KL term (0; 3b: the recipe's)")
    parser.add_argument("--repeats", type=int, default=2, help="runs of each trainer (2)")
    parser.add_argument("--batches", type=int, default=3, help="that count in each run (3; with --live_shares 1)")
    parser.add_argument("--warmup", type=int, default=1, help="generation batches before them (1)")
    parser.add_argument("--settings", type=json.loads, default={}, metavar="JSON", help="more of the trainers'")
    parser.add_argument("--json", type=Path, metavar="FILE", help="append the figures of each run, a line each")
    options = parser.parse_args(arguments)
    options.recipe = str(RECIPE) if options.shape == "3b" else None
    for name, value in by_default(options).items():
        if getattr(options, name, None) is None:
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
            f"{options.micro_batch}. Choose --rows, --generations and --micro_batch so that they do."
        )
    return options


def of_live_shares(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Refuse what does not go with live shares, and choose the trainers."""
    if options.engine != "hf":
        parser.error("--live_shares generates nothing, so it goes without --engine")
    from .given import live_groups  # trl and so vLLM are left to the processes of the runs otherwise

    options.engine, options.batches = "given", 1
    for share in options.live_shares:
        try:
            live_groups(options.rows, share)
        except ValueError as error:
            parser.error(str(error))
    exact = not options.settings.get("beta") and options.updates == 1
    options.trainers = options.trainers or ["stock", "vade", "lossless" if exact else "live"]


def by_default(options: argparse.Namespace) -> dict[str, Any]:
    if options.recipe is None:
        rows = 20 if options.live_shares else 4 if options.shape == "small" else 8
        longest = 64 if options.live_shares else 12
        return {"rows": rows, "generations": 8, "updates": 1, "completion_tokens": longest, "image_tokens": 256}
    recipe = yaml.safe_load(Path(options.recipe).read_text())
    micro_batch, generations = recipe["per_device_train_batch_size"], recipe["num_generations"]
    return {
        "rows": micro_batch * recipe["steps_per_generation"] // generations,
        "generations": generations,
        "micro_batch": micro_batch,
        "updates": recipe["steps_per_generation"] // recipe["gradient_accumulation_steps"],
        "completion_tokens": recipe["max_completion_length"],
        "image_tokens": 1024,
    }


def in_a_process(*arguments: str, engine: str) -> None:
    """Run a module of this folder as a command; where vLLM has no GPU, as the tests run its CPU build."""
    environment = dict(os.environ)
    command, path = [sys.executable, "-m"], [str(ROOT), environment.get("PYTHONPATH", "")]
    if engine == "colocate" and not torch.cuda.is_available():
        from tests.engines.on_cpu import ENVIRONMENT

        environment |= ENVIRONMENT
        command, path = [*command, "tests.engines.on_cpu"], [ENVIRONMENT["PYTHONPATH"]]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    done = subprocess.run([*command, *arguments], env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{shlex.join(arguments)} ended with {done.returncode}:\n{done.stderr[-6000:]}")


def run_live_shares(options: argparse.Namespace, model: str) -> Iterator[dict[str, Any]]:
    """The generation batches of every repeat, live share and trainer, in turn; see `measure`."""
    from .live_shares import measure
    from .one_run import versions

    for batch in measure({**vars(options), "model": model}):
        yield batch | {"versions": versions()}
        print(f"repeat {batch['repeat']}  {batch['share']:.0%} live  {NAMES[batch['trainer']]}", flush=True)


def run_all(options: argparse.Namespace, model: str) -> Iterator[dict[str, Any]]:
    """The runs of every trainer and repeat, in turn."""
    figures = Path(model) / "figures.json"
    for repeat in range(options.repeats):
        for trainer in in_turn(options.trainers, repeat):
            one = {name: value for name, value in vars(options).items() if name != "json"}
            one |= {"trainer": trainer, "model": model}
            in_a_process("eval.benchmarks.step.one_run", json.dumps(one), str(figures), engine=options.engine)
            run = {"options": one, "repeat": repeat, **json.loads(figures.read_text())}
            yield run
            seconds = statistics.median(total(batch) for batch in run["batches"])
            print(f"repeat {repeat + 1}/{options.repeats}  {NAMES[trainer]}: {seconds:.2f} s a generation batch")


def main() -> None:
    options = parse()
    runs = []
    with tempfile.TemporaryDirectory() as model:
        if options.shape != "testbed":
            sizes = (str(ROWS_PER_BATCH_OF_DATA * options.rows), str(options.image_tokens))
            in_a_process("eval.benchmarks.step.models", options.shape, model, *sizes, engine=options.engine)
        for run in (run_live_shares if options.live_shares else run_all)(options, model):
            runs.append(run)
            if options.json:
                with options.json.open("a") as file:
                    file.write(json.dumps(run) + "\n")
    print(f"\n{(live_table if options.live_shares else table)(runs)}\n")
    print(
        f"Median (lowest to highest) of {options.repeats} x {options.batches} generation batches: {options.rows} rows "
        f"x {options.generations} completions of {'at most ' * bool(options.live_shares)}{options.completion_tokens} "
        f"tokens, images of about {options.image_tokens} tokens, micro-batches of {options.micro_batch}, updates: "
        f"{options.updates}."
    )
    print(", ".join(f"{name} {version}" for name, version in runs[0]["versions"].items()))
    print(f"python -m eval.benchmarks.step {shlex.join(sys.argv[1:])}")


if __name__ == "__main__":
    main()
