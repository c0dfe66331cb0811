"""The help of `trl-vade train` and `trl-vade plan`: what a newcomer needs, or with --help-all every option."""

from argparse import Action
from collections.abc import Iterator
from typing import Any

from trl_vade.trainer.docstring_help import first_sentence

from .commands import PlainCommand

GROUPS = {
    "The command": ("recipe", "config", "accelerate_config", "num_processes", "plan", "plan_rows"),
    "What is trained on what": ("model_name_or_path", "dataset_name", "reward_funcs", "output_dir", "use_peft"),
    "VADE": ("vade_preset", "vade_sampler", "vade_success_reward", "vade_posterior_init", "vade_dynamic_sampling"),
    "The batch": (
        "num_generations",
        "per_device_train_batch_size",
        "gradient_accumulation_steps",
        "max_steps",
        "learning_rate",
    ),
    "The run": ("use_vllm", "eval_steps", "save_steps", "resume_from_checkpoint", "report_to", "push_to_hub"),
}
CONFIG = "A recipe of your own, a file in YAML. A flag goes before its values."
WIDTH = 78  # of a line: two columns of a terminal of 80 stay free

Rows = list[tuple[str, str]]


def option_groups(*, whole: bool) -> Iterator[tuple[str, Rows]]:
    """Yield each group's title and its options with their texts: a few words, or with `whole` all of it."""
    from .parsing import Parser  # loads torch, as the run itself does

    actions = {action.dest: action for action in Parser()._actions}
    for title, names in GROUPS.items():
        room = None if whole else WIDTH - max(map(len, names)) - len("  --  ")
        yield title, [_row(name, actions.pop(name, None), room) for name in names]
    if whole:
        ours = [name for name in actions if name.startswith(("vade_", "lmms_", "dataset_", "testbed_"))]
        yield "Others of VADE, the data and benchmarks", [_row(name, actions.pop(name), None) for name in ours]
        yield "TRL and transformers", [_row(name, actions[name], None) for name in sorted(actions)]


def _row(name: str, action: Action | None, room: int | None) -> tuple[str, str]:
    text = " ".join((action.help or "").replace("%%", "%").split()) if action else CONFIG
    if room is not None:
        text = first_sentence(text)
        return f"--{name}", text if len(text) <= room else f"{text[: room - 4].rsplit(' ', 1)[0]} ..."
    facts = [f"one of: {', '.join(map(_shown, action.choices))}"] if action and action.choices else []
    if action and action.default not in (None, False, []):
        facts.append(f"default: {_shown(action.default)}")
    return f"--{name}", f"{text} [{'; '.join(facts)}]" if facts else text


def _shown(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(getattr(value, "value", value))


class TrainingCommand(PlainCommand):
    """A command that takes the arguments of a training."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the groups, then the command's own options."""
        for title, rows in option_groups(whole=bool(ctx.params.get("help_all"))):
            with formatter.section(title):
                formatter.write_dl(rows, col_max=32)
        super().format_options(ctx, formatter)
