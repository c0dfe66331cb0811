"""Directories that are either complete or absent, in the HF cache.

A build goes to a hidden neighbour and is moved into place by one `os.replace`, so a killed build leaves nothing that
could be taken for a finished one, and of two builders that race the first wins and the second adopts its result.
"""

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
    """Return 12 hexadecimal digits that change when any of the (JSON-able) settings changes."""
    text = json.dumps(settings, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


def cached_directory(
    name: str, settings: dict[str, Any], build: Callable[[Path], None], cache_dir: str | os.PathLike[str] | None = None
) -> Path:
    """Return the directory that `build` fills for these settings, building it only if it is not there.

    Args:
        name: Readable first part of the directory's name.
        settings: Everything that the content depends on, a format version included.
        build: Called with an empty directory, which it must fill.
        cache_dir: Parent directory; `$HF_HOME/trl_vade` by default.

    Raises:
        Exception: whatever `build` raises; nothing stays behind.
    """
    # Read at call time: huggingface_hub fixes HF_HOME at import, tests and users may still replace it there.
    root = Path(cache_dir) if cache_dir is not None else Path(constants.HF_HOME) / "trl_vade"
    final = root / f"{name}-{settings_digest(settings)}"
    if final.is_dir():
        return final
    root.mkdir(parents=True, exist_ok=True)
    # The same parent, hence the same file system: os.replace is atomic only there.
    partial = Path(tempfile.mkdtemp(prefix=f".{final.name}.", dir=root))
    try:
        build(partial)
        partial.chmod(0o755)  # mkdtemp makes it private; a cache may be shared.
        try:
            os.replace(partial, final)
        except OSError:
            # A directory cannot replace a filled one: another builder was faster, and its content is the same.
            if not final.is_dir():
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return final
