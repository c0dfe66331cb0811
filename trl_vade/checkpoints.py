"""The checkpoint folders of an output directory, and which of them a run goes on from. Nothing here loads torch.

The Trainer takes the folder with the highest number, half written or not (transformers 5.23, `get_last_checkpoint`).
Here a marker, written last, makes a checkpoint whole: its `format`, the sizes of its `files`, and its `line`: id and
step of the runs that led to it, the oldest first (each call of `train` is a run), and last its own.

The lines alone tell which one is the newest, and no copy, new name or clock can change that. A run that goes on from
checkpoint-3 is newer than the run that wrote that, whose later checkpoints it abandons. Within a run the step decides.
Where neither of two runs goes back to the other, as with two branches of checkpoint-3, only the user can tell.
"""

import json
import os
import re
import shlex
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from .errors import CheckpointIncompleteError, ConfigurationError
from .files import save_whole
from .samplers.snapshot import POSTERIOR_FILE

PREFIX = "checkpoint-"
LAST_CHECKPOINT = "last-checkpoint"  # of `hub_strategy="checkpoint"`; a downloaded run has it in its output directory
LOCK_FILE = "vade_lock.json"  # of the run that trains in the output directory
MARKER_FILE = "vade_checkpoint.json"
BEGUN = f"{MARKER_FILE}.tmp"  # `save_whole` renames it to the marker; a save without a posterior begins with it
SELECTION_LOG_FILE = "vade_selection.jsonl"
TRAINER_STATE_FILE = "trainer_state.json"
FORMAT = 1
JIT_MARK = "checkpoint-is-incomplete.txt"  # marks an unfinished save of `enable_jit_checkpoint` (transformers 5.23)
UNMARKED = f"it has no {MARKER_FILE}: its save was stopped"
FOREIGN = f"another trainer wrote it, without a {MARKER_FILE}: to train its weights on, set it as a new run's model"
_NOT_READ = (MARKER_FILE, BEGUN, JIT_MARK, "README.md", "training_args.bin")  # by a resume; the last is never pushed
_NAME = re.compile(f"{PREFIX}([0-9]+)")


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint folder, what keeps it from being whole, and its line."""

    path: Path
    step: int  # of its marker, else of its name, else -1
    fault: str | None = None
    foreign: bool = False  # another trainer wrote it, or another release
    line: tuple[tuple[str, int], ...] = ()

    def is_behind(self, other: "Checkpoint") -> bool:
        """Return whether a run that goes on from `other` has left this one behind; without a line, by the step."""
        *earlier, own = [run for run, _ in other.line]
        run = self.line[-1][0] if self.line else own
        return run in earlier or (run == own and self.step <= other.step)


def look_at(folder: Path) -> Checkpoint:
    """Return what is known of a checkpoint folder. It is whole without a fault."""
    named, marker = _NAME.fullmatch(folder.name), folder / MARKER_FILE
    step = int(named[1]) if named else -1
    if not marker.exists():
        # Whatever stops a save of ours, it has written a file of ours before the Trainer's state.
        foreign = (folder / TRAINER_STATE_FILE).exists() and not any(folder.glob("vade_*"))
        fault = UNMARKED if folder.is_dir() else "there is no such folder"
        return Checkpoint(folder, step, FOREIGN if foreign else fault, foreign)
    try:
        found = json.loads(marker.read_bytes())
        if (form := found.get("format")) != FORMAT:
            fault = f"its {MARKER_FILE} has format {form!r}: go on with the release of trl_vade that wrote it"
            return Checkpoint(folder, step, fault, foreign=True)
        line = tuple((str(run), int(at)) for run, at in found["line"])
        sizes = {path: path.stat().st_size for name in found["files"] if (path := folder / name).is_file()}
        read = {name: size for name, size in found["files"].items() if Path(name).name not in _NOT_READ}
        lacking = (each for each in read.items() if sizes.get(folder / each[0]) != each[1])
        faults = (f"{name} is missing or no longer has its {size} bytes" for name, size in lacking)
        return Checkpoint(folder, line[-1][1], next(faults, None), line=line)
    except Exception:  # whatever a power cut has left
        return Checkpoint(folder, step, f"its {MARKER_FILE} cannot be read")


def _in_order(output_dir: str | os.PathLike[str]) -> list[Checkpoint]:
    """Return what is known of all checkpoint folders, each after those that are behind it."""
    named = [path for path in sorted(Path(output_dir).glob(f"{PREFIX}*")) if _NAME.fullmatch(path.name)]
    places = (path for path in (Path(output_dir) / LAST_CHECKPOINT, *named) if path.is_dir())
    return sorted(map(look_at, places), key=lambda each: (len(each.line), each.step))


def complete_checkpoints(output_dir: str | os.PathLike[str]) -> list[Path]:
    """Return the whole checkpoint folders of a run, a downloaded `last-checkpoint` included, the newest last."""
    return [each.path for each in _in_order(output_dir) if each.fault is None]


def find_checkpoint(
    asked: str | os.PathLike[str] | bool | None, output_dir: str | os.PathLike[str]
) -> tuple[str | None, list[str]]:
    """Return the folder to go on from, or None for a run that begins anew, and what is to be said of others.

    `asked` is a folder, True for the newest whole checkpoint in `output_dir`, or "auto" for that or, where no save was
    ever finished, a run that begins anew.

    Raises:
        CheckpointIncompleteError: the folder is missing or not whole, or there is no whole checkpoint.
        ConfigurationError: `output_dir` holds a checkpoint that is not behind the one to go on from.
    """
    found, newest = _in_order(output_dir), asked in (True, "auto")
    left = {run: step for each in found for run, step in each.line[:-1]}  # by a damaged one, too
    whole = [each for each in found if not each.fault and each.step <= left.get(each.line[-1][0], each.step)]
    chosen = whole[-1] if newest and whole else None
    if asked and not newest:
        chosen = look_at(Path(asked))
    lost = not whole and any(each.fault not in (UNMARKED, FOREIGN) for each in found)
    if (chosen and chosen.fault) or (not chosen and (lost or asked is True)):
        lacks = "".join(f" {each.path}: {each.fault or 'abandoned'}." for each in ([chosen] if chosen else found))
        raise CheckpointIncompleteError(
            f"There is no whole checkpoint to go on from in {asked if chosen else output_dir}.{lacks}"
            f"{f' {whole[-1].path} is whole.' if whole else ''} Put back what is missing, or set another "
            "resume_from_checkpoint ('auto' begins anew where no save was ever finished) or output_dir."
        )

    here = chosen and any(each.path.resolve() == chosen.path.resolve() for each in found)
    later = [each for each in found if not (chosen and here and each.is_behind(chosen))]
    if in_the_way := [each for each in later if not each.fault or each.foreign]:
        way = " to the newest, which only you can tell, or " if newest else "='auto' or "
        way = "" if in_the_way[-1].fault else f"resume_from_checkpoint{way}"
        raise _mixing(in_the_way, Path(output_dir), chosen, way)
    then = f"The run continues from {chosen.path}" if chosen else "The run begins anew"
    return chosen and str(chosen.path), [f"{each.path} is skipped: {each.fault}. {then}." for each in later]


def _mixing(found: Sequence[Checkpoint], folder: Path, chosen: Checkpoint | None, way: str) -> ConfigurationError:
    """Refuse two runs in one folder, with the command that moves the other one and what a report would mix."""
    names = ", ".join(f"{each.path.name} (step {each.step})" for each in found)
    this = f"{chosen.path} (step {chosen.step})" if chosen else "a new run"
    fault = next((f" {each.path.name}: {each.fault}." for each in found if each.fault), "")
    aside = next(name for n in count(1) if not (folder / (name := f"_aside-{n}")).exists())  # "_" is never pushed
    files = [name for name in (TRAINER_STATE_FILE, POSTERIOR_FILE, SELECTION_LOG_FILE) if (folder / name).exists()]
    moved = " ".join([*(each.path.name for each in found), *files])
    back = SELECTION_LOG_FILE in files and chosen  # a run that goes back continues the log, over its later lines
    return ConfigurationError(
        f"{folder} holds {names}, to which {this} does not go back: two runs would mix.{fault} Set {way}another "
        f"output_dir, or move them first:\ncd {shlex.quote(str(folder))} && mkdir {aside} && mv {moved} {aside}"
        f"{f' && cp {aside}/{SELECTION_LOG_FILE} .' if back else ''}"
    )


def remove(folder: Path) -> None:
    """Delete a checkpoint, or a link to one. What a kill or an error leaves of it looks neither whole nor foreign."""
    with suppress(OSError):
        if folder.is_symlink():
            folder.unlink()
        for name in (TRAINER_STATE_FILE, MARKER_FILE):
            (folder / name).unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)


def rotate(saved: Path, kept: set[Path], limit: int) -> None:
    """Delete the oldest of what is behind the checkpoint just `saved`, until `limit` are left with those `kept`."""
    newest, kept = look_at(saved), {saved, *kept}
    old = [each for each in _in_order(saved.parent) if each.is_behind(newest) and not each.foreign]
    old = [each for each in old if each.path not in kept and each.path.name != LAST_CHECKPOINT]
    for each in old[: max(len(old) + len(kept) - limit, 0)]:
        remove(each.path)


def write_marker(folder: Path, line: Sequence[tuple[str, int]]) -> None:
    """Write the marker of a checkpoint whose other files are written."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name not in _NOT_READ)
    files = {path.relative_to(folder).as_posix(): path.stat().st_size for path in paths}
    content = json.dumps({"format": FORMAT, "line": [*line], "files": files}, indent=1)
    save_whole(folder / MARKER_FILE, (content + "\n").encode())
