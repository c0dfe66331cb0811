"""An outbox: the files for one branch of a repository that are not on the Hub yet, and the thread that sends them.

    _hub/model@main/1764000000000-step-100/   laid out as the repository is

A save adds a folder, which gets its name when it is whole. It takes over what older folders hold and it does not
replace. So one commit sends all that waits, what comes later counts, and a killed process leaves nothing half made.
The description of a commit is the name of its folder: it tells a later start what arrived.
"""

import logging
import os
import re
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from urllib.parse import quote

from huggingface_hub import CommitInfo, HfApi

from trl_vade.errors import HubError, HubOfflineError

from .commit import FolderCommit, files_in
from .uploading import HubTarget, with_owner, with_retries

logger = logging.getLogger(__name__)

OUTBOX_FOLDER = "_hub"  # In the output directory. transformers pushes no file that starts with an underscore.
COMMITS_AN_HOUR = 128  # The Hub's limit. Half of it may go at once; then commits wait for an even share of the hour.

_NAME = re.compile(r"\d{13}-step-\d+")
_CHECKPOINT = re.compile(r"last-checkpoint|checkpoint-\d+")  # Of such a folder, nothing older stays on the Hub.
_FILES = threading.RLock()  # one thread adds folders, another deletes them


@dataclass(eq=False)
class Outbox:
    """The outbox of a branch. Making one sends nothing; what an earlier process left waits, too."""

    target: HubTarget
    area: Path  # the folder of all outboxes
    announce: Callable[[str], None] = logger.info  # of what has arrived, in the background
    describe: Callable[[Path, list[str]], dict[str, bytes | None]] | None = None  # as `Render`, for the folder sent
    limit: int | None = None  # of the folders `checkpoint-*` that may wait (`save_total_limit`)
    token: str | None = None  # in place of the login
    gone: set[str] = field(default_factory=set)  # folders of the repository to be deleted
    error: HubError | None = field(default=None, init=False)  # of the last attempt

    def __post_init__(self) -> None:
        self.folder = self.area / f"{self.target.repo_type}@{quote(self.target.revision or 'main', safe='')}"
        self.commit = FolderCommit()
        self._executor: ThreadPoolExecutor | None = None
        self._job: Future[CommitInfo | None] | None = None
        self._last: CommitInfo | None = None
        self._sent_at: deque[float] = deque(maxlen=COMMITS_AN_HOUR // 2)
        self._message, self._in_flight = "Files of an earlier start", ""
        self._delete(self.folder / "new")  # of a killed process
        self._left = {path.name for path in self.waiting()}  # of an earlier process; the repository may be newer

    def waiting(self) -> list[Path]:
        """Return the folders with files that are not on the Hub, oldest first."""
        return sorted(path for path in self.folder.glob("*") if _NAME.fullmatch(path.name))

    def busy(self) -> bool:
        """Return whether something is being sent."""
        return self._job is not None and not self._job.done()

    def put(self, fill: Callable[[Path], object], message: str, step: int) -> "Future[CommitInfo | None]":
        """Add a folder that `fill` fills with files of the optimiser step, and send it. An error of `fill` is raised.

        `message` is the title of the commit.
        """
        with _FILES:
            self._add(fill, step)
            self._message = message
        return self.send()

    def send(self) -> "Future[CommitInfo | None]":
        """Send what waits, in the background. While the Hub cannot be reached, each call makes only one attempt."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, thread_name_prefix="vade-hub")
            # At exit, the process first sends what waits. This is registered after the hook of concurrent.futures, so
            # it is called before it: later the client could start no thread.
            threading._register_atexit(self._executor.shutdown)  # type: ignore[attr-defined]
        self._job = self._executor.submit(self._send)
        return self._job

    def kept(self) -> str:
        """Return a message with the place of the files and the way to send them."""
        return f"Its files wait in {self.folder}. trainer.push_to_hub() sends them, or another start of the run."

    def _add(self, fill: Callable[[Path], object], step: int) -> None:
        new, now = self.folder / "new", int(time.time() * 1000)
        with _FILES:
            try:
                new.mkdir(parents=True)
                fill(new)
                older = [path for path in self.waiting() if path.name not in {self._in_flight, *self._left}]
                for folder in reversed(older):
                    _take_over(folder, new)
                newest_last = sorted(new.glob("checkpoint-*"), key=lambda path: _step(path.name))
                for path in newest_last[: -self.limit] if self.limit else []:
                    logger.warning(f"{path.name} never goes to {self.target}: save_total_limit allows {self.limit}.")
                    shutil.rmtree(path)
                now = max([now, *(int(path.name[:13]) + 1 for path in self.waiting())])
                new.rename(self.folder / f"{now:013d}-step-{step}")
            except BaseException:
                self._delete(new)
                raise
            self._delete(*older)

    def _send(self) -> CommitInfo | None:
        down = self.error is not None and self.error.may_pass
        try:
            info = with_retries(self._attempt, self.target, () if down else None, self.token)
        except Exception as raised:  # an error in this thread would be lost
            self.error = raised if isinstance(raised, HubError) else HubError(f"{type(raised).__name__}: {raised}")
            level = logging.INFO if isinstance(raised, HubOfflineError) else logging.WARNING
            logger.log(level, f"Not on the Hub: {self._message!r}. {self.error} {self.kept()}")
            raise self.error from raised
        self.error = None
        return info

    def _attempt(self) -> CommitInfo | None:
        api, target = HfApi(token=self.token), with_owner(self.target, self.token)
        self._judge(api, target)
        self._keep_to_the_hour()
        with _FILES:
            if len(self.waiting()) > 1:  # one of them could not be sent while the other one came
                self._add(lambda new: None, _step(self.waiting()[-1].name))
            if not self.waiting():  # an earlier attempt has sent all
                return self._last
            folder, message = self.waiting()[0], self._message
            self._in_flight = folder.name
        try:
            tops = [path.name for path in folder.iterdir() if path.is_dir()]
            mirror = [*filter(_CHECKPOINT.fullmatch, tops), *self.gone]
            layout = {"mirror": mirror, "render": self.describe and partial(self.describe, folder)}
            about = {"commit_message": message, "commit_description": folder.name}
            self._last = self.commit.send(api, target.where, folder, **layout, **about)
            self._delete(folder)
        finally:
            self._in_flight = ""
        self._sent_at.append(time.monotonic())
        self.announce(f"{message!r} is on the Hub: {target.repo_id}")
        return self._last

    def _judge(self, api: HfApi, target: HubTarget) -> None:
        """Delete what an earlier process left if the repository is of a later step, or has a later commit.

        What it sent last is sent again: it may not have compared what arrived. That changes nothing that is right.
        """
        if not self._left:
            return
        commits = api.list_repo_commits(**target.where)
        arrived = [name[0] for commit in commits if (name := _NAME.search(commit.message))]
        newest = _step(arrived[0]) if arrived else -1
        for folder in [path for path in self.waiting() if path.name in self._left]:
            verdict, step = "is sent now", _step(folder.name)
            if newest > step or folder.name in {*arrived} - {*arrived[:1]}:
                verdict = f"is deleted: {target} is newer (step {newest})"
                self._delete(folder)
            logger.warning(f"What the push of step {step} of an earlier start left {verdict}.")
        self._left.clear()

    def _keep_to_the_hour(self) -> None:
        if len(self._sent_at) == self._sent_at.maxlen and time.monotonic() - self._sent_at[0] < 3600:
            wait = max(0.0, self._sent_at[-1] + 3600 / len(self._sent_at) - time.monotonic())
            logger.info(f"{self.target} takes {COMMITS_AN_HOUR} commits an hour: the next follows in {wait:.0f} s.")
            time.sleep(wait)

    def _delete(self, *folders: Path) -> None:
        with _FILES, suppress(OSError):  # the outbox is not empty, or gone
            for folder in folders:
                shutil.rmtree(folder, ignore_errors=True)
            self.folder.rmdir()
            self.folder.parent.rmdir()


def link(file: Path, target: Path, *, copy: bool = False) -> None:
    """Make `target` a hard link of `file`, or a copy: if asked for, or where there are no hard links."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with suppress(OSError):
        if not copy:
            return os.link(file.resolve(), target)
    shutil.copy2(file, target)


def _take_over(folder: Path, new: Path) -> None:
    """Link into `new` what `folder` holds and `new` does not replace."""
    whole = {path.name for path in new.iterdir() if _CHECKPOINT.fullmatch(path.name)}
    for path, file in files_in(folder).items():
        if path.split("/")[0] not in whole and not (new / path).exists():
            link(file, new / path)


def _step(name: str) -> int:
    return int(name.rpartition("-")[2])
