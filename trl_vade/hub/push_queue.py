"""Pushes in the background, one after the other: none is skipped, and none fails without a word.

transformers 5.23 skips a push while another one runs, forgets the error of one that failed, and ends a run without a
look at either. Here a push waits for its turn unless a newer one makes it needless, and `PushQueue.failures` says what
could not be sent.
"""

import logging
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from trl_vade.errors import HubError, HubOfflineError

from .commit import Render
from .staging import discard, keep_only
from .uploading import HubTarget, commit_folder, push_command

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Push:
    """A staged folder on its way to the Hub.

    Attributes:
        target: where it goes.
        folder: staged (`staging.stage`), its own; it is deleted once it is there. None: not staged yet, or in vain.
        message: the commit's title.
        own: whether it holds what no later push holds, so that it is sent whatever comes after it.
        render, mirror, tag: see `uploading.commit_folder`. What is outside of `mirror`, a later push holds as well.
        command: sends it by hand; None is that of `uploading.push_command`.
    """

    target: HubTarget
    folder: Path | None
    message: str
    own: bool = False
    render: Render | None = None
    mirror: tuple[str, ...] = ()
    tag: str | None = None
    command: str | None = None

    def supersedes(self, earlier: "Push") -> bool:
        """Whether an earlier push is needless beside this one."""
        return self.place == earlier.place and not earlier.own and set(earlier.mirror) <= set(self.mirror)

    @property
    def place(self) -> tuple[str | None, ...]:
        """The branch of the repository that it goes to."""
        return self.target.repo_id, self.target.repo_type, self.target.revision

    def kept(self) -> str:
        """Where its files are, and the command that sends them."""
        if self.folder is None:
            by_hand = f" By hand: {self.command}" if self.command else ""
            return f"Its files are where the run saved them, and trainer.push_to_hub() tries it again.{by_hand}"
        command = self.command or push_command(self.target, self.folder)
        return f"Its files are kept in {self.folder}; send them by hand: {command}"


@dataclass(eq=False)
class Entry:
    """A push in the queue."""

    push: Push
    token: str | None = None
    prepare: Callable[[Push], Push] | None = None
    future: "Future[str]" = field(default_factory=Future)
    error: HubError | None = None  # of its last attempt


class PushQueue:
    """Sends pushes in the background, in their order."""

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None  # made with the first push: a trainer can be copied before
        self._lock = threading.RLock()
        self._entries: list[Entry] = []  # what is not on the Hub, oldest first
        self._down = False  # the last push has failed: those behind it do not wait as long again, one after the other

    def __deepcopy__(self, memo: object) -> "PushQueue":
        return PushQueue()

    def put(self, push: Push, token: str | None = None, prepare: Callable[[Push], Push] | None = None) -> Entry:
        """Send `push` when it is its turn. What failed and is still wanted goes first, what it covers is dropped.

        `prepare` gives it its staged folder, here and in this thread. Where that fails the push has failed, and
        `again` prepares it once more.
        """
        entry = Entry(push, token, prepare)
        self._prepare(entry)  # without the lock: it takes a while
        with self._lock:
            self._entries.append(entry)
            if entry.error is None:
                self._drop_covered(entry)
            self._retry()
            if entry.error is None:
                self._submit(entry)
        return entry

    def done(self) -> bool:
        """Whether nothing is being sent or waiting."""
        return not self.unfinished()

    def unfinished(self) -> list[Push]:
        """What is being sent or waiting."""
        with self._lock:
            return [entry.push for entry in self._entries if entry.error is None]

    def again(self) -> None:
        """Try once more what failed."""
        with self._lock:
            self._down = False
            for entry in [one for one in self._entries if one.push.folder is None]:
                if self._prepare(entry):
                    self._drop_covered(entry)
            self._retry()

    def failures(self) -> list[tuple[Push, HubError]]:
        """What was not sent, and why."""
        with self._lock:
            return [(entry.push, entry.error) for entry in self._entries if entry.error is not None]

    def _prepare(self, entry: Entry) -> bool:
        """Give the push its folder, and return whether that worked."""
        if entry.prepare is None:
            return entry.push.folder is not None
        try:
            entry.push = entry.prepare(entry.push)
        except Exception as error:  # a full disk: the checkpoint is saved, and training is worth more than its push
            entry.error = HubError(f"It could not be set aside: {type(error).__name__}: {error}.")
            if not entry.future.done():
                entry.future.set_exception(entry.error)
            _say(entry.push, entry.error)
            return False
        return True

    def _drop_covered(self, entry: Entry) -> None:
        for earlier in self._entries[: self._entries.index(entry)]:
            if entry.push.supersedes(earlier.push) and (earlier.error is not None or earlier.future.cancel()):
                self._drop(earlier)

    def _retry(self) -> None:
        for entry in [one for one in self._entries if one.error is not None and one.push.folder is not None]:
            if _is_gone(entry.push):
                self._entries.remove(entry)
            else:
                entry.error = None
                self._submit(entry)

    def _submit(self, entry: Entry) -> None:
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, thread_name_prefix="vade-hub")
            # A process that comes to its end first sends what is waiting. Registered after the one of
            # concurrent.futures, this is called before it: from then on the client could start no thread.
            threading._register_atexit(self._executor.shutdown)  # type: ignore[attr-defined]
        entry.future = self._executor.submit(self._send, entry)

    def _send(self, entry: Entry) -> str:
        """In the background. What fails is kept, and the log says how to send it by hand."""
        push, patience = entry.push, () if self._down else None
        try:
            commit = _commit(push, entry.token, patience)
        except Exception as raised:  # in a thread, where nobody would see any other one either
            error = raised if isinstance(raised, HubError) else HubError(f"{type(raised).__name__}: {raised}")
            with self._lock:
                self._down = error.may_pass  # a refusal says that the Hub is there
                entry.error = error
                later = self._entries[self._entries.index(entry) + 1 :]
                if any(one.push.supersedes(push) and one.push.folder is not None for one in later):
                    self._drop(entry)
            _say(push, error)
            raise error from raised
        with self._lock:
            self._down = False
            self._arrived(entry)
        return commit

    def _arrived(self, entry: Entry) -> None:
        """It is on the Hub: what failed before must not undo it."""
        before = self._entries[: self._entries.index(entry)]
        self._entries.remove(entry)
        if entry.push.folder is not None:
            discard(entry.push.folder)
        for earlier in before:
            if entry.push.supersedes(earlier.push):
                self._drop(earlier)
            elif earlier.push.mirror and earlier.push.folder and earlier.push.place == entry.push.place:
                self._keep_own(earlier)

    def _keep_own(self, entry: Entry) -> None:
        """Of a push that comes late, keep what only it holds."""
        assert entry.push.folder is not None
        try:
            keep_only(entry.push.folder, entry.push.mirror)
        except OSError as error:
            entry.future.cancel()  # where it waits for another attempt
            if _is_gone(entry.push):
                self._entries.remove(entry)
            else:  # as it is now it would undo what is newer
                discard(entry.push.folder)
                entry.error = HubError(
                    f"{entry.push.folder} could not be cut down to what is still to be sent: {error}."
                )
                entry.push = replace(entry.push, folder=None)

    def _drop(self, entry: Entry) -> None:
        logger.info(f"{entry.push.message!r} is not pushed by itself: a later push holds what is newer.")
        entry.future.cancel()  # where it waits; the one that is being sent cannot be, and drops itself alone
        self._entries.remove(entry)
        if entry.push.folder is not None:
            discard(entry.push.folder)


def _commit(push: Push, token: str | None, patience: Iterable[float] | None) -> str:
    assert push.folder is not None  # what could not be staged is never submitted
    return commit_folder(
        push.target,
        push.folder,
        message=push.message,
        render=push.render,
        mirror=push.mirror,
        tag=push.tag,
        token=token,
        patience=patience,
    )


def _is_gone(push: Push) -> bool:
    """Whether somebody has deleted its staged folder, as the log asks for once it was sent by hand."""
    if push.folder is None or push.folder.is_dir():
        return False
    logger.warning(f"{push.folder} is gone, so {push.message!r} is taken as sent by hand.")
    return True


def _say(push: Push, error: HubError) -> None:
    level = logging.INFO if isinstance(error, HubOfflineError) else logging.WARNING
    logger.log(level, f"Not on the Hub: {push.message!r}. {error} {push.kept()}")
