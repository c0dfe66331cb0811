"""The recipes and accelerate configurations of the package, by name, and the processes that the latter start."""

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

import yaml

from trl_vade.errors import ConfigurationError

TESTBED = "testbed"  # as a model's or a data set's name: the embedded one
RECIPES = Path(__file__).parents[1] / "recipes"
ACCELERATE = RECIPES / "accelerate"


def recipe_file(name: str) -> Path:
    """Return the file of the recipe `name`, such as "quickstart", or raise `ConfigurationError` with their names."""
    return _find(RECIPES, f"--recipe {name}: the package has no recipe of this name", name, "--config FILE")


def accelerate_file(name: str | Path) -> Path:
    """Return the accelerate configuration `name`: a file of the user's, or one of the package, such as "fsdp2"."""
    path, missing = Path(name), f"The accelerate configuration {name} is neither a file nor one of the package's"
    return path if path.is_file() else _find(ACCELERATE, missing, str(name), "the path of a file")


def _find(folder: Path, missing: str, name: str, own: str) -> Path:
    files = {path.stem: path for path in sorted(folder.glob("*.yaml"))}
    if name not in files:
        raise ConfigurationError(
            f"{missing}.{meant(name, files)} Give {own}, or one of these names: {', '.join(files)}."
        )
    return files[name]


def meant(name: str, names: Iterable[str], mark: str = "") -> str:
    """Return the question whether one of `names` was meant, or nothing if none is near."""
    close = next(iter(get_close_matches(name, names, n=1)), "")
    return f" Did you mean {mark}{close}?" if close else ""


def read_processes(name: str | Path) -> int:
    """Return the number of processes of an accelerate configuration, a file or a name, such as "fsdp2".

    Another file is a `ConfigurationError`.
    """
    path, advice = accelerate_file(name), "Give a file as `accelerate config` writes it, or a name, such as fsdp2."
    try:
        settings = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise ConfigurationError(f"The accelerate configuration {path} cannot be read: {error}. {advice}") from error
    processes = settings.get("num_processes") if isinstance(settings, dict) else None
    if not isinstance(processes, int):
        raise ConfigurationError(f"{path} is no accelerate configuration: it sets no num_processes. {advice}")
    return processes
