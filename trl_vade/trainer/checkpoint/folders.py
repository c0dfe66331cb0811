"""The checkpoint folders of an output directory, and which of them a resume takes. Nothing here loads torch.

The Trainer takes the folder with the highest number as the last checkpoint, half written or not, whichever run wrote
it (transformers 5.23, `get_last_checkpoint`). Here a marker, `vade_checkpoint.json`, makes a checkpoint complete. The
trainer writes it last. It holds the id of the `run` (each call of `train` is one), its `parent` (`run` and `step` of
the checkpoint that it resumed from), the number of the `save` in the output directory, and in `files` the size and
SHA-256 of each other file. So a stopped save or deletion and cut, altered or exchanged files are found.
"""

import hashlib
import json
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from trl_vade.errors import CheckpointIncompleteError, ConfigurationError, abbreviated
from trl_vade.files import save_whole
from trl_vade.selection.log import SELECTION_LOG_FILE
from trl_vade.selection.report.record import TRAINER_STATE_FILE

PREFIX = "checkpoint-"
LAST_CHECKPOINT = "last-checkpoint"
"""The folder of the newest checkpoint in a model repository, with `hub_strategy="checkpoint"`. A downloaded run has it
in its output directory."""

RESULTS = (TRAINER_STATE_FILE, "vade_posterior.safetensors", "vade_summary.json", "vade_report.*", "vade_training.png")
"""Files in the output directory that tell of the newest save of a run. The others are continued by a resume."""

_OF_A_RUN = (f"{LAST_CHECKPOINT}/", *RESULTS, SELECTION_LOG_FILE, "vade_rows.json")
# not vade_run.json: a run that failed in its first step may be started again

MARKER_FILE = "vade_checkpoint.json"
JIT_MARK = "checkpoint-is-incomplete.txt"  # marks an unfinished save of `enable_jit_checkpoint` (transformers 5.23)
OWN_FILES = "vade_posterior"  # prefix of files that a resume checks itself; a checkpoint of `GRPOTrainer` has none
_NOT_READ = (MARKER_FILE, JIT_MARK, "README.md")  # by a resume
_NOT_OURS = (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError)


def find_checkpoint(
    asked: str | os.PathLike[str] | bool | None, output_dir: str | os.PathLike[str], *, contents: bool = False
) -> tuple[str | None, list[str]]:
    """Return the folder to resume from, or None, and what is to be said of others.

    `asked` is a folder, or True for the complete checkpoint in `output_dir` that was saved last, a downloaded one
    included. `contents` compares all bytes of the files.

    Raises:
        CheckpointIncompleteError: the folder is missing or incomplete, or there is no complete checkpoint.
    """
    if asked is None or asked is False:
        return None, []
    if asked is not True:
        _refuse_incomplete(Path(asked), output_dir, contents)
        return str(asked), []
    folders = sorted([*checkpoints(output_dir), Path(output_dir) / LAST_CHECKPOINT], key=_order, reverse=True)
    folders = [folder for folder in folders if folder.is_dir()]
    for but_for in ("/", OWN_FILES):
        for number, chosen in enumerate(folders):
            if missing_part(chosen, but_for=but_for, contents=contents) is None:
                newer = [path for path in folders if path in folders[:number] or step_of(path) > step_of(chosen)]
                reasons = {path: missing_part(path, contents=contents) for path in newer}
                said = "The run was stopped while it wrote this checkpoint, or the file was lost or altered later."
                said = f"{said} The run continues from {chosen}."
                return str(chosen), [f"{path} is skipped: {why}. {said}" for path, why in reasons.items() if why]
    lacks = "".join(f" {folder}: {missing_part(folder)}." for folder in folders)
    raise CheckpointIncompleteError(
        f"resume_from_checkpoint=True, but {output_dir} holds no complete checkpoint.{lacks} Put back what is "
        "missing, start without resume_from_checkpoint (with vade_overwrite_output_dir=True if a run left files "
        "there), or set the output_dir of the run to continue."
    )


def _refuse_incomplete(asked: Path, output_dir: str | os.PathLike[str], contents: bool) -> None:
    if missing := missing_part(asked, but_for=OWN_FILES, contents=contents):
        others = [path for path in complete_checkpoints(output_dir) if path.absolute() != asked.absolute()]
        raise CheckpointIncompleteError(
            f"The run cannot resume from {asked}: {missing}. The run was stopped while it wrote or deleted this "
            "checkpoint, the file was changed later, or this is another folder. "
            f"{f'{others[-1]} is complete' if others else f'{output_dir} has no complete one'}. If the file was "
            f"changed or removed on purpose, remove its name from files in {MARKER_FILE}."
        )


def checkpoints(output_dir: str | os.PathLike[str]) -> list[Path]:
    """Return the checkpoint folders of a run, complete or not, in the order of their steps."""
    folders = Path(output_dir).glob(f"{PREFIX}*")
    return sorted((path for path in folders if path.is_dir() and _number(path) is not None), key=step_of)


def complete_checkpoints(output_dir: str | os.PathLike[str]) -> list[Path]:
    """Return the complete checkpoint folders of a run, the last saved one last."""
    return sorted((path for path in checkpoints(output_dir) if missing_part(path) is None), key=_order)


def later_checkpoints(output_dir: str | os.PathLike[str], checkpoint: str | None) -> list[Path]:
    """Return the usable checkpoints that were saved after `checkpoint`, or that have a higher step, the newest first.

    None stands for the start of a run, after which all of them are.
    """
    save, step = _order(Path(checkpoint)) if checkpoint else (-1, -1)
    later = [path for path in checkpoints(output_dir) if step_of(path) > step or _order(path)[0] > save]
    return sorted((path for path in later if missing_part(path, but_for=OWN_FILES) is None), key=_order, reverse=True)


def step_of(path: Path) -> int:
    """Return the optimiser step of a checkpoint folder, from its name or its trainer state; -1 if neither has one."""
    if (number := _number(path)) is not None:
        return number
    try:
        return int(json.loads((path / TRAINER_STATE_FILE).read_bytes())["global_step"])
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return -1


def _number(path: Path) -> int | None:
    number = path.name.removeprefix(PREFIX)
    return int(number) if number.isascii() and number.isdigit() else None


def _order(path: Path) -> tuple[int, int]:
    """Return the number of the save and the step; a checkpoint of `GRPOTrainer` has no number."""
    return (read_marker(path) or {"save": 0})["save"], step_of(path)


def another_run(output_dir: str | os.PathLike[str], checkpoint: str | None) -> list[str]:
    """Return the paths of a run in the folder, relative to it. Empty if `checkpoint` is in the folder."""
    folder = Path(output_dir)
    parents = Path(checkpoint).absolute().parents if checkpoint is not None and folder.exists() else ()
    if any(parent.samefile(folder) for parent in parents):
        return []
    trials = folder.glob("run-*/")  # of a hyperparameter search
    found = [path for place in (folder, *trials) for path in checkpoints(place)]
    found += [path for pattern in _OF_A_RUN for path in folder.glob(pattern) if path.is_dir() or path.lstat().st_size]
    return sorted(path.relative_to(folder).as_posix() for path in found)


def refuse_run(output_dir: str | os.PathLike[str], found: list[str]) -> None:
    """Raise `ConfigurationError` if `another_run` has found something."""
    if found:
        go_on = "It has no checkpoint for resume_from_checkpoint. Set"
        if any(PREFIX in name for name in found):
            go_on = "Set resume_from_checkpoint=True to continue that run from its newest complete checkpoint,"
        raise ConfigurationError(
            f"{output_dir} already holds a run: {abbreviated(found)}. A new run would overwrite its files or mix "
            f"with them. {go_on} another output_dir for the new run, or vade_overwrite_output_dir=True to delete "
            "these files first."
        )


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
            ours = "TrainedCounts" in json.loads(path.read_bytes()).get("stateful_callbacks", {})
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
