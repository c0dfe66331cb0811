"""The rows of a data set that a command names."""

from pathlib import Path
from typing import Any

from trl_vade.errors import ConfigurationError


def load_rows(what: str, place: str, config: str | None, split: str, revision: str | None) -> Any:
    """Load a split of a Hub data set, of a folder as `load_dataset` or `save_to_disk` has it, or a Parquet file.

    `what` is the option and its value, for the message of a `ConfigurationError`.
    """
    from datasets import load_dataset, load_from_disk
    from datasets.exceptions import DatasetsError
    from yaml import YAMLError

    from trl_vade.data.row_keys import why_not_loaded

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
