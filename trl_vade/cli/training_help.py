"""The help of `trl-vade train` and `trl-vade plan`: our options in groups, or with --help-all every option."""

from argparse import Action
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from trl_vade.trainer.docstring_help import first_sentence

from .commands import PlainCommand
from .source_classes import Unread

GROUPS = {
    "recipe": "The command",
    "plan_accelerate": "A plan",
    "dataset_name": "The data",
    "reward_funcs": "The rewards",
    "lmms_tasks": "Benchmarks during the training",
    "vade_preset": "VADE",
}
"""Titles by the first option of each group. A group ends where another begins, in the order of the fields."""

COMMON = (
    *("model_name_or_path", "dtype", "use_peft", "output_dir", "seed", "use_cpu", "bf16"),
    *("num_generations", "per_device_train_batch_size", "gradient_accumulation_steps", "steps_per_generation"),
    *("max_steps", "num_train_epochs", "learning_rate", "lr_scheduler_type", "beta", "temperature"),
    *("max_completion_length", "use_vllm", "vllm_mode", "eval_strategy", "eval_steps", "logging_steps", "save_steps"),
    *("resume_from_checkpoint", "report_to", "push_to_hub", "hub_model_id"),
)
"""Options of TRL and transformers that --help shows, too."""
CONFIG = ("--config", "A recipe of your own, a file in YAML. A flag goes before its values.")

Rows = list[tuple[str, str]]


def option_groups(*, whole: bool) -> Iterator[tuple[str, Rows]]:
    """Yield each group's title and its options with their texts: the first sentence, or with `whole` all of it."""
    from .parsing import Parser, known_config  # TRL's parser: half a second, which only this help needs
    from .training_arguments import VADEScriptArguments

    actions, title = {action.dest: action for action in reversed(Parser(known_config())._actions)}, ""
    groups: dict[str, list[Action]] = {name: [] for name in GROUPS.values()}
    ours = {field.name for field in fields(VADEScriptArguments)}
    for name in [name for name in reversed(actions) if name in ours or name.startswith("vade_")]:
        title = GROUPS.get(name, title)
        groups[title].append(actions.pop(name))
    for name, listed in groups.items():
        rows = [_row(action, whole=whole) for action in listed]
        yield name, [CONFIG, *rows] if name == GROUPS["recipe"] else rows
    yield "TRL and transformers", [_row(actions[name], whole=whole) for name in COMMON]
    if whole:
        rest = sorted(actions.keys() - {*COMMON})
        yield "TRL and transformers: all others", [_row(actions[name], whole=True) for name in rest]


def _row(action: Action, *, whole: bool) -> tuple[str, str]:
    text = " ".join((action.help or "").replace("%%", "%").split())
    text = text if whole else first_sentence(text)
    facts = [f"one of: {', '.join(map(_shown, action.choices))}"] if action.choices else []
    if action.default not in (None, False, [], Unread):
        facts.append(f"default: {_shown(action.default)}")
    return f"--{action.dest}", f"{text} [{'; '.join(facts)}]" if facts else text


def _shown(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(getattr(value, "value", value))


class TrainingCommand(PlainCommand):
    """A command that takes the arguments of a training."""

    titles: tuple[str, ...] | None = None  # of the groups that it shows; None: all of them

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the groups, then the command's own options."""
        for title, rows in option_groups(whole=bool(ctx.params.get("help_all"))):
            if self.titles is None or title in self.titles:
                with formatter.section(title):
                    formatter.write_dl(rows)
        super().format_options(ctx, formatter)


class PlanCommand(TrainingCommand):
    """`trl-vade plan`."""

    titles = ("The command", "A plan")
