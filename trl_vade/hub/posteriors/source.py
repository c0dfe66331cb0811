"""Loading of a posterior from a table, a folder or a data-set repository on the Hub."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, hf_hub_download, snapshot_download
from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

from trl_vade.errors import ConfigurationError, SnapshotCorruptError, SnapshotNotFoundError
from trl_vade.samplers.snapshot import POSTERIOR_FILE, load_snapshot

from ..cards import CARD_FILE
from ..failures import FAILURES, in_one_line
from ..uploading import is_hub_id
from .repository import TABLE_FILE, newest_step, step_name, steps_in, table_path
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
        return _read(_here(Path(name), step), step, {"source": name})
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
    file = _from_hub(repo_id, named or revision, step)
    # <cache>/<repository>/snapshots/<commit>/<step>/<file>
    return _read(file, step, {"source": repo_id, "revision": file.parts[-3]})


def split_source(source: str) -> tuple[str, str | None]:
    """Split "user/name@revision" into both parts; None without an "@". An empty part is a `ConfigurationError`."""
    repo_id, at, revision = source.partition("@")
    if at and not (repo_id and revision):
        raise ConfigurationError(f'{source} has an "@" with nothing on one side; write "user/name@revision".')
    return repo_id, revision or None


def _read(file: Path, step: int | None, place: dict[str, str]) -> PosteriorTable:
    """Return the table in `file`, which must be of the step that was asked for, and of that in its folder's name."""
    if file.suffix.lower() == ".jsonl":
        raise ConfigurationError(
            f"{file} cannot be read back. Of the files that `trl-vade posterior export` writes, only .parquet can."
        )
    table = posterior_table(load_snapshot(file.parent)) if file.name == POSTERIOR_FILE else read_table(file)
    named = steps_in([f"{file.parent.name}/{file.name}"])
    saved = table.metadata.get("global_step", next(iter(named), step))
    if others := {*named, step} - {saved, None}:
        raise SnapshotCorruptError(
            f"{file} is of optimiser step {saved}, but step {min(others)} was asked for or is in its name. Name "
            "the checkpoint of that step; if files were mixed up, take another copy."
        )
    return replace(table, metadata=table.metadata | place)


def _here(path: Path, step: int | None) -> Path:
    files = (path, path / TABLE_FILE, path / POSTERIOR_FILE)
    return next((file for file in files if file.is_file()), None) or _newest(path, str(path), step)


def _from_hub(repo_id: str, revision: str | None, step: int | None) -> Path:
    """Return the table of a repository, in the client's cache."""
    where: dict[str, Any] = {"repo_id": repo_id, "repo_type": "dataset", "revision": revision}
    name = f"the data-set repository {repo_id}" + (f"@{revision}" if revision else "")
    if step is None:  # a late push leaves newer steps in the commit of its tag
        step = next(iter(steps_in([f"{revision}/{TABLE_FILE}"])), None)
    try:
        path = _chosen(
            HfApi().list_repo_files(**where), name, step, lambda path: hf_hub_download(filename=path, **where)
        )
        return Path(hf_hub_download(filename=path, **where))
    except SnapshotNotFoundError:
        raise
    except FAILURES as error:
        if getattr(getattr(error, "response", None), "status_code", 500) < 500:
            raise SnapshotNotFoundError(f"{name} {_refusal(error, repo_id)}.") from error
        reason = in_one_line(error)
    try:
        folder = Path(snapshot_download(**where, local_files_only=True))
    except FAILURES as error:
        raise SnapshotNotFoundError(
            f"{name} cannot be read ({reason}), and the client's cache has no copy. Unset HF_HUB_OFFLINE if it is "
            "set, or name a checkpoint, a posterior's folder or table."
        ) from error
    return _newest(folder, f"the cached copy of {name} (it cannot be read now: {reason})", step)


def _refusal(error: Exception, repo_id: str) -> str:
    if isinstance(error, GatedRepoError):
        return "is gated: request access on its page, and log in (`hf auth login`, or HF_TOKEN)"
    if isinstance(error, RepositoryNotFoundError):
        return (
            "does not exist, or this login may not see it (`hf auth login`, or HF_TOKEN). If it is a model's, "
            f"download its posterior: `hf download {repo_id} {POSTERIOR_FILE} --local-dir FOLDER`. Name the folder"
        )
    return "has no such revision" if isinstance(error, RevisionNotFoundError) else f"gives {in_one_line(error)}"


def _newest(folder: Path, name: str, step: int | None) -> Path:
    files = [*folder.glob("step-*/*"), *folder.glob(CARD_FILE)]
    return folder / _chosen([file.relative_to(folder).as_posix() for file in files], name, step, folder.joinpath)


def _chosen(files: list[str], name: str, step: int | None, read: Callable[[str], str | Path]) -> str:
    """Return the path of the table of `step`, or of the newest one; see `newest_step`."""
    steps = steps_in(files)
    if not steps or step not in (None, *steps):
        wanted = table_path(100 if step is None else step)
        raise SnapshotNotFoundError(
            f"{name} has no posterior{'' if step is None else f' of optimiser step {step}'}: no {POSTERIOR_FILE}, and "
            f"no table such as {wanted}. Its steps: {', '.join(map(step_name, steps)) or 'none'}."
        )
    return table_path(step if step is not None else newest_step(files, read) or 0)
