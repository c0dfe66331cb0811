"""Where a posterior is: in a folder, or in a data-set repository on the Hub."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, hf_hub_download, snapshot_download

from trl_vade.errors import ConfigurationError, SnapshotCorruptError, SnapshotError, SnapshotNotFoundError
from trl_vade.samplers.snapshot import POSTERIOR_FILE, load_snapshot

from ..failures import FAILURES, in_one_line
from ..uploading import is_hub_id
from .repository import step_name, step_named, steps_in
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
    name = os.fspath(source)
    if os.path.exists(name):
        if revision is not None:
            raise ConfigurationError(f"{name} is a local path, which has no revision {revision}. Remove the revision.")
        file, place = _here(Path(name), step), {"source": name}
    else:
        repo_id, named = split_source(name)
        if "/" not in repo_id or not is_hub_id(repo_id):
            raise SnapshotNotFoundError(
                f"There is no folder or file {name} here, and it is not the name of a repository on the Hub, such as "
                '"user/name". Name a checkpoint, a posterior\'s folder, or a repository with its owner.'
            )
        if os.path.isdir(name.split("/")[0]) and not (named or revision):  # a slip in a path must not go to the Hub
            raise SnapshotNotFoundError(f"{name} does not exist. If the Hub's repository is meant, name {name}@main.")
        in_name = step_named(named or revision or "")
        if revision not in (None, named or revision) or (in_name is not None and step not in (None, in_name)):
            raise ConfigurationError(f"{name} contradicts revision={revision!r} or step={step}. Set only one.")
        revision = named or revision
        if in_name is not None:
            revision, step = None, in_name
        file = _from_hub(repo_id, revision, step)
        place = {"source": repo_id, "revision": file.parts[-3]}  # <cache>/.../snapshots/<commit>/<step>/<file>
    snapshot = load_snapshot(file)
    try:
        table = posterior_table(snapshot)
    except SnapshotError as error:
        raise type(error)(f"{file}: {error}") from error
    saved = table.metadata["global_step"]
    if others := {step_named(file.parent.name), step} - {saved, None}:
        raise SnapshotCorruptError(
            f"{file} is of optimiser step {saved}, but step {min(others)} was asked for or is in its name. Name "
            "the checkpoint of that step; if files were mixed up, take another copy."
        )
    return replace(table, metadata=table.metadata | place)


def split_source(source: str) -> tuple[str, str | None]:
    """Split "user/name@revision" into both parts; None without an "@". An empty part is a `ConfigurationError`."""
    repo_id, at, revision = source.partition("@")
    if at and not (repo_id and revision):
        raise ConfigurationError(f'{source} has an "@" with nothing on one side; write "user/name@revision".')
    return repo_id, revision or None


def _here(path: Path, step: int | None) -> Path:
    found = [each for each in (path, path / POSTERIOR_FILE) if each.is_file()]
    return found[0] if found else path / _chosen(_files_in(path), str(path), step)


def _from_hub(repo_id: str, revision: str | None, step: int | None) -> Path:
    """Return the posterior of a repository, in the client's cache."""
    where: dict[str, Any] = {"repo_id": repo_id, "repo_type": "dataset", "revision": revision}
    name = f"the data-set repository {repo_id}" + (f"@{revision}" if revision else "")
    try:
        return Path(hf_hub_download(filename=_chosen(HfApi().list_repo_files(**where), name, step), **where))
    except SnapshotNotFoundError:
        raise
    except FAILURES as error:
        reason = in_one_line(error)
        if getattr(getattr(error, "response", None), "status_code", 500) < 500:
            raise SnapshotNotFoundError(
                f"{name} cannot be read ({reason}). A private or gated one needs a login that may see it (`hf auth "
                f"login`, or HF_TOKEN). If it is a model's, download its posterior: `hf download {repo_id} "
                f"{POSTERIOR_FILE} --local-dir FOLDER`. Name the folder."
            ) from error
    try:
        folder = Path(snapshot_download(**where, local_files_only=True))
    except FAILURES as error:
        raise SnapshotNotFoundError(
            f"{name} cannot be read ({reason}), and the client's cache has no copy. Unset HF_HUB_OFFLINE if it is "
            "set, or name a checkpoint or a posterior's folder."
        ) from error
    return folder / _chosen(_files_in(folder), f"the cached copy of {name} (it cannot be read now: {reason})", step)


def _files_in(folder: Path) -> list[str]:
    return [f"{file.parent.name}/{file.name}" for file in folder.glob("step-*/*")]


def _chosen(files: list[str], name: str, step: int | None) -> str:
    """Return the path of the posterior of `step`, or of the newest one."""
    steps = steps_in(files)
    if not steps or step not in (None, *steps):
        wanted = "" if step is None else f" of optimiser step {step}"
        raise SnapshotNotFoundError(
            f"{name} has no posterior{wanted}: no {POSTERIOR_FILE} in it, or in a folder such as "
            f"{step_name(100 if step is None else step)}. Its steps: {', '.join(map(step_name, steps)) or 'none'}."
        )
    return f"{step_name(steps[-1] if step is None else step)}/{POSTERIOR_FILE}"
