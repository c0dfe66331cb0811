"""One case for the verifiers."""

from typing import NamedTuple


class Case(NamedTuple):
    completion: str
    answer: str  # the reference
    verdict: float | None  # 1.0 right, 0.0 wrong, None: the row is not counted
    choices: tuple[str, ...] | None = None
    relaxed: bool = False
    why: str = ""  # where it is not plain
