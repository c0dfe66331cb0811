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
