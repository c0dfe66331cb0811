"""What the Trainer would upload, noted in place of being uploaded."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import transformers.trainer

from trl_vade.hub.staging import Upload

from ..checkpoint.completeness import JIT_MARK, LAST_CHECKPOINT

_ONE_AT_A_TIME = threading.RLock()  # trainers in several threads of one process


@dataclass(frozen=True)
class RequestedUpload:
    """An upload that the parent has asked for."""

    upload: Upload
    message: str
    revision: str | None
    token: str | None


class UploadsTaken:
    """Stands in for the client of `transformers.trainer` while the parent pushes: notes uploads, hands on the rest.

    transformers 5.23 sends the output directory and the checkpoint as two uploads in the background, from files that
    the next save changes. It passes a push over while one is running (by design, huggingface/transformers#13503), and
    the errors of the uploads stay in futures that nobody reads (since #25095).
    """

    def __init__(self, client: Any):
        self._client = client
        self.wanted: list[RequestedUpload] = []

    def upload_folder(
        self,
        *,
        folder_path: str,
        commit_message: str,
        path_in_repo: str = "",
        ignore_patterns: list[str] | None = None,
        revision: str | None = None,
        token: str | None = None,
        **others: Any,
    ) -> "Future[None]":
        """Note it, and answer with a push that is done: the parent then neither waits for it nor skips the next."""
        # A downloaded run has the folder that the Hub keeps the newest checkpoint in; it is no part of the model.
        # transformers takes its mark of an unfinished save away when the save is over; the push would keep it.
        ignored = (JIT_MARK,) if path_in_repo else (*(ignore_patterns or ()), f"{LAST_CHECKPOINT}/*")
        upload = Upload(Path(folder_path), path_in_repo, ignored)
        self.wanted.append(RequestedUpload(upload, commit_message, revision, token))
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


@contextmanager
def captured_uploads() -> Iterator[list[RequestedUpload]]:
    """Inside the block the Trainer's uploads are noted in the list, and not made."""
    with _ONE_AT_A_TIME:
        real = transformers.trainer.hf_api
        taken = UploadsTaken(real())
        transformers.trainer.hf_api = lambda: taken
        try:
            yield taken.wanted
        finally:
            transformers.trainer.hf_api = real
