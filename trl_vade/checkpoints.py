"""The checkpoint folders of an output directory, and which of them a run goes on from. Nothing here loads torch.

The Trainer takes the folder with the highest number, half written or not (transformers 5.23, `get_last_checkpoint`).
Here a marker, written last, makes a checkpoint whole: its `format`, the sizes of its `files`, and its `line`: id and
step of the runs that led to it, the oldest first (each call of `train` is a run), and last its own.

A run that goes back to checkpoint-3 abandons the later checkpoints of the run that wrote it. Its markers tell so, and
need neither numbers nor a clock: no copy that brings an abandoned checkpoint back can pass it off as the newest.
"""

import json
import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from .errors import CheckpointIncompleteError, ConfigurationError
from .files import save_whole
from .samplers.snapshot import POSTERIOR_FILE

PREFIX = "checkpoint-"
LAST_CHECKPOINT = "last-checkpoint"  # of `hub_strategy="checkpoint"`; a downloaded run has it in its output directory
LOCK_FILE = "vade_lock.json"  # of the run that trains in the output directory
MARKER_FILE = "vade_checkpoint.json"
TRAINER_STATE_FILE = "trainer_state.json"
FORMAT = 1
JIT_MARK = "checkpoint-is-incomplete.txt"  # marks an unfinished save of `enable_jit_checkpoint` (transformers 5.23)
UNMARKED = f"it has no {MARKER_FILE}: its save was stopped, or another trainer wrote it"
_NOT_READ = (MARKER_FILE, JIT_MARK, "README.md", "training_args.bin")  # by a resume; the last is never pushed
_NAME = re.compile(f"{PREFIX}([0-9]+)")


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint folder, what keeps it from being whole, and its line."""

    path: Path
    step: int  # -1 if neither name nor marker has it
    fault: str | None = None
    foreign: bool = False  # its marker has another format
    line: tuple[tuple[str, int], ...] = ()
    order: tuple[bool, int] = (True, -1)  # among the others: False if a run of the folder has gone back behind it


def look_at(folder: Path) -> Checkpoint:
    """Return what is known of a checkpoint folder. It is whole without a fault."""
    named, marker = _NAME.fullmatch(folder.name), folder / MARKER_FILE
    step = int(named[1]) if named else -1
    if not marker.exists():
        return Checkpoint(folder, step, UNMARKED if folder.is_dir() else "there is no such folder")
    try:
        found = json.loads(marker.read_bytes())
        if (form := found.get("format")) != FORMAT:
            fault = f"its {MARKER_FILE} has format {form!r}: go on with the release of trl_vade that wrote it"
            return Checkpoint(folder, step, fault, foreign=True)
        line = tuple((str(run), int(at)) for run, at in found["line"])
        lacking = (each for each in found["files"].items() if not _is_there(folder / each[0], each[1]))
        faults = (f"{name} is missing or no longer has its {size} bytes" for name, size in lacking)
        return Checkpoint(folder, step if named else line[-1][1], next(faults, None), line=line)
    except Exception:  # whatever a power cut has left
        return Checkpoint(folder, step, f"its {MARKER_FILE} cannot be read")


def _is_there(path: Path, size: int) -> bool:
    return path.name in _NOT_READ or (path.is_file() and path.stat().st_size == size)


def checkpoints(output_dir: str | os.PathLike[str]) -> list[Path]:
    """Return the checkpoint folders of a run, whole or not, in the order of their steps."""
    found = ((_NAME.fullmatch(path.name), path) for path in Path(output_dir).glob(f"{PREFIX}*") if path.is_dir())
    return [path for _, path in sorted((int(named[1]), path) for named, path in found if named)]


def complete_checkpoints(output_dir: str | os.PathLike[str]) -> list[Path]:
    """Return the whole checkpoint folders of a run, a downloaded `last-checkpoint` included, the newest last."""
    return [each.path for each in _in_order(output_dir) if each.fault is None]


def _in_order(output_dir: str | os.PathLike[str]) -> list[Checkpoint]:
    places = [Path(output_dir) / LAST_CHECKPOINT, *checkpoints(output_dir)]
    found = [look_at(path) for path in places if path.is_dir()]
    left: dict[str, int] = {}  # the step at which a run was left for a branch
    for run, step in (at for each in found if each.fault is None for at in each.line[:-1]):
        left[run] = min(step, left.get(run, step))
    kept = [all(step <= left.get(run, step) for run, step in each.line) for each in found]
    found = [replace(each, order=(stays, each.step)) for each, stays in zip(found, kept, strict=True)]
    return sorted(found, key=lambda each: each.order)


def find_checkpoint(
    asked: str | os.PathLike[str] | bool | None, output_dir: str | os.PathLike[str]
) -> tuple[str | None, list[str]]:
    """Return the folder to go on from, or None for a run that begins anew, and what is to be said of others.

    `asked` is a folder, True for the newest whole checkpoint in `output_dir`, or "auto" for that or, where no save was
    ever finished, a run that begins anew.

    Raises:
        CheckpointIncompleteError: the folder is missing or not whole, or there is no whole checkpoint.
        ConfigurationError: `output_dir` holds a checkpoint that is newer than the one to go on from.
    """
    folders, newest = _in_order(output_dir), asked in (True, "auto")
    whole = [each for each in folders if each.fault is None]
    if asked and not newest:
        chosen: Checkpoint | None = look_at(Path(asked))
    else:
        chosen = whole[-1] if newest and whole else None
    lost = not whole and any(each.fault != UNMARKED for each in folders)
    if (chosen and chosen.fault) or (not chosen and (lost or asked is True)):
        lacks = "".join(f" {each.path}: {each.fault}." for each in ([chosen] if chosen else folders))
        raise CheckpointIncompleteError(
            f"There is no whole checkpoint to go on from in {asked if chosen else output_dir}.{lacks}"
            f"{f' {whole[-1].path} is whole.' if whole else ''} Put back what is missing, or set another "
            "resume_from_checkpoint ('auto' begins anew where no save was ever finished) or output_dir."
        )

    here = [each.order for each in folders if chosen and each.path.resolve() == chosen.path.resolve()]
    later = [each for each in folders if not here or each.order > here[0]]
    if in_the_way := [each for each in later if each.fault is None or each.foreign]:
        raise _mixing(in_the_way, Path(output_dir), chosen, "" if newest else "resume_from_checkpoint='auto' or ")
    then = f"The run continues from {chosen.path}" if chosen else "The run begins anew"
    return chosen and str(chosen.path), [f"{each.path} is skipped: {each.fault}. {then}." for each in later]


def _mixing(found: Sequence[Checkpoint], folder: Path, chosen: Checkpoint | None, auto: str) -> ConfigurationError:
    """Refuse two runs in one folder. Their results would be mixed in a report, so they are moved, too."""
    names, faults = [each.path.name for each in found], "".join(f" {each.fault}." for each in found if each.fault)
    results = [name for name in (TRAINER_STATE_FILE, POSTERIOR_FILE) if (folder / name).exists()]
    moved = " ".join(map(shlex.quote, [*names, *results]))
    return ConfigurationError(
        f"{folder} holds {', '.join(names)}, and this run {f'goes on from {chosen.path}' if chosen else 'begins anew'}"
        f": two runs would mix.{faults} Set {auto}another output_dir, or move them first:\n"
        f"cd {shlex.quote(str(folder))} && mkdir -p _aside && mv {moved} _aside"  # an underscore is never pushed
    )


def write_marker(folder: Path, line: Sequence[tuple[str, int]]) -> None:
    """Write the marker of a checkpoint whose other files are written."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name not in _NOT_READ)
    files = {path.relative_to(folder).as_posix(): path.stat().st_size for path in paths}
    content = json.dumps({"format": FORMAT, "line": [*line], "files": files}, indent=1)
    save_whole(folder / MARKER_FILE, (content + "\n").encode())
