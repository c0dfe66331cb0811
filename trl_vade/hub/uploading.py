"""A folder to the Hugging Face Hub: in one commit, tried again where that can help, and compared with what arrived.

huggingface_hub 2.4 does not send a commit a second time, also where the Hub was busy for a moment or the answer was
lost on the way (its own retries are about the files before it), and `upload_folder` may make several commits of one
folder. `commit_folder` does one thing: when it returns, the files of the folder are in the repository, in one commit,
with the hashes that they have here.

The token is the client's own business: it is read from HF_TOKEN or from the login (`hf auth login`), and no function
here puts it anywhere.
"""

import inspect
import logging
import os
import re
import shlex
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from huggingface_hub import CommitInfo, HfApi, constants

from trl_vade.errors import HubError

from .commit import FolderCommit, Render
from .failures import FAILURES, HTTP_ERROR, as_hub_error

logger = logging.getLogger(__name__)  # not accelerate's, which is of no use in a command without a trainer

PATIENCE = (2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
"""Seconds before each further attempt. A `Retry-After` of the Hub that asks for more is kept to, up to `LONGEST`."""
LONGEST = 300.0

Result = TypeVar("Result")


def is_hub_id(value: Any) -> bool:
    """Whether `value` can be the id of a repository on the Hub: "name" or "user/name", and no path."""
    return isinstance(value, str) and re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", value, re.ASCII) is not None


def hub_id(name: Any) -> str | None:
    """`name` where it can be the id of a repository on the Hub and is no local folder or file, else None."""
    return name if is_hub_id(name) and not os.path.exists(name) else None


@dataclass(frozen=True)
class HubTarget:
    """A branch of a repository.

    Attributes:
        repo_id: "user/name", or "name" until it is known whose login it is.
        repo_type: "model" or "dataset".
        revision: the branch; None is main.
        private: of a repository that is made; None leaves it to the settings of the user or the organisation.
    """

    repo_id: str
    repo_type: str = "model"
    revision: str | None = None
    private: bool | None = None

    def __str__(self) -> str:
        branch = f" (branch {self.revision})" if self.revision else ""
        return f"the {'data-set' if self.repo_type == 'dataset' else self.repo_type} repository {self.repo_id}{branch}"


def branch_of(revision: str | None) -> str | None:
    """The branch where it is not main, which is there from the beginning and which every reader takes by default."""
    return None if revision == constants.DEFAULT_REVISION else revision


def offline() -> bool:
    """Whether the client was told to use no network (HF_HUB_OFFLINE)."""
    return bool(constants.HF_HUB_OFFLINE)


def ensure_repo(
    target: HubTarget, token: str | bool | None = None, *, patience: Iterable[float] | None = None
) -> HubTarget:
    """Create the repository and its branch where they are not there; return the target with the owner's name.

    Args:
        target: a repository.
        token: in place of the login.
        patience: seconds before each further attempt, `PATIENCE` by default.

    Raises:
        HubError: the Hub refuses, cannot be reached, or would let this login only read.
    """
    api = HfApi(token=token)

    def attempt() -> HubTarget:
        url = api.create_repo(target.repo_id, repo_type=target.repo_type, private=target.private, exist_ok=True)
        found = replace(target, repo_id=url.repo_id)
        _refuse_a_reader(api, found)
        if branch_of(found.revision):
            # `hub_revision` does not create it (transformers 5.23), and the first push would be the one to fail.
            api.create_branch(found.repo_id, branch=found.revision, repo_type=found.repo_type, exist_ok=True)
        return found

    return with_retries(attempt, target, patience)


def commit_folder(
    target: HubTarget,
    folder: str | Path,
    *,
    message: str,
    render: Render | None = None,
    mirror: Iterable[str] = (),
    tag: str | None = None,
    token: str | bool | None = None,
    patience: Iterable[float] | None = None,
) -> CommitInfo:
    """Upload all files of `folder`, whose layout is that of the repository, in one commit, and return it.

    An attempt that failed half-way does no harm: what the Hub has already is not sent again, and where a commit took
    effect although its answer was lost, the next attempt finds nothing left to do.

    Args:
        target: a repository; it is created where it is missing. "name" alone is one of the user's own.
        folder: at least one file; it is not changed.
        message: the commit's title.
        render: makes more files, {path in the repository: content}, from the list of those that it has. They go
            before those of the folder; with None in place of the content, that of the folder is left out.
        mirror: folders of the repository whose other files are deleted, so that they are as in `folder`.
        tag: is set to the commit, and moved there where it is set already.
        token: in place of the login.
        patience: seconds before each further attempt, `PATIENCE` by default.

    Raises:
        HubError: after the last attempt, or at once where another one could not help; the folder is as it was.
    """
    api, commit = HfApi(token=token), FolderCommit(Path(folder), render, list(mirror))

    def attempt() -> CommitInfo:
        found = target if "/" in target.repo_id else ensure_repo(target, token, patience=())
        where = {"repo_id": found.repo_id, "repo_type": found.repo_type, "revision": found.revision}
        info = commit.send(api, where, message)
        if tag:
            _set_tag(api, found, tag, info.oid)
        return info

    def mend(failure: HubError) -> None:
        if failure.status == 404:  # deleted by somebody, or the branch was never made
            with suppress(HubError):  # the next attempt says it
                ensure_repo(target, token, patience=())

    return with_retries(attempt, target, patience, mend)


def push_command(target: HubTarget, folder: str | Path, path_in_repo: str = ".") -> str:
    """The command by which a person uploads `folder` later."""
    words = ["hf", "upload", target.repo_id, str(Path(folder).absolute()), path_in_repo]
    words += [] if target.repo_type == "model" else ["--repo-type", target.repo_type]
    words += ["--revision", target.revision] if target.revision else []
    words += ["--private"] if target.private else []
    return shlex.join(words)


def with_retries(
    attempt: Callable[[], Result],
    target: HubTarget,
    patience: Iterable[float] | None = None,
    mend: Callable[[HubError], None] = lambda failure: None,
) -> Result:
    """Return what `attempt` returns; where it fails and that may pass, `mend` and attempt again.

    Raises:
        HubError: after the last attempt, or at once where another one could not help.
    """
    waits = list(PATIENCE if patience is None else patience)
    for number in range(len(waits) + 1):
        try:
            return attempt()
        except FAILURES as error:
            failure = as_hub_error(error, target)
            if number == len(waits) or not failure.may_pass:
                raise failure from error
            wait = max(waits[number], min(failure.retry_after, LONGEST))
            logger.warning(f"{failure} Attempt {number + 2} of {len(waits) + 1} follows in {wait:.0f} s.")
            time.sleep(wait)
            mend(failure)
    raise AssertionError("the last attempt returns or raises")


def _refuse_a_reader(api: HfApi, target: HubTarget) -> None:
    """A repository that is there already is no error of `create_repo`, whatever this login may do with it."""
    if "write" not in inspect.signature(api.auth_check).parameters:  # huggingface_hub 1.33
        return
    try:
        api.auth_check(target.repo_id, repo_type=target.repo_type, write=True)
    except HTTP_ERROR as error:
        if getattr(getattr(error, "response", None), "status_code", None) in (401, 403):
            raise
        logger.info(f"Whether this login may write to {target} is not known before the first push: {error}")


def _set_tag(api: HfApi, target: HubTarget, tag: str, commit: str) -> None:
    """Set `tag`; one that is set already is from a run that came here before, or from an attempt that was cut."""
    refs = api.list_repo_refs(target.repo_id, repo_type=target.repo_type)
    there = {ref.name: ref.target_commit for ref in refs.tags}
    if there.get(tag) == commit:
        return
    if tag in there:
        api.delete_tag(target.repo_id, tag=tag, repo_type=target.repo_type)
    api.create_tag(target.repo_id, tag=tag, revision=commit, repo_type=target.repo_type)
