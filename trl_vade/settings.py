"""Is the value of each setting allowed? Settings of a dataclass: their help, from its docstring, and their rules.

The rule of a setting stands beside its type, as in `Annotated[float | None, {"range": "[0, 1)"}]`. The metadata of a
field are no place for it: transformers gives them to argparse.

* `range`: of the numbers;
* `words`: the texts that are allowed beside numbers;
* `needs`: the setting without which this one has no effect, and with `values` those that it needs it to have;
* `of`: "posterior" where only `thompson` and `greedy` read it;
* `card`: False where the facts of a run do not need it, or have it from the posterior.
"""

import inspect
import re
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType, NoneType, UnionType
from typing import Any, TypeVar

from .errors import ConfigurationError, abbreviated

Config = TypeVar("Config", bound=type)


def help_from_docstring(config: Config) -> Config:
    """Set the help of each field of the dataclass `config` to the text of its argument in the class docstring.

    The docstring must be in Google style. The command line then says the same as the reference. Under `python -OO`
    there are no docstrings, and no help.
    """
    entries = re.findall(r"^ {4}(\w+): (.+(?:\n {8}.+)*)", inspect.getdoc(config) or "", flags=re.MULTILINE)
    texts = {name: " ".join(text.split()) for name, text in entries}
    for field in fields(config):
        if field.name in texts:
            field.metadata = MappingProxyType({**field.metadata, "help": texts[field.name]})
    return config


@dataclass(frozen=True)
class Setting:
    """A field `vade_<name>` of a configuration."""

    name: str
    kind: Any  # its type
    rule: Mapping[str, Any]
    default: Any
    help: str


def settings_of(config: type) -> list[Setting]:
    """Return the settings of a configuration class that declares all of them itself."""
    found = []
    for field in fields(config):
        if field.name.startswith("vade_"):
            kind = config.__annotations__[field.name]
            kind, rule = (kind.__origin__, kind.__metadata__[0]) if hasattr(kind, "__metadata__") else (kind, {})
            found.append(Setting(field.name, kind, rule, field.default, field.metadata.get("help", "")))
    return found


def check_settings(args: Any, config: type) -> None:
    """Raise `ConfigurationError` if a setting breaks its rule in `config`, or has no effect without another."""
    settings = settings_of(config)
    for each in settings:
        value, rules = getattr(args, each.name), dict(_rules(each.kind, each.rule))
        if not any(holds(value) for holds in rules.values()):
            about = re.split(r"(?<!e\.g\.)(?<!i\.e\.)(?<!eq\.)(?<=\.)\s", each.help)[0]  # its first sentence
            raise ConfigurationError(
                f"{each.name}={abbreviated(value)} is not {' or '.join(rules)}. {about} The default is "
                f"{each.default!r}."
            )
    for each in settings:
        value = getattr(args, each.name)
        if not has_what_it_needs(args, each) and value != each.default:
            needed, values = each.rule["needs"], " or ".join(map(repr, each.rule.get("values", ())))
            raise ConfigurationError(
                f"{each.name}={abbreviated(value)} with {needed}={getattr(args, needed)!r}, which does not use it. "
                f"Set {needed}{f' to {values}' if values else ''}, or leave {each.name} out."
            )


def has_what_it_needs(args: Any, setting: Setting) -> bool:
    """Return whether the setting that `setting` needs is set."""
    if "needs" not in setting.rule:
        return True
    value, values = getattr(args, setting.rule["needs"]), setting.rule.get("values")
    return value in values if values else bool(value)


def _rules(kind: Any, rule: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield what a value may be, of which one must hold: in words, and as a function."""
    if typing.get_origin(kind) in (typing.Union, UnionType):
        for each in typing.get_args(kind):
            yield from _rules(each, rule)
    elif typing.get_origin(kind) is typing.Literal:
        words = typing.get_args(kind)
        yield ", ".join(map(repr, words)), lambda value: isinstance(value, str) and value in words
    elif kind is str:
        words = rule.get("words", ())
        text = ", ".join(map(repr, words)) or "a text"
        yield text, lambda value: isinstance(value, str) and value in (words or (value,)) and value != ""
    elif kind is NoneType:
        yield "None", lambda value: value is None
    elif kind is bool:
        yield "True or False", lambda value: isinstance(value, bool)
    elif kind in (int, float):
        whole = "a whole number" if kind is int else "a number"
        yield f"{whole} in {rule['range']}", lambda value: _is_in(value, kind, rule["range"])
    elif typing.get_origin(kind) is list:
        yield (
            f"one or two numbers in {rule['range']}",
            lambda value: all(_is_in(each, float, rule["range"]) for each in as_pair(value)),
        )
    else:
        yield "a value", lambda value: True  # it is judged where it is used


def as_pair(value: Any) -> tuple[Any, Any]:
    """Return the first and the last of one or two values; of more, or of none, a pair of Nones."""
    values = value if isinstance(value, list | tuple) else [value]
    return (values[0], values[-1]) if len(values) in (1, 2) else (None, None)


def _is_in(value: Any, kind: type, interval: str) -> bool:
    low, high = map(float, interval[1:-1].split(","))
    number = isinstance(value, int if kind is int else int | float) and not isinstance(value, bool)
    if not number or not low <= value <= high:
        return False
    return (value != low or interval[0] == "[") and (value != high or interval[-1] == "]")
