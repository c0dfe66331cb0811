"""The help of a dataclass's fields, from its docstring."""

import inspect
import re
from dataclasses import fields
from types import MappingProxyType
from typing import TypeVar

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


def first_sentence(text: str) -> str:
    """Return the first sentence of the help of a field."""
    return re.split(r"(?<!e\.g\.)(?<!i\.e\.)(?<!eq\.)(?<=\.)\s", text)[0]
