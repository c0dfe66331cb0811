"""`trl-vade posterior`: what a run found hard, looked at and shared. Each command imports what it needs as it runs."""

import json
from pathlib import Path
from typing import Annotated

import typer

LOGIN = (
    "A SOURCE is a checkpoint, an output directory, a folder of steps or one step of it, or a repository of the "
    "Hub, user/repo or user/repo@revision. The login is that of `hf auth login`, or HF_TOKEN."
)
app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Look at posteriors, the pass rates that a run learned, and share them on the Hub.",
    epilog=LOGIN,
)

AsJSON = Annotated[bool, typer.Option("--json", help="Print JSON for other programs, with nothing around it.")]


@app.command(epilog=LOGIN, short_help="Print what a run found hard and easy.")
def show(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A folder, or user/repo[@branch, commit or step].")],
    step: Annotated[int | None, typer.Option("--step", min=0, help="Optimiser step; else the newest one.")] = None,
    rows: Annotated[int, typer.Option("--rows", min=0, help="Most rows in a table.")] = 20,
    as_json: AsJSON = False,
    export: Annotated[Path | None, typer.Option("--export", help="Parquet file to write the pass rates to.")] = None,
) -> None:
    """Print the facts of a run, a histogram of its pass rates, and its hardest and easiest rows.

    A run's own folder also has their ids and questions, in vade_rows.json; elsewhere rows are named by hashes.
    --export writes a column `pass_rate` in the order of the training set for the next run; rows without a score are
    empty.

    \b
    Examples:
      trl-vade posterior show qwen-vade
      trl-vade posterior show you/vade-posterior --step 100 --json | jq .facts
      trl-vade posterior show qwen-vade --export rates.parquet
    """
    from trl_vade.hub.posteriors.repository import load_posterior

    from .showing import both_ends, export_rates, print_posterior, summarise_posterior

    table = load_posterior(source, step=step)
    summary = summarise_posterior(table)
    if export:
        export_rates(table, export)
    first, last = both_ends(table, rows, source)
    if as_json:
        told = {**summary, "facts": table.metadata, "lowest": first, "highest": last}
        typer.echo(json.dumps(told, indent=2, allow_nan=False))
    else:
        print_posterior(table, summary, first, last)


@app.command(epilog=LOGIN, short_help="Publish a run's posterior on the Hub.")
def push(
    output_dir: Annotated[Path, typer.Argument(metavar="OUTPUT_DIR", help="A checkpoint, a run's folder or a step.")],
    repo: Annotated[str, typer.Argument(metavar="REPO", help="Data-set repository: user/name, or name for your own.")],
    private: Annotated[bool | None, typer.Option("--private/--public", help="Of a repository that is made.")] = None,
    revision: Annotated[str | None, typer.Option("--revision", help="Branch; it is made if it is missing.")] = None,
) -> None:
    """Publish the posterior of a run as a step of a data-set repository.

    Rows are named by the hashes that the run kept of them. A run with push_to_hub publishes their ids and tasks, too.
    A step that is there already is replaced, and later ones are deleted: it becomes the newest. The history of the
    repository keeps the rest.

    \b
    Examples:
      trl-vade posterior push qwen-vade you/vade-posterior --private
      trl-vade posterior push qwen-vade/checkpoint-100 you/vade-posterior
    """
    from trl_vade.hub.posteriors.repository import publish_posterior
    from trl_vade.hub.posteriors.table import posterior_table
    from trl_vade.hub.uploading import HubTarget
    from trl_vade.samplers.snapshot import POSTERIOR_FILE, load_snapshot

    file = output_dir / POSTERIOR_FILE
    table = posterior_table(load_snapshot(file))
    typer.echo(f"Published: {publish_posterior(file, table, HubTarget(repo, 'dataset', revision, private))}")
