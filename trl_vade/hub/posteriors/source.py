"""Loading of a posterior from a checkpoint, a table or a repository on the Hub."""

import os
from dataclasses import replace
from pathlib import Path

from huggingface_hub import hf_hub_download
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from trl_vade.errors import ConfigurationError, HubError, SnapshotCorruptError, SnapshotNotFoundError
from trl_vade.samplers.snapshot import POSTERIOR_FILE, load_snapshot

from ..failures import HTTP_ERROR, first_line
from ..uploading import is_hub_id, offline
from .repository import CARD_FILE, TABLE_FILE, step_name, steps_in, steps_of_card, table_path
from .table import PosteriorTable, posterior_table, read_table


def load_posterior(
    source: str | os.PathLike[str], revision: str | None = None, *, step: int | None = None
) -> PosteriorTable:
    """Return the posterior at `source`.

    An existing path is tried first, then a data-set repository on the Hub, then a model repository. If the Hub cannot
    be reached, the client's cache is read. All files come from one commit. The metadata get `source`, and for a
    repository the commit as `revision`.

    Args:
        source: a folder (in the layout of `repository` or one step of it, a checkpoint, or an output directory), a
            `.parquet` file, or a repository "user/name" or "user/name@revision". If there is a folder "user",
            "user/name" is a path; with a revision it is a repository.
        revision: a branch, a tag such as "step-000100", or a commit.
        step: an optimiser step. None takes the newest step that the card names, or the last one of a model.

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
        table = _from_file(Path(name), step) if os.path.isfile(name) else _from_files(_Folder(Path(name)), step)
        return _placed(table, source=name)
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


class _Folder:
    """A local folder."""

    def __init__(self, folder: Path):
        self.folder = folder

    def __str__(self) -> str:
        return str(self.folder)

    def get(self, path: str) -> Path | None:
        """Return the file, or None if it does not exist."""
        file = self.folder / path
        return file if file.is_file() else None

    def steps(self, named: list[int]) -> list[int]:
        """Return the steps with a table; `named` are those of the card."""
        return steps_in(f"{file.parent.name}/{file.name}" for file in self.folder.glob("step-*/*"))


class _Repo:
    """A repository on the Hub at one commit, that of the first file that was found."""

    def __init__(self, repo_id: str, repo_type: str, revision: str | None):
        self.repo_id, self.repo_type, self.revision = repo_id, repo_type, revision
        self.commit: str | None = None

    def __str__(self) -> str:
        name = f"the {self.repo_type} repository {self.repo_id}" + (f"@{self.revision}" if self.revision else "")
        return f"the cached copy of {name} (HF_HUB_OFFLINE is set)" if offline() else name

    def get(self, path: str) -> Path | None:
        """Download the file, or return None if the repository (offline: the cache) lacks it.

        Raises:
            HubError: the repository cannot be read. The message is the reason, without the repository's name.
        """
        try:
            # The download itself resolves the branch: it stores the commit for a later start without a network.
            # A lookup by `repo_info` would not.
            file = hf_hub_download(self.repo_id, path, repo_type=self.repo_type, revision=self.commit or self.revision)
        except LocalEntryNotFoundError as error:  # a subclass of EntryNotFoundError
            if offline():
                return None
            raise HubError("cannot be reached, and this file is not in the client's cache", may_pass=True) from error
        except EntryNotFoundError:
            return None
        except (HTTP_ERROR, OSError, ValueError) as error:
            raise self._unavailable(error) from error
        # <cache>/<repository>/snapshots/<commit>/<path>
        self.commit = Path(file).parts[-1 - len(path.split("/"))]
        return Path(file)

    def steps(self, named: list[int]) -> list[int]:
        """Return the steps that the card names."""
        return sorted(set(named))

    def _unavailable(self, error: Exception) -> HubError:
        if isinstance(error, GatedRepoError):
            return HubError("is gated: request access on its page, and log in (`hf auth login`, or HF_TOKEN)")
        if isinstance(error, RepositoryNotFoundError):
            return HubError("does not exist, or this login may not see it (`hf auth login`, or HF_TOKEN)")
        if isinstance(error, RevisionNotFoundError):
            return HubError(f"has no revision {self.revision}")
        status = getattr(getattr(error, "response", None), "status_code", None)
        refused = isinstance(error, ValueError) or (status is not None and status < 500)
        return HubError(f"cannot be read ({first_line(error)})", may_pass=not refused)


def _from_hub(repo_id: str, revision: str | None, step: int | None) -> PosteriorTable:
    reasons = []
    for repo_type in ("dataset", "model"):
        repo = _Repo(repo_id, repo_type, revision)
        try:
            return _placed(_from_files(repo, step), source=repo_id, revision=repo.commit)
        except HubError as error:
            reasons.append(f"{repo} {error}")
            if error.may_pass:  # a short fault must not lead to the other repository of that name
                break
        except SnapshotNotFoundError as error:
            reasons.append(str(error))
    advice = "Unset HF_HUB_OFFLINE to ask the Hub, or name" if offline() else "Name"
    raise SnapshotNotFoundError(
        f"No posterior for {repo_id}: there is no local folder or file of this name; {'; '.join(reasons)}. {advice} a "
        "checkpoint, a posterior's folder or table, or a repository that has one."
    )


def _from_files(files: _Folder | _Repo, step: int | None) -> PosteriorTable:
    """Return the posterior from a table, or else from a snapshot."""
    table = _from_tables(files, step)
    if table is None:
        table = _from_snapshots(files, step)
    if table is None:
        of_step = "" if step is None else f" of optimiser step {step}"
        raise SnapshotNotFoundError(
            f"{files} has no posterior{of_step}: no table in a folder such as {step_name(step or 100)}, and no "
            f"{POSTERIOR_FILE}"
        )
    return table


def _from_tables(files: _Folder | _Repo, step: int | None) -> PosteriorTable | None:
    alone = files.get(TABLE_FILE) if isinstance(files, _Folder) else None
    if alone is not None:  # the folder of a step
        return _from_file(alone, step)
    named, newest = steps_of_card(files.get(CARD_FILE))
    steps = files.steps(named)
    if not steps:
        return None
    tagged = steps_in([f"{files.revision}/{TABLE_FILE}"]) if isinstance(files, _Repo) else []
    if step is None and tagged and tagged[0] in steps:
        step = tagged[0]  # its card may name a newer step that was sent before it
    chosen = step if step is not None else newest if newest in steps else max(steps)
    file = files.get(table_path(chosen)) if chosen in steps else None
    if file is None and chosen in steps and isinstance(files, _Repo) and offline():
        raise SnapshotNotFoundError(f"{files} lacks {table_path(chosen)}, which the card names")
    if file is None:
        raise SnapshotNotFoundError(
            f"{files} has no {table_path(chosen)}; its steps are {', '.join(map(step_name, steps))}"
        )
    return _from_file(file, chosen)


def _from_snapshots(files: _Folder | _Repo, step: int | None) -> PosteriorTable | None:
    """Return the posterior of the folder, of `last-checkpoint`, or of the checkpoint of that step; or None."""
    places = ["", "last-checkpoint/", *([] if step is None else [f"checkpoint-{step}/"])]
    for place in places:
        file = files.get(place + POSTERIOR_FILE)
        if file is not None:
            table = posterior_table(load_snapshot(file))
            if step in (None, table.metadata["global_step"]):
                return table
    return None


def _from_file(path: Path, step: int | None) -> PosteriorTable:
    if path.suffix.lower() in (".csv", ".jsonl"):
        raise ConfigurationError(
            f"{path} cannot be read back. Of the files that `trl-vade posterior export` writes, only .parquet can."
        )
    table = read_table(path)
    saved = table.metadata.get("global_step", step)
    if step not in (None, saved):
        raise SnapshotCorruptError(
            f"{path} is of optimiser step {saved}, but step {step} was asked for or is in its name: files were mixed "
            "up. Ask for the step that it has, or take another copy."
        )
    return table


def _placed(table: PosteriorTable, **place: str | None) -> PosteriorTable:
    return replace(table, metadata={**table.metadata, **place})
