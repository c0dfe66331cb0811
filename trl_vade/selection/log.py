"""`vade_selection.jsonl`: which rows were chosen, and what came of it; one line a generation batch.

Replaying its lines through a `BetaPosterior` gives the posterior at any step, so a run can be audited and drawn from
its files alone.
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
    """Appends to, shortens and reads one selection log.

    A line holds `step` (generation batches from 1: the posterior's steps), `global_step` (optimiser steps finished
    when the batch was scored), `rollouts` (so far), `predicted_effective_ratio`, `effective_gradient_ratio` (null
    where no completion was scored), and of each group `sample_index`, `successes` and `trials`. Where these do not
    tell which groups were mixed (fractions, spreads) it also holds `mixed`. A line that ends a reward outage also
    holds `restored_to`, the step whose counts were put back before it was observed.

    With dynamic sampling each refill of a generation batch is a step and a line of its own, which also holds `refill`,
    its number from 1. A warm start is the first step and line, with the source of its evidence as `warm_start`, counts
    that are no whole numbers, and ratios that are null, since nothing was chosen or generated.
    """

    def __init__(self, directory: str | os.PathLike[str]):
        self.path = Path(directory) / SELECTION_LOG_FILE

    def append(self, outcomes: GroupOutcomes, *, step: int, **more: float | str | None) -> None:
        """Write one generation batch down. Step 1 starts the file anew: an older run's lines are not this run's.

        Raises:
            CheckpointSaveError: the disk refused.
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
                f"{self.path} could not be written ({type(error).__name__}: {error}), so the run stops: with a line "
                "missing, the posterior could not be replayed from it. Free space, or see to the permissions, and "
                "then train(resume_from_checkpoint=True), if a checkpoint was saved."
            ) from error

    def truncate(self, last_step: int) -> int:
        """Drop the lines after `last_step`: a run resumed from a checkpoint goes through them again.

        Returns:
            The step of the last line that is left, or 0.

        Raises:
            SnapshotCorruptError: as `read`; the file is as it was.
        """
        if not self.path.exists():
            return 0
        kept = [line for line in self._lines() if line["step"] <= last_step]
        save_whole(self.path, "".join(json.dumps(line) + "\n" for line in kept).encode())
        return kept[-1]["step"] if kept else 0

    def sync(self) -> None:
        """Wait until the disk has all lines, as it has the posterior that they lead to."""
        if self.path.exists():
            with open(self.path, "ab") as file:
                os.fsync(file.fileno())

    def set_aside(self) -> Path | None:
        """Give the file a name of its own and return it: the lines that follow have other rows, or start anew."""
        if not self.path.exists() or not self.path.stat().st_size:
            return None
        last_step = 0
        with contextlib.suppress(SnapshotCorruptError):  # a damaged log is kept too, under the last step that it tells
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
        """All lines, oldest first; an empty list where there is no log.

        Raises:
            SnapshotCorruptError: a line is damaged, other than the half line of a process that died while it wrote it.
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
                        return  # the process died while it wrote this line, which therefore is the last
                    raise SnapshotCorruptError(
                        f"Line {number} of {self.path} is damaged ({type(error).__name__}: {error}). A line is one "
                        "generation batch; without this one the later lines would give another posterior than the "
                        "run's. Put the line back from a copy, or move the file away to go on without the choices so "
                        "far."
                    ) from error
                step = line["step"]
                yield line


_NO_JSON = (json.JSONDecodeError, UnicodeDecodeError)
_DAMAGED = (*_NO_JSON, LookupError, ObservationError, RecursionError, TypeError, ValueError)


def _parse(text: bytes, last_step: int) -> dict[str, Any]:
    """Read a line, which must come after the one of `last_step`, and have what a replay needs."""
    line: dict[str, Any] = json.loads(text.decode())
    step, rows = line["step"], as_vector("sample_index", line["sample_index"], kinds="i")
    if type(step) is not int or not last_step < step <= 2**53:
        raise ValueError(f"step {step!r} after step {last_step}")
    successes, _ = check_outcomes(line["successes"], line["trials"])
    if rows.shape != successes.shape or len(line.get("mixed", rows)) != rows.size:
        raise ValueError(f"{rows.size} rows and {successes.size} outcomes")
    return line
