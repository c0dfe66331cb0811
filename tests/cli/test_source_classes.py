"""Options read from source are those of the real classes, so that a slip is refused at once and nothing else is."""

import subprocess
import sys

import pytest

from trl_vade.cli.parsing import Parser, known_config
from trl_vade.cli.source_classes import Unread, read_class
from trl_vade.errors import ConfigurationError


def options(config):
    """What a parser does with each option."""
    names = ("dest", "option_strings", "nargs", "const", "required")
    return [{name: getattr(action, name) for name in names} for action in Parser(config)._actions]


def test_the_options_that_are_read_are_those_of_the_real_configuration():
    from trl_vade import VADEGRPOConfig

    read, real = Parser(known_config())._actions, Parser(VADEGRPOConfig)._actions
    assert known_config() is not VADEGRPOConfig
    assert options(known_config()) == options(VADEGRPOConfig)
    for ours, theirs in zip(read, real, strict=True):
        if ours.choices is not None:  # without them the real parser judges
            assert [str(choice) for choice in ours.choices] == [str(choice) for choice in theirs.choices]
        assert ours.default is Unread or ours.default == theirs.default
        assert ours.help == theirs.help
    assert [action.dest for action in read if action.default is Unread] == ["optim"]  # by the version of torch


WORDS = {"str": "some text", "int": "7", "float": "-0.5", "string_to_bool": "no", "dict": '{"a": 1}'}


def test_what_the_real_parser_accepts_the_one_from_source_accepts_with_the_same_value():
    from trl_vade import VADEGRPOConfig

    read, real, tried = Parser(known_config()), Parser(VADEGRPOConfig), 0
    for action in real._actions:
        for option in action.option_strings:
            word = str(getattr([*action.choices][-1], "value", [*action.choices][-1])) if action.choices else None
            word = word or WORDS.get(getattr(action.type, "__name__", ""), "some text")
            tries = [[option]] if action.nargs in ("?", 0) else []
            tries += [[option, word], [f"{option}={word}"]] if action.nargs != 0 else []
            tries += [[option, word, word]] if action.nargs == "+" else []
            for words in tries:
                try:
                    expected = vars(real.parse_args(words))[action.dest]
                except ConfigurationError:  # a dictionary that argparse cannot make
                    continue
                assert str(vars(read.parse_args(words))[action.dest]) == str(expected), words
                tried += 1
    assert tried > 1000


def test_reading_them_takes_no_torch():
    code = (
        "import sys; from trl_vade.cli.early_checks import known_config; known_config(); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr


@pytest.mark.parametrize(
    ("module", "name"),
    [("trl_vade.errors", "VADEErrors"), ("no_such_package.x", "A"), ("trl_vade.checks", "IntArray")],
)
def test_what_is_no_class_of_a_package_is_not_read(module, name):
    with pytest.raises(LookupError):
        read_class(module, name)


def test_where_the_source_cannot_be_read_the_class_itself_is_used(monkeypatch):
    from trl_vade import VADEGRPOConfig

    monkeypatch.setattr("trl_vade.cli.parsing.read_class", lambda *place: 1 / 0)
    assert known_config.__wrapped__() is VADEGRPOConfig
