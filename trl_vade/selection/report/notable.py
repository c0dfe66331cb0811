"""The rows and answers that a report shows. The trainer notes them while it trains, and keeps them at each save."""

from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trl_vade.samplers.posterior import BetaPosterior

NAMED = 50  # rows at each end of the pass rates that have their id and question in `vade_rows.json`
SHOWN = 6  # rows at each end that also have a picture, and most changed rows
BEGINNING = 3  # groups of a row that tell how it began
ANSWERS = 3  # completions of a task, at the start and at the end


class Beginnings:
    """The pass rate of each of N rows in its first `BEGINNING` groups."""

    def __init__(self, num_rows: int):
        self._groups = np.zeros(num_rows, dtype=np.uint8)
        self._successes, self._trials = np.zeros((2, num_rows), dtype=np.float32)

    def observe(self, rows: NDArray[np.int64], successes: NDArray[Any], trials: NDArray[Any]) -> None:
        """Note the outcomes of a generation batch, (K,) each; a row may come several times."""
        new = (self._groups[rows] < BEGINNING) & (trials > 0)
        for kept, counts in ((self._groups, 1), (self._successes, successes[new]), (self._trials, trials[new])):
            np.add.at(kept, rows[new], counts)

    def most_changed(self, posterior: BetaPosterior, count: int = SHOWN) -> list[int]:
        """Return the `count` rows whose pass rate now differs most from their beginning, among those seen since."""
        later = np.flatnonzero((posterior.visits > self._groups) & (self._trials > 0))
        change = np.abs(posterior.posterior_mean[later] - self._successes[later] / self._trials[later])
        return [int(row) for row in later[np.argsort(-change, kind="stable")[:count]]]


def both_ends(posterior: BetaPosterior, keys: NDArray[np.int64], count: int = NAMED) -> tuple[list[int], list[int]]:
    """Return the `count` rows with the lowest pass rates and those with the highest, none twice.

    Ties are in the order of the `keys`, (N,), as 16 hexadecimal digits: that of `trl-vade posterior show`.
    """
    seen = np.flatnonzero(posterior.visits > 0)
    order = seen[np.lexsort((keys[seen].view(np.uint64), posterior.posterior_mean[seen]))].tolist()
    return order[:count], order[max(len(order) - count, count) :][::-1]


@dataclass(frozen=True)
class Answer:
    """A completion as the report shows it."""

    step: int  # finished optimiser steps
    row: int
    reward: float | None
    text: str


@dataclass
class Answers:
    """The first and the last answers to the rows of each task, at most `ANSWERS` of each and one a group."""

    first: dict[str, list[Answer]] = field(default_factory=lambda: defaultdict(list))
    last: dict[str, deque[Answer]] = field(default_factory=lambda: defaultdict(lambda: deque(maxlen=ANSWERS)))

    def observe(self, task: str, answer: Answer) -> None:
        """Note an answer to a row of `task`."""
        if len(self.first[task]) < ANSWERS:
            self.first[task].append(answer)
        self.last[task].append(answer)

    def as_json(self) -> dict[str, dict[str, list[dict[str, Any]]]]:
        """Return the answers by task, as JSON values."""
        return {
            task: {"first": [vars(each) for each in first], "last": [vars(each) for each in self.last[task]]}
            for task, first in self.first.items()
        }

    @classmethod
    def of(cls, saved: dict[str, dict[str, list[dict[str, Any]]]], before: int) -> "Answers":
        """Return the answers of `as_json` that were given before the optimiser step `before`."""
        answers = cls()
        for task, parts in saved.items():
            for name, kept in (("first", answers.first), ("last", answers.last)):
                kept[task].extend(Answer(**each) for each in parts[name] if each["step"] < before)
        return answers

    def rows(self) -> set[int]:
        """Return the rows that were answered."""
        return {answer.row for part in (self.first, self.last) for some in part.values() for answer in some}


def replayed(beginnings: Beginnings, lines: Iterable[dict[str, Any]]) -> Beginnings:
    """Let `beginnings` observe the lines of a selection log, and return it."""
    for line in lines:
        if "warm_start" not in line:
            beginnings.observe(*(np.asarray(line[name]) for name in ("sample_index", "successes", "trials")))
    return beginnings
