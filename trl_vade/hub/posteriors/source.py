"""Loading of a posterior from a table, a folder or a data-set repository on the Hub."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, hf_hub_download, snapshot_download
from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

from trl_vade.errors import ConfigurationError, SnapshotCorruptError, SnapshotNotFoundError
from trl_vade.samplers.snapshot import POSTERIOR_FILE, load_snapshot

from ..failures import FAILURES, in_one_line
from ..uploading import is_hub_id
from .repository import TABLE_FILE, step_name, steps_in, table_path
from .table import PosteriorTable, posterior_table, read_table


def load_posterior(
    source: str | os.PathLike[str], revision: str | None = None, *, step: int | None = None
) -> PosteriorTable:
    """Return the posterior at `source`.

    An existing path is tried first, then a data-set repository on the Hub. If the Hub cannot be reached, the client's
    cache is read. The metadata get `source`, and for a repository the commit as `revision`.

    Args:
        source: a folder (in the layout of `repository` or one step of it, a checkpoint, or an output directory), a
            `.parquet` file, or a data-set repository "user/name" or "user/name@revision". If there is a folder
            "user", "user/name" is a path; with a revision it is a repository.
        revision: a branch, a tag such as "step-000100", or a commit.
        step: an optimiser step. None takes that of a tag, or else the newest one.

    Raises:
        SnapshotNotFoundError: there is no posterior; the message names the places that were searched.
        SnapshotCorruptError: the posterior is damaged.
        SnapshotMismatchError: a newer release wrote it, or a snapshot has no keys of its rows.
        ConfigurationError: `source` and `revision` contradict each other.
    """
    name = os.fspath(source)
    if os.path.exists(name):
        if revision is not None:
            raise ConfigurationError(f"{name} is a local path, which has no revision {revision}. Remove the revision.")
        return _placed(_from_path(Path(name), step), source=name)
    repo_id, named = split_source(name)
    if named and revision and named != revision:
        raise ConfigurationError(f"{name} names the revision {named}, but revision={revision!r}. Set only one.")
    folder, slash, last = repo_id.partition("/")
    if not (slash and is_hub_id(repo_id)):
        raise SnapshotNotFoundError(
            f"There is no folder or file {name} here, and it is not the name of a repository on the Hub, such as "
            '"user/name". Name a checkpoint, a posterior\'s folder or table, or a repository with its owner.'
        )
    if os.path.isdir(folder) and not (named or revision):  # a mistyped path must not be sent to the Hub
        raise SnapshotNotFoundError(
            f"{name} does not exist: {folder} is a local folder and has no {last}. If you mean the repository of that "
            f"name on the Hub, add its revision: {name}@main."
        )
    return _from_hub(repo_id, named or revision, step)


def split_source(source: str) -> tuple[str, str | None]:
    """Split "user/name@revision" into both parts; None without an "@". An empty part is a `ConfigurationError`."""
    repo_id, at, revision = source.partition("@")
    if at and not (repo_id and revision):
        raise ConfigurationError(f'{source} has an "@" with nothing on one side; write "user/name@revision".')
    return repo_id, revision or None


def _from_path(path: Path, step: int | None) -> PosteriorTable:
    if path.is_file() or (path / TABLE_FILE).is_file():
        return _from_file(path if path.is_file() else path / TABLE_FILE, step)
    if (path / POSTERIOR_FILE).is_file():
        return _of_step(posterior_table(load_snapshot(path)), path, step)
    return _from_step(_newest(path, str(path), step))


def _from_hub(repo_id: str, revision: str | None, step: int | None) -> PosteriorTable:
    where: dict[str, Any] = {"repo_id": repo_id, "repo_type": "dataset", "revision": revision}
    name = f"the data-set repository {repo_id}" + (f"@{revision}" if revision else "")
    if step is None:  # a late push leaves newer steps in the commit of its tag
        step = next(iter(steps_in([f"{revision}/{TABLE_FILE}"])), None)
    try:
        steps = steps_in(HfApi().list_repo_files(**where))
        file = hf_hub_download(filename=table_path(_chosen(steps, name, step)), **where)
    except SnapshotNotFoundError:
        raise
    except FAILURES as error:
        if getattr(getattr(error, "response", None), "status_code", 500) < 500:
            raise SnapshotNotFoundError(f"{name} {_refusal(error, repo_id)}.") from error
        file = _cached(where, name, step, error)
    # <cache>/<repository>/snapshots/<commit>/<step>/<file>
    return _placed(_from_step(Path(file)), source=repo_id, revision=Path(file).parts[-3])


def _refusal(error: Exception, repo_id: str) -> str:
    if isinstance(error, GatedRepoError):
        return "is gated: request access on its page, and log in (`hf auth login`, or HF_TOKEN)"
    if isinstance(error, RepositoryNotFoundError):
        return (
            "does not exist, or this login may not see it (`hf auth login`, or HF_TOKEN). If it is a model's, "
            f"download its posterior: `hf download {repo_id} {POSTERIOR_FILE} --local-dir FOLDER`. Name the folder"
        )
    return "has no such revision" if isinstance(error, RevisionNotFoundError) else f"gives {in_one_line(error)}"


def _cached(where: dict[str, Any], name: str, step: int | None, reason: Exception) -> Path:
    """Return the table in the client's cache, since the Hub cannot be reached."""
    try:
        folder = Path(snapshot_download(**where, local_files_only=True))
    except FAILURES as error:
        raise SnapshotNotFoundError(
            f"{name} cannot be read ({in_one_line(reason)}), and the client's cache has no copy. Unset HF_HUB_OFFLINE "
            "if it is set, or name a checkpoint, a posterior's folder or table."
        ) from error
    return _newest(folder, f"the cached copy of {name} (it cannot be read now: {in_one_line(reason)})", step)


def _newest(folder: Path, name: str, step: int | None) -> Path:
    """Return the table of `step`, or of the newest one, in a folder of steps."""
    steps = steps_in(file.relative_to(folder).as_posix() for file in folder.glob("step-*/*"))
    return folder / table_path(_chosen(steps, name, step))


def _chosen(steps: list[int], name: str, step: int | None) -> int:
    if not steps or step not in (None, *steps):
        wanted = step_name(100 if step is None else step)
        raise SnapshotNotFoundError(
            f"{name} has no posterior{'' if step is None else f' of optimiser step {step}'}: no {POSTERIOR_FILE}, and "
            f"no table such as {wanted}/{TABLE_FILE}. Its steps: {', '.join(map(step_name, steps)) or 'none'}."
        )
    return max(steps) if step is None else step


def _from_step(file: Path) -> PosteriorTable:
    return _from_file(file, *steps_in([f"{file.parent.name}/{file.name}"]))


def _from_file(path: Path, step: int | None) -> PosteriorTable:
    if path.suffix.lower() in (".csv", ".jsonl"):
        raise ConfigurationError(
            f"{path} cannot be read back. Of the files that `trl-vade posterior export` writes, only .parquet can."
        )
    return _of_step(read_table(path), path, step)


def _of_step(table: PosteriorTable, path: Path, step: int | None) -> PosteriorTable:
    saved = table.metadata.get("global_step", step)
    if step not in (None, saved):
        raise SnapshotCorruptError(
            f"{path} is of optimiser step {saved}, but step {step} was asked for or is in its name. Name the "
            "checkpoint of that step; if files were mixed up, take another copy."
        )
    return table


def _placed(table: PosteriorTable, **place: str | None) -> PosteriorTable:
    return replace(table, metadata={**table.metadata, **place})
