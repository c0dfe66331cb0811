"""The rows of a data set that a command or a recipe names."""

from pathlib import Path
from typing import Any

from trl_vade.errors import ConfigurationError

from .recipes import TESTBED


def load_rows(what: str, place: str, config: str | None, split: str, revision: str | None) -> Any:
    """Load a split of a Hub data set, of a folder as `load_dataset` or `save_to_disk` has it, or a Parquet file.

    `what` is the option and its value, for the message of a `ConfigurationError`.
    """
    from datasets import load_dataset, load_from_disk
    from datasets.exceptions import DatasetsError
    from yaml import YAMLError

    try:
        if (Path(place) / "dataset_dict.json").exists():  # as `save_to_disk` leaves several splits
            return load_from_disk(place)[split]
        if (Path(place) / "state.json").exists():  # and one
            return load_from_disk(place)
        if Path(place).suffix == ".parquet" and Path(place).is_file():
            return load_dataset("parquet", data_files={split: place}, split=split)
        return load_dataset(place, config, split=split, revision=revision)
    # datasets 5.2: an unknown split or configuration is a ValueError, a script a RuntimeError, a card a YAMLError.
    except (ValueError, KeyError, OSError, RuntimeError, DatasetsError, YAMLError) as error:
        raise ConfigurationError(f"{what} with --split {split} cannot be loaded: {why_not_loaded(error)}") from error


def why_not_loaded(error: Exception) -> str:
    """Return the reason of an error of `datasets` in one line; datasets 5.2 hides it in the cause."""
    from datasets.exceptions import DatasetGenerationError

    reason = (isinstance(error, DatasetGenerationError) and error.__cause__) or error
    return " ".join(str(reason).split())


def pick_split(dataset: Any, option: str, script_args: Any) -> Any:
    """Return the split that `option` names, or raise `ConfigurationError` if the data set has none of this name."""
    name = getattr(script_args, option)
    if name not in dataset:
        raise ConfigurationError(
            f"--{option} {name!r}: {script_args.dataset_name!r} has the splits {', '.join(map(repr, dataset))}. Name "
            "one of these."
        )
    return dataset[name]


def load_splits(script_args: Any) -> Any:
    """Load the data set by its name: the testbed, a Hub repository or a local folder."""
    if script_args.dataset_name == TESTBED:
        from trl_vade.testbed import load_testbed_dataset

        return load_testbed_dataset(seed=script_args.testbed_seed)
    from datasets import load_dataset

    return load_dataset(
        script_args.dataset_name, name=script_args.dataset_config, streaming=script_args.dataset_streaming
    )
