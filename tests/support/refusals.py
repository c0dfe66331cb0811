"""What a test may ask of a refusal: that it says what was given and what to do, in whatever words."""

import re
from contextlib import contextmanager

import pytest


@contextmanager
def refused(error, names=(), offers=()):
    """Expect the block to raise `error` with a message that helps.

    Args:
        error: the exception, or a class above it.
        names: the setting or thing that is at fault, and the value that was received.
        offers: the ways out: another setting, a value that is allowed, a command.
    """
    with pytest.raises(error) as raised:
        yield raised
    message = str(raised.value)
    missing = [str(word) for word in (*names, *offers) if not says(message, str(word))]
    assert not missing, f"{missing} not in: {message}"


def says(message, word):
    """Whether `word` stands in `message`, not as a part of a longer word or number."""
    before, after = (r"(?<![\w.])" if word[:1].isalnum() else ""), (r"(?!\w|\.\d)" if word[-1:].isalnum() else "")
    return re.search(before + re.escape(word) + after, message) is not None
