"""A queue of pushes to the Hub, sent one after the other in the background.

transformers 5.23 skips a push while another one runs, ignores the error of a failed push, and ends a run without a
check of either. Here a push waits for its turn. It is dropped only if a newer push contains the same files.
`PushQueue.failures` returns the pushes that failed.
"""

import logging
import threading
from collections.abc import Callable
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
    """A folder to push to the Hub as one commit."""

    target: HubTarget  # the repository and branch
    # a folder made by `staging.stage`, deleted after the push. None: not staged yet, or staging failed.
    folder: Path | None
    message: str  # the title of the commit
    own: bool = False  # whether no later push contains these files, so that the push is never dropped
    render: Render | None = None  # see `uploading.commit_folder`
    # see `uploading.commit_folder`. Later pushes contain all files outside these folders.
    mirror: tuple[str, ...] = ()
    tag: str | None = None  # see `uploading.commit_folder`
    command: str | None = None  # the command that sends the files by hand; None is that of `uploading.push_command`

    def supersedes(self, earlier: "Push") -> bool:
        """Return whether this push makes an earlier push unnecessary."""
        return self.place == earlier.place and not earlier.own and set(earlier.mirror) <= set(self.mirror)

    @property
    def place(self) -> tuple[str | None, ...]:
        """Return the repository, its type and the branch."""
        return self.target.repo_id, self.target.repo_type, self.target.revision

    def kept(self) -> str:
        """Return a message with the place of the files and the command that sends them."""
        if self.folder is None:
            by_hand = f" By hand: {self.command}" if self.command else ""
            return f"Its files are in the output directory, and trainer.push_to_hub() tries again.{by_hand}"
        command = self.command or push_command(self.target, self.folder)
        return f"Its files are kept in {self.folder}. Send them by hand: {command}"


@dataclass(eq=False)
class Entry:
    """A push in the queue."""

    push: Push
    token: str | None = None
    prepare: Callable[[Push], Push] | None = None
    future: "Future[str]" = field(default_factory=Future)
    error: HubError | None = None  # the error of the last attempt


class PushQueue:
    """A queue that sends pushes in order, in a background thread."""

    def __init__(self, announce: Callable[[str], None] = logger.info) -> None:
        self._announce = announce  # what is told that a push has arrived, in the background thread
        self._executor: ThreadPoolExecutor | None = None  # made with the first push: a trainer can be copied before
        self._lock = threading.RLock()
        self._entries: list[Entry] = []  # pushes that are not on the Hub, oldest first
        self._down = False  # whether the last push failed; the next ones then make one attempt each

    def __deepcopy__(self, memo: object) -> "PushQueue":
        return PushQueue(self._announce)

    def put(self, push: Push, token: str | None = None, prepare: Callable[[Push], Push] | None = None) -> Entry:
        """Queue `push`. Drop earlier pushes that it supersedes, and retry failed ones before it.

        `prepare` returns the push with its staged folder. It is called now, in this thread. If it raises, the push has
        failed, and `again` calls it once more.
        """
        entry = Entry(push, token, prepare)
        self._prepare(entry)  # without the lock, because it takes time
        with self._lock:
            self._entries.append(entry)
            if entry.error is None:
                self._drop_covered(entry)
            self._retry()
            if entry.error is None:
                self._submit(entry)
        return entry

    def done(self) -> bool:
        """Return whether no push is waiting or being sent."""
        return not self.unfinished()

    def unfinished(self) -> list[str]:
        """Return the messages of the pushes that are waiting or being sent."""
        with self._lock:
            return [entry.push.message for entry in self._entries if entry.error is None]

    def again(self) -> None:
        """Retry the failed pushes."""
        with self._lock:
            self._down = False
            for entry in [one for one in self._entries if one.push.folder is None]:
                if self._prepare(entry):
                    self._drop_covered(entry)
            self._retry()

    def failures(self) -> list[tuple[Push, HubError]]:
        """Return the failed pushes with their errors."""
        with self._lock:
            return [(entry.push, entry.error) for entry in self._entries if entry.error is not None]

    def _prepare(self, entry: Entry) -> bool:
        """Stage the folder of the push, and return whether that worked."""
        if entry.prepare is None:
            return entry.push.folder is not None
        try:
            entry.push = entry.prepare(entry.push)
        except Exception as error:  # such as a full disk: the checkpoint is saved, so training continues
            entry.error = HubError(f"Its files could not be copied: {type(error).__name__}: {error}.")
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
            # At exit, the process first sends the waiting pushes. This is registered after the hook of
            # concurrent.futures, so it is called before it: later the client could start no thread.
            threading._register_atexit(self._executor.shutdown)  # type: ignore[attr-defined]
        entry.future = self._executor.submit(self._send, entry)

    def _send(self, entry: Entry) -> str:
        """Send a push, in the background thread. A failed push is kept, and a warning tells how to send it by hand."""
        push, patience = entry.push, () if self._down else None
        try:
            assert push.folder is not None  # a push without a folder is never submitted
            options = {name: getattr(push, name) for name in ("message", "render", "mirror", "tag")}
            commit = commit_folder(push.target, push.folder, **options, token=entry.token, patience=patience)
        except Exception as raised:  # an error in this thread would be lost
            error = raised if isinstance(raised, HubError) else HubError(f"{type(raised).__name__}: {raised}")
            with self._lock:
                self._down = error.may_pass  # a refusal shows that the Hub can be reached
                entry.error = error
                later = self._entries[self._entries.index(entry) + 1 :]
                if any(one.push.supersedes(push) and one.push.folder is not None for one in later):
                    self._drop(entry)
            _say(push, error)
            raise error from raised
        with self._lock:
            self._down = False
            self._arrived(entry)
        self._announce(f"{push.message!r} is on the Hub: {push.target.repo_id}")
        return commit

    def _arrived(self, entry: Entry) -> None:
        """Remove a push that is on the Hub, and keep earlier failed pushes from overwriting it."""
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
        """Delete the files of a late push that newer pushes contain."""
        assert entry.push.folder is not None
        try:
            keep_only(entry.push.folder, entry.push.mirror)
        except OSError as error:
            entry.future.cancel()  # in case it waits for a retry
            if _is_gone(entry.push):
                self._entries.remove(entry)
            else:  # sent as a whole, it would overwrite newer files
                discard(entry.push.folder)
                entry.error = HubError(
                    f"The files in {entry.push.folder} that newer pushes contain could not be deleted: {error}."
                )
                entry.push = replace(entry.push, folder=None)

    def _drop(self, entry: Entry) -> None:
        logger.info(f"{entry.push.message!r} is dropped: a later push contains newer files.")
        entry.future.cancel()  # if it waits; a push that is being sent continues
        self._entries.remove(entry)
        if entry.push.folder is not None:
            discard(entry.push.folder)


def _is_gone(push: Push) -> bool:
    """Return whether the staged folder was deleted, as a user does after sending it by hand."""
    if push.folder is None or push.folder.is_dir():
        return False
    logger.warning(f"{push.folder} was deleted, so {push.message!r} counts as sent by hand.")
    return True


def _say(push: Push, error: HubError) -> None:
    level = logging.INFO if isinstance(error, HubOfflineError) else logging.WARNING
    logger.log(level, f"Not on the Hub: {push.message!r}. {error} {push.kept()}")
