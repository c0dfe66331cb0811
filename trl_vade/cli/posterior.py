"""`trl-vade posterior`: what a run found hard, looked at and shared. Each command imports what it needs as it runs."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from trl_vade.errors import ConfigurationError, SnapshotMismatchError

from .data_sets import load_splits, pick_split

LOGIN = (
    "A SOURCE is a checkpoint, an output directory, a folder of steps or one step of it, or a repository of the "
    "Hub, user/repo or user/repo@revision. The Hub's login is that of `hf auth login`, or HF_TOKEN; no command takes "
    "a token."
)
app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Look at posteriors, the pass rates that a run learned, and share them on the Hub.",
    epilog=LOGIN,
)

Sort = Literal["pass_rate", "visits", "last_step", "alpha", "beta", "index", "sample_id"]
Source = Annotated[str, typer.Argument(metavar="SOURCE", help="A folder, or user/repo[@revision].")]
Revision = Annotated[str | None, typer.Option("--revision", help="Branch or commit on the Hub, or a step's name.")]
Step = Annotated[int | None, typer.Option("--step", min=0, help="Optimiser step; the newest one without it.")]
Rows = Annotated[int, typer.Option("--rows", min=0, help="Most rows in a table.")]
AsJSON = Annotated[bool, typer.Option("--json", help="Print JSON for other programs, with nothing around it.")]


@app.command(epilog=LOGIN, short_help="Print what a run found hard and easy.")
def show(
    source: Source,
    revision: Revision = None,
    step: Step = None,
    rows: Rows = 20,
    sort: Annotated[Sort, typer.Option("--sort", help="Show the rows lowest and highest in it.")] = "pass_rate",
    as_json: AsJSON = False,
) -> None:
    """Print the facts of a run, a histogram of its pass rates, and its hardest and easiest rows.

    A run's own folder also has their ids and questions, in vade_rows.json; elsewhere rows are named by hashes.

    \b
    Examples:
      trl-vade posterior show qwen-vade
      trl-vade posterior show you/vade-posterior --step 100 --sort visits
      trl-vade posterior show you/vade-posterior --json | jq .mean_pass_rate
    """
    from trl_vade.hub.posteriors.repository import load_posterior

    from .showing import both_ends, print_posterior, summarise_posterior

    table = load_posterior(source, revision, step=step)
    summary = summarise_posterior(table)
    first, last = both_ends(table, sort, rows, source)
    if as_json:
        told = {**summary, "facts": table.metadata, "sorted_by": sort, "lowest": first, "highest": last}
        typer.echo(json.dumps(told, indent=2, allow_nan=False))
    else:
        print_posterior(table, summary, sort, first, last)


@app.command(epilog=LOGIN, short_help="Publish a run's posterior on the Hub.")
def push(
    output_dir: Annotated[Path, typer.Argument(metavar="OUTPUT_DIR", help="A checkpoint, a run's folder or a step.")],
    repo: Annotated[str, typer.Argument(metavar="REPO", help="Data-set repository: user/name, or name for your own.")],
    private: Annotated[bool | None, typer.Option("--private/--public", help="Of a repository that is made.")] = None,
    revision: Annotated[str | None, typer.Option("--revision", help="Branch; it is made if it is missing.")] = None,
    dataset: Annotated[str | None, typer.Option("--dataset", help="The run's data, for ids and tasks.")] = None,
    dataset_config: Annotated[str | None, typer.Option("--dataset_config", help="Its configuration.")] = None,
    split: Annotated[str, typer.Option("--split", help="Its split.")] = "train",
    task_column: Annotated[str | None, typer.Option("--task_column", help="Its tasks; `task` if there.")] = None,
) -> None:
    """Publish the posterior of a run as a step of a data-set repository.

    Without --dataset the rows are named by the hashes that the run kept of them. With --dataset, a folder or
    user/name[@revision], they get their `id` and `task`. It must be the data set of the run. Everybody who can
    read the repository can then read these.

    A step that is there already is replaced, and later ones are deleted: the repository shows one run, and its history
    keeps the rest.

    \b
    Examples:
      trl-vade posterior push qwen-vade you/vade-posterior --private
      trl-vade posterior push qwen-vade/checkpoint-100 you/vade-posterior \\
        --dataset you/your-questions --split train
    """
    from trl_vade.hub.posteriors.repository import publish_posterior
    from trl_vade.hub.uploading import HubTarget
    from trl_vade.samplers.snapshot import POSTERIOR_FILE

    file = output_dir / POSTERIOR_FILE
    table = _named_table(file, dataset, dataset_config, split, task_column)
    typer.echo(f"Published: {publish_posterior(file, table, HubTarget(repo, 'dataset', revision, private))}")


@app.command(epilog=LOGIN, short_help="Copy a posterior into a folder.")
def pull(
    source: Source,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="It gets a folder for the step.")],
    revision: Revision = None,
    step: Step = None,
) -> None:
    """Copy a posterior into a folder: the file that a run starts from, and a table for other programs.

    A run starts from it with --vade_posterior_init FOLDER. The table is posterior.parquet.

    \b
    Examples:
      trl-vade posterior pull you/vade-posterior posterior
      trl-vade posterior pull qwen-vade/checkpoint-100 posterior
    """
    from trl_vade.hub.posteriors.repository import pull_posterior

    typer.echo(f"Written: {pull_posterior(source, folder, revision, step=step)}")


def _named_table(file: Path, name: str | None, config: str | None, split: str, task_column: str | None) -> Any:
    """Return the posterior in `file`, with names and tasks of the data set `name`, which must have its rows."""
    from trl_vade.data.row_keys import dataset_fingerprint, sample_keys
    from trl_vade.data.row_views import names_and_tasks
    from trl_vade.hub.posteriors.table import named_dataset, posterior_table
    from trl_vade.samplers.snapshot import load_snapshot

    snapshot = load_snapshot(file)
    if name is None:
        return posterior_table(snapshot)
    place, _, revision = (name, "", "") if Path(name).exists() else name.partition("@")
    dataset = pick_split(load_splits(place, config, revision=revision or None), "--split", split)
    if task_column is not None and task_column not in dataset.column_names:
        columns = ", ".join(dataset.column_names)
        raise ConfigurationError(f"--task_column {task_column!r}: {name} has the columns {columns}.")
    keys, _ = sample_keys(dataset)
    here, saved = dataset_fingerprint(keys), snapshot.metadata.get("dataset_fingerprint")
    if here != saved:
        raise SnapshotMismatchError(
            f"The split {split} of --dataset {name} ({len(dataset):,} rows) is not what the posterior is about: the "
            f"fingerprints are {here[:12]}... and {str(saved)[:12]}..., so names would go to the wrong rows. "
            "Give the data set of that run, without the rows that vade_max_prompt_length dropped, or leave it out."
        )
    facts = {fact: value for fact, value in named_dataset(name).items() if value is not None}
    visited = snapshot.sampler_state["posterior"]["sample_index"]
    return posterior_table(snapshot, facts=facts, **names_and_tasks(dataset, keys, visited, task_column or "task"))
