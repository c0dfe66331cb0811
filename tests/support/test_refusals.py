"""The helper can fail: for another error, and for a message that leaves a name or a way out unsaid."""

import pytest

from tests.support.refusals import refused, says


def test_a_message_must_have_each_name_and_each_way_out():
    message = "vade_cooldown is 1.5; it must be in [0, 1]."
    with refused(ValueError, ["vade_cooldown", 1.5], ["[0, 1]"]):
        raise ValueError(message)
    for names, offers in ((["vade_cool"], []), ([5], []), (["vade_cooldown"], ["[0, 2]"])):
        with pytest.raises(AssertionError), refused(ValueError, names, offers):
            raise ValueError(message)
    with pytest.raises(KeyError), refused(ValueError):
        raise KeyError("x")
    assert [says(text, "15") for text in ("It is 15.", "It is 15.5", "It is 0.15")] == [True, False, False]
