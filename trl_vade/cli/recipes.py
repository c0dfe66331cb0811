"""The recipes and accelerate configurations of the package, by name."""

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

from trl_vade.errors import ConfigurationError

RECIPES = Path(__file__).parents[1] / "recipes"
ACCELERATE = RECIPES / "accelerate"


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
