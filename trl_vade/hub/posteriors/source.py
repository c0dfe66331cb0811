"""Where a posterior is: in a folder, or in a data-set repository on the Hub."""

import os
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, hf_hub_download, snapshot_download

from trl_vade.errors import ConfigurationError, SnapshotCorruptError, SnapshotNotFoundError
from trl_vade.samplers.snapshot import POSTERIOR_FILE, load_snapshot

from ..failures import FAILURES, in_one_line
from ..uploading import is_hub_id
from .repository import TABLE_FILE, stage_posterior, step_name, step_named, steps_in
from .table import PosteriorTable, posterior_table


def load_posterior(
    source: str | os.PathLike[str], revision: str | None = None, *, step: int | None = None
) -> PosteriorTable:
    """Return the posterior at `source`. The metadata say where it was, as `source` and for a repository `revision`.

    Args:
        source: a folder (in the layout of `repository` or one step of it, a checkpoint, or an output directory), its
            `vade_posterior.safetensors`, or a data-set repository "user/name" or "user/name@revision". If the Hub
            cannot be reached, the client's cache is read.
        revision: a branch, a commit, or the name of a step such as "step-000100" on the main branch.
        step: an optimiser step. None takes the newest, which is the highest.

    Raises:
        SnapshotNotFoundError: there is no posterior; the message names the places that were searched.
        SnapshotCorruptError: the posterior is damaged, or of another step than its folder says.
        SnapshotMismatchError: a newer release wrote it, or it has no keys of its rows.
        ConfigurationError: the arguments contradict each other.
    """
    return _found(source, revision, step)[1]


def pull_posterior(
    source: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    revision: str | None = None,
    *,
    step: int | None = None,
) -> Path:
    """Copy the posterior at `source` into `folder`, in the layout of `repository`, and return the folder of its step.

    A table on the Hub, which names the rows, comes with it; elsewhere one is made. Arguments and errors are those of
    `load_posterior`.
    """
    file, table = _found(source, revision, step)
    place = stage_posterior(folder, file, table)
    if "revision" in table.metadata:
        where = {"repo_id": table.metadata["source"], "repo_type": "dataset", "revision": table.metadata["revision"]}
        with suppress(*FAILURES):  # none is there, or only the client's cache
            shutil.copyfile(hf_hub_download(filename=f"{place.name}/{TABLE_FILE}", **where), place / TABLE_FILE)
    return place


def _found(source: str | os.PathLike[str], revision: str | None, step: int | None) -> tuple[Path, PosteriorTable]:
    name = os.fspath(source)
    if os.path.exists(name):
        if revision is not None:
            raise ConfigurationError(f"{name} is a local path, which has no revision {revision}. Remove the revision.")
        path, place = Path(name), {"source": name}
        one = next((each for each in (path, path / POSTERIOR_FILE) if each.is_file()), None)
        file = one or path / _chosen(_files_in(path), name, step)
    else:
        repo_id, _, named = name.partition("@")
        if "/" not in repo_id or not is_hub_id(repo_id):
            raise SnapshotNotFoundError(
                f"There is no folder or file {name} here. Name a checkpoint, a posterior's folder, or a data-set "
                'repository with its owner, "user/name".'
            )
        if os.path.isdir(name.split("/")[0]) and not (named or revision):  # a slip in a path must not go to the Hub
            raise SnapshotNotFoundError(f"{name} does not exist. If the Hub's repository is meant, name {name}@main.")
        in_name = step_named(named or revision or "")
        if revision not in (None, named or revision) or (in_name is not None and step not in (None, in_name)):
            raise ConfigurationError(f"{name} contradicts revision={revision!r} or step={step}. Set only one.")
        revision, step = (named or revision, step) if in_name is None else (None, in_name)
        file = _from_hub(repo_id, revision, step)
        place = {"source": repo_id, "revision": file.parts[-3]}  # <cache>/.../snapshots/<commit>/<step>/<file>
    table = posterior_table(load_snapshot(file))
    saved = table.metadata["global_step"]
    if others := {step_named(file.parent.name), step} - {saved, None}:
        raise SnapshotCorruptError(
            f"{file} is of optimiser step {saved}, but step {min(others)} was asked for or is in its name. Name "
            "the checkpoint of that step; if files were mixed up, take another copy."
        )
    return file, replace(table, metadata=table.metadata | place)


def _from_hub(repo_id: str, revision: str | None, step: int | None) -> Path:
    """Return the posterior of a repository, in the client's cache, which is enough if the Hub cannot be reached."""
    where: dict[str, Any] = {"repo_id": repo_id, "repo_type": "dataset", "revision": revision}
    name = f"the data-set repository {repo_id}" + (f"@{revision}" if revision else "")
    try:
        return Path(hf_hub_download(filename=_chosen(HfApi().list_repo_files(**where), name, step), **where))
    except SnapshotNotFoundError:
        raise
    except FAILURES as error:
        reason = f"{name} cannot be read ({in_one_line(error)})"
        try:
            if getattr(getattr(error, "response", None), "status_code", 500) < 500:
                raise  # the Hub has answered
            folder = Path(snapshot_download(**where, local_files_only=True))
        except FAILURES:
            raise SnapshotNotFoundError(
                f"{reason}, and the client's cache has no copy to read instead. A private one needs a login (`hf "
                "auth login`, or HF_TOKEN); HF_HUB_OFFLINE must not be set. A model's posterior is to be downloaded, "
                f"and the folder named: `hf download {repo_id} {POSTERIOR_FILE} --local-dir FOLDER`."
            ) from error
    return folder / _chosen(_files_in(folder), f"{reason}; its copy in the client's cache", step)


def _files_in(folder: Path) -> list[str]:
    return [f"{file.parent.name}/{file.name}" for file in folder.glob("step-*/*")]


def _chosen(files: list[str], name: str, step: int | None) -> str:
    """Return the path of the posterior of `step`, or of the newest one."""
    steps = steps_in(files)
    if not steps or step not in (None, *steps):
        wanted = "posterior" if step is None else f"posterior of {step_name(step)}"
        raise SnapshotNotFoundError(
            f"{name} has no {wanted}: there is no {POSTERIOR_FILE} in it, or in a folder such as step-000100. "
            f"Its steps: {', '.join(map(step_name, steps)) or 'none'}."
        )
    return f"{step_name(steps[-1] if step is None else step)}/{POSTERIOR_FILE}"
