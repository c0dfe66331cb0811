"""The helper can fail: for another error, and for a message that leaves a name or a way out unsaid."""

import pytest

from tests.support.refusals import refused, says


def test_a_message_with_the_setting_the_value_and_a_way_out_passes():
    with refused(ValueError, names=["vade_cooldown", 1.5], offers=["[0, 1]"]) as raised:
        raise ValueError("vade_cooldown is 1.5; it must be in [0, 1].")
    assert raised.type is ValueError


@pytest.mark.parametrize(("names", "offers"), [(["vade_cool"], []), ([5], []), (["vade_cooldown"], ["[0, 2]"])])
def test_a_message_without_one_of_them_does_not(names, offers):
    with pytest.raises(AssertionError), refused(ValueError, names, offers):
        raise ValueError("vade_cooldown is 1.5; it must be in [0, 1].")


def test_another_error_goes_through():
    with pytest.raises(KeyError), refused(ValueError):
        raise KeyError("x")


def test_a_number_at_the_end_of_a_sentence_is_seen_and_a_part_of_one_is_not():
    assert says("It is 15.", "15")
    assert not says("It is 15.5", "15")
    assert not says("It is 0.15", "15")
