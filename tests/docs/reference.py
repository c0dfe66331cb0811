"""Write the pages of docs/reference that follow from the code: `python -m tests.docs.reference`.

The text of a setting is that of the docstring of `VADEGRPOConfig`, of a command that of its function. `metrics.md` and
`files.md` are written by hand; tests compare them with real runs.
"""

import inspect
import re
import typing
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, Field, fields
from importlib import import_module
from pathlib import Path
from typing import Any

import typer

from tests.docs.prose import split

FOLDER = Path(__file__).parents[2] / "docs" / "reference"
NOTE = "<!-- Made by `python -m tests.docs.reference` from the code: change the docstring, not this page. -->"


def table(head: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table."""
    lines = [
        head,
        ["---"] * len(head),
        *([re.sub(r"\s+", " ", cell).replace("|", r"\|") for cell in row] for row in rows),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _page(*parts: str) -> str:
    return "\n\n".join([parts[0], NOTE, *parts[1:]]) + "\n"


# ---------------------------------------------------------------------------------------------------------- settings


def settings_page() -> str:
    """`settings.md`: the fields of `VADEGRPOConfig`, the presets, and the arguments of the command."""
    from trl import ScriptArguments

    from trl_vade import VADEGRPOConfig
    from trl_vade.cli.parsing import VADEScriptArguments
    from trl_vade.trainer.presets import PRESETS

    ours = [field for field in fields(VADEGRPOConfig) if field.name.startswith("vade_")]
    hints = typing.get_type_hints(VADEGRPOConfig)
    names = list(PRESETS["paper"])
    of_trl = {field.name for field in fields(ScriptArguments)}
    more = [field for field in fields(VADEScriptArguments) if field.name not in of_trl]
    return _page(
        "# Settings",
        "`VADEGRPOConfig` has every field of TRL's `GRPOConfig` and the fields below. Each of them is also an "
        "option of `trl-vade train` and a key of a recipe: `--vade_sampler uniform`, or `vade_sampler: uniform`.",
        table(
            ["setting", "in short", "default"],
            [[f"[`{field.name}`](#{field.name})", split(_help(field))[0], _default(field)] for field in ours],
        ),
        "## Presets",
        "`vade_preset` chooses the values of the settings that are `None`, and three rules that are no settings. With "
        "`signal_aware_decay` a chosen row forgets by `vade_decay_sampled` only if its group had a gradient, else by "
        "`vade_decay_unsampled`. With `even_rest` a chosen row rests for the share of an epoch that even draws would "
        "give of groups with a gradient, at least for `vade_cooldown`. `prior` is the belief about a row that was not "
        "chosen yet: any pass rate, or what the words of the prompts tell. `paper_greedy` is `paper` with the sampler "
        "`greedy`.",
        table(
            ["preset", *(f"`vade_{name}`" if f"vade_{name}" in hints else name for name in names)],
            [[f"`{preset}`", *(_value(PRESETS[preset][name]) for name in names)] for preset in PRESETS],
        ),
        "## Each setting",
        *(_section(field, hints[field.name]) for field in ours),
        "## Arguments of the command",
        "`trl-vade train` and `scripts/train_vade.py` also take these arguments, and those of TRL's `ScriptArguments` "
        "and `ModelConfig`.",
        _arguments(field for field in more if not field.name.startswith("plan_")),
        "## Arguments of a plan",
        "`trl-vade plan` takes the arguments of a training and these.",
        _arguments(field for field in more if field.name.startswith("plan_")),
    )


def _section(field: Field, hint: Any) -> str:
    return f"### `{field.name}` {{ #{field.name} }}\n\n{_type(hint)}. Default: {_default(field)}.\n\n{_help(field)}"


def _type(hint: Any) -> str:
    if typing.get_origin(hint) is typing.Literal:
        return ", ".join(map(_value, typing.get_args(hint)))
    if type(None) in typing.get_args(hint):
        return " or ".join(map(_type, typing.get_args(hint)))
    return "`None`" if hint is type(None) else f"`{inspect.formatannotation(hint).replace('typing.', '')}`"


def _value(value: Any) -> str:
    return f"`{value!r}`".replace("'", '"')


def _default(field: Field) -> str:
    return _value(field.default if field.default_factory is MISSING else field.default_factory())


def _help(field: Field) -> str:
    return str(field.metadata["help"])


def _arguments(arguments: Iterable[Field]) -> str:
    rows = [[f"`--{field.name}`", _help(field), _default(field)] for field in arguments]
    return table(["argument", "meaning", "default"], rows)


# -------------------------------------------------------------------------------------------------------- command line


def cli_page() -> str:
    """`cli.md`: every command of `trl-vade`, from the objects that also print its help."""
    from trl_vade.cli.main import app

    group = typer.main.get_command(app)
    return _page("# Command line", *(_command(name, command) for name, command in _commands("trl-vade", group)))


def _commands(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    if name != "trl-vade posterior":
        yield name, command
    for child in getattr(command, "commands", {}).values():
        yield from _commands(f"{name} {child.name}", child)


def _command(name: str, command: Any) -> str:
    context = command.make_context(name, [], resilient_parsing=True)
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    level = "" if name == "trl-vade" else f"## `{name}`\n\n"
    parts = [
        f"{level}```text\n{usage}\n```",
        *map(_paragraph, re.split(r"\n{2,}", inspect.cleandoc(command.help or ""))),
    ]
    rows = [_parameter(parameter, context) for parameter in command.params]
    if any(rows):
        parts.append(table(["option", "meaning", "value", "default"], [row for row in rows if row]))
    return "\n\n".join(parts)


def _paragraph(text: str) -> str:
    """A paragraph of a command's help; one that the help prints as it stands is code."""
    return f"```text\n{inspect.cleandoc(text[1:])}\n```" if text.startswith("\b") else text


def _parameter(parameter: Any, context: Any) -> list[str] | None:
    record = parameter.get_help_record(context)
    if record is None:
        return None
    names, meaning = record
    name, _, value = (names, "", "") if " / " in names else names.partition(" ")
    default = "required" if parameter.required else _codes(str(parameter.default), ",")
    if not parameter.required and str(parameter.default) in ("None", "False", ""):
        default = ""
    value = _codes(value.strip("<>").removesuffix(" range"), "|")
    meaning = re.sub(r"\s*\[(default: .*?|required)\]$", "", meaning)
    return [f"`{name}`", meaning, value, default]


def _codes(text: str, between: str) -> str:
    return ", ".join(f"`{part}`" for part in text.split(between) if part)


# ---------------------------------------------------------------------------------------------------------- Python API

API = {
    "Training": "trl_vade: VADEGRPOTrainer VADEGRPOConfig VADEEvalCallback VADEConsoleCallback VADEReportCallback",
    "Rewards": "trl_vade.rewards: accuracy_reward relaxed_accuracy_reward format_reward metric_path",
    "Posteriors": "trl_vade: load_posterior BetaPosterior load_snapshot save_snapshot",
    "Samplers": "trl_vade: ThompsonSampler UniformSampler PromptSampler Draw",
    "Formulas": "trl_vade: information_gain",
}

_WITHOUT = {  # what a page leaves out: overrides of TRL's methods, and the fields, which settings.md has
    "VADEGRPOTrainer": ["members"],
    "VADEGRPOConfig": ["members", "show_signature", "show_docstring_parameters", "show_docstring_attributes"],
    **{name: ["members"] for name in ("VADEEvalCallback", "VADEConsoleCallback", "VADEReportCallback")},
}


def api_page() -> str:
    """`api.md`: a directive of mkdocstrings for each public name."""
    from trl_vade import errors

    groups = [(title, *names.split(": ")) for title, names in API.items()]
    own = [name for name, value in vars(errors).items() if inspect.isclass(value) and issubclass(value, Exception)]
    groups.append(("Exceptions", "trl_vade.errors", " ".join(own)))
    return _page(
        "# Python API",
        "The path in front of a name is the module to import it from. The fields of `VADEGRPOConfig` are under "
        "[Settings](settings.md).",
        *(
            part
            for title, room, names in groups
            for part in (f"## {title}", *(_directive(room, n) for n in names.split()))
        ),
    )


def _directive(room: str, name: str) -> str:
    assert hasattr(import_module(room), name)
    options = "".join(f"\n      {option}: false" for option in _WITHOUT.get(name, ()))
    return f"::: {room}.{name}" + (f"\n    options:{options}" if options else "")


PAGES = {"settings.md": settings_page, "cli.md": cli_page, "api.md": api_page}


def main() -> None:
    """Write all pages."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
