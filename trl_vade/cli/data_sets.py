"""The splits of a data set that a command or a recipe names."""

from pathlib import Path
from typing import Any

from trl_vade.errors import ConfigurationError

TESTBED = "testbed"  # as a model's or a data set's name: the embedded one


def load_splits(place: str, config: str | None = None, *, streaming: bool = False, seed: int = 0) -> Any:
    """Load the testbed of `seed`, a data set of the Hub, or a folder as `load_dataset` or `save_to_disk` has it.

    What `datasets` cannot load is a `ConfigurationError`.
    """
    if place == TESTBED:
        from trl_vade.testbed import load_testbed_dataset

        return load_testbed_dataset(seed=seed)
    from datasets import load_dataset, load_from_disk
    from datasets.exceptions import DatasetsError
    from yaml import YAMLError

    try:
        if (Path(place) / "dataset_dict.json").exists():  # as `save_to_disk` leaves several splits
            return load_from_disk(place)
        if (Path(place) / "state.json").exists():  # and one
            return {"train": load_from_disk(place)}
        return load_dataset(place, config, streaming=streaming)
    except (ValueError, RuntimeError, DatasetsError, YAMLError) as error:  # datasets 5.2: its scripts, its card
        reason = " ".join(str(error.__cause__ or error).split())  # datasets 5.2 hides it in the cause
        raise ConfigurationError(f"The data set {place!r} cannot be loaded: {reason}.") from error


def pick_split(splits: Any, option: str, name: str) -> Any:
    """Return the split `name`, or raise `ConfigurationError`, which names the `option`, if there is none."""
    if name not in splits:
        raise ConfigurationError(
            f"{option} {name!r}: the data set has the splits {', '.join(map(repr, splits))}. Name one of these."
        )
    return splits[name]
