"""The help of a training: a page for a newcomer, and every option on request, from the docstrings."""

import pytest

from tests.support.commands import run
from trl_vade.cli.parsing import Parser
from trl_vade.cli.training_help import GROUPS, option_groups


def test_the_help_is_a_page_of_options_that_exist_and_with_all_it_is_every_option():
    shown = [option for _, rows in option_groups(whole=False) for option, _ in rows]
    assert shown == [f"--{name}" for names in GROUPS.values() for name in names]
    whole = [option for _, rows in option_groups(whole=True) for option, _ in rows]
    assert sorted(whole) == sorted({"--config", *(f"--{action.dest}" for action in Parser()._actions)})
    assert {*shown} <= {*whole}
    text = run("train", "--help").stdout
    assert len(text.splitlines()) <= 60
    assert all(f"{option} " in text for option in shown)


@pytest.mark.parametrize("flag", ["--help-all", "--help_all"])
def test_the_whole_text_is_shown_on_request_with_choices_and_defaults(flag):
    text = " ".join(run("train", flag).stdout.split())
    for words in ("a half-life of 693", "--adam_beta1", "one of: asymmetric, symmetric", "default: thompson"):
        assert words in text
