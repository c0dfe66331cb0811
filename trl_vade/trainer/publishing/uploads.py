"""Capture of the uploads that the Trainer asks for."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import transformers.trainer

from trl_vade.hub.staging import Upload
from trl_vade.selection.report.record import ROWS_FILE
from trl_vade.selection.report.writing import PAGE_FILE

from ..checkpoint.folders import LAST_CHECKPOINT
from ..checkpoint.marker import JIT_MARK

PRIVATE = (ROWS_FILE, PAGE_FILE)
_ONE_AT_A_TIME = threading.RLock()  # for trainers in several threads of one process


@dataclass(frozen=True)
class RequestedUpload:
    """An upload that the parent asked for."""

    upload: Upload
    message: str
    revision: str | None
    token: str | None


class UploadsTaken:
    """Replacement for the Hub client of `transformers.trainer` that notes uploads and forwards all other calls.

    transformers 5.23 uploads the output directory and the checkpoint separately, in the background, from files that
    the next save changes. It skips a push while one is running (by design, huggingface/transformers#13503), and never
    reads the errors of the uploads (since #25095).
    """

    def __init__(self, client: Any):
        self._client = client
        self.wanted: list[RequestedUpload] = []  # the noted uploads

    def upload_folder(self, **asked: Any) -> "Future[None]":
        """Note the upload, and return a finished future, so that the parent neither waits nor skips the next push."""
        place = asked.get("path_in_repo") or ""
        # `last-checkpoint` of a downloaded run is not part of the model. The mark of an unfinished save is deleted
        # after the save, so it must not be uploaded. The files for people hold rows of the training data.
        ignored = (JIT_MARK,) if place else (*(asked.get("ignore_patterns") or ()), f"{LAST_CHECKPOINT}/*", *PRIVATE)
        upload = Upload(Path(asked["folder_path"]), place, ignored)
        more = asked["commit_message"], asked.get("revision"), asked.get("token")
        self.wanted.append(RequestedUpload(upload, *more))
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


@contextmanager
def captured_uploads() -> Iterator[list[RequestedUpload]]:
    """Note the Trainer's uploads in the list instead of making them, within the block."""
    with _ONE_AT_A_TIME:
        real = transformers.trainer.hf_api
        taken = UploadsTaken(real())
        transformers.trainer.hf_api = lambda: taken
        try:
            yield taken.wanted
        finally:
            transformers.trainer.hf_api = real
