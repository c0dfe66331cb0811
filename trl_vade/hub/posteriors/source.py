"""A posterior from wherever it is: a checkpoint, a table, or a repository on the Hub, which is read at one commit."""

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

from trl_vade.errors import ConfigurationError, SnapshotCorruptError, SnapshotNotFoundError
from trl_vade.samplers.snapshot import METADATA_FILE, POSTERIOR_FILE, load_snapshot

from ..uploading import HTTP_ERROR, is_hub_id, offline
from .card_steps import steps_of_card
from .columns import first_line
from .repository import CARD_FILE, TABLE_FILE, step_name, steps_in, table_path
from .table import PosteriorTable, posterior_table, read_table


def load_posterior(
    source: str | os.PathLike[str], revision: str | None = None, *, step: int | None = None
) -> PosteriorTable:
    """Return the posterior that is at `source`.

    What exists here goes first, then a data-set repository on the Hub, then a model repository. Where the Hub cannot
    be reached, a copy in its client's cache is read. All files are of one commit. The metadata gets `source`, and for
    a repository `revision`, that commit.

    Args:
        source: a folder (the layout of `repository` or one step of it, or a checkpoint or output directory of
            VADE), a `.parquet` file, or a repository "user/name" or "user/name@revision". Where the folder "user" is
            here, "user/name" is taken for a path; with a revision it is the repository.
        revision: a branch, a tag such as "step-000100", or a commit.
        step: an optimiser step. None takes the newest that the card names; of a model its last one.

    Raises:
        SnapshotNotFoundError: there is none; the message says what was looked for where.
        SnapshotCorruptError: there is one, and it is damaged.
        SnapshotMismatchError: a newer release wrote it, or a snapshot does not say which rows it is about.
        ConfigurationError: `source` and `revision` contradict each other.
    """
    name = os.fspath(source)
    if os.path.exists(name):
        if revision is not None:
            raise ConfigurationError(f"{name} is here, and a folder or file has no revision {revision}: leave it out.")
        table = _from_file(Path(name), step) if os.path.isfile(name) else _from_files(_Folder(Path(name)), step)
        return _placed(table, source=name)
    repo_id, named = split_source(name)
    if named and revision and named != revision:
        raise ConfigurationError(f"{name} names the revision {named}, and revision={revision!r} another: give one.")
    if not is_hub_id(repo_id):
        raise SnapshotNotFoundError(
            f"{name} is not there, neither as a folder nor as a file, and cannot be a repository on the Hub, which is "
            'called "user/name". Name a checkpoint, a posterior\'s folder or table, or a repository.'
        )
    folder, slash, last = repo_id.partition("/")
    if slash and os.path.isdir(folder) and not (named or revision):  # a slip in a path is not for the Hub to hear
        raise SnapshotNotFoundError(
            f"{name} is not there: {folder} is a folder here, and has no {last}. If the repository of that name on "
            f"the Hub is meant, give its revision, too: {name}@main."
        )
    return _from_hub(repo_id, named or revision, step)


def split_source(source: str) -> tuple[str, str | None]:
    """Split "user/name@revision" into both; the revision is None where there is no "@".

    Raises:
        ConfigurationError: nothing is before or after the "@".
    """
    repo_id, at, revision = source.partition("@")
    if at and not (repo_id and revision):
        raise ConfigurationError(f'{source} has an "@" with nothing on one side; write "user/name@revision".')
    return repo_id, revision or None


class _Folder:
    """A folder here."""

    def __init__(self, folder: Path):
        self.folder = folder

    def __str__(self) -> str:
        return str(self.folder)

    def get(self, path: str) -> Path | None:
        """The file, or None where it is not there."""
        file = self.folder / path
        return file if file.is_file() else None

    def table(self) -> Path | None:
        """The table that lies in the folder itself, which is then that of a step."""
        return self.get(TABLE_FILE)

    def steps(self, named: list[int]) -> list[int]:
        """The steps that are there; `named` are those of the card."""
        return steps_in(f"{file.parent.name}/{file.name}" for file in self.folder.glob("step-*/*"))


class _Unavailable(Exception):
    """A repository cannot be read; the message is the reason, without the repository's name."""

    def __init__(self, reason: str, may_pass: bool = False):
        super().__init__(reason)
        self.may_pass = may_pass  # by itself: it says nothing about what the repository holds


class _Repo:
    """A repository on the Hub, at one commit: that of the first file which was found."""

    def __init__(self, repo_id: str, repo_type: str, revision: str | None):
        self.repo_id, self.repo_type, self.revision = repo_id, repo_type, revision
        self.commit: str | None = None

    def __str__(self) -> str:
        name = f"the {self.repo_type} repository {self.repo_id}" + (f"@{self.revision}" if self.revision else "")
        return f"what the client's cache has of {name} (HF_HUB_OFFLINE is set)" if offline() else name

    def get(self, path: str) -> Path | None:
        """Download the file, or return None where it is not there (offline: in the cache); raises `_Unavailable`."""
        try:
            # A branch is looked up by the download itself: it remembers the commit for a start without a network,
            # which a lookup before it (`repo_info`) would not.
            file = hf_hub_download(self.repo_id, path, repo_type=self.repo_type, revision=self.commit or self.revision)
        except LocalEntryNotFoundError as error:  # it is an EntryNotFoundError as well
            if offline():
                return None
            raise _Unavailable("cannot be reached, and this file is not in the client's cache", True) from error
        except EntryNotFoundError:
            return None
        except (HTTP_ERROR, OSError, ValueError) as error:
            raise self._unavailable(error) from error
        # <cache>/<repository>/snapshots/<commit>/<path>
        self.commit = Path(file).parts[-1 - len(path.split("/"))]
        return Path(file)

    def table(self) -> None:
        """No repository is that of a single step."""

    def steps(self, named: list[int]) -> list[int]:
        """Those that the card names."""
        return named

    def _unavailable(self, error: Exception) -> _Unavailable:
        if isinstance(error, GatedRepoError):
            return _Unavailable("is gated: ask for access on its page, and log in (`hf auth login`, or HF_TOKEN)")
        if isinstance(error, RepositoryNotFoundError):
            return _Unavailable("is not there, or hidden from this login (`hf auth login`, or HF_TOKEN)")
        if isinstance(error, RevisionNotFoundError):
            return _Unavailable(f"has no revision {self.revision}")
        status = getattr(getattr(error, "response", None), "status_code", None)
        refused = isinstance(error, ValueError) or (status is not None and status < 500)
        return _Unavailable(f"cannot be read ({first_line(error)})", may_pass=not refused)


def _from_hub(repo_id: str, revision: str | None, step: int | None) -> PosteriorTable:
    reasons = []
    for repo_type in ("dataset", "model"):
        repo = _Repo(repo_id, repo_type, revision)
        try:
            return _placed(_from_files(repo, step), source=repo_id, revision=repo.commit)
        except _Unavailable as error:
            reasons.append(f"{repo} {error}")
            if error.may_pass:  # the other repository of that name must not step in for a while
                break
        except SnapshotNotFoundError as error:
            reasons.append(str(error))
    advice = "Unset HF_HUB_OFFLINE to ask the Hub, or name" if offline() else "Name"
    raise SnapshotNotFoundError(
        f"No posterior for {repo_id}: no folder or file of this name is here; {'; '.join(reasons)}. {advice} a "
        "checkpoint, a posterior's folder or table, or a repository that has one."
    )


def _from_files(files: _Folder | _Repo, step: int | None) -> PosteriorTable:
    """The table that is there, or that of a snapshot."""
    table = _from_tables(files, step)
    if table is None:
        table = _from_snapshots(files, step)
    if table is None:
        of_step = "" if step is None else f" of optimiser step {step}"
        raise SnapshotNotFoundError(
            f"{files} has no posterior{of_step}: no table in a folder such as {step_name(step or 100)}, and no "
            f"{POSTERIOR_FILE} with {METADATA_FILE}"
        )
    return table


def _from_tables(files: _Folder | _Repo, step: int | None) -> PosteriorTable | None:
    alone = files.table()
    if alone is not None:
        return _from_file(alone, step)
    named, newest = steps_of_card(files.get(CARD_FILE))
    steps = files.steps(named)
    if not steps:
        return None
    tagged = steps_in([f"{files.revision}/{TABLE_FILE}"]) if isinstance(files, _Repo) else []
    if step is None and tagged and tagged[0] in steps:
        step = tagged[0]  # sent after a newer one, which its card then names
    chosen = step if step is not None else newest if newest in steps else max(steps)
    file = files.get(table_path(chosen)) if chosen in steps else None
    if file is None and chosen in steps and isinstance(files, _Repo) and offline():
        raise SnapshotNotFoundError(f"{files} lacks {table_path(chosen)}, which its card names")
    if file is None:
        raise SnapshotNotFoundError(
            f"{files} has no {table_path(chosen)}; its steps are {', '.join(map(step_name, steps))}"
        )
    return _from_file(file, chosen)


def _from_snapshots(files: _Folder | _Repo, step: int | None) -> PosteriorTable | None:
    """Of the folder itself, of `last-checkpoint` (hub_strategy="checkpoint") or of the checkpoint of that step."""
    places = ["", "last-checkpoint/", *([] if step is None else [f"checkpoint-{step}/"])]
    for place in places:
        both = [files.get(place + name) for name in (METADATA_FILE, POSTERIOR_FILE)]
        file = both[0] or both[1]
        if file is not None:
            table = posterior_table(load_snapshot(file.parent))
            if step in (None, table.metadata["global_step"]):
                return table
    return None


def _from_file(path: Path, step: int | None) -> PosteriorTable:
    if path.suffix.lower() in (".csv", ".jsonl"):
        raise ConfigurationError(
            f"{path} is for other programs: of what `trl-vade posterior export` writes, only .parquet can be read "
            "back."
        )
    table = read_table(path)
    saved = table.metadata.get("global_step", step)
    if step not in (None, saved):
        raise SnapshotCorruptError(
            f"{path} is of optimiser step {saved} and not of {step}, which was asked for or is in its name: files "
            "were mixed up. Take the step that it has, or another copy."
        )
    return table


def _placed(table: PosteriorTable, **place: str | None) -> PosteriorTable:
    return replace(table, metadata={**table.metadata, **place})
