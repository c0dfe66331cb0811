"""The checkpoint folders of an output directory, and which of them a run goes on from. Nothing here loads torch.

The Trainer takes the folder with the highest number, half written or not (transformers 5.23, `get_last_checkpoint`).
Here a marker, written last, makes a checkpoint whole: its `format`, the sizes of its `files`, and its `line`: id and
step of the runs that led to it, the oldest first (each call of `train` is a run), and last its own.

A run that goes back to checkpoint-3 abandons the later checkpoints of the run that wrote it. Its markers tell so, and
need neither numbers nor a clock: no copy that brings an abandoned checkpoint back can pass it off as the newest.
"""

import json
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trl_vade.errors import CheckpointIncompleteError, ConfigurationError
from trl_vade.files import save_whole
from trl_vade.samplers.snapshot import POSTERIOR_FILE
from trl_vade.selection.report.record import TRAINER_STATE_FILE

PREFIX = "checkpoint-"
LAST_CHECKPOINT = "last-checkpoint"  # of `hub_strategy="checkpoint"`; a downloaded run has it in its output directory
MARKER_FILE = "vade_checkpoint.json"
FORMAT = 1
JIT_MARK = "checkpoint-is-incomplete.txt"  # marks an unfinished save of `enable_jit_checkpoint` (transformers 5.23)
UNMARKED = f"its save was stopped before its last file, {MARKER_FILE}, or another release or trainer wrote it"
_NOT_READ = (MARKER_FILE, JIT_MARK, "README.md")  # by a resume
_NOT_OURS = (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError)


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint folder, what keeps it from being whole, and its line."""

    path: Path
    step: int
    fault: str | None = None
    marked: bool = True
    foreign: bool = False  # its marker has another format
    line: tuple[tuple[str, int], ...] = ()
    abandoned: bool = False  # a run of the same folder has gone back behind it

    @property
    def order(self) -> tuple[bool, int]:
        """Its place among the others."""
        return not self.abandoned, self.step


def look_at(folder: Path) -> Checkpoint:
    """Return what is known of a checkpoint folder. It is whole without a fault."""
    step = step_of(folder)
    try:
        found = json.loads((folder / MARKER_FILE).read_bytes())
        if (form := found.get("format")) != FORMAT:
            fault = f"its {MARKER_FILE} has format {form!r}, and this release of trl_vade reads {FORMAT}"
            return Checkpoint(folder, step, fault, foreign=True)
        line = tuple((str(run), int(at)) for run, at in found["line"])
        faults = (_difference(folder, name, size) for name, size in found["files"].items())
        return Checkpoint(folder, step, next(filter(None, faults), None), line=line)
    except FileNotFoundError:
        return Checkpoint(folder, step, UNMARKED if folder.is_dir() else "there is no such folder", marked=False)
    except _NOT_OURS:
        return Checkpoint(folder, step, f"its {MARKER_FILE} cannot be read")


def _difference(folder: Path, name: str, size: int) -> str | None:
    if not (folder / name).is_file():
        return f"{name} is missing"
    there = (folder / name).stat().st_size
    return None if there == size else f"{name} has {there} bytes and had {size} when it was saved"


def step_of(path: Path) -> int:
    """Return the optimiser step of a checkpoint folder, from its name or its marker; -1 if neither has one."""
    number = path.name.removeprefix(PREFIX)
    try:
        named = number.isascii() and number.isdigit()
        return int(number if named else json.loads((path / MARKER_FILE).read_bytes())["line"][-1][1])
    except _NOT_OURS:
        return -1


def checkpoints(output_dir: str | os.PathLike[str]) -> list[Path]:
    """Return the checkpoint folders of a run, whole or not, in the order of their steps."""
    folders = (path for path in Path(output_dir).glob(f"{PREFIX}*") if path.is_dir())
    return sorted((path for path in folders if path.name == f"{PREFIX}{step_of(path)}"), key=step_of)


def complete_checkpoints(output_dir: str | os.PathLike[str]) -> list[Path]:
    """Return the whole checkpoint folders of a run, a downloaded `last-checkpoint` included, the newest last."""
    return [each.path for each in _in_order(output_dir) if each.fault is None]


def _in_order(output_dir: str | os.PathLike[str]) -> list[Checkpoint]:
    places = [Path(output_dir) / LAST_CHECKPOINT, *checkpoints(output_dir)]
    found = [look_at(path) for path in places if path.is_dir()]
    left: dict[str, int] = {}  # the step at which a run was left for a branch
    for run, step in (at for each in found if each.fault is None for at in each.line[:-1]):
        left[run] = min(step, left.get(run, step))
    found = [replace(each, abandoned=any(step > left.get(run, step) for run, step in each.line)) for each in found]
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
    folders, newest = _in_order(output_dir), asked is True or asked == "auto"
    whole, chosen = [each for each in folders if each.fault is None], None
    if asked and not newest:
        chosen = look_at(Path(asked))
        if chosen.fault is not None:
            raise _incomplete(f"The run cannot resume from {asked}", [chosen], whole)
    elif newest and whole:
        chosen = whole[-1]
    elif asked is True or (not whole and any(each.marked for each in folders)):
        raise _incomplete(f"{output_dir} holds no whole checkpoint to go on from", folders, [])

    here = [each.order for each in folders if chosen and each.path.resolve() == chosen.path.resolve()]
    later = [each for each in folders if not here or each.order > here[0]]
    if in_the_way := [each for each in later if each.fault is None or each.foreign]:
        raise _mixing(in_the_way, Path(output_dir), chosen, "" if newest else "resume_from_checkpoint='auto' or ")
    then = f"The run continues from {chosen.path}" if chosen else "The run begins anew"
    return chosen and str(chosen.path), [f"{each.path} is skipped: {each.fault}. {then}." for each in later]


def _incomplete(what: str, folders: Sequence[Checkpoint], whole: Sequence[Checkpoint]) -> CheckpointIncompleteError:
    lacks = "".join(f" {each.path}: {each.fault}." for each in folders)
    return CheckpointIncompleteError(
        f"{what}.{lacks}{f' {whole[-1].path} is whole.' if whole else ''} Put back what is missing, go on with the "
        "release of trl_vade that wrote it, or set another resume_from_checkpoint ('auto' begins anew where no save "
        "was ever finished) or output_dir. After a change on purpose, take the file's name out of files in "
        f"{MARKER_FILE}."
    )


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
