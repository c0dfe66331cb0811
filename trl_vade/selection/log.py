"""The selection log `vade_selection.jsonl`: the chosen rows and their outcomes, one line a generation batch.

`replay` gives the posterior at any step. Each line ends with a digest of all that
is before it, so an altered or missing line is found without parsing any.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trl_vade.errors import CheckpointSaveError, SnapshotCorruptError
from trl_vade.files import replace_durably
from trl_vade.samplers.posterior import BetaPosterior

from .outcomes import GroupOutcomes

SELECTION_LOG_FILE = "vade_selection.jsonl"
_DIGITS = 32  # of the digest of a line: half of a SHA-256
_SEAL = b', "chain": "%b"}\n'
_SEAL_SIZE = len(_SEAL % bytes(_DIGITS))
_ARRAYS = ("sample_index", "successes", "trials", "mixed")


class Position(NamedTuple):
    """A place between two lines of a log: lines and bytes before it, and their digest."""

    lines: int = 0
    bytes: int = 0
    chain: str = ""

    def after(self, content: bytes) -> tuple["Position", bytes]:
        """Return the position behind a line with this `content`, which lacks its end, and the whole line."""
        chain = hashlib.sha256(self.chain.encode() + content).hexdigest()[:_DIGITS]
        text = content + _SEAL % chain.encode()
        return Position(self.lines + 1, self.bytes + len(text), chain), text


START = Position()


class SelectionLog:
    """One selection log, to append to, continue and read.

    `docs/reference/files.md` has the fields of a line. A refill of dynamic sampling and a warm start are lines, too.
    `position` is the end of the lines that this object has written or continues.
    """

    def __init__(self, directory: str | os.PathLike[str]):
        self.path = Path(directory) / SELECTION_LOG_FILE
        self._begin()

    def _begin(self) -> None:
        self.position = self._parsed = START
        self._so_far: list[dict[str, Any]] = []

    def append(self, outcomes: GroupOutcomes, *, step: int, **more: float | str | None) -> None:
        """Write one generation batch at `position`, and drop what a stopped run wrote behind it.

        The log of another run is set aside before the first line.

        Raises:
            CheckpointSaveError: the disk refused the write, or the file is gone.
        """
        line = {
            "step": step,
            **more,
            "effective_gradient_ratio": None if "warm_start" in more else outcomes.effective_gradient_ratio,
            "sample_index": outcomes.sample_index.tolist(),
            "successes": outcomes.successes.tolist(),
            "trials": outcomes.trials.tolist(),
        }
        if (outcomes.has_gradient != ((outcomes.successes > 0) & (outcomes.successes < outcomes.trials))).any():
            line["mixed"] = outcomes.has_gradient.tolist()
        position, text = self.position.after(json.dumps(line).encode()[:-1])
        try:
            if not self.position.bytes:
                self.set_aside()
                self.path.parent.mkdir(parents=True, exist_ok=True)
            with open(self.path, "r+b" if self.position.bytes else "wb") as file:
                if file.seek(0, os.SEEK_END) > self.position.bytes:
                    file.truncate(self.position.bytes)
                file.seek(self.position.bytes)
                file.write(text)
        except OSError as error:
            raise CheckpointSaveError(
                f"{self.path} could not be written ({type(error).__name__}: {error}). The run stops, because a replay "
                "of the log needs every line. Free some space or fix the permissions. Then continue from the last "
                "checkpoint with train(resume_from_checkpoint='auto')."
            ) from error
        self.position = position

    def resume(self, saved: Mapping[str, Any] | None) -> str | None:
        """Continue at the `saved` position (`Position._asdict()`), at which `append` writes the next line.

        A log that does not lead there is set aside, and a new one begins. Then a notice for the user is returned.
        """
        self._begin()
        wanted = Position(**saved or {})
        if problem := self._difference(wanted):
            kept = self.set_aside()
            return (
                f"{self.path} cannot be continued: {problem}. The training is not affected. But the choices of the "
                f"{wanted.lines} lines that the checkpoint knows cannot be replayed or reported any more"
                f"{f'. The file is kept as {kept}' if kept else ''}. This run begins a new log. To keep one log, stop "
                "now, put the right file back, and resume from the same checkpoint."
            )
        self.position = wanted
        return None

    def _difference(self, wanted: Position) -> str | None:
        """Return what is between the file and the `wanted` position, or None if the file leads there."""
        found = START
        if wanted.bytes and not self.path.exists():
            return "it is missing"
        try:
            for _, found in self._sealed() if wanted.bytes else ():
                if found.bytes >= wanted.bytes:
                    break
        except SnapshotCorruptError as error:
            return str(error).removesuffix(".")
        if found.bytes < wanted.bytes:
            return f"it ends after {found.lines} of the {wanted.lines} lines" if found.lines else "it is empty"
        return None if found == wanted else "it is the log of another run"

    def sync(self) -> None:
        """Sync all lines to disk."""
        if self.path.exists():
            with open(self.path, "ab") as file:
                os.fsync(file.fileno())

    def set_aside(self) -> Path | None:
        """Rename the file to `vade_selection-<n>.jsonl`, and return its new path. None if it is missing or empty."""
        self._begin()
        if not self.path.exists() or not self.path.stat().st_size:
            return None
        number = 1
        while (target := self.path.with_stem(f"{self.path.stem}-{number}")).exists():
            number += 1
        replace_durably(self.path, target)
        return target

    def read(self) -> list[dict[str, Any]]:
        """Return all lines, oldest first; an empty list without a log.

        Raises:
            SnapshotCorruptError: a line is altered or missing. A partial last line of a killed process is ignored.
        """
        return list(self.lines())

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield what `read` returns, line by line."""
        for content, _ in self._sealed():
            yield json.loads(content + b"}")

    def so_far(self) -> list[dict[str, Any]]:
        """Return the lines until `position`, with arrays for lists. Each line is parsed once, by the first call."""
        for content, parsed in self._sealed(self._parsed) if self.position.bytes else ():
            line = json.loads(content + b"}")
            self._so_far.append(line | {name: np.array(line[name]) for name in _ARRAYS if name in line})
            self._parsed = parsed
        return [*self._so_far]

    def _sealed(self, at: Position = START) -> Iterator[tuple[bytes, Position]]:
        """Yield the content of each line behind `at`, up to `position` if that is set, and the end of the line."""
        if not self.path.exists():
            return
        before = b""
        with open(self.path, "rb") as file:
            file.seek(at.bytes)
            for text in file:
                if not text.endswith(b"\n") or 0 < self.position.bytes <= at.bytes:
                    return
                after, expected = at.after(content := text[:-_SEAL_SIZE])
                if text != expected:
                    raise SnapshotCorruptError(
                        f"Line {at.lines + 1} of {self.path} {_fault(text, before)}. Without every generation batch a "
                        "replay would give another posterior. Restore the file from a copy."
                    )
                yield content, after
                at, before = after, content


def replay(lines: Iterable[dict[str, Any]], posterior: BetaPosterior) -> Iterator[BetaPosterior]:
    """Let a new `posterior`, of the run's decays, observe the lines of a log, and yield it after each line."""
    for line in lines:
        if line.get("observed", True):
            rows = np.array(line["sample_index"], dtype=np.int64)
            posterior.observe(rows, line["successes"], line["trials"], line.get("mixed"))
        else:  # left out in a reward outage
            posterior.observe([], [], [])
        yield posterior


def _fault(text: bytes, before: bytes) -> str:
    """Return what is wrong with a line whose digest does not follow from the line with the content `before`."""
    try:
        step, last = json.loads(text)["step"], json.loads(before + b"}")["step"] if before else 0
        if step > last + 1:
            return f"is of step {step}, and the lines of the steps {last + 1} to {step - 1} before it are missing"
    except (ValueError, LookupError, TypeError, RecursionError):
        pass
    return "was altered"
