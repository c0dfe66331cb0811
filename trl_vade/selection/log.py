"""The selection log `vade_selection.jsonl`: the chosen rows and their outcomes, one line a generation batch.

Replaying its lines through a `BetaPosterior` gives the posterior at any step.
"""

import contextlib
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trl_vade.checks import as_vector, check_outcomes
from trl_vade.errors import CheckpointSaveError, ObservationError, SnapshotCorruptError
from trl_vade.files import replace_durably, save_whole

from .outcomes import GroupOutcomes

SELECTION_LOG_FILE = "vade_selection.jsonl"


class SelectionLog:
    """One selection log, to append to, shorten and read.

    A line holds `step` (posterior steps, from 1), `global_step` (finished optimiser steps), `rollouts` (completions so
    far), `predicted_effective_ratio` and `effective_gradient_ratio` (null if no completion was scored). Of each group
    it holds `sample_index`, `successes` and `trials`, and `mixed` if these do not determine the mixed groups
    (fractions, spreads). The line that ends a reward outage also holds `restored_to`, the step of the restored counts.

    With dynamic sampling each refill is a step and a line, with its number from 1 as `refill`. A warm start is the
    first step and line. It holds the source of its evidence as `warm_start`, fractional counts, and null ratios.
    """

    def __init__(self, directory: str | os.PathLike[str]):
        self.path = Path(directory) / SELECTION_LOG_FILE

    def append(self, outcomes: GroupOutcomes, *, step: int, **more: float | str | None) -> None:
        """Append one generation batch to the file. Step 1 overwrites the file of an older run.

        Raises:
            CheckpointSaveError: the disk refused the write.
        """
        ratio = math.nan if "warm_start" in more else outcomes.effective_gradient_ratio
        line = {
            "step": step,
            **more,
            "effective_gradient_ratio": None if math.isnan(ratio) else ratio,
            "sample_index": outcomes.sample_index.tolist(),
            "successes": outcomes.successes.tolist(),
            "trials": outcomes.trials.tolist(),
        }
        if (outcomes.is_mixed != ((outcomes.successes > 0) & (outcomes.successes < outcomes.trials))).any():
            line["mixed"] = outcomes.is_mixed.tolist()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with open(self.path, "w" if step == 1 else "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            raise CheckpointSaveError(
                f"{self.path} could not be written ({type(error).__name__}: {error}). The run stops, because a replay "
                "of the log needs every line. Free some space or fix the permissions. Then continue from the last "
                "checkpoint with train(resume_from_checkpoint=True)."
            ) from error

    def truncate(self, last_step: int) -> int:
        """Drop the lines after `last_step`, which a resumed run writes again; return the last step left, or 0.

        On a damaged line (`SnapshotCorruptError`, as in `read`) the file is unchanged.
        """
        if not self.path.exists():
            return 0
        kept = [line for line in self._lines() if line["step"] <= last_step]
        save_whole(self.path, "".join(json.dumps(line) + "\n" for line in kept).encode())
        return kept[-1]["step"] if kept else 0

    def sync(self) -> None:
        """Sync all lines to disk."""
        if self.path.exists():
            with open(self.path, "ab") as file:
                os.fsync(file.fileno())

    def set_aside(self) -> Path | None:
        """Rename the file after its last step and return the new path, or None if there are no lines."""
        if not self.path.exists() or not self.path.stat().st_size:
            return None
        last_step = 0
        with contextlib.suppress(SnapshotCorruptError):  # a damaged log is kept, too, under its last readable step
            for line in self._lines():
                last_step = line["step"]
        name, number = f"{self.path.stem}_until_{last_step:06d}", 1
        target = self.path.with_name(name + self.path.suffix)
        while target.exists():
            number += 1
            target = self.path.with_name(f"{name}_{number}{self.path.suffix}")
        replace_durably(self.path, target)
        return target

    def read(self) -> list[dict[str, Any]]:
        """Return all lines, oldest first; an empty list without a log.

        Raises:
            SnapshotCorruptError: a line is damaged. A partial last line, left by a killed process, is ignored.
        """
        return list(self._lines()) if self.path.exists() else []

    def _lines(self) -> Iterator[dict[str, Any]]:
        step = 0
        with open(self.path, "rb") as file:
            for number, text in enumerate(file, start=1):
                try:
                    line = _parse(text, step)
                except _DAMAGED as error:
                    if isinstance(error, _NO_JSON) and not text.endswith(b"\n"):
                        return  # the partial last line of a killed process
                    raise SnapshotCorruptError(
                        f"Line {number} of {self.path} is damaged ({type(error).__name__}: {error}). Without this "
                        "generation batch a replay would give another posterior. Restore the line from a copy, or "
                        "move the file away to continue without the earlier choices."
                    ) from error
                step = line["step"]
                yield line


_NO_JSON = (json.JSONDecodeError, UnicodeDecodeError)
_DAMAGED = (*_NO_JSON, LookupError, ObservationError, RecursionError, TypeError, ValueError)


def _parse(text: bytes, last_step: int) -> dict[str, Any]:
    """Parse a line; raise one of `_DAMAGED` unless it follows `last_step` and has the fields that a replay needs."""
    line: dict[str, Any] = json.loads(text.decode())
    step, rows = line["step"], as_vector("sample_index", line["sample_index"], kinds="i")
    if type(step) is not int or not last_step < step <= 2**53:
        raise ValueError(f"step {step!r} after step {last_step}")
    successes, _ = check_outcomes(line["successes"], line["trials"])
    if rows.shape != successes.shape or len(line.get("mixed", rows)) != rows.size:
        raise ValueError(f"{rows.size} rows and {successes.size} outcomes")
    return line
