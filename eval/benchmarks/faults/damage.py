"""A checkpoint, or the selection log, that is damaged after the save: every file of it, in five ways.

Bytes that changed in a file of the same size are found in the posterior alone, by its digest: others are left out.
"""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.support.checkpoints import without_later
from trl_vade.errors import VADEError
from trl_vade.samplers.snapshot import POSTERIOR_FILE
from trl_vade.selection.log import SELECTION_LOG_FILE

from .bench import Bench, expect, expect_equal, heard, tally
from .result import Result
from .runs import end_of

SETTINGS = {"max_steps": 4, "use_adaptive_entropy": True}
STEP = 3  # inside a generation batch


def _flip(path: Path, other: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def _swap(path: Path, other: Path) -> None:
    shutil.copyfile(other, path)


def _cut(path: Path, other: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


WAYS: dict[str, Callable[[Path, Path], Any]] = {
    "a bit flipped": _flip,
    "of another checkpoint": _swap,
    "cut": _cut,
    "emptied": lambda path, other: path.write_bytes(b""),
    "longer": lambda path, other: path.write_bytes(path.read_bytes() + b"0"),
    "removed": lambda path, other: path.unlink(),
}


UNSEEN = ("a bit flipped", "of another checkpoint")  # where the size is the same and there is no digest


def damaged_checkpoints(bench: Bench) -> Result:
    """A run that goes on from a damaged checkpoint is refused, or it comes to the undisturbed end."""
    whole = bench.trainer(bench.folder(), **SETTINGS, save_total_limit=None)
    whole.train()
    saved, other = (Path(whole.args.output_dir) / f"checkpoint-{step}" for step in (STEP, STEP - 2))
    tries = {}
    for file in sorted(path.relative_to(saved) for path in saved.rglob("*") if path.is_file()):
        for way, damage in WAYS.items():
            twin, size = other / file, (saved / file).stat().st_size
            same = way == "a bit flipped" or not twin.exists() or twin.stat().st_size == size
            if way in UNSEEN and same and file.name != POSTERIOR_FILE:
                continue
            tries[f"{file}, {way}"] = partial(_damaged, bench, whole, saved, file, partial(damage, other=twin))
    if bench.quick:
        tries = {
            name: tries[name] for name in tries if name.startswith(("model.safetensors,", f"{POSTERIOR_FILE}, a bit"))
        }
    return tally("damaged file of a checkpoint", tries)


def _damaged(bench: Bench, whole: Any, saved: Path, file: Path, damage: Callable[[Path], Any]) -> str:
    output_dir = bench.folder()
    shutil.copytree(whole.args.output_dir, output_dir, dirs_exist_ok=True)
    checkpoint = output_dir / saved.name
    damage(checkpoint / file)
    try:
        trainer = bench.trainer(output_dir, **SETTINGS)
        trainer.train(resume_from_checkpoint=without_later(checkpoint))
        expect_equal(end_of(trainer), end_of(whole))
    except VADEError as error:
        expect(saved.name in str(error), f"the error does not name the checkpoint: {error}")
        return "refused by name"
    finally:
        shutil.rmtree(output_dir)
    return "not read by a resume"


# --------------------------------------------------------------------------------------------------- the selection log


def _edited(edit: Callable[[list[bytes]], list[bytes]]) -> Callable[[Path], Any]:
    return lambda path: path.write_bytes(b"".join(edit(path.read_bytes().splitlines(keepends=True))))


LOGS: dict[str, Callable[[Path], Any]] = {
    "a line missing in the middle": _edited(lambda lines: [lines[0], *lines[2:]]),
    "its beginning missing": _edited(lambda lines: lines[1:]),
    "its end missing": _edited(lambda lines: lines[:3]),
    "two lines in another order": _edited(lambda lines: [lines[1], lines[0], *lines[2:]]),
    "a number changed": _edited(lambda lines: [lines[0].replace(b'"trials": [4', b'"trials": [5'), *lines[1:]]),
    "a line cut": _edited(lambda lines: [lines[0][:20] + b"\n", *lines[1:]]),
    "empty": lambda path: path.write_bytes(b""),
    "removed": lambda path: path.unlink(),
}


def damaged_logs(bench: Bench) -> Result:
    """The run goes on with the posterior of the checkpoint and says what the log lacks, or it is refused."""
    whole = bench.trainer(bench.folder(), max_steps=6, num_iterations=1, save_steps=4)
    whole.train()
    return tally("damaged selection log", {name: partial(_damaged_log, bench, whole, do) for name, do in LOGS.items()})


def _damaged_log(bench: Bench, whole: Any, damage: Callable[[Path], Any]) -> str:
    output_dir = bench.folder()
    shutil.copytree(whole.args.output_dir, output_dir, dirs_exist_ok=True)
    before = (output_dir / SELECTION_LOG_FILE).read_bytes()
    damage(output_dir / SELECTION_LOG_FILE)
    expect(
        not (output_dir / SELECTION_LOG_FILE).exists() or (output_dir / SELECTION_LOG_FILE).read_bytes() != before,
        "it is whole",
    )
    with heard() as messages:
        try:
            trainer = bench.trainer(output_dir, max_steps=6, num_iterations=1, save_strategy="no")
            trainer.train(resume_from_checkpoint=without_later(output_dir / "checkpoint-4"))
        except VADEError as error:
            expect(SELECTION_LOG_FILE in str(error), f"the error does not name the log: {error}")
            return "refused by name"
    expect(any(SELECTION_LOG_FILE in text for text in messages), f"nothing was said of it: {messages}")
    mine, theirs = end_of(trainer), end_of(whole)
    expect_equal(mine | {"selection log": ""}, theirs | {"selection log": ""})
    return "it was said, and the run came to the undisturbed end"
