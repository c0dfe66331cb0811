"""What a long robustness run reports of one kind of fault."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Result:
    """`tries` of one kind of fault, `survived + lost` of them; `note` says in words what came of them."""

    case: str
    tries: int
    survived: int
    lost: int
    note: str


def summed(case: str, results: list[Result], note: str) -> Result:
    """The results of several kinds of run as one; what was lost is named."""
    lost = [f"{result.case}: {result.note}" for result in results if result.lost]
    total = {name: sum(getattr(result, name) for result in results) for name in ("tries", "survived", "lost")}
    return Result(case, **total, note="; ".join([note, *lost]))
