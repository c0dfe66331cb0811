"""The help of a training: every option of ours in one group, with default and choices, from the docstrings."""

from dataclasses import fields

import pytest

from tests.support.commands import run
from trl_vade.cli.parsing import Parser, known_config
from trl_vade.cli.training_arguments import CommandArguments, VADEScriptArguments
from trl_vade.cli.training_help import COMMON, GROUPS, option_groups


def ours():
    names = {field.name for field in fields(VADEScriptArguments)}
    return names | {field.name for field in fields(known_config()) if field.name.startswith("vade_")}


def test_every_option_of_ours_stands_once_and_with_all_every_option():
    shown = [option for _, rows in option_groups(whole=False) for option, _ in rows]
    assert sorted(shown) == sorted(f"--{name}" for name in [*ours(), *COMMON, "config"])
    whole = [option for _, rows in option_groups(whole=True) for option, _ in rows]
    assert sorted(whole) == sorted({"--config", *(f"--{action.dest}" for action in Parser(known_config())._actions)})


def test_no_group_is_empty():
    assert [title for title, rows in option_groups(whole=False) if not rows] == []
    assert {*GROUPS} <= ours()


def test_an_option_says_its_choices_and_its_default():
    text = " ".join(run("train", "-h").stdout.split())
    assert "one of: asymmetric, symmetric" in text
    assert "default: thompson" in text
    assert "a half-life of 693" not in text


@pytest.mark.parametrize("flag", ["--help-all", "--help_all"])
def test_the_whole_text_is_shown_on_request(flag):
    text = " ".join(run("train", flag).stdout.split())
    assert "a half-life of 693" in text
    assert "--adam_beta1" in text


def test_the_help_of_a_plan_tells_its_options_and_their_defaults():
    text = run("plan", "-h").stdout
    for option in fields(CommandArguments):
        assert f"--{option.name} " in text
        assert not isinstance(option.default, int | float) or option.default is False or f"{option.default:g}" in text
    assert "--vade_sampler " not in text
