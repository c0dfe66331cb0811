"""Posteriors as a data-set repository on the Hub, or as a local folder of the same layout.

    README.md                                the card; its `configs` are `latest` (the default) and one for each step
    step-000100/vade_posterior.safetensors   the posterior of optimiser step 100, as in the checkpoint of the run
    step-000100/posterior.parquet            its table with names and tasks, for people and `load_dataset`

The newest step is the highest one. A push of a step deletes later ones in its commit: they are of an abandoned run.
"""

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

import pyarrow.parquet as pq
from huggingface_hub import DatasetCard, DatasetCardData

from trl_vade.errors import ConfigurationError
from trl_vade.files import packaged
from trl_vade.samplers.snapshot import POSTERIOR_FILE

from ..cards import markdown_table
from ..uploading import HubTarget, branch_of, ensure_repo, send_folder, with_retries
from .facts import fact_rows, hub_link, sample_rows, text_histogram
from .table import PosteriorTable, arrow_of

TABLE_FILE = "posterior.parquet"


def step_name(step: int) -> str:
    """Return the name of the folder and configuration of an optimiser step: "step-000100"."""
    return f"step-{step:06d}"


def step_named(name: str) -> int | None:
    """Return the step of the name of a folder, or None if it is no such name."""
    found = re.fullmatch("step-([0-9]{6}|[1-9][0-9]{6,17})", name)
    return int(found[1]) if found else None


def steps_in(files: Iterable[str]) -> list[int]:
    """Return, in ascending order, the steps whose posteriors are among the paths `files`. The last is the newest."""
    found = (step_named(file.removesuffix(f"/{POSTERIOR_FILE}")) for file in files)  # any other path is no such name
    return sorted(step for step in found if step is not None)


def stage_posterior(folder: str | os.PathLike[str], snapshot_file: str | Path, table: PosteriorTable) -> Path:
    """Write a step into `folder`, in the layout of the repository: a copy of the snapshot, and its table."""
    place = Path(folder) / step_name(table.metadata["global_step"])
    place.mkdir(parents=True, exist_ok=True)
    pq.write_table(arrow_of(table), place / TABLE_FILE)
    shutil.copyfile(snapshot_file, place / POSTERIOR_FILE)
    return place


def publish_posterior(snapshot_file: str | Path, table: PosteriorTable, target: HubTarget) -> str:
    """Add a step and the card to a data-set repository, which is created if needed, and return the commit's address.

    Later steps are deleted; the history keeps them. The errors are `HubError`, and `ConfigurationError` for a table
    without rows.
    """
    if not len(table):
        raise ConfigurationError("The posterior has no rows, as none was scored yet. Take a later checkpoint.")
    target, message = ensure_repo(target), f"Posterior of optimiser step {table.metadata['global_step']}"

    def card(there: list[str]) -> str:
        return posterior_card(table, steps_in(there), target.repo_id, target.revision)

    with tempfile.TemporaryDirectory() as folder:
        stage_posterior(folder, snapshot_file, table)
        info = with_retries(lambda: send_folder(target, Path(folder), message, card), target)
    return str(info.commit_url)


def posterior_card(table: PosteriorTable, steps: Iterable[int], repo_id: str, revision: str | None = None) -> str:
    """Return the text of the card, README.md, of a repository whose newest posterior is `table`.

    `steps` are those in the repository, with or without that of `table`; later ones are taken for deleted.
    """
    facts, given = table.metadata, {*steps, table.metadata["global_step"]}
    names = [step_name(step) for step in sorted(given, reverse=True) if step <= facts["global_step"]]
    # datasets 5.2 caches a local folder by its name and the configs, not by its files. Without a digest in these,
    # `load_dataset` could return the rows of another folder of the same name.
    content = [table.sample_key, table.alpha, table.beta, str((table.sample_id, table.task)).encode()]
    about = {"description": hashlib.sha256(b"".join(content)).hexdigest()}
    card = DatasetCard.from_template(
        DatasetCardData(
            pretty_name="VADE posterior",
            tags=["trl-vade", "vade", "posterior", "grpo", "trl", "pass-rates"],
            configs=[
                {"config_name": "latest", "default": True, **about, "data_files": f"{names[0]}/{TABLE_FILE}"},
                *({"config_name": name, **about, "data_files": f"{name}/{TABLE_FILE}"} for name in names),
            ],
        ),
        template_path=str(packaged("model_cards/posterior.md")),
        repo_id=repo_id,
        branch=branch_of(revision),
        step_name=names[0],
        facts=facts,
        size=len(table),
        facts_table=markdown_table(["fact", "value"], fact_rows(table)),
        histogram=text_histogram(table),
        rows_table=markdown_table(["row", "pass rate", "counts", "visits"], sample_rows(table)),
        dataset=facts["dataset"] if hub_link(facts.get("dataset"), "datasets/") else None,
    )
    return str(card)
