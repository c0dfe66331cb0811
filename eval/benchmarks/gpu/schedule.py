"""What is run in the time that there is."""

import sys
import time
from collections.abc import Callable
from typing import Any


class Schedule:
    """Starts parts as long as there is time; `found` has the results of each kind, and which have none."""

    def __init__(
        self, minutes: float, save: Callable[[dict[str, Any]], None], clock: Callable[[], float] = time.perf_counter
    ):
        self._clock, self._save = clock, save
        self._start, self._limit = clock(), 60 * minutes
        self._longest: dict[str, float] = {}
        self.found: dict[str, Any] = {"left out": [], "failed": {}}

    @property
    def seconds(self) -> float:
        return self._clock() - self._start

    def run(self, kind: str, name: str, work: Callable[..., Any], *arguments: Any) -> None:
        """Append the result of `work` to `found[kind]`, unless the longest part of its kind would not fit any more."""
        before = self.seconds
        if before + self._longest.get(kind, 0.0) > self._limit:
            self.found["left out"].append(name)
            return
        try:
            self.found.setdefault(kind, []).append(work(*arguments))
        except Exception as error:  # the other parts are worth having
            self.found["failed"][name] = f"{type(error).__name__}: {error}"
        self._longest[kind] = max(self._longest.get(kind, 0.0), self.seconds - before)
        self.found["seconds"] = self.seconds
        self._save(self.found)
        print(f"{self.seconds:6.0f} s  {name}", file=sys.stderr, flush=True)
