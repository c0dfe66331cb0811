"""`trl-vade`: training, plans, reports, evaluations, posteriors and variants on the command line.

What a command needs is imported when it runs, so `trl-vade --help` loads neither torch nor TRL. No command takes a
token: the Hub's client reads the login of `hf auth login`, or HF_TOKEN.
"""

import io
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from trl_vade.errors import VADEError
from trl_vade.version import __version__

from . import evaluate as cli_evaluate
from .posterior import commands as cli_posterior
from .variants import command as cli_variants


class Commands(TyperGroup):
    """A group whose commands end with a message and exit code 1 where the package or the disk refuses."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; an error of the package or of the disk is printed and ends it with exit code 1."""
        if isinstance(sys.stdout, io.TextIOWrapper):  # a name that its encoding does not have must not end a command
            sys.stdout.reconfigure(errors="backslashreplace")
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # `trl-vade ... | head`: typer ends that quietly
            raise
        except (VADEError, OSError) as error:
            typer.echo(f"Error: {error}", err=True)
            raise typer.Exit(1) from error


app = typer.Typer(
    cls=Commands,
    name="trl-vade",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # it would read "[report]" in `pip install "trl-vade[report]"` as a style
    pretty_exceptions_enable=False,  # a traceback with the values of variables could show a token
    epilog="Log in to the Hub with `hf auth login`, or set HF_TOKEN. No command takes a token.",
)
app.command(name="evaluate", short_help="Evaluate a model on benchmarks.")(cli_evaluate.evaluate)
app.command(name="variants", short_help="Build easier and harder variants of a data set.")(cli_variants.variants)
app.add_typer(cli_posterior.app, name="posterior", short_help="Look at posteriors; to the Hub and back.")
AS_THEY_ARE = {"ignore_unknown_options": True, "allow_extra_args": True}


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"trl-vade {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Train with GRPO on chosen prompts, plan recipes, report on runs, share posteriors, build variants."""


@app.command(
    context_settings=AS_THEY_ARE,
    options_metavar="[TRAINING ARGUMENTS]",
    short_help="Train by a recipe; without arguments the quickstart.",
)
def train(context: typer.Context) -> None:
    """Train with GRPO on prompts that VADE chooses. Without arguments it runs the quickstart on a CPU.

    Takes TRL's training arguments (model, data, GRPO), the settings vade_* of VADEGRPOConfig, and those below. A flag
    overrides the value of a recipe. Refused settings exit with code 1.

    \b
    --recipe NAME               a recipe of the package: quickstart,
                                qwen2_5_vl_{3b,7b}_{grpo,gspo}_{vade,vanilla}
    --config FILE               a recipe of your own, in YAML
    --accelerate_config NAME    start the processes by accelerate's launcher
                                with this configuration: fsdp2,
                                fsdp2_multi_node, deepspeed_zero2,
                                deepspeed_zero3, or a file. Options of
                                `accelerate launch` go with it. Without it:
                                one process, or those of a launcher around it
    --plan                      print what the recipe means; train nothing
    --reward_funcs NAMES        of trl.rewards, or import paths of your own
    --vade_sampler NAME         thompson; uniform is vanilla GRPO; see --help_all
    --resume_from_checkpoint true
                                go on from the newest complete checkpoint
    --help_all                  every option

    \b
    Examples:
      trl-vade train
      trl-vade train --vade_sampler uniform --max_steps 20
      trl-vade train --recipe qwen2_5_vl_3b_grpo_vade \\
        --accelerate_config fsdp2 --num_processes 8
      trl-vade train --config recipe.yaml --resume_from_checkpoint true
    """
    from .start import start

    start(["--help" if word in ("--help_all", "--help-all") else word for word in context.args])


@app.command(
    context_settings=AS_THEY_ARE,
    no_args_is_help=True,
    options_metavar="[TRAINING ARGUMENTS]",
    short_help="Print what a recipe means; train nothing.",
)
def plan(context: typer.Context) -> None:
    """Print what a recipe means (batches, updates, rollouts, GPU memory) and train nothing.

    Takes the arguments of `trl-vade train` and those below. Only the config.json of
    the model is read. Neither a GPU nor a launcher is needed. Settings that do not divide or cannot fit exit with
    code 1. The memory is an estimate, and was not yet compared with a measurement on a GPU.

    \b
    --recipe NAME               a recipe of the package
    --plan_accelerate NAME      accelerate configuration to plan for, a file or
    --accelerate_config NAME    a name such as fsdp2: the number of processes
                                and how they shard (default: WORLD_SIZE or 1
                                processes, which share nothing)
    --plan_processes N          number of processes, in place of that one
    --plan_rows N               rows of the training split (default: the data
                                set is loaded from its folder)
    --plan_prompt_tokens N      tokens of the longest prompt, with its images
                                (default: vade_max_prompt_length, or
                                vllm_max_model_length - max_completion_length)
    --plan_image_tokens N       image tokens of a row, on average (1024)
    --plan_gpu_memory GIB       memory of a GPU (139: an H200)

    \b
    Examples:
      trl-vade plan --config recipe.yaml --plan_rows 8524
      trl-vade plan --recipe qwen2_5_vl_3b_grpo_vade --plan_rows 8524 \\
        --plan_accelerate fsdp2 --num_generations 16
    """
    from .plan.command import print_plan

    print_plan(context.args)


@app.command(short_help="Report on a run: a page, a picture, a table.")
def report(
    output_dir: Annotated[
        Path, typer.Argument(metavar="OUTPUT_DIR", help="Output directory of a finished, running or killed run.")
    ],
    compare: Annotated[
        Path | None,
        typer.Option("--compare", metavar="OTHER_RUN", help="Output directory of a run to show beside it."),
    ] = None,
    as_json: cli_posterior.AsJSON = False,
) -> None:
    """Write vade_report.html, vade_report.png and vade_summary.json into the output directory, and print a table.

    The page works without a network. With --compare its curves, figures and settings stand beside those of another
    run, such as vanilla GRPO. Posterior, rewards and scores are those of the newest checkpoint; the choices are the
    latest. If a file is missing or broken, the message names it. The curves need matplotlib: pip install
    "trl-vade[report]".

    \b
    Examples:
      trl-vade report vade-quickstart-thompson
      trl-vade report vade-quickstart-thompson \\
        --compare vade-quickstart-uniform
      trl-vade report vade-quickstart-thompson --json | jq .validation
    """
    from trl_vade.selection.report.summary import summary_rows
    from trl_vade.selection.report.verdict import verdict
    from trl_vade.selection.report.writing import PAGE_FILE, REPORT_FILE, SUMMARY_FILE, write_report

    from .tables import print_table

    summary = write_report(output_dir, compare=compare)
    if as_json:
        typer.echo(json.dumps(summary, indent=2, allow_nan=False))
        return
    print_table("What the sampler did", summary_rows(summary))
    for sentence in verdict(summary):
        typer.echo(sentence)
    for name, file in (("Page", PAGE_FILE), ("Picture", REPORT_FILE), ("Summary", SUMMARY_FILE)):
        if (output_dir / file).exists():
            typer.echo(f"{name}: {output_dir / file}")


def main() -> None:
    """Run the command line."""
    app(prog_name="trl-vade")


if __name__ == "__main__":
    main()
