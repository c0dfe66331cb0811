"""Posteriors as a data-set repository on the Hub, or as a local folder of the same layout.

    README.md                                the card; its `configs` are `latest` (the default) and one for each step
    step-000100/vade_posterior.safetensors   the posterior of optimiser step 100, as in the checkpoint of the run
    step-000100/posterior.parquet            its table with names and tasks, for people and `load_dataset`

The newest step is the highest one. A push of a step deletes later ones in its commit: they are of an abandoned run.
"""

import hashlib
import io
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
from ..uploading import HubTarget, branch_of, ensure_repo, is_hub_id, push_folder
from .facts import dataset_link, fact_rows, initial_posterior_kind, sample_rows, text_histogram
from .table import PosteriorTable, arrow_of

TABLE_FILE = "posterior.parquet"
LATEST = "latest"  # name of the configuration of the newest step


def step_name(step: int) -> str:
    """Return the name of the folder and configuration of an optimiser step: "step-000100"."""
    return f"step-{step:06d}"


def step_named(name: str) -> int | None:
    """Return the step of the name of a folder, or None if it is no such name."""
    return int(name[5:]) if re.fullmatch("step-[0-9]{6,18}", name) and step_name(int(name[5:])) == name else None


def steps_in(files: Iterable[str]) -> list[int]:
    """Return, in ascending order, the steps whose posteriors are among the paths `files`. The last is the newest."""
    places = (file.removesuffix(f"/{POSTERIOR_FILE}") for file in files if file.endswith(f"/{POSTERIOR_FILE}"))
    return sorted(step for place in places if (step := step_named(place)) is not None)


def stage_posterior(folder: str | Path, snapshot_file: str | Path, table: PosteriorTable) -> None:
    """Write a step into `folder`, in the layout of the repository: a copy of the snapshot, and its table."""
    place = Path(folder) / step_name(table.metadata["global_step"])
    place.mkdir(parents=True, exist_ok=True)
    pq.write_table(arrow_of(table), place / TABLE_FILE)
    shutil.copyfile(snapshot_file, place / POSTERIOR_FILE)


def publish_posterior(snapshot_file: str | Path, table: PosteriorTable, target: HubTarget) -> str:
    """Add a step and the card to a data-set repository, which is created if needed, and return the commit's address.

    Later steps are deleted; the history keeps them. The errors are `HubError`, and `ConfigurationError` for a table
    without rows.
    """
    step = table.metadata["global_step"]
    if not len(table):
        raise ConfigurationError("The posterior has no rows, as none was scored yet. Take a later checkpoint.")
    target = ensure_repo(target)

    def card(there: list[str]) -> str:
        return posterior_card(table, steps_in(there), target.repo_id, target.revision)

    with tempfile.TemporaryDirectory() as folder:
        stage_posterior(folder, snapshot_file, table)
        return str(push_folder(target, Path(folder), f"Posterior of optimiser step {step}", card).commit_url)


def posterior_card(table: PosteriorTable, steps: Iterable[int], repo_id: str, revision: str | None = None) -> str:
    """Return the text of the card, README.md, of a repository whose newest posterior is `table`.

    `steps` are those in the repository, with or without that of `table`; later ones are taken for deleted.
    """
    step, facts = table.metadata["global_step"], table.metadata
    of_model = f" of {facts['base_model']}" if is_hub_id(facts.get("base_model")) else ""
    names = [step_name(one) for one in sorted({step, *(one for one in steps if one < step)}, reverse=True)]
    paths = {name: f"{name}/{TABLE_FILE}" for name in names}
    # datasets 5.2 caches a local folder by its name and the configs, not by its files. Without a digest in these,
    # `load_dataset` could return the rows of another folder of the same name.
    pq.write_table(arrow_of(table), content := io.BytesIO())
    digest = hashlib.sha256(content.getvalue()).hexdigest()
    data = DatasetCardData(
        pretty_name=f"VADE posterior{of_model}",
        tags=["trl-vade", "vade", "posterior", "grpo", "trl", "pass-rates"],
        configs=[
            {"config_name": name}
            | ({"default": True} if name == LATEST else {})
            | {"description": digest, "data_files": [{"split": "train", "path": path}]}
            for name, path in [(LATEST, paths[names[0]]), *paths.items()]
        ],
    )
    sampler = facts.get("sampler") if re.fullmatch(r"[\w.:]{1,200}", str(facts.get("sampler"))) else None
    card = DatasetCard.from_template(
        data,
        template_path=str(packaged("model_cards/posterior.md")),
        repo_id=repo_id,
        step=step,
        step_name=names[0],
        branch=branch_of(revision),
        of_model=of_model,
        facts_table=markdown_table(["", ""], fact_rows(table)),
        histogram=text_histogram(table),
        rows_table=markdown_table(*sample_rows(table)),
        steps_table=markdown_table(["step", "table"], [[name, f"`{path}`"] for name, path in paths.items()]),
        has_task=table.task is not None,
        dataset=facts["dataset"] if dataset_link(facts) else None,
        sampler=sampler if isinstance(sampler, str) else None,  # any other one the card cannot describe
        **initial_posterior_kind(facts),
    )
    return str(card)
