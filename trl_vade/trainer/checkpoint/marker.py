"""`vade_checkpoint.json`, which makes a checkpoint complete. Nothing here loads torch.

The trainer writes it last. It holds the id of the `run` (each call of `train` is one), its `parent` (`run` and `step`
of the checkpoint that it resumed from), the number of the `save` in the output directory, and in `files` the size and
SHA-256 of each other file. So a stopped save or deletion and cut, altered or exchanged files are found.
"""

import hashlib
import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from trl_vade.files import save_whole
from trl_vade.selection.report.record import TRAINER_STATE_FILE

MARKER_FILE = "vade_checkpoint.json"
JIT_MARK = "checkpoint-is-incomplete.txt"  # marks an unfinished save of `enable_jit_checkpoint` (transformers 5.23)
OWN_FILES = "vade_posterior"  # prefix of files that a resume checks itself, and may do without (`vade_on_mismatch`)
_NOT_READ = (MARKER_FILE, JIT_MARK, "README.md")  # by a resume
_NOT_OURS = (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError)


def write_marker(folder: Path, **about: Any) -> None:
    """Write the marker of a checkpoint whose other files are written. `about` is `run`, `parent` and `save`."""
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    names = [name for name in names if name not in _NOT_READ]
    files = {name: [(folder / name).stat().st_size, digest] for name, digest in _digests(folder, names).items()}
    save_whole(folder / MARKER_FILE, (json.dumps(about | {"files": files}, indent=1) + "\n").encode())


def read_marker(folder: Path) -> dict[str, Any] | None:
    """Return the marker of a folder, or None if it is missing or another program wrote it."""
    try:
        marker: dict[str, Any] = json.loads((folder / MARKER_FILE).read_bytes())
        numbers = [*marker["files"].values(), (marker["save"], "")]
        types = {(type(size), type(digest)) for size, digest in numbers}
        return marker if types == {(int, str)} and "run" in marker else None
    except _NOT_OURS:
        return None


def missing_part(folder: Path, *, but_for: str = "/", contents: bool = False) -> str | None:
    """Return the reason why a checkpoint folder is incomplete or missing, or None if it is complete.

    Files with the prefix `but_for` may be missing or damaged. `contents` compares all bytes, not the sizes alone. A
    folder of `GRPOTrainer` has no marker, so that is complete as far as can be told.
    """
    if not folder.is_dir():
        return "there is no such folder"
    if (marker := read_marker(folder)) is None:
        return f"its {MARKER_FILE} cannot be read" if (folder / MARKER_FILE).exists() else _stock_fault(folder)
    files = {name: each for name, each in marker["files"].items() if not name.startswith(but_for)}
    for name, (size, _) in files.items():
        if not (folder / name).is_file():
            return f"{name} is missing"
        if (there := (folder / name).stat().st_size) != size:
            return f"{name} has {there} bytes and had {size} when it was saved"
    for name, digest in _digests(folder, files if contents else ()).items():
        if digest != files[name][1]:
            return f"{name} was altered: its SHA-256 is not that of the save"
    return None


def _stock_fault(folder: Path) -> str | None:
    """Return why a folder without a marker is no whole checkpoint of `GRPOTrainer`, or None."""
    if (folder / JIT_MARK).exists():
        return f"it holds {JIT_MARK}"
    if not (folder / TRAINER_STATE_FILE).is_file():
        return f"{TRAINER_STATE_FILE} is missing"
    for path in folder.glob("*_state.json"):  # TRL 1.16 writes entropy_ctrl_state.json last
        try:
            ours = "PosteriorState" in json.loads(path.read_bytes()).get("stateful_callbacks", {})
        except _NOT_OURS:
            return f"its {path.name} cannot be read"
        if ours or any(folder.glob("vade_*")):
            return f"{MARKER_FILE} is missing, which is written last"
    return None


def _digests(folder: Path, names: Iterable[str]) -> dict[str, str]:
    def sha256(name: str) -> tuple[str, str]:
        with open(folder / name, "rb") as file:
            return name, hashlib.file_digest(file, "sha256").hexdigest()

    with ThreadPoolExecutor() as pool:
        return dict(pool.map(sha256, names))
