"""Upload of a folder to the Hub in one commit, with retries, and what the Hub refused; no token is written."""

import logging
import os
import re
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from json import JSONDecodeError
from math import inf
from pathlib import Path
from typing import Any

from huggingface_hub import CommitInfo, CommitOperationAdd, CommitOperationDelete, HfApi, constants
from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled
from huggingface_hub.utils import filter_repo_objects

from trl_vade.errors import HubError, HubOfflineError

logger = logging.getLogger(__name__)  # accelerate's logger does not work in a command without a trainer


HTTP_ERROR = HfHubHTTPError.__bases__[0]
"""httpx's base error (no connection, a cut connection, a timeout), whichever version huggingface_hub uses."""

FAILURES = (HTTP_ERROR, OSError, ValueError, LookupError, RuntimeError)
"""Errors of the client. RuntimeError: a large file; its cause is the reason. LookupError and ValueError: an answer of
a proxy instead of the Hub. ValueError also: an argument that the client refuses. ConnectionError: hf_xet."""

_MEND = "Mend this, and push again."
_ROOM = "Delete old files there, or get more room at https://huggingface.co/settings/billing."
_WAYS_OUT = {  # by status
    None: "Check the network and HF_ENDPOINT.",
    401: "Set HF_TOKEN to a valid token, or run `hf auth login`.",
    403: f"Use a token with write access to a repository of yours. If its storage is full: {_ROOM}",
    404: "Was it deleted? A run makes no repository again: make it yourself, private if it was, and push again.",
    429: "A repository takes 128 commits an hour: a larger save_steps makes fewer.",
    **dict.fromkeys((402, 507), _ROOM),
}


def as_hub_error(error: Exception, target: object) -> HubError:
    """Return an error of the client as a `HubError` about `target`, with the way out."""
    if isinstance(error, HubError):
        return error
    if isinstance(error, RuntimeError) and isinstance(error.__cause__, FAILURES):
        error = error.__cause__
    if isinstance(error, OfflineModeIsEnabled):
        return HubOfflineError(f"HF_HUB_OFFLINE is set, so nothing is sent to {target}. Unset it to push.")
    what, status, wait = f"{target}: {in_one_line(error)}.", None, 0.0
    may_pass = isinstance(error, JSONDecodeError) or not isinstance(error, ValueError)
    advice = "If large files fail, HF_HUB_DISABLE_XET=1 sends them by LFS." if may_pass else _MEND
    if isinstance(error, HTTP_ERROR):
        response = getattr(error, "response", None)
        status, headers = getattr(response, "status_code", None), getattr(response, "headers", {})
        may_pass = status in (None, 404, 408, 409, 412, 429) or (status >= 500 and status != 507)
        may_pass |= "LFS pointer" in what  # the Hub does not see yet what was just sent
        advice = _WAYS_OUT.get(status, "See https://status.huggingface.co." if may_pass else _MEND)
        after = headers.get("Retry-After", "")
        wait = float(after) if after.isdigit() else 120.0 if status == 429 else 0.0  # the Hub rarely says how long
    return HubError(f"{what} {advice}", status=status, may_pass=may_pass, retry_after=wait)


def in_one_line(error: BaseException) -> str:
    """Return an error's name and message as a line of up to 1,000 characters, without signatures in addresses."""
    text = re.sub(r"For more information check: \S+", "", str(error))  # httpx explains the status by a link
    text = re.sub(r"(https?://[^\s?]+)\?\S+", r"\1", " ".join(text.split())).rstrip(".")
    return f"{type(error).__name__}: {text[:1000]}" if text else type(error).__name__


PATIENCE = (2.0, 4.0, 8.0, 16.0, 32.0, 64.0)  # seconds before each retry
LONGEST = 600.0  # seconds of a longer wait that the Hub asks for

Card = Callable[[list[str]], str]  # returns the text of a card for the paths that the repository keeps


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
    token: str | None = field(default=None, repr=False)  # in place of the login

    def __str__(self) -> str:
        branch = f" (branch {self.revision})" if self.revision else ""
        return f"the {'data-set' if self.repo_type == 'dataset' else self.repo_type} repository {self.repo_id}{branch}"

    @property
    def where(self) -> dict[str, Any]:
        """Return the arguments with which the client takes it."""
        return {"repo_id": self.repo_id, "repo_type": self.repo_type, "revision": self.revision, "token": self.token}


def branch_of(revision: str | None) -> str | None:
    """Return `revision`, or None if it is main, which every repository has."""
    return None if revision == constants.DEFAULT_REVISION else revision


def ensure_repo(target: HubTarget) -> HubTarget:
    """Create the repository and its branch if needed. Return the target with its owner, or raise `HubError`."""
    return with_retries(partial(_made, target), target)


def _made(target: HubTarget) -> HubTarget:
    api, kind = HfApi(token=target.token), target.repo_type
    name = api.create_repo(target.repo_id, repo_type=kind, private=target.private, exist_ok=True).repo_id
    with suppress(TypeError):  # `create_repo` accepts any repository that exists. huggingface_hub 1.33 cannot ask.
        api.auth_check(name, repo_type=kind, write=True)
    if branch_of(target.revision):  # which `hub_revision` does not create (transformers 5.23)
        api.create_branch(name, branch=target.revision, repo_type=kind, exist_ok=True)
    return replace(target, repo_id=name)


def send_folder(
    target: HubTarget, folder: Path, message: str, card: Card | None = None, delete: Iterable[str] = (), **about: Any
) -> CommitInfo:
    """Make one attempt to push the files of `folder`, which has the layout of the repository, in a commit `message`.

    The checkpoints and steps of the folder become what they are here. Later ones and what matches `delete` are
    deleted, as the log says. `card` makes README.md; if the Hub refuses it, the other files go without it. `about`
    are arguments of `create_commit`, whose errors are raised: `upload_folder` makes several commits.
    """
    api, here = HfApi(token=target.token), [path.name for path in folder.iterdir() if path.is_dir()]
    if branch_of(target.revision):  # such as the new one of `push_to_hub(revision=...)`
        api.create_branch(target.repo_id, branch=target.revision, repo_type=target.repo_type, exist_ok=True)
    head = api.repo_info(**target.where).sha  # If another commit comes first, the Hub refuses ours.
    there = api.list_repo_files(**target.where | {"revision": head})
    newest, tops = dict(map(_kind_and_step, here)), {path.split("/")[0] for path in there}
    later = [top for top in tops if (of := _kind_and_step(top))[1] > newest.get(of[0], inf)]
    mirrored = [name for name in here if name == "last-checkpoint" or _kind_and_step(name)[0]]
    gone = {*filter_repo_objects(there, allow_patterns=[*delete, *(f"{name}/*" for name in mirrored + later)])}
    if card:
        (folder / constants.REPOCARD_NAME).write_text(card([path for path in there if path not in gone]), "utf-8")
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    operations = [*map(CommitOperationDelete, gone - files.keys()), *map(CommitOperationAdd, files, files.values())]
    send = partial(api.create_commit, **target.where, commit_message=message, parent_commit=head, **about)
    try:
        info = send(operations=operations)
    except ValueError as error:
        if not re.search("metadata|yaml", str(error), re.IGNORECASE):
            raise
        logger.warning(f"The Hub refuses the card of {target}: {in_one_line(error)}. The other files go without it.")
        info = send(operations=[each for each in operations if each.path_in_repo != constants.REPOCARD_NAME])
    if deleted := sorted({path.split("/")[0] for path in gone}.difference(here), key=_kind_and_step):
        logger.warning(f"{message!r} deleted in {target}: {', '.join(deleted)}. Its history keeps them.")
    return info


def _kind_and_step(name: str) -> tuple[str, int]:
    found = re.fullmatch(r"(checkpoint|step)-(\d+)", name)
    return (found[1], int(found[2])) if found else ("", 0)


def with_retries(attempt: Callable[[], Any], target: HubTarget) -> Any:
    """Return the result of `attempt`, with logged retries after errors that may pass, or raise `HubError`."""
    waits = [*PATIENCE]
    while True:
        try:
            return attempt()
        except FAILURES as error:
            failure = as_hub_error(error, target)
            if not (waits and failure.may_pass):
                raise failure from error
        seconds = max(waits.pop(0), min(failure.retry_after, LONGEST))
        logger.warning(f"{failure} The next attempt is in {seconds:.0f} s. {len(waits)} may follow it.")
        time.sleep(seconds)
