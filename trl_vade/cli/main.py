"""`trl-vade`: training, plans, reports, evaluations and posteriors on the command line.

What a command needs is imported when it runs: `trl-vade --help` loads neither torch nor TRL. No command takes a token.
"""

import json
from pathlib import Path
from typing import Annotated

import typer

from trl_vade.version import __version__

from . import evaluate as cli_evaluate
from . import posterior as cli_posterior
from .commands import Commands, TrainingCommand

app = typer.Typer(
    cls=Commands,
    name="trl-vade",
    no_args_is_help=True,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "token_normalize_func": lambda word: word.replace("-", "_"),  # --output-path is --output_path
    },
    rich_markup_mode=None,  # it would read "[report]" in `pip install "trl-vade[report]"` as a style
    pretty_exceptions_enable=False,  # a traceback with the values of variables could show a token
    epilog="Log in to the Hub with `hf auth login`, or set HF_TOKEN. No command takes a token.",
)
app.command(name="evaluate", short_help="Evaluate a model on benchmarks.")(cli_evaluate.evaluate)
app.add_typer(cli_posterior.app, name="posterior", short_help="Look at posteriors; to the Hub and back.")
HelpAll = Annotated[bool, typer.Option("--help-all", help="Print every option with its whole text and exit.")]


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"trl-vade {__version__}")
        raise typer.Exit


Version = Annotated[bool, typer.Option("--version", callback=_print_version, help="Print the version and exit.")]


@app.callback()
def root(version: Version = False) -> None:
    """Train with GRPO on chosen prompts, plan recipes, report on runs, share posteriors.

    Exit codes: 0, done; 2, what was given cannot be used (an argument, a setting, a name); 1, something failed.

    \b
    Examples:
      trl-vade train
      trl-vade plan --recipe qwen2_5_vl_3b_grpo_vade
      trl-vade report vade-quickstart-thompson
    """


@app.command(cls=TrainingCommand, short_help="Train by a recipe; without arguments the quickstart.")
def train(context: typer.Context, help_all: HelpAll = False) -> None:
    """Train with GRPO on prompts that VADE chooses. Without arguments it runs the quickstart on a CPU.

    Takes TRL's training arguments (model, data, GRPO) and the settings vade_* of VADEGRPOConfig. A flag overrides the
    value of a recipe. Most runs set some of these; --help-all prints every option:

    \b
      --recipe, --config, --accelerate_config, --num_processes
      --model_name_or_path, --dataset_name, --reward_funcs, --output_dir
      --vade_preset, --vade_sampler, --vade_success_reward
      --num_generations, --per_device_train_batch_size, --max_steps
      --use_peft, --use_vllm, --save_steps, --resume_from_checkpoint
      --push_to_hub, --hub_model_id

    \b
    Examples:
      trl-vade train
      trl-vade train --vade_sampler uniform --max_steps 20
      trl-vade train --recipe qwen2_5_vl_3b_grpo_vade \\
        --accelerate_config fsdp2 --num_processes 8
      trl-vade train --config recipe.yaml --resume_from_checkpoint auto
    """
    from .train import run

    run(context.args)


@app.command(cls=TrainingCommand, no_args_is_help=True, short_help="Print what a recipe means; train nothing.")
def plan(context: typer.Context, help_all: HelpAll = False, as_json: cli_posterior.AsJSON = False) -> None:
    """Print what a recipe means (batches, updates, rollouts) and train nothing.

    Takes the arguments of `trl-vade train`. Neither a model, a GPU nor a launcher is needed. Settings that do not
    divide are refused. For the memory of weights and optimiser see `accelerate estimate-memory`.

    \b
    Examples:
      trl-vade plan --config recipe.yaml --plan_rows 8524
      trl-vade plan --recipe qwen2_5_vl_3b_grpo_vade \\
        --accelerate_config fsdp2 --num_generations 16
    """
    from .train import run

    run(context.args, plan=True, as_json=as_json)


@app.command(short_help="Report on a run: a page, a picture, a table.")
def report(
    output_dir: Annotated[
        Path, typer.Argument(metavar="OUTPUT_DIR", help="Output directory of a finished, running or killed run.")
    ],
    as_json: cli_posterior.AsJSON = False,
) -> None:
    """Write vade_report.html, vade_report.png and vade_summary.json into the output directory, and print a table.

    The page works without a network. Rewards and scores are those of the newest checkpoint; the choices are the
    latest. If a file is missing or broken, the message names it. The curves need matplotlib: pip install
    "trl-vade[report]".

    \b
    Examples:
      trl-vade report vade-quickstart-thompson
      trl-vade report vade-quickstart-thompson --json | jq .validation
    """
    from trl_vade.selection.report.summary import summary_rows, verdict
    from trl_vade.selection.report.writing import PAGE_FILE, REPORT_FILE, SUMMARY_FILE, write_report

    from .commands import print_table

    summary = write_report(output_dir)
    if as_json:
        typer.echo(json.dumps(summary, indent=2, allow_nan=False))
        return
    print_table("What the sampler did", summary_rows(summary))
    for sentence in verdict(summary):
        typer.echo(sentence)
    for name, file in (("Page", PAGE_FILE), ("Picture", REPORT_FILE), ("Summary", SUMMARY_FILE)):
        if (output_dir / file).exists():
            typer.echo(f"{name}: {output_dir / file}")


def main(arguments: list[str] | None = None) -> None:
    """Run the command line, with these arguments or those of the process."""
    app(arguments, prog_name="trl-vade")
