"""A checkpoint that is damaged after the save: every file of it, in six ways.

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

from .bench import Bench, Result, expect, expect_equal, tally
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
