"""Upload of a folder to the Hugging Face Hub by the client's `upload_folder`, with retries.

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
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, TypeVar

from huggingface_hub import CommitInfo, HfApi, constants
from huggingface_hub.constants import REPOCARD_NAME

from trl_vade.errors import HubError

from .failures import FAILURES, HTTP_ERROR, as_hub_error, in_one_line

logger = logging.getLogger(__name__)  # accelerate's logger does not work in a command without a trainer

PATIENCE = (2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
"""Seconds before each retry. A longer wait that the Hub asks for is respected, up to `LONGEST`."""
LONGEST = 600.0

_MIRRORED = re.compile(r"last-checkpoint|(checkpoint|step)-(\d+)")

Result = TypeVar("Result")
Token = str | bool | None  # in place of the login, as the client takes it
Card = Callable[[list[str]], str]
"""Returns the text of a card for the paths that the repository keeps."""


def is_hub_id(value: Any) -> bool:
    """Return whether `value` can be the id of a repository on the Hub: "name" or "user/name"."""
    known = r"(?=.{1,96}$)\w[\w.-]*(/\w[\w.-]*)?"  # the Hub takes no longer one
    return isinstance(value, str) and re.fullmatch(known, value, re.ASCII) is not None


def hub_id(name: Any) -> str | None:
    """Return `name` if it can be the id of a repository and is not a local path, else None."""
    return name if is_hub_id(name) and not os.path.exists(name) else None


@dataclass(frozen=True)
class HubTarget:
    """A branch of a repository."""

    repo_id: str  # "user/name", or "name" for a repository of the login's user
    repo_type: str = "model"  # "model" or "dataset"
    revision: str | None = None  # the branch; None is main
    private: bool | None = None  # whether a new repository is private; None is the default of its owner

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


def _refuse_a_reader(api: HfApi, target: HubTarget) -> None:
    # `create_repo` accepts any existing repository. huggingface_hub 1.33 cannot ask.
    if "write" in inspect.signature(api.auth_check).parameters:
        try:
            api.auth_check(target.repo_id, repo_type=target.repo_type, write=True)
        except HTTP_ERROR as error:
            if getattr(getattr(error, "response", None), "status_code", None) in (401, 403):
                raise


def push_folder(target: HubTarget, folder: Path, message: str, card: Card, **about: Any) -> CommitInfo:
    """Push a folder as `send_folder` does, and retry. Raises `HubError`."""
    return with_retries(partial(send_folder, HfApi(), target, folder, message, card, **about), target)


def send_folder(
    api: HfApi,
    target: HubTarget,
    folder: Path,
    message: str,
    card: Card | None = None,
    *,
    delete: Iterable[str] = (),
    **about: Any,
) -> CommitInfo:
    """Make one attempt to push the files of `folder`, which has the layout of the repository, in a commit `message`.

    In the same commit, the checkpoints and steps of the folder become what they are here, and later ones are deleted,
    which the log says: the repository shows one run. Paths that match `delete` go, too. `card` makes README.md. If the
    Hub refuses it, the other files go without it. Over 250 files are several commits (huggingface_hub 2.4), of which
    the first deletes. `about` are arguments of `upload_folder`, whose errors are raised.
    """
    if card:  # The Hub refuses the commit if somebody else changes the card meanwhile. The next attempt reads it anew.
        about["parent_commit"] = api.repo_info(**target.where).sha
    there = api.list_repo_files(**target.where)
    mirrored = [path.name for path in folder.iterdir() if _MIRRORED.fullmatch(path.name)]
    steps, tops = dict(map(_kind_and_step, mirrored)), {path.split("/")[0] for path in there}
    later = sorted((top for top in tops if (of := _kind_and_step(top))[1] > steps.get(of[0], inf)), key=_kind_and_step)
    if card:
        text = card([path for path in there if path.split("/")[0] not in later])
        (folder / REPOCARD_NAME).write_text(text, encoding="utf-8")
    about["delete_patterns"] = [*delete, *(f"{name}/*" for name in [*mirrored, *later])] or None
    send = partial(api.upload_folder, **target.where, folder_path=folder, commit_message=message, **about)
    try:
        info = send()
    except ValueError as error:
        if not re.search("metadata|yaml", str(error), re.IGNORECASE):
            raise
        logger.warning(f"The Hub refuses the card of {target}: {in_one_line(error)}. The other files go without it.")
        info = send(ignore_patterns=[REPOCARD_NAME])
    if later:
        logger.warning(f"{message!r} deleted what is later in {target}: {', '.join(later)}. Its history keeps them.")
    return info


def _kind_and_step(name: str) -> tuple[str, int]:
    found = _MIRRORED.fullmatch(name)
    return (found[1], int(found[2])) if found and found[1] else (name, -1)


def with_retries(
    attempt: Callable[[], Result], target: HubTarget, patience: Iterable[float] | None = None, token: Token = None
) -> Result:
    """Return the result of `attempt`, with retries after errors that may pass. Logs a warning before each retry.

    `patience` are the seconds before each retry; None uses `PATIENCE`. A repository or branch that is gone is made
    again. The last error, or one that a retry cannot help, is raised as a `HubError`.
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
        clock = time.strftime("%H:%M:%S", time.localtime(time.time() + wait))
        logger.warning(f"{failure} Attempt {number + 2} of {len(waits) + 1} follows in {wait:.0f} s, at {clock}.")
        time.sleep(wait)
        if failure.status == 404:
            with suppress(HubError):  # the next attempt reports it
                ensure_repo(target, token, patience=())
    raise AssertionError("the last attempt returns or raises")
