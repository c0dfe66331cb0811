"""The selection log `vade_selection.jsonl` (docs/reference/files.md): rows and outcomes, a line a generation batch."""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from trl_vade.checkpoints import SELECTION_LOG_FILE
from trl_vade.errors import CheckpointSaveError, SnapshotCorruptError
from trl_vade.files import replace_durably

from .outcomes import GroupOutcomes


class Position(NamedTuple):
    """A place between two lines of a log: lines and bytes before it, and the step of the last of them."""

    lines: int = 0
    bytes: int = 0
    step: int = 0


START = Position()


class SelectionLog:
    """One selection log, to append to, continue and read; `position` is the end of the lines of this object's run."""

    def __init__(self, directory: str | os.PathLike[str]):
        self.path, self.position = Path(directory) / SELECTION_LOG_FILE, START

    def append(self, outcomes: GroupOutcomes, **numbers: float | str | None) -> None:
        """Write one generation batch at `position`, over what a stopped run wrote behind it.

        The log of another run is set aside before the first line. A refused write is a `CheckpointSaveError`.
        """
        live = outcomes.has_gradient
        ratio = None if "warm_start" in numbers else float(live.sum() / max(live.size, 1))
        line: dict[str, Any] = {**numbers, "effective_gradient_ratio": ratio}
        line |= {name: getattr(outcomes, name).tolist() for name in ("sample_index", "successes", "trials")}
        if (live != outcomes.is_mixed).any():
            line["mixed"] = live.tolist()
        text = json.dumps(line).encode() + b"\n"
        try:
            if self.position == START:
                self.set_aside()
                self.path.parent.mkdir(parents=True, exist_ok=True)
            with open(self.path, "wb" if self.position == START else "r+b") as file:
                file.seek(self.position.bytes)
                file.truncate()
                file.write(text)
        except OSError as error:
            raise CheckpointSaveError(
                f"{self.path} could not be written ({type(error).__name__}: {error}), and a replay needs every line. "
                "Free some space or fix the permissions. Then call train(resume_from_checkpoint='auto')."
            ) from error
        self.position = Position(self.position.lines + 1, self.position.bytes + len(text), line["step"])

    def resume(self, saved: Mapping[str, Any] | None) -> str | None:
        """Continue at the `saved` position (`Position._asdict()`).

        A log that does not lead there is set aside, a new one begins, and a notice for the user is returned.
        """
        wanted, self.position = Position(**saved or {}), START
        with suppress(OSError, ValueError, LookupError, RecursionError):
            *lines, end = self.path.read_bytes()[: wanted.bytes].split(b"\n") if wanted.bytes else [b""]
            if wanted == START or (len(lines), end, json.loads(lines[-1])["step"]) == (wanted.lines, b"", wanted.step):
                self.position = wanted
                return None
        kept = self.set_aside()
        return (
            f"{self.path} cannot be continued: it is missing, damaged, of another run, or shorter than the "
            f"{wanted.lines} lines of the checkpoint. The training is not affected. A new log begins"
            f"{f'; the file is kept as {kept}' if kept else ''}. To keep one log, stop now, put the right file back, "
            "and resume from the same checkpoint."
        )

    def sync(self) -> None:
        """Sync all lines to disk."""
        if self.path.exists():
            with open(self.path, "ab") as file:
                os.fsync(file.fileno())

    def set_aside(self) -> Path | None:
        """Rename the file to `vade_selection-<n>.jsonl`, and return its new path. None if it is missing or empty."""
        self.position, number = START, 1
        if not self.path.exists() or not self.path.stat().st_size:
            return None
        while (target := self.path.with_stem(f"{self.path.stem}-{number}")).exists():
            number += 1
        replace_durably(self.path, target)
        return target

    def read(self) -> list[dict[str, Any]]:
        """Return the lines up to `position`, or all where there is none; a damaged one is a `SnapshotCorruptError`."""
        if not self.path.exists():
            return []
        *texts, _ = self.path.read_bytes().split(b"\n")
        lines = []
        for text in texts[: self.position.lines or None]:
            try:
                lines.append(json.loads(text))
            except (ValueError, RecursionError) as error:
                raise SnapshotCorruptError(
                    f"Line {len(lines) + 1} of {self.path} was damaged ({type(error).__name__}): put a copy back."
                ) from error
        return lines
