"""Posteriors as a data-set repository on the Hub, or as a local folder of the same layout: published and found.

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
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
from huggingface_hub import DatasetCard, DatasetCardData, HfApi, hf_hub_download, snapshot_download

from trl_vade.errors import ConfigurationError, SnapshotCorruptError, SnapshotNotFoundError
from trl_vade.files import packaged
from trl_vade.samplers.snapshot import POSTERIOR_FILE, load_snapshot

from ..card_parts import markdown_table
from ..uploading import FAILURES, HubTarget, branch_of, ensure_repo, in_one_line, is_hub_id, send_folder, with_retries
from .table import PosteriorTable, arrow_of, fact_rows, hub_link, posterior_table, sample_rows, text_histogram

TABLE_FILE = "posterior.parquet"
Source = str | os.PathLike[str]


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


def stage_posterior(folder: Source, snapshot_file: str | Path, table: PosteriorTable) -> Path:
    """Write a step into `folder`, in the layout of the repository: a copy of the snapshot, and its table."""
    place = Path(folder) / step_name(table.metadata["global_step"])
    place.mkdir(parents=True, exist_ok=True)
    pq.write_table(arrow_of(table), place / TABLE_FILE)
    shutil.copyfile(snapshot_file, place / POSTERIOR_FILE)
    return place


def publish_posterior(snapshot_file: str | Path, table: PosteriorTable, target: HubTarget) -> str:
    """Add a step and the card to a data-set repository, made if needed, and return the commit's address."""
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
    """Return README.md of a repository whose newest posterior is `table`; later ones of its `steps` are deleted."""
    facts, given = table.metadata, {*steps, table.metadata["global_step"]}
    names = [step_name(step) for step in sorted(given, reverse=True) if step <= facts["global_step"]]
    # datasets 5.2 caches a local folder by its name and the configs, and not by its files: hence a digest.
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


def load_posterior(source: Source, *, step: int | None = None) -> PosteriorTable:
    """Return the posterior at `source`. The metadata say where it was, as `source` and for a repository `revision`.

    Args:
        source: a folder (in this layout or one step of it, a checkpoint, or an output directory), its
            `vade_posterior.safetensors`, or a data-set repository "user/name" or "user/name@revision". A revision is
            a branch, a commit, or the name of a step such as "step-000100" on the main branch. If the Hub cannot be
            reached, the client's cache is read.
        step: an optimiser step. None takes the newest, which is the highest.

    Raises:
        SnapshotNotFoundError: there is no posterior; the message names the places that were searched.
        SnapshotCorruptError: the posterior is damaged, or of another step than its folder says.
        SnapshotMismatchError: a newer release wrote it, or it has no keys of its rows.
        ConfigurationError: the arguments contradict each other.
    """
    name = os.fspath(source)
    if os.path.exists(name):
        path, place = Path(name), {"source": name}
        one = next((each for each in (path, path / POSTERIOR_FILE) if each.is_file()), None)
        file = one or path / _chosen(_files_in(path), name, step)
    else:
        repo_id, _, revision = name.partition("@")
        if "/" not in repo_id or not is_hub_id(repo_id):
            raise SnapshotNotFoundError(
                f"There is no folder or file {name} here. Name a checkpoint, a posterior's folder, or a data-set "
                'repository with its owner, "user/name".'
            )
        if (in_name := step_named(revision)) is not None:
            if step not in (None, in_name):
                raise ConfigurationError(f"{name} contradicts step={step}. Set only one.")
            revision, step = "", in_name
        file = _from_hub(repo_id, revision or None, step)
        place = {"source": repo_id, "revision": file.parts[-3]}  # <cache>/.../snapshots/<commit>/<step>/<file>
    table = posterior_table(load_snapshot(file))
    saved = table.metadata["global_step"]
    if others := {step_named(file.parent.name), step} - {saved, None}:
        raise SnapshotCorruptError(
            f"{file} is of optimiser step {saved}, but step {min(others)} was asked for or is in its name. Name "
            "the checkpoint of that step; if files were mixed up, take another copy."
        )
    return replace(table, metadata=table.metadata | place)


def _from_hub(repo_id: str, revision: str | None, step: int | None) -> Path:
    target = HubTarget(repo_id, "dataset", revision)
    where, name = target.where, str(target)
    try:
        files = HfApi().list_repo_files(**where)
    except FAILURES as error:
        reason, files = in_one_line(error), []
        if getattr(getattr(error, "response", None), "status_code", 500) >= 500:
            with suppress(*FAILURES):
                files = _files_in(Path(snapshot_download(**where, local_files_only=True)))
        if not files:
            raise SnapshotNotFoundError(
                f"{repo_id} is no folder here, and {name} cannot be read ({reason}), nor is it in the client's cache. "
                "A private one needs `hf auth login` or HF_TOKEN; HF_HUB_OFFLINE must not be set. Download a model's "
                f"posterior first: `hf download {repo_id} {POSTERIOR_FILE} --local-dir FOLDER`."
            ) from error
        name = f"The client's copy of {name} ({reason})"
    return Path(hf_hub_download(filename=_chosen(files, name, step), **where))


def _files_in(folder: Path) -> list[str]:
    return [f"{file.parent.name}/{file.name}" for file in folder.glob("step-*/*")]


def _chosen(files: list[str], name: str, step: int | None) -> str:
    steps = steps_in(files)
    if not steps or step not in (None, *steps):
        wanted = "posterior" if step is None else f"posterior of {step_name(step)}"
        raise SnapshotNotFoundError(
            f"{name} has no {wanted}: there is no {POSTERIOR_FILE} in it, or in a folder such as step-000100. "
            f"Its steps: {', '.join(map(step_name, steps)) or 'none'}."
        )
    return f"{step_name(steps[-1] if step is None else step)}/{POSTERIOR_FILE}"
