"""A `train_dataset` that a choosing sampler cannot choose from, whatever its rows."""

from collections.abc import Mapping
from typing import Any

from datasets import Dataset, IterableDataset
from trl import GRPOConfig

from trl_vade.errors import ConfigurationError

from .presets import is_adaptive, setting


def refuse_unnumbered(args: GRPOConfig, arguments: Mapping[str, Any]) -> None:
    """Refuse what is no `datasets.Dataset`, in words of its own for each kind.

    Args:
        args: with VADE's fields. With `uniform` nothing is done: the stock trainer takes it, or says why not.
        arguments: of the trainer.

    Raises:
        ConfigurationError: the sampler chooses rows, and these have no numbers.
    """
    rows, kind = arguments.get("train_dataset"), type(arguments.get("train_dataset")).__name__
    if not is_adaptive(args) or isinstance(rows, Dataset):
        return
    chooses = f"vade_sampler={setting(args, 'sampler')!r} chooses rows by their numbers"
    if rows is None and arguments.get("environment_factory") is not None:
        reason = (
            f"train_dataset is None, so the environment owns the data, and {chooses}: there are none. Set "
            "vade_sampler='uniform', which is then the stock trainer, or give a train_dataset whose columns tell "
            "`reset` which task it is."
        )
    elif rows is None:
        reason = "train_dataset is None: there is nothing to train on. Give a datasets.Dataset with a column 'prompt'."
    elif isinstance(rows, Mapping):
        names = [*map(str, rows)]
        reason = (
            f"train_dataset is {kind} with the splits {', '.join(names)}, and a run trains on one of them. Give "
            f"train_dataset[{names[0] if names else 'train'!r}], say."
        )
    elif isinstance(rows, IterableDataset):
        reason = (
            f"train_dataset is {kind}, a stream, and {chooses}. Load it without streaming (datasets.Dataset), or set "
            "vade_sampler='uniform'."
        )
    else:
        reason = (
            f"train_dataset is {kind} and no datasets.Dataset. Make it one by datasets.Dataset.from_list(rows) of "
            "dictionaries, or by load_dataset."
        )
    raise ConfigurationError(reason)
