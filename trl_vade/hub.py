"""A folder to the Hugging Face Hub: in one commit, tried again where that can help, and compared with what arrived.

huggingface_hub 2.4 does not send a commit a second time, also where the Hub was busy for a moment or the answer was
lost on the way (its own retries are about the files before it), and `upload_folder` may make several commits of one
folder. `commit_folder` does one thing: when it returns, the files of the folder are in the repository, in one commit,
with the hashes that they have here.

The token is the client's own business: it is read from HF_TOKEN or from the login (`hf auth login`), and no function
here puts it anywhere.
"""

import hashlib
import logging
import shlex
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from json import JSONDecodeError
from pathlib import Path

from huggingface_hub import CommitInfo, CommitOperationAdd, CommitOperationDelete, HfApi, constants
from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

from .errors import HubError, HubOfflineError

logger = logging.getLogger(__name__)  # not accelerate's, which is of no use in a command without a trainer

PATIENCE = (2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
"""Seconds before each further attempt. A `Retry-After` of the Hub that asks for more is kept to, up to `LONGEST`."""
LONGEST = 300.0

HTTP_ERROR = HfHubHTTPError.__bases__[0]
"""What httpx raises, whichever of its names huggingface_hub uses: no connection, a cut one, no answer in time."""

FAILURES = (HTTP_ERROR, OSError, ValueError, LookupError, RuntimeError)
"""What the client raises: RuntimeError for a large file (its cause says why), LookupError and ValueError where the
answer is not one of the Hub, but of some proxy before it, ValueError also for what it refuses itself."""

Render = Callable[[list[str]], dict[str, bytes]]


@dataclass(frozen=True)
class HubTarget:
    """A branch of a repository.

    Attributes:
        repo_id: "user/name"; before `ensure_repo` also "name", which is then one of the user's own.
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


def offline() -> bool:
    """Whether the client was told to use no network (HF_HUB_OFFLINE)."""
    return bool(constants.HF_HUB_OFFLINE)


def ensure_repo(target: HubTarget, token: str | bool | None = None) -> HubTarget:
    """Create the repository and its branch where they are not there; return the target with the owner's name.

    Raises:
        HubError: the Hub refuses, or cannot be reached.
    """
    api = HfApi(token=token)
    try:
        url = api.create_repo(target.repo_id, repo_type=target.repo_type, private=target.private, exist_ok=True)
        target = replace(target, repo_id=url.repo_id)
        if target.revision not in (None, constants.DEFAULT_REVISION):
            # `hub_revision` does not create it (transformers 5.23), and the first push would be the one to fail.
            api.create_branch(target.repo_id, branch=target.revision, repo_type=target.repo_type, exist_ok=True)
    except FAILURES as error:
        raise _explained(error, target) from error
    return target


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
        target: a repository; it is created where it is missing.
        folder: at least one file; it is not changed.
        message: the commit's title.
        render: makes more files, {path in the repository: content}, from the list of those that it has.
        mirror: folders of the repository whose other files are deleted, so that they are as in `folder`.
        tag: is set to the commit, and moved there where it is set already.
        token: in place of the login.
        patience: seconds before each further attempt, `PATIENCE` by default.

    Raises:
        HubError: after the last attempt, or at once where another one could not help; the folder is as it was.
    """
    api = HfApi(token=token)
    waits = list(PATIENCE if patience is None else patience)
    for attempt in range(len(waits) + 1):
        try:
            info = _commit(api, target, Path(folder), message, render, list(mirror))
            if tag:
                _set_tag(api, target, tag, info.oid)
            return info
        except FAILURES as error:
            failure = _explained(error, target)
            if attempt == len(waits) or not failure.may_pass:
                raise failure from error
            wait = max(waits[attempt], min(failure.retry_after, LONGEST))
            logger.warning(f"{failure} Attempt {attempt + 2} of {len(waits) + 1} follows in {wait:.0f} s.")
            time.sleep(wait)
            if failure.status == 404:  # deleted by somebody, or the branch was never made
                with suppress(HubError):  # the next attempt says it
                    ensure_repo(target, token)
    raise AssertionError("the last attempt returns or raises")


def push_command(target: HubTarget, folder: str | Path) -> str:
    """The command by which a person uploads `folder` later."""
    words = ["hf", "upload", target.repo_id, str(Path(folder).absolute()), "."]
    words += [] if target.repo_type == "model" else ["--repo-type", target.repo_type]
    words += ["--revision", target.revision] if target.revision else []
    return shlex.join(words)


def files_in(folder: Path) -> dict[str, Path]:
    """The files of `folder` by their path in it, with slashes."""
    return {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}


def _commit(
    api: HfApi, target: HubTarget, folder: Path, message: str, render: Render | None, mirrored: list[str]
) -> CommitInfo:
    """One attempt."""
    where = {"repo_id": target.repo_id, "repo_type": target.repo_type, "revision": target.revision}
    additions = [CommitOperationAdd(path, str(file)) for path, file in files_in(folder).items()]
    deletions, head = [], None
    if render is not None or mirrored:
        head = api.repo_info(**where).sha  # what follows holds for this commit: another one in between is refused
        there = api.list_repo_files(target.repo_id, repo_type=target.repo_type, revision=head)
        for path, content in (render(there) if render else {}).items():
            additions.append(CommitOperationAdd(path, content))
        kept, prefixes = {operation.path_in_repo for operation in additions}, tuple(f"{name}/" for name in mirrored)
        deletions = [CommitOperationDelete(path) for path in there if path.startswith(prefixes) and path not in kept]
    info = api.create_commit(**where, operations=[*additions, *deletions], commit_message=message, parent_commit=head)
    _compare(api, target, additions, info.oid)
    return info


def _compare(api: HfApi, target: HubTarget, additions: list[CommitOperationAdd], commit: str) -> None:
    """Raise `HubError` unless the commit holds each file with the bytes that it has here."""
    paths = [operation.path_in_repo for operation in additions]
    found = {
        entry.path: entry
        for entry in api.get_paths_info(target.repo_id, paths, repo_type=target.repo_type, revision=commit)
    }
    wrong = [operation.path_in_repo for operation in additions if not _same(operation, found)]
    if wrong:
        raise HubError(
            f"{target} holds other bytes than were sent of {len(wrong)} of {len(paths)} files, such as {wrong[0]} "
            f"(commit {commit[:8]}): they were damaged on the way, or the file changed while it was sent.",
            may_pass=True,
        )


def _same(operation: CommitOperationAdd, found: dict) -> bool:
    entry = found.get(operation.path_in_repo)
    if entry is None:
        return False
    if entry.lfs is not None:
        return entry.lfs.sha256 == operation.upload_info.sha256.hex()
    with operation.as_file() as file:
        content = file.read()
    return entry.blob_id == hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()  # as git names it


def _set_tag(api: HfApi, target: HubTarget, tag: str, commit: str) -> None:
    """Set `tag`; one that is set already is from a run that came here before, or from an attempt that was cut."""
    refs = api.list_repo_refs(target.repo_id, repo_type=target.repo_type)
    there = {ref.name: ref.target_commit for ref in refs.tags}
    if there.get(tag) == commit:
        return
    if tag in there:
        api.delete_tag(target.repo_id, tag=tag, repo_type=target.repo_type)
    api.create_tag(target.repo_id, tag=tag, revision=commit, repo_type=target.repo_type)


def _explained(error: Exception, target: HubTarget) -> HubError:
    """The error of the client as one that says what to do."""
    if isinstance(error, HubError):
        return error
    if isinstance(error, RuntimeError) and isinstance(error.__cause__, FAILURES):
        error = error.__cause__
    if isinstance(error, OfflineModeIsEnabled):
        return HubOfflineError(f"HF_HUB_OFFLINE is set, so nothing is sent to {target}. Unset it to push.")
    if isinstance(error, HTTP_ERROR):
        response = getattr(error, "response", None)
        status = getattr(response, "status_code", None)
        what, advice, may_pass = _ANSWERS.get(status, _ANSWERS[None] if status is None else _other(status))
        retry_after = getattr(response, "headers", {}).get("Retry-After", "")
        return HubError(
            f"{target}: {what} ({_first_line(error)}). {advice}",
            status=status,
            may_pass=may_pass,
            retry_after=float(retry_after) if retry_after.isdigit() else 0.0,
        )
    if isinstance(error, ValueError) and not isinstance(error, JSONDecodeError):
        return HubError(f"{target}: {_first_line(error)}. Nothing was sent; this is to be mended first.")
    return HubError(
        f"{target}: a file could not be read here, or the answer is not one of the Hub ({_first_line(error)}).",
        may_pass=True,
    )


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0].rstrip('.')}" if lines else type(error).__name__


# status: what it means, what to do, whether it may pass by itself
_ANSWERS: dict[int | None, tuple[str, str, bool]] = {
    None: ("no answer from the Hub", "See to the network, or to HF_ENDPOINT.", True),
    400: ("the Hub does not accept what was sent", "If it stays, the message above says what is wrong.", True),
    401: (
        "the Hub knows no login for this",
        "Set HF_TOKEN, or run `hf auth login`, with a token that may write here; it may have expired.",
        False,
    ),
    403: (
        "this login may not write there",
        "Use a token with write access to this repository, or name one of your own.",
        False,
    ),
    404: ("it is not there, or hidden from this login", "It is made anew where this login may.", True),
    409: ("somebody else changes it at this moment", "", True),
    412: ("another commit came in between", "", True),
    429: ("too many requests", "The Hub asks to wait.", True),
}


def _other(status: int) -> tuple[str, str, bool]:
    if status >= 500:
        return f"the Hub answers {status}", "It is down or overloaded; see https://status.huggingface.co.", True
    return f"the Hub answers {status}", "", status == 408
