"""The files of a save that are to be on the Hub: a folder of hard links, and the thread that sends it."""

import logging
import os
import re
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial
from pathlib import Path
from uuid import uuid4

from huggingface_hub import CommitInfo, HfApi

from trl_vade.errors import HubError

from .uploading import Card, HubTarget, in_one_line, send_folder, with_retries

logger = logging.getLogger(__name__)

STAGED = "_hub-"  # Begins the name of a folder in the output directory. transformers pushes nothing with "_" first.

Commit = Future[CommitInfo | None]
Send = Callable[[HubTarget], CommitInfo]


class Staging:
    """The pushes to a branch, in the client's background thread: the newest files replace those that wait."""

    def __init__(self, target: HubTarget, output_dir: Path, announce: Callable[[str], None] = logger.info) -> None:
        self.target, self._output_dir, self._announce = target, output_dir.resolve(), announce
        self.stale: list[str] = []  # patterns of what the next commit deletes
        self.job: Commit = Future()  # of the newest files
        self.job.set_result(None)
        self._api, self._newest = HfApi(), self._output_dir / STAGED
        # At exit, the process first sends what waits. This is called before the hook of concurrent.futures, which was
        # registered before it: later the client could start no thread.
        threading._register_atexit(lambda: wait([self.job]))  # type: ignore[attr-defined]

    def stage(self, step: int, message: str, fill: Callable[[Path], Card | None]) -> Commit:
        """Send the files of an optimiser step, which `fill` puts into a folder. It may return their card.

        The job returns None if newer files replaced them. It raises a `HubError`, also if `fill` fails.
        """
        folder = self._output_dir / f"{STAGED}{uuid4().hex}"
        try:
            folder.mkdir()
            about = {"card": fill(folder), "delete": self.stale, "commit_description": f"step-{step}"}
            send: Send | HubError = partial(send_folder, folder=folder, message=message, **about)
        except Exception as raised:  # such as a full disk; the checkpoint is saved, so training goes on
            send = HubError(f"{self.target}: {message!r} could not be set aside ({in_one_line(raised)}).")
        older, self._newest = self._newest, folder
        self._push = partial(self._send, older, folder, message, send)
        return self.send()

    def send(self) -> Commit:
        """Send the newest files."""
        self.job = self._api.run_as_future(self._push)
        return self.job

    def newest_step(self) -> int:
        """Return the step of the newest push to the branch; -1 if there is none."""
        commits = with_retries(lambda: self._api.list_repo_commits(**self.target.where), self.target)
        found = (re.fullmatch(r"step-(\d+)", commit.message) for commit in commits)
        return next((int(step[1]) for step in found if step), -1)

    def _send(self, older: Path, folder: Path, message: str, send: Send | HubError) -> CommitInfo | None:
        shutil.rmtree(older, ignore_errors=True)  # its job is over
        try:
            if isinstance(send, HubError):
                raise send
            commit = with_retries(lambda: send(self.target) if folder is self._newest else None, self.target)
        except Exception as raised:  # an error in this thread would be lost
            error = raised if isinstance(raised, HubError) else HubError(f"{self.target}: {in_one_line(raised)}")
            logger.warning(f"Not on the Hub: {error}")
            raise error from raised
        shutil.rmtree(folder, ignore_errors=True)
        if commit:
            self.stale.clear()
            self._announce(f"{message!r} is on the Hub: {self.target.repo_id}")
        return commit


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
