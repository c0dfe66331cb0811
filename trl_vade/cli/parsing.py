"""The arguments of a training, read by TRL's parser, whose refusals are one sentence here."""

import re
import warnings
from argparse import Action
from collections.abc import Collection, Iterable
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import yaml
from trl.scripts.utils import TrlParser
from trl.trainer.model_config import ModelConfig

from trl_vade.errors import ConfigurationError, abbreviated
from trl_vade.trainer.docstring_help import help_from_docstring

from .source_classes import read_class
from .training_arguments import VADEScriptArguments

Arguments = tuple[VADEScriptArguments, Any, ModelConfig]
REFUSALS = (ValueError, TypeError, OSError, ImportError, RuntimeError)
"""What TRL, transformers and accelerate raise for settings that cannot work, before anything is trained."""


class Parser(TrlParser):
    """Reads flags and a recipe as `VADEScriptArguments`, a configuration of the class `config` and a `ModelConfig`."""

    def __init__(self, config: type):
        super().__init__((VADEScriptArguments, config, ModelConfig), add_help=False)

    def read(self, arguments: list[str], others: Collection[str] = ()) -> Arguments:
        """Return what `arguments` say. Options with the names `others` are somebody else's and left alone.

        Raises:
            ConfigurationError: an option or a key is unknown, a value is wrong, or the recipe cannot be read.
        """
        recipe = arguments[arguments.index("--config") + 1] if "--config" in arguments else None
        if recipe is not None and not Path(recipe).exists():
            raise ConfigurationError(
                f"--config {recipe}: there is no such file. Give the path of a recipe, or --recipe NAME for one of "
                "the package."
            )
        try:
            with warnings.catch_warnings():
                # TRL 1.16 sets this field itself, so nobody can follow the advice of transformers 5.19.
                warnings.filterwarnings("ignore", ".*`gradient_checkpointing` is deprecated", FutureWarning)
                *read, words = self.parse_args_and_config(arguments, return_remaining_strings=True)
        except ConfigurationError:
            raise
        except yaml.YAMLError as error:  # names the file and the line
            raise ConfigurationError(f"The recipe is no YAML: {' '.join(str(error).split())}.") from error
        except REFUSALS as error:
            raise ConfigurationError(str(error)) from error
        self.refuse_unknown(words, others)
        return tuple(read)

    def refuse_unknown(self, words: list[str], others: Collection[str] = ()) -> None:
        """Refuse `words` that the parser left over, unless they are options named in `others` with their values."""
        flags = [word.split("=")[0] for word in words if word.startswith("-")]
        unknown = [flag for flag in flags if _name(flag) not in others]
        if unknown or (words and not flags):
            word = next(iter(unknown), words[0])
            close = near(_name(word), [*(action.dest for action in self._actions), *others]) if unknown else ""
            raise ConfigurationError(
                f"{word} is no option of the training{' or of its launcher' if others else ''}."
                f"{f' Did you mean --{close}?' if close else ''} See `trl-vade train --help-all`."
            )

    def set_defaults_with_config(self, **config: Any) -> list[str]:
        """Take over the values of a recipe, as TRL does, and refuse keys and choices that do not exist."""
        actions = {action.dest: action for action in self._actions}
        for name, value in config.items():
            if name not in actions:
                close = near(name, actions)
                raise ConfigurationError(
                    f"The recipe sets {name}={abbreviated(value)}, and there is no such setting."
                    f"{f' Did you mean {close}?' if close else ''} See `trl-vade train --help-all`."
                )
            if name.startswith("vade_") and isinstance(value, str):
                self._check_value(actions[name], value)
        return super().set_defaults_with_config(**config)

    def _check_value(self, action: Action, value: Any) -> None:
        choices = [str(choice) for choice in action.choices or ()]
        if choices and value not in action.choices:
            close = near(str(value), choices)
            raise ConfigurationError(
                f"{action.dest}={value!r} is not known.{f' Did you mean {close}?' if close else ''} Set it to one of "
                f"{', '.join(choices)}."
            )

    def error(self, message: str) -> NoReturn:
        """Raise a `ConfigurationError`; argparse would print hundreds of lines of usage."""
        raise ConfigurationError(re.sub(r"^argument (-\S+?)(/\S+)?:", r"\1:", message) + ".")


def _name(flag: str) -> str:
    return flag.lstrip("-").replace("-", "_")


def near(name: str, names: Iterable[str]) -> str:
    """Return the one of `names` that `name` may be a slip of, or an empty text."""
    return next(iter(get_close_matches(name, names, n=1)), "")


@cache
def known_config() -> type:
    """Return a class with the fields of `VADEGRPOConfig`: read from its source, or the class itself if that fails."""
    try:
        return help_from_docstring(read_class("trl_vade.trainer.grpo_config", "VADEGRPOConfig"))
    except Exception:  # another release may write its source in a way that the reader does not know
        from trl_vade import VADEGRPOConfig

        return VADEGRPOConfig
