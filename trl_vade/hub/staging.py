"""The files of a save that are to be on the Hub: a folder of hard links, and the thread that sends it.

    _hub/model/000002-step-100/   laid out as the repository is

A folder gets its name when it is whole, and loses it before it is deleted. The newest replaces what waits; what is
being sent is left alone until its attempt ends. A killed process leaves what it did not send to the next start.
"""

import logging
import os
import re
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from huggingface_hub import CommitInfo, HfApi

from trl_vade.errors import HubError, HubOfflineError

from .failures import in_one_line
from .uploading import Card, HubTarget, ensure_repo, send_folder, with_retries

logger = logging.getLogger(__name__)

STAGING_FOLDER = "_hub"  # In the output directory. transformers pushes no file that starts with an underscore.

Commit = Future[CommitInfo | None]

_FILES = threading.RLock()  # one thread adds folders, others delete them


class Staging:
    """The pushes to a branch, in the background. Making one sends nothing. `announce` is told what has arrived."""

    def __init__(self, target: HubTarget, area: Path, announce: Callable[[str], None] = logger.info) -> None:
        branch = f"@{quote(target.revision, safe='')}" if target.revision else ""
        self.target, self.folder = target, area / f"{target.repo_type}{branch}"
        self.token: str | None = None  # in place of the login
        self.error: HubError | None = None  # of the last attempt
        self.unstaged: HubError | None = None  # why the newest files could not be set aside
        self._announce, self._api = announce, HfApi()
        self._job: Commit | None = None
        self._sent: CommitInfo | None = None
        self._sending: Path | None = None
        self._about: dict[str, tuple[str, Card | None]] = {}  # by folder

    def waiting(self) -> list[Path]:
        """Return the folders that are not on the Hub, oldest first."""
        return sorted(self.folder.glob("[0-9]*-step-*"))

    @property
    def failure(self) -> HubError | None:
        """Return why the newest files are not on the Hub, but for a Hub that is switched off."""
        error = self.unstaged or self.error
        return None if isinstance(error, HubOfflineError) else error

    def busy(self) -> bool:
        """Return whether something is being sent."""
        return self._job is not None and not self._job.done()

    def stage(self, step: int, message: str, fill: Callable[[Path], Card | None]) -> Commit | None:
        """Send the files of an optimiser step, which `fill` puts into a folder. It may return their card.

        Return None if `fill` fails, such as with a full disk: that is `unstaged`, until a later one works.
        """
        new = self.folder / "new"
        try:
            with _FILES:
                shutil.rmtree(new, ignore_errors=True)  # of a killed process
                new.mkdir(parents=True)
            card = fill(new)
        except Exception as error:  # the checkpoint is saved, so training goes on
            self.unstaged = HubError(f"{self.target}: {message!r} could not be set aside ({in_one_line(error)}).")
            logger.warning(f"Not on the Hub: {self.unstaged}")
            shutil.rmtree(new, ignore_errors=True)
            return None
        self.unstaged = None
        with _FILES:
            older = self.waiting()
            number = int(older[-1].name.split("-")[0]) + 1 if older else 0
            folder = new.rename(self.folder / f"{number:06d}-step-{step}")
            self._about[folder.name] = message, card
            self.drop(*(path for path in older if path != self._sending))
        return self.send()

    def send(self) -> Commit:
        """Send what waits, in the client's thread. While the Hub cannot be reached, each call makes one attempt."""
        if self._job is None:
            # At exit, the process first sends what waits. This is registered after the hook of concurrent.futures, so
            # it is called before it: later the client could start no thread.
            threading._register_atexit(self._wait)  # type: ignore[attr-defined]
        self._job = self._api.run_as_future(self._send)
        return self._job

    def drop(self, *folders: Path) -> None:
        """Delete folders. One that is half deleted has another name."""
        with _FILES:
            for folder in folders:
                gone = folder.with_name("gone")
                shutil.rmtree(gone, ignore_errors=True)
                shutil.rmtree(folder.rename(gone), ignore_errors=True)
                self._about.pop(folder.name, None)
            with suppress(OSError):  # others wait
                self.folder.rmdir()
                self.folder.parent.rmdir()

    def steps_there(self, since: float = 0.0) -> list[int]:
        """Return the steps of the commits after a time, the newest first."""
        commits = with_retries(lambda: self._api.list_repo_commits(**self.target.where), self.target)
        steps = [step_in(commit.message) for commit in commits if commit.created_at.timestamp() > since]
        return [step for step in steps if step >= 0]

    def kept(self) -> str:
        """Return the last error, the place of the files and the way to send them."""
        *_, newest = self.waiting() or [self.folder]
        waits = f"The files wait in {newest}. trainer.push_to_hub() sends them, or another start of the run."
        return str(self.unstaged or f"{self.error} {waits}")

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
            logger.log(level, f"Not on the Hub: {self.kept()}")
            raise self.error from raised
        self.error = None
        return self._sent

    def _attempt(self) -> CommitInfo | None:
        if "/" not in self.target.repo_id:  # its owner, which only the Hub knows
            self.target = ensure_repo(self.target, self.token, patience=())
        with _FILES:
            if not self.waiting():  # an earlier job has sent it
                return self._sent
            folder = self._sending = self.waiting()[-1]
        step = f"step-{step_in(folder.name)}"
        message, card = self._about.get(folder.name, (f"Training in progress, {step.replace('-', ' ')}", None))
        try:
            api = HfApi(token=self.token)
            commit = send_folder(api, self.target, folder, message, card, commit_description=step)
        finally:
            self._sending = None
        self.drop(*(path for path in self.waiting() if path.name <= folder.name))
        self._announce(f"{message!r} is on the Hub: {self.target.repo_id}")
        return commit


def step_in(text: str) -> int:
    """Return the optimiser step in the name of a folder or the description of a commit; -1 if there is none."""
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
