"""A disk that takes no more, and a folder that may not be written."""

import ctypes
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, modeling_utils
from transformers.trainer import TRAINER_STATE_NAME

from trl_vade.checkpoints import complete_checkpoints
from trl_vade.errors import CheckpointSaveError
from trl_vade.selection.log import SELECTION_LOG_FILE

from .bench import AtStep, Bench, Result, expect, expect_equal, refused, tally
from .kills import read_all
from .runs import end_of

CAP_DAC_OVERRIDE = 1 << 1  # root's right to write where no permission bit lets it (linux/capability.h)
CAPABILITY_VERSION = 0x20080522
NO_SPACE, DENIED = "No space left on device", "Permission denied"
FULL_DISK = {  # a file that the save writes, and what the error has to say
    "checkpoint-3/vade_posterior.safetensors.tmp": NO_SPACE,
    "vade_posterior.safetensors.tmp": NO_SPACE,  # the copy in the output directory
    "checkpoint-3/config.json": NO_SPACE,
    "checkpoint-3/optimizer.pt": "RuntimeError",
    "checkpoint-3/rng_state.pth": "RuntimeError",
    "checkpoint-3/trainer_state.json": NO_SPACE,
    "checkpoint-3/vade_checkpoint.json.tmp": NO_SPACE,
}
Disturbance = Callable[[Path, ExitStack], Any]
"""What happens to a path; leaving the stack undoes it."""


def disk_full(bench: Bench) -> Result:
    """ENOSPC from the kernel for each kind of file of a checkpoint, through a link to /dev/full in its place."""
    tries: dict[str, Callable[[], str]] = {
        name: partial(refused_save, bench, name, full, words) for name, words in FULL_DISK.items()
    }
    tries["model.safetensors"] = partial(refused_save, bench, "", no_room_for_weights, "File too large")
    tries[SELECTION_LOG_FILE] = partial(refused_line, bench, no_room_for_lines, "File too large")
    if bench.quick:
        names = ("vade_posterior.safetensors.tmp", "checkpoint-3/optimizer.pt", "model.safetensors")
        tries = {name: tries[name] for name in (*names, SELECTION_LOG_FILE)}
    return tally("disk full", tries)


def permission_denied(bench: Bench) -> Result:
    """EACCES for the output directory, for one file of the checkpoint, and for the selection log."""
    tries = {
        "output directory": partial(refused_save, bench, "", protected, DENIED),
        "from the start": partial(refused_start, bench),
        "optimizer.pt": partial(refused_save, bench, "checkpoint-3/optimizer.pt", protected, DENIED),
        SELECTION_LOG_FILE: partial(refused_line, bench, protected, DENIED),
    }
    return tally("permission denied", tries)


class FailingSave:
    """A run whose save after step 3, inside a generation batch, is refused; and the run that goes on from step 2."""

    STEP = 3
    SETTINGS = {"max_steps": 6}

    def __init__(self, bench: Bench):
        self._bench = bench
        self.output_dir = bench.folder()

    def train(self, *callbacks: TrainerCallback, disturb: tuple[str, Callable[[], Any]] | None = None) -> None:
        """Train; `disturb` names a method of the trainer, and what happens before its call in the save."""
        trainer = self._bench.trainer(self.output_dir, callbacks=[*callbacks], **self.SETTINGS)
        if disturb:
            name, do = disturb
            method = getattr(trainer, name)

            def disturbed(*args: Any, **kwargs: Any) -> Any:
                if trainer.state.global_step == self.STEP:
                    do()
                return method(*args, **kwargs)

            setattr(trainer, name, disturbed)
        trainer.train()

    def complete(self) -> list[str]:
        """The complete checkpoints, each of which is read."""
        paths = complete_checkpoints(self.output_dir)
        for path in paths:
            read_all(path)
        return [path.name for path in paths]

    def go_on(self, message: str, *parts: str) -> str:
        """Find the parts in the refusal; resume from the newest complete checkpoint to the undisturbed end."""
        for part in parts:
            expect(part in message, f"the error does not say {part!r}: {message}")
        trainer = self._bench.trainer(self.output_dir, **self.SETTINGS)
        trainer.train(resume_from_checkpoint="auto")
        expect_equal(end_of(trainer), self._bench.end_of_undisturbed(**self.SETTINGS))
        return "CheckpointSaveError, and the checkpoint before goes on to the undisturbed end"


def refused_save(bench: Bench, name: str, disturb: Disturbance, words: str) -> str:
    """The save is refused for the path of this name; that of the trainer's state is written last."""
    run = FailingSave(bench)
    path = run.output_dir / name
    method = "_save_rng_state" if path.name == TRAINER_STATE_NAME else "save_model"
    with ExitStack() as stack:
        message = refused(CheckpointSaveError, lambda: run.train(disturb=(method, lambda: disturb(path, stack))))
    expect(run.complete() == ["checkpoint-1", "checkpoint-2"], f"{run.complete()} are complete")
    return run.go_on(message, str(run.output_dir / "checkpoint-3"), "Free disk space", words)


def refused_line(bench: Bench, disturb: Disturbance, words: str) -> str:
    """The line of the fifth step's choice is refused by the selection log."""
    run = FailingSave(bench)
    log = run.output_dir / SELECTION_LOG_FILE
    with ExitStack() as stack:
        begins = AtStep(4, lambda: disturb(log, stack), begins=True)
        message = refused(CheckpointSaveError, lambda: run.train(begins))
    expect(run.complete()[-1] == "checkpoint-4", f"{run.complete()} are complete")
    return run.go_on(message, str(log), words, "resume_from_checkpoint='auto'")


def refused_start(bench: Bench) -> str:
    run = FailingSave(bench)
    with WriteProtected(run.output_dir):
        message = refused(CheckpointSaveError, run.train)
    expect(not list(run.output_dir.iterdir()), "something was written")
    return run.go_on(message, str(run.output_dir), DENIED)


def full(path: Path, stack: ExitStack) -> None:
    """Put a link to /dev/full in the place of a file."""
    path.parent.mkdir(exist_ok=True)
    path.symlink_to("/dev/full")
    stack.callback(lambda: path.is_symlink() and path.unlink())  # else who wrote it has tidied up


def protected(path: Path, stack: ExitStack) -> None:
    """Take the right to write from a folder or a file, which is made where there is none."""
    if not path.exists():
        path.parent.mkdir()
        path.touch()
    stack.enter_context(WriteProtected(path))


def no_room_for_weights(_: Path, stack: ExitStack) -> None:
    """safetensors writes to a file of another name first, and so past a link to /dev/full: limit the size instead."""
    save_file = modeling_utils.safe_save_file

    def limited(*args: Any, **kwargs: Any) -> None:
        with file_size_limit(4096):
            save_file(*args, **kwargs)

    modeling_utils.safe_save_file = limited
    stack.callback(setattr, modeling_utils, "safe_save_file", save_file)


def no_room_for_lines(path: Path, stack: ExitStack) -> None:
    """/dev/full cannot be cut to a length, as the selection log is before each line."""
    stack.enter_context(file_size_limit(path.stat().st_size))


@contextmanager
def file_size_limit(num_bytes: int) -> Iterator[None]:
    """Let the kernel refuse files larger than this (EFBIG), to this process and inside the block."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class WriteProtected:
    """Takes the write bit from `path`, and from root, which needs none, the right to do without; gives both back."""

    def __init__(self, path: Path):
        self._path = path
        # Another user is no way: where the tests run in an environment of root's own, it cannot even import.
        self._libc = ctypes.CDLL(None, use_errno=True) if os.geteuid() == 0 else None

    def __enter__(self) -> "WriteProtected":
        self._path.chmod(self._path.stat().st_mode & ~0o222)
        self._set_override(False)
        return self

    def __exit__(self, *error: object) -> None:
        self._set_override(True)
        self._path.chmod(self._path.stat().st_mode | 0o200)

    def _set_override(self, wanted: bool) -> None:
        """For this thread: in the effective set of capabilities, where the permitted set has it."""
        if self._libc is None:
            return
        header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0)
        sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; twice, for 64 capabilities
        expect(self._libc.capget(header, sets) == 0, f"capget: {os.strerror(ctypes.get_errno())}")
        sets[0] = sets[0] | (CAP_DAC_OVERRIDE & sets[1]) if wanted else sets[0] & ~CAP_DAC_OVERRIDE
        expect(self._libc.capset(header, sets) == 0, f"capset: {os.strerror(ctypes.get_errno())}")
