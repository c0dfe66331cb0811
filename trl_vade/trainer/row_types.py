"""Types of `train_dataset` that a sampler cannot choose rows from."""

from collections.abc import Mapping
from typing import Any

from datasets import Dataset, IterableDataset
from trl import GRPOConfig

from trl_vade.errors import ConfigurationError

from .presets import is_adaptive, setting


def refuse_unnumbered(args: GRPOConfig, arguments: Mapping[str, Any]) -> None:
    """Raise `ConfigurationError` for a `train_dataset` that is not a `datasets.Dataset`, with advice for each type.

    The sampler chooses rows by number. `uniform` is not checked: TRL accepts or refuses the data set.
    """
    rows, kind = arguments.get("train_dataset"), type(arguments.get("train_dataset")).__name__
    if not is_adaptive(args) or isinstance(rows, Dataset):
        return
    chooses = f"vade_sampler={setting(args, 'sampler')!r} chooses rows by their numbers"
    if rows is None and arguments.get("environment_factory") is not None:
        reason = (
            f"train_dataset is None, so the environment owns the data and there are no rows, but {chooses}. Set "
            "vade_sampler='uniform', which is then plain GRPO, or pass a train_dataset whose columns tell `reset` the "
            "task."
        )
    elif rows is None:
        reason = "train_dataset is None: there is nothing to train on. Pass a datasets.Dataset with a column 'prompt'."
    elif isinstance(rows, Mapping):
        names = [*map(str, rows)]
        reason = (
            f"train_dataset is {kind} with the splits {', '.join(names)}, but a run trains on one split. Pass one, "
            f"such as train_dataset[{names[0] if names else 'train'!r}]."
        )
    elif isinstance(rows, IterableDataset):
        reason = (
            f"train_dataset is {kind}, a stream without row numbers, but {chooses}. Load it without streaming "
            "(datasets.Dataset), or set vade_sampler='uniform'."
        )
    else:
        reason = (
            f"train_dataset is {kind}, not a datasets.Dataset. Make one by datasets.Dataset.from_list(rows), with a "
            "dictionary for each row, or by load_dataset."
        )
    raise ConfigurationError(reason)
