"""One case for the verifiers, and several with one reference and one verdict."""

from typing import NamedTuple


class Case(NamedTuple):
    completion: str
    answer: str  # the reference
    verdict: float | None  # 1.0 right, 0.0 wrong, None: the row is not counted
    choices: tuple[str, ...] | None = None
    relaxed: bool = False


def right(answer, *completions, **how):
    return [Case(completion, answer, 1.0, **how) for completion in completions]


def wrong(answer, *completions, **how):
    return [Case(completion, answer, 0.0, **how) for completion in completions]


def unscored(answer, *completions, **how):
    return [Case(completion, answer, None, **how) for completion in completions]


def tagged(*answers):
    return [f"<answer>{answer}</answer>" for answer in answers]


def bare(*answers):
    return [*answers]


def boxed(*answers):
    return [f"\\boxed{{{answer}}}" for answer in answers]


def each(make, wrap, *rows, **how):
    """The cases of rows that have a reference and its answers, which are tagged or boxed."""
    return [case for reference, *answers in rows for case in make(reference, *wrap(*answers), **how)]
