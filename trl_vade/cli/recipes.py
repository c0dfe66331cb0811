"""The recipes and accelerate configurations of the package, by name, and the launches that the latter describe."""

from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml

from trl_vade.errors import ConfigurationError

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
        [close] = get_close_matches(name, files, n=1) or [None]
        meant = f" Did you mean {close}?" if close else ""
        raise ConfigurationError(f"{missing}.{meant} Give {own}, or one of these names: {', '.join(files)}.")
    return files[name]


@dataclass(frozen=True)
class Launch:
    """How a run is launched."""

    processes: int = 1
    sharding: str = "none"  # fsdp2, zero2, zero3; "none": every process holds everything (plain DDP)
    mixed_precision: str | None = None  # "bf16", "fp16" or "no"; None leaves it to the recipe


def read_launch(name: str | Path) -> Launch:
    """Read an accelerate configuration: a file, or one of the package by its name, such as "fsdp2".

    Another file, and a set-up that `memory` knows nothing of, is a `ConfigurationError`.
    """
    path, advice = accelerate_file(name), "Give a file as `accelerate config` writes it, or a name, such as fsdp2."
    try:
        settings = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise ConfigurationError(f"The accelerate configuration {path} cannot be read: {error}. {advice}") from error
    if not isinstance(settings, dict) or not isinstance(settings.get("num_processes"), int):
        raise ConfigurationError(f"{path} is no accelerate configuration: it sets no num_processes. {advice}")
    return Launch(settings["num_processes"], _sharding(path, settings), settings.get("mixed_precision"))


def _sharding(path: str | Path, settings: dict[str, Any]) -> str:
    kind = str(settings.get("distributed_type", "NO")).upper()
    fsdp, deepspeed = settings.get("fsdp_config") or {}, settings.get("deepspeed_config") or {}
    offloaded = fsdp.get("fsdp_offload_params") or any(
        deepspeed.get(f"offload_{what}_device", "none") != "none" for what in ("optimizer", "param")
    )
    if kind in ("NO", "MULTI_GPU"):
        return "none"
    if kind == "FSDP" and fsdp.get("fsdp_version", 1) == 2 and not offloaded:
        return "fsdp2"
    if kind == "DEEPSPEED" and deepspeed.get("zero_stage") in (2, 3) and not offloaded:
        return f"zero{deepspeed['zero_stage']}"
    raise ConfigurationError(
        f"{path} launches {kind} in a way that the estimate does not know. It knows plain data parallelism, FSDP2 "
        "(fsdp_version 2) and DeepSpeed ZeRO-2 and ZeRO-3 from zero_stage, each without offloading."
    )
