"""Pushes in the background, one after the other: none is skipped, and none fails without a word.

transformers 5.23 skips a push while another one runs, forgets the error of one that failed, and ends a run without a
look at either. Here a push waits for its turn unless a newer one makes it needless, and `PushQueue.finish` returns
what could not be sent.
"""

import logging
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from .errors import HubError, HubOfflineError
from .hub import HubTarget, Render, commit_folder, push_command
from .staging import discard

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Push:
    """A staged folder on its way to the Hub.

    Attributes:
        target: where it goes.
        folder: staged (`staging.stage`); it is deleted once it is there.
        message: the commit's title.
        own: whether it holds what no later push holds, so that it is sent whatever comes after it.
        render, mirror, tag: see `hub.commit_folder`.
        command: sends it by hand; None is that of `hub.push_command`.
    """

    target: HubTarget
    folder: Path
    message: str
    own: bool = False
    render: Render | None = None
    mirror: tuple[str, ...] = ()
    tag: str | None = None
    command: str | None = None

    def covers(self, earlier: "Push") -> bool:
        """Whether an earlier push is needless once this one is on the Hub."""
        return self.target == earlier.target and not earlier.own

    def send(self, token: str | None = None, patience: Iterable[float] | None = None) -> str:
        """Send it; see `hub.commit_folder`. What fails is kept, and the log says how to send it by hand."""
        try:
            commit = commit_folder(
                self.target,
                self.folder,
                message=self.message,
                render=self.render,
                mirror=self.mirror,
                tag=self.tag,
                token=token,
                patience=patience,
            )
        except Exception as raised:  # in a thread, where nobody would see any other one either
            error = raised if isinstance(raised, HubError) else HubError(f"{type(raised).__name__}: {raised}")
            level = logging.INFO if isinstance(error, HubOfflineError) else logging.WARNING
            logger.log(level, f"Not on the Hub: {self.message!r}. {error} {self.kept()}")
            raise error from raised
        discard(self.folder)
        return commit

    def kept(self) -> str:
        """Where its files are, and the command that sends them."""
        command = self.command or push_command(self.target, self.folder)
        return f"Its files are kept in {self.folder}; send them by hand: {command}"


class PushQueue:
    """Sends pushes in the background, in their order."""

    def __init__(self) -> None:
        # Its thread is no daemon: a process that comes to its end waits for what is still being sent.
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="vade-hub")
        self._sent: list[tuple[Push, Future[str]]] = []  # not yet on the Hub, oldest first
        self._down = False  # the last push has failed: those behind it do not wait as long again, one after the other

    def put(self, push: Push, token: str | None = None) -> "Future[str]":
        """Send `push` when it is its turn. What failed and is still wanted goes first, what it covers is dropped."""
        for earlier, future in self._take_unfinished():
            if push.covers(earlier) and (future.done() or future.cancel()):
                logger.info(f"{earlier.message!r} is not pushed by itself: {push.message!r} holds what is newer.")
                discard(earlier.folder)
            else:
                self._submit(earlier, future if not future.done() else None)
        return self._submit(push, None, token)

    def done(self) -> bool:
        """Whether nothing is being sent or waiting."""
        return all(future.done() for _, future in self._sent)

    def again(self) -> None:
        """Try once more what failed."""
        self._down = False
        for push, future in self._take_unfinished():
            self._submit(push, future if not future.done() else None)

    def failures(self) -> list[tuple[Push, HubError]]:
        """What was not sent, and why."""
        finished = [(push, future) for push, future in self._sent if future.done()]
        return [(push, error) for push, future in finished if (error := _error_of(future)) is not None]

    def _take_unfinished(self) -> list[tuple[Push, "Future[str]"]]:
        """The pushes that are not on the Hub, which leave the list."""
        unfinished = [(push, future) for push, future in self._sent if not future.done() or _error_of(future)]
        self._sent = []
        return unfinished

    def _submit(self, push: Push, running: "Future[str] | None", token: str | None = None) -> "Future[str]":
        future = running or self._executor.submit(self._send, push, token)
        self._sent.append((push, future))
        return future

    def _send(self, push: Push, token: str | None) -> str:
        patience, self._down = () if self._down else None, True
        commit = push.send(token, patience)
        self._down = False
        return commit


def _error_of(future: "Future[str]") -> HubError | None:
    """The error of a push that has ended without being called off."""
    return None if future.cancelled() else future.exception()  # type: ignore[return-value]
