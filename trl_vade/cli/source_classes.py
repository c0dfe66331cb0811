"""Argument classes made from their source, without their modules.

transformers' `TrainingArguments` imports torch, which takes 6 to 15 seconds. Its fields are read in a tenth of one. So
a slip in an option is refused, and the help printed, at once.
"""

import ast
import builtins
import dataclasses
import typing
from enum import Enum
from functools import cache
from importlib.util import find_spec, resolve_name
from pathlib import Path
from types import MappingProxyType
from typing import Any


class _Unread(type):
    """Attributes of what is not read are not read either."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return cls


class Unread(str, metaclass=_Unread):
    """Stands for a type or a default that a module computes. As a type it takes any text."""


@cache
def read_class(module: str, name: str) -> type:
    """Return a dataclass with the fields, the docstring and the bases of the dataclass `name`, without its methods.

    A default that the module computes is `Unread`. What this reader does not know raises an exception of any kind.
    """
    module, node = _find(module, name)
    if not isinstance(node, ast.ClassDef):
        raise LookupError(f"{module}.{name} is no class")
    names = _Names(module)
    columns: list[tuple[str, Any, Any]] = []
    for line in node.body:
        if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name):
            names[line.targets[0].id] = Unread  # other fields may have it as their default
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            default = dataclasses.MISSING if line.value is None else names.value(line.value)
            if not isinstance(default, dataclasses.Field):
                default = dataclasses.field(default=default)
            known = {key: value for key, value in default.metadata.items() if not isinstance(value, Unread)}
            default.metadata = MappingProxyType(known)
            columns.append((line.target.id, names.value(line.annotation), default))
    bases = tuple(read_class(module, base.id) for base in node.bases if isinstance(base, ast.Name))
    if len(bases) != len(node.bases):
        raise LookupError(f"{module}.{name} has a base that is no plain name")
    return dataclasses.make_dataclass(
        name, columns, bases=bases, namespace={"__doc__": ast.get_docstring(node, False)}
    )


class _Names(dict[str, Any]):
    """The names of a module, each looked up in the source when an expression uses it."""

    def __init__(self, module: str):
        super().__init__(vars(typing) | vars(dataclasses))
        self._module = module

    def value(self, expression: ast.expr) -> Any:
        return eval(compile(ast.Expression(expression), self._module, "eval"), dict(vars(builtins)), self)

    def __missing__(self, name: str) -> Any:
        if hasattr(builtins, name):
            return getattr(builtins, name)
        try:
            node = _find(self._module, name)[1]
        except (LookupError, ImportError):
            return Unread
        if isinstance(node, ast.Assign):
            return _literal(node.value)
        if not node.bases or not ast.unparse(node.bases[-1]).endswith("Enum"):
            return Unread
        members = [line for line in node.body if isinstance(line, ast.Assign)]
        return Enum(name, {ast.unparse(line.targets[0]): ast.literal_eval(line.value) for line in members}, type=str)


def _literal(expression: ast.expr) -> Any:
    try:
        return ast.literal_eval(expression)
    except ValueError:
        return Unread


def _find(module: str, name: str) -> tuple[str, ast.ClassDef | ast.Assign]:
    """Return the class or the constant `name` as `module` has it, with the module that defines it."""
    tree, package = source_of(module)
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return module, node
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return module, node
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and name in [alias.asname or alias.name for alias in node.names]:
            return _find(resolve_name("." * node.level + (node.module or ""), package), name)
    raise LookupError(f"{module} has no {name}")


@cache
def source_of(module: str) -> tuple[ast.Module, str]:
    """Return the syntax tree of a module, which is not imported, and the package for its relative imports."""
    top, *rest = module.split(".")
    spec = find_spec(top)
    if spec is None or not spec.submodule_search_locations:
        raise LookupError(f"{top} is no package")
    path = Path(spec.submodule_search_locations[0], *rest)
    package = module if path.is_dir() else module.rpartition(".")[0]
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(path.read_text(encoding="utf-8")), package
