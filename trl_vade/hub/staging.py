"""The files of a save that are to be on the Hub: a folder of hard links, and the thread that sends it."""

import logging
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from huggingface_hub import CommitInfo, HfApi

from trl_vade.errors import HubError, HubOfflineError

from .failures import in_one_line
from .uploading import Card, HubTarget, ensure_repo, send_folder, with_retries

logger = logging.getLogger(__name__)

STAGING_FOLDER = "_hub"  # In the output directory. transformers pushes no file that starts with an underscore.

Commit = Future[CommitInfo | None]


class Files(NamedTuple):
    """A folder that is laid out as the repository is."""

    folder: Path
    step: int  # optimiser step
    message: str  # the title of its commit
    card: Card | None


class Staging:
    """The pushes to a branch, in the background. `announce` is told what has arrived.

    The newest files replace those that wait. What is being sent is left alone until its attempt ends.
    """

    def __init__(self, target: HubTarget, area: Path, announce: Callable[[str], None] = logger.info) -> None:
        self.target, self.area = target, area
        self.token: str | None = None  # in place of the login
        self.error: HubError | None = None  # why the newest files are not on the Hub
        self.waiting: Files | None = None
        self._sending: Files | None = None
        self._announce, self._api, self._lock = announce, HfApi(), threading.Lock()
        self._job: Commit | None = None
        self._sent: CommitInfo | None = None

    def busy(self) -> bool:
        """Return whether something is being sent."""
        return self._job is not None and not self._job.done()

    def stage(self, step: int, message: str, fill: Callable[[Path], Card | None]) -> Commit | None:
        """Send the files of an optimiser step, which `fill` puts into a folder. It may return their card.

        Return None if `fill` fails, such as with a full disk: that is the `error`, until a later one works.
        """
        try:
            self.area.mkdir(parents=True, exist_ok=True)
            folder = Path(tempfile.mkdtemp(dir=self.area, prefix=f"step-{step}-"))
            files = Files(folder, step, message, fill(folder))
        except Exception as error:  # the checkpoint is saved, so training goes on
            self.error = HubError(f"{self.target}: {message!r} could not be set aside ({in_one_line(error)}).")
            logger.warning(f"Not on the Hub: {self.error}")
            return None
        with self._lock:
            older, self.waiting = self.waiting, files
        if older is not None and older is not self._sending:
            self._delete(older)
        return self.send()

    def send(self) -> Commit:
        """Send what waits, in the client's thread. While the Hub cannot be reached, each call makes one attempt."""
        if self._job is None:
            # At exit, the process first sends what waits. This is registered after the hook of concurrent.futures, so
            # it is called before it: later the client could start no thread.
            threading._register_atexit(self._wait)  # type: ignore[attr-defined]
        self._job = self._api.run_as_future(self._send)
        return self._job

    def newest_step(self) -> int:
        """Return the step of the newest push to the branch; -1 if there is none."""
        commits = with_retries(lambda: self._api.list_repo_commits(**self.target.where), self.target)
        return next((step for commit in commits if (step := step_in(commit.message)) >= 0), -1)

    def _wait(self) -> None:
        with suppress(Exception):  # it is logged
            self._job and self._job.result()

    def _send(self) -> CommitInfo | None:
        down = self.error is not None and self.error.may_pass
        try:
            self._sent = with_retries(self._attempt, self.target, () if down else None, self.token)
        except Exception as raised:  # an error in this thread would be lost
            self.error = raised if isinstance(raised, HubError) else HubError(f"{self.target}: {in_one_line(raised)}")
            level = logging.INFO if isinstance(raised, HubOfflineError) else logging.WARNING
            logger.log(level, f"Not on the Hub: {self.error}")
            raise self.error from raised
        self.error = None
        return self._sent

    def _attempt(self) -> CommitInfo | None:
        if "/" not in self.target.repo_id:  # its owner, which only the Hub knows
            self.target = ensure_repo(self.target, self.token, patience=())
        with self._lock:
            files = self._sending = self.waiting
        if files is None:  # an earlier job has sent it
            return self._sent
        about, arrived = {"commit_description": f"step-{files.step}"}, False
        try:
            api = HfApi(token=self.token)
            commit = send_folder(api, self.target, files.folder, files.message, files.card, **about)
            arrived = True
        finally:
            with self._lock:
                self._sending = None
                newest = self.waiting is files
                self.waiting = None if arrived and newest else self.waiting
            if arrived or not newest:
                self._delete(files)
        self._announce(f"{files.message!r} is on the Hub: {self.target.repo_id}")
        return commit

    def _delete(self, files: Files) -> None:
        shutil.rmtree(files.folder, ignore_errors=True)
        with suppress(OSError):  # others wait
            self.area.rmdir()


def step_in(text: str) -> int:
    """Return the optimiser step in the description of a commit; -1 if there is none."""
    found = re.search(r"step-(\d+)", text)
    return int(found[1]) if found else -1


def link(file: Path, target: Path, *, copy: bool = False) -> None:
    """Make `target` a hard link of `file`, or a copy: if asked for, or where there are no hard links."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with suppress(OSError):
        if not copy:
            return os.link(file.resolve(), target)
    shutil.copy2(file, target)


def files_in(folder: Path) -> dict[str, Path]:
    """Return the files of `folder` by their relative path, with slashes."""
    return {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
