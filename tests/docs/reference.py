"""Write the pages of docs/reference that follow from the code: `python -m tests.docs.reference`.

The text of a setting is that of the docstring of `VADEGRPOConfig`, of a command that of its function. `metrics.md` and
`files.md` are written by hand; tests compare them with real runs.
"""

import inspect
import re
import typing
from collections.abc import Iterable
from dataclasses import MISSING, Field, fields
from typing import Any

import typer
from typer.cli import get_docs_for_click

from tests.docs.pages import DOCS

FOLDER = DOCS / "reference"
NOTE = "<!-- Made by `python -m tests.docs.reference` from the code: change the docstring, not this page. -->"


def table(head: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table."""
    cells = [[re.sub(r"\s+", " ", cell).replace("|", r"\|") for cell in row] for row in rows]
    lines = [head, ["---"] * len(head), *cells]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _page(*parts: str) -> str:
    return "\n\n".join([parts[0], NOTE, *parts[1:]]) + "\n"


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
            [[f"[`{field.name}`](#{field.name})", _first_sentence(field), _default(field)] for field in ours],
        ),
        "## Presets",
        "`vade_preset` chooses the values of the settings that are `None`, and six rules that are no settings. "
        "`information_gain` is p(1-p)^2 (eq. 4 of the paper), or p(1-p) where it is symmetric. `decay_sampled` and "
        "`decay_unsampled` are the shares of its counts that a chosen row and any other one keep in one generation "
        "batch (eqs. 5 and 6). With `signal_aware_decay` the first is that of rows alone whose group had a gradient. "
        "With `even_rest` a chosen row rests for the share of an epoch that even draws would give of groups with a "
        "gradient, at least for `vade_cooldown`. `prior` is the belief about a row that was not chosen yet: any pass "
        "rate, or what the words of the prompts tell. `paper_greedy` is `paper` with the sampler `greedy`.",
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
    head = f"### `{field.name}` {{ #{field.name} }}\n\n{_type(hint)}. Default: {_default(field)}."
    return f"{head}\n\n{field.metadata['help']}"


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


def _first_sentence(field: Field) -> str:
    return re.split(r"(?<=\.)(?<!eq\.) ", field.metadata["help"])[0]


def _arguments(arguments: Iterable[Field]) -> str:
    rows = [[f"`--{field.name}`", field.metadata["help"], _default(field)] for field in arguments]
    return table(["argument", "meaning", "default"], rows)


def cli_page() -> str:
    """`cli.md`: every command of `trl-vade`, as typer writes it from the objects that also print its help."""
    from trl_vade.cli.main import app

    command = typer.main.get_command(app)
    context = typer.Context(command, info_name="trl-vade")
    text = get_docs_for_click(obj=command, ctx=context, name="trl-vade", title="Command line").rstrip()
    title, rest = text.split("\n\n", 1)
    return _page(title, re.sub("\b\n(.+?)\n\n", r"```text\n\1\n```\n\n", rest, flags=re.DOTALL))


API = {
    "Training": "trl_vade: VADEGRPOTrainer VADEGRPOConfig VADEConsoleCallback VADEReportCallback",
    "Rewards": "trl_vade.rewards: accuracy_reward relaxed_accuracy_reward format_reward metric_path",
    "Posteriors": "trl_vade: load_posterior BetaPosterior load_snapshot save_snapshot",
    "Samplers": "trl_vade: ThompsonSampler UniformSampler PromptSampler Draw",
    "Formulas": "trl_vade: information_gain",
}

_WITHOUT_FIELDS = ("members", "show_signature", "show_docstring_parameters", "show_docstring_attributes")


def api_page() -> str:
    """`api.md`: a directive of mkdocstrings for each public name."""
    from trl_vade import errors

    own = [name for name, value in vars(errors).items() if inspect.isclass(value) and issubclass(value, Exception)]
    parts = []
    for title, names in {**API, "Exceptions": f"trl_vade.errors: {' '.join(own)}"}.items():
        room, _, names = names.partition(": ")
        parts += [f"## {title}", *(_directive(title, f"{room}.{name}") for name in names.split())]
    return _page(
        "# Python API",
        "The path in front of a name is the module to import it from. The fields of `VADEGRPOConfig` are under "
        "[Settings](settings.md).",
        *parts,
    )


def _directive(title: str, name: str) -> str:
    """Overrides of TRL's methods are left out, and the fields, which settings.md has."""
    without = _WITHOUT_FIELDS if name.endswith("Config") else ("members",) if title == "Training" else ()
    options = "".join(f"\n      {option}: false" for option in without)
    return f"::: {name}" + (f"\n    options:{options}" if options else "")


PAGES = {"settings.md": settings_page, "cli.md": cli_page, "api.md": api_page}


if __name__ == "__main__":
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page(), encoding="utf-8")
