"""Which cases of a test the default run has."""

from collections.abc import Iterable
from typing import Any

import pytest


def slow(*values: Any) -> Any:
    """A case of `parametrize` that the default run leaves out."""
    return pytest.param(*values, marks=pytest.mark.slow)


def slow_but(default: Iterable[str], cases: Iterable[str]) -> list[Any]:
    """All `cases` by name, those that are not in `default` marked slow."""
    kept, names = set(default), list(cases)
    assert kept <= set(names), kept - set(names)
    return [name if name in kept else slow(name) for name in names]
