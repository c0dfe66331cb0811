"""The selection log `vade_selection.jsonl`: the chosen rows and their outcomes, one line a generation batch.

Each line ends with a digest of all before it. `docs/reference/files.md` has the fields.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from trl_vade.checkpoints import SELECTION_LOG_FILE
from trl_vade.errors import CheckpointSaveError, SnapshotCorruptError
from trl_vade.files import replace_durably

from .outcomes import GroupOutcomes

_DIGITS = 32  # of the digest of a line: half of a SHA-256
_SEAL = b', "chain": "%b"}\n'
_SEAL_SIZE = len(_SEAL % bytes(_DIGITS))


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
        position, text = self.position.after(json.dumps(line).encode()[:-1])
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
        self.position = position

    def resume(self, saved: Mapping[str, Any] | None) -> str | None:
        """Continue at the `saved` position (`Position._asdict()`).

        A log that does not lead there is set aside, a new one begins, and a notice for the user is returned.
        """
        wanted, self.position = Position(**saved or {}), START
        problem = f"it is missing, shorter than the {wanted.lines} lines of the checkpoint, or of another run"
        try:
            if wanted == START or any(after == wanted for _, after in self._sealed()):
                self.position = wanted
                return None
        except SnapshotCorruptError as error:
            problem = str(error).removesuffix(".")
        kept = self.set_aside()
        return (
            f"{self.path} cannot be continued: {problem}. The training is not affected, but its {wanted.lines} lines "
            f"cannot be replayed or reported. A new log begins{f'; the file is kept as {kept}' if kept else ''}. To "
            "keep one log, stop now, put the right file back, and resume from the same checkpoint."
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
        """Return the lines up to `position`, or all where there is none; half a last line is left out.

        An altered or missing line is a `SnapshotCorruptError`.
        """
        return [json.loads(content + b"}") for content, _ in self._sealed()]

    def _sealed(self) -> Iterator[tuple[bytes, Position]]:
        """Yield the content and the end of each line that `read` returns."""
        if not self.path.exists():
            return
        at = START
        with open(self.path, "rb") as file:
            for text in file:
                if not text.endswith(b"\n") or at == self.position != START:
                    return
                content = text[:-_SEAL_SIZE]
                at, sealed = at.after(content)
                if text != sealed:
                    raise SnapshotCorruptError(
                        f"Line {at.lines} of {self.path} was altered, or the line before it is missing. Restore the "
                        "file from a copy: a replay needs every line."
                    )
                yield content, at
