"""What a command names: recipes and accelerate configurations of the package, and the splits of a data set."""

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from trl_vade.errors import ConfigurationError

TESTBED = "testbed"  # as a model's or a data set's name: the embedded one
RECIPES = Path(__file__).parents[1] / "recipes"
ACCELERATE = RECIPES / "accelerate"


def load_splits(place: str, config: str | None = None, *, streaming: bool = False, seed: int = 0) -> Any:
    """Load the testbed of `seed`, a data set of the Hub, or a folder of either kind, or raise `ConfigurationError`."""
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


def recipe_file(name: str) -> Path:
    """Return the file of the recipe `name`, such as "quickstart", or raise `ConfigurationError` with their names."""
    return _find(RECIPES, name, f"--recipe {name}: the package has no recipe of this name", "--config FILE")


def accelerate_file(name: str) -> Path:
    """Return the accelerate configuration `name`: a file of the user's, or one of the package, such as "fsdp2"."""
    missing = f"The accelerate configuration {name} is neither a file nor one of the package's"
    return Path(name) if Path(name).is_file() else _find(ACCELERATE, name, missing, "the path of a file")


def _find(folder: Path, name: str, missing: str, own: str) -> Path:
    files = {path.stem: path for path in sorted(folder.glob("*.yaml"))}
    if name not in files:
        raise ConfigurationError(f"{missing}.{meant(name, files)} Give {own}, or one of these: {', '.join(files)}.")
    return files[name]


def meant(name: str, names: Iterable[str], mark: str = "") -> str:
    """Return the question whether one of `names` was meant, or nothing if none is near."""
    close = next(iter(get_close_matches(name, names, n=1)), "")
    return f" Did you mean {mark}{close}?" if close else ""
