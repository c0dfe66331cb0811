"""`vade_checkpoint.json`, which makes a checkpoint complete. Nothing here loads torch.

The trainer writes it last. It names the other files of the folder with sizes and SHA-256, so a save that was stopped, a
deletion that was stopped (`save_total_limit`), and files that were cut, altered or exchanged are found.
"""

import hashlib
import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trl_vade.files import save_whole
from trl_vade.selection.report.record import TRAINER_STATE_FILE

MARKER_FILE = "vade_checkpoint.json"
JIT_MARK = "checkpoint-is-incomplete.txt"
"""The file with which transformers 5.23 marks an unfinished save of `enable_jit_checkpoint`."""

OWN_FILES = "vade_"
"""Prefix of files that a resume checks itself. `vade_on_mismatch` may allow a resume without them."""

_NOT_READ = (MARKER_FILE, JIT_MARK, "README.md")  # by a resume


@dataclass(frozen=True)
class Marker:
    """The content of a marker."""

    run: str  # id of the run that saved the checkpoint; each call of `train` is one
    parent: Mapping[str, Any] | None  # `run` and `step` of the checkpoint that this run resumed from
    save: int  # number of this save among all in the output directory
    files: Mapping[str, tuple[int, str]]  # size and SHA-256

    def __post_init__(self) -> None:
        sizes = all(type(size) is int and isinstance(digest, str) for size, digest in self.files.values())
        if not sizes or type(self.save) is not int:
            raise TypeError("a value has another type")


def write_marker(folder: Path, **about: Any) -> None:
    """Write the marker of a checkpoint whose other files are written. `about` are the other fields of `Marker`."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    names = [path.relative_to(folder).as_posix() for path in paths]
    with ThreadPoolExecutor() as pool:
        found = pool.map(lambda path: (path.stat().st_size, _sha256(path)), paths)
        files = {name: each for name, each in zip(names, found, strict=True) if name not in _NOT_READ}
    content = json.dumps(asdict(Marker(files=files, **about)), indent=1)
    save_whole(folder / MARKER_FILE, (content + "\n").encode())


def read_marker(folder: Path) -> Marker | None:
    """Return the marker of a folder, or None if it is missing or cannot be read."""
    try:
        return Marker(**json.loads((folder / MARKER_FILE).read_bytes()))
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return None


def missing_part(folder: Path, *, but_for: str = "/", contents: bool = False) -> str | None:
    """Return the reason why a checkpoint folder is incomplete or missing, or None if it is complete.

    Files with the prefix `but_for` may be missing or damaged. `contents` compares all bytes, not the sizes alone.
    """
    if not folder.is_dir():
        return "there is no such folder"
    if (marker := read_marker(folder)) is None:
        there = (folder / MARKER_FILE).exists()
        return f"its {MARKER_FILE} cannot be read" if there else _stock_fault(folder) or f"{MARKER_FILE} is missing"
    checked = {name: each for name, each in marker.files.items() if not name.startswith(but_for)}
    for name, (size, _) in checked.items():
        if not (folder / name).is_file():
            return f"{name} is missing"
        if (there := (folder / name).stat().st_size) != size:
            return f"{name} has {there} bytes and had {size} when it was saved"
    with ThreadPoolExecutor() as pool:
        digests = pool.map(_sha256, [folder / name for name in checked]) if contents else ()
        altered = [name for (name, (_, saved)), found in zip(checked.items(), digests) if found != saved]
    return f"{altered[0]} was altered: its SHA-256 is not that of the save" if altered else None


def usable_part(folder: Path, *, contents: bool = False) -> str | None:
    """Return why a resume cannot start from a folder, or None. It may lack VADE's own files, as of `GRPOTrainer`."""
    return None if is_stock(folder) else missing_part(folder, but_for=OWN_FILES, contents=contents)


def is_stock(folder: Path) -> bool:
    """Return whether `GRPOTrainer` saved the folder, as far as can be told: it marks no end of a save."""
    return not (folder / MARKER_FILE).exists() and _stock_fault(folder) is None


def _stock_fault(folder: Path) -> str | None:
    """Return why a folder without a marker is no whole checkpoint of `GRPOTrainer`, or None."""
    if (folder / JIT_MARK).exists():
        return f"it holds {JIT_MARK}"
    if not (folder / TRAINER_STATE_FILE).is_file():
        return f"{TRAINER_STATE_FILE} is missing"
    for path in sorted(folder.glob("*_state.json")):  # TRL 1.16 writes entropy_ctrl_state.json last
        try:
            ours = "PosteriorState" in json.loads(path.read_bytes()).get("stateful_callbacks", {})
        except (ValueError, TypeError, AttributeError, RecursionError):
            return f"its {path.name} cannot be read"
        if ours or any(folder.glob(f"{OWN_FILES}*")):
            return f"{MARKER_FILE} is missing, which is written last"
    return None


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
