"""Upload of a folder to the Hugging Face Hub in one commit, with retries and a check of the result.

huggingface_hub 2.4 retries the upload of files but not the commit, and `upload_folder` may make several commits of one
folder. When `commit_folder` returns, the repository holds the files of the folder, in one commit, with equal hashes.

The client reads the token from HF_TOKEN or from the login (`hf auth login`). No function here stores a token.
"""

import inspect
import logging
import os
import re
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from huggingface_hub import CommitInfo, HfApi, constants

from trl_vade.errors import HubError

from .commit import FolderCommit
from .failures import FAILURES, HTTP_ERROR, XET_ERROR, as_hub_error

logger = logging.getLogger(__name__)  # accelerate's logger does not work in a command without a trainer

PATIENCE = (2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
"""Seconds before each retry. A longer wait that the Hub asks for is respected, up to `LONGEST`."""
LONGEST = 600.0

Result = TypeVar("Result")
Token = str | bool | None  # in place of the login, as the client takes it


def is_hub_id(value: Any) -> bool:
    """Return whether `value` can be the id of a repository on the Hub: "name" or "user/name"."""
    return isinstance(value, str) and re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", value, re.ASCII) is not None


def hub_id(name: Any) -> str | None:
    """Return `name` if it can be the id of a repository and is not a local path, else None."""
    return name if is_hub_id(name) and not os.path.exists(name) else None


@dataclass(frozen=True)
class HubTarget:
    """A branch of a repository."""

    repo_id: str  # "user/name", or "name" for a repository of the login's user
    repo_type: str = "model"  # "model" or "dataset"
    revision: str | None = None  # the branch; None is main
    # whether a new repository is private; None uses the default of the user or the organisation
    private: bool | None = None

    def __str__(self) -> str:
        branch = f" (branch {self.revision})" if self.revision else ""
        return f"the {'data-set' if self.repo_type == 'dataset' else self.repo_type} repository {self.repo_id}{branch}"

    @property
    def where(self) -> dict[str, Any]:
        """Return the arguments with which the client takes it."""
        return {"repo_id": self.repo_id, "repo_type": self.repo_type, "revision": self.revision}


def branch_of(revision: str | None) -> str | None:
    """Return `revision`, or None if it is main, which every repository has."""
    return None if revision == constants.DEFAULT_REVISION else revision


def ensure_repo(target: HubTarget, token: Token = None, *, patience: Iterable[float] | None = None) -> HubTarget:
    """Create the repository and its branch if they do not exist, and return the target with the owner's name.

    Raises:
        HubError: the Hub refuses, cannot be reached, or allows this login only to read.
    """
    api = HfApi(token=token)

    def attempt() -> HubTarget:
        url = api.create_repo(target.repo_id, repo_type=target.repo_type, private=target.private, exist_ok=True)
        found = replace(target, repo_id=url.repo_id)
        _refuse_a_reader(api, found)
        if branch_of(found.revision):
            # `hub_revision` does not create the branch (transformers 5.23), so the first push would fail.
            api.create_branch(found.repo_id, branch=found.revision, repo_type=found.repo_type, exist_ok=True)
        return found

    return with_retries(attempt, target, patience)


def commit_folder(
    target: HubTarget, folder: str | Path, *, message: str, tag: str | None = None, **layout: Any
) -> CommitInfo:
    """Upload all files of `folder`, which has the layout of the repository, in one commit, and return the commit.

    The repository is created if it does not exist; `folder` is not changed. `message` is the title of the commit,
    `tag` a tag to set or move to it, and `layout` the arguments `render` and `mirror` of `FolderCommit.send`.

    A retry sends no file that the Hub already has. If the commit was made and only its answer was lost, the retry
    changes nothing. If the Hub refuses the card, the other files go without it, and a warning has the reason.

    Raises:
        HubError: after the last attempt, or at once if a retry cannot help.
    """
    commit, layout["tags"] = FolderCommit(), [tag] if tag else []

    def attempt() -> CommitInfo:
        return commit.send(HfApi(), with_owner(target).where, Path(folder), commit_message=message, **layout)

    return with_retries(attempt, target)


def with_owner(target: HubTarget, token: Token = None) -> HubTarget:
    """Return the target with its owner's name, which only the Hub knows if it was not given."""
    return target if "/" in target.repo_id else ensure_repo(target, token, patience=())


def with_retries(
    attempt: Callable[[], Result], target: HubTarget, patience: Iterable[float] | None = None, token: Token = None
) -> Result:
    """Return the result of `attempt`, with retries after errors that may pass. Logs a warning before each retry.

    A repository or branch that does not exist is created before a retry. `patience` are the seconds before each retry;
    None uses `PATIENCE`. The last error, or one that a retry cannot help, is raised as a `HubError`.
    """
    waits = list(PATIENCE if patience is None else patience)
    for number in range(len(waits) + 1):
        try:
            return attempt()
        except FAILURES as error:
            failure = as_hub_error(error, target)
            if number == len(waits) or not failure.may_pass:
                raise failure from error
            if type(error) is XET_ERROR:
                constants.HF_HUB_DISABLE_XET = True  # the client's own switch
        wait = max(waits[number], min(failure.retry_after, LONGEST))
        clock = time.strftime("%H:%M:%S", time.localtime(time.time() + wait))
        logger.warning(f"{failure} Attempt {number + 2} of {len(waits) + 1} follows in {wait:.0f} s, at {clock}.")
        time.sleep(wait)
        if failure.status == 404:
            with suppress(HubError):  # the next attempt reports it
                ensure_repo(target, token, patience=())
    raise AssertionError("the last attempt returns or raises")


def _refuse_a_reader(api: HfApi, target: HubTarget) -> None:
    """Raise the client's error if this login may only read. `create_repo` accepts any existing repository."""
    if "write" not in inspect.signature(api.auth_check).parameters:  # huggingface_hub 1.33
        return
    try:
        api.auth_check(target.repo_id, repo_type=target.repo_type, write=True)
    except HTTP_ERROR as error:
        if getattr(getattr(error, "response", None), "status_code", None) in (401, 403):
            raise
        logger.info(f"It is not known before the first push whether this login may write to {target}: {error}")
