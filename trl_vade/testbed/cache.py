"""Directories in the HF cache that are either complete or absent; of two builds that race, the first wins."""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from huggingface_hub import constants


def settings_digest(settings: dict[str, Any]) -> str:
    """Return 12 hexadecimal digits that change with any of the JSON settings."""
    return hashlib.blake2b(json.dumps(settings, sort_keys=True).encode(), digest_size=6).hexdigest()


def cached_directory(
    name: str, settings: dict[str, Any], build: Callable[[Path], None], cache_dir: str | os.PathLike[str] | None = None
) -> Path:
    """Return the directory for these settings; build it if it is missing.

    Args:
        name: the readable first part of the directory's name.
        settings: everything that the content depends on, with a format version.
        build: a function that fills an empty directory.
        cache_dir: the parent directory; `$HF_HOME/trl_vade` by default.
    """
    # Read at call time: huggingface_hub sets HF_HOME at import, and tests and users may replace it later.
    root = Path(cache_dir) if cache_dir is not None else Path(constants.HF_HOME) / "trl_vade"
    final = root / f"{name}-{settings_digest(settings)}"
    if final.is_dir():
        return final
    root.mkdir(parents=True, exist_ok=True)
    # The same parent is on the same file system, as the atomic os.replace needs.
    partial = Path(tempfile.mkdtemp(prefix=f".{final.name}.", dir=root))
    try:
        build(partial)
        partial.chmod(0o755)  # mkdtemp makes it private, but a cache may be shared
        try:
            os.replace(partial, final)
        except OSError:
            if not final.is_dir():  # else another build was faster, and its content is the same
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return final
