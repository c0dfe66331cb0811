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

from trl_vade.errors import CheckpointSaveError
from trl_vade.selection.log import SELECTION_LOG_FILE
from trl_vade.trainer.checkpoint.folders import complete_checkpoints

from .bench import AtStep, Bench, expect, expect_equal, refused, tally
from .kills import read_all
from .result import Result
from .runs import end_of, make_trainer

CAP_DAC_OVERRIDE = 1 << 1  # root's right to write where no permission bit lets it (linux/capability.h)
CAPABILITY_VERSION = 0x20080522


@contextmanager
def file_size_limit(num_bytes: int) -> Iterator[None]:
    """Let the kernel refuse files larger than this (EFBIG), to this process and inside the block."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def no_room_for_weights() -> Iterator[None]:
    """safetensors writes to a file of another name first, and so past a link to /dev/full: limit the size instead."""
    save_file = modeling_utils.safe_save_file

    def limited(*args: Any, **kwargs: Any) -> None:
        with file_size_limit(4096):
            save_file(*args, **kwargs)

    modeling_utils.safe_save_file = limited
    try:
        yield
    finally:
        modeling_utils.safe_save_file = save_file


class FailingSave:
    """A run whose save after step 3, inside a generation batch, is refused; and the run that goes on from step 2."""

    STEP = 3
    SETTINGS = {"max_steps": 6}

    def __init__(self, bench: Bench):
        self._bench = bench
        self.output_dir = bench.folder()
        self.folder = self.output_dir / f"checkpoint-{self.STEP}"

    def train(self, *callbacks: TrainerCallback, disturb: tuple[str, Callable[[], Any]] | None = None) -> None:
        """Train; `disturb` names a method of the trainer, and what happens before its call in the save."""
        trainer = make_trainer(self._bench.model, self.output_dir, callbacks=[*callbacks], **self.SETTINGS)
        if disturb:
            name, do = disturb
            method = getattr(trainer, name)

            def disturbed(*args: Any, **kwargs: Any) -> Any:
                if trainer.state.global_step == self.STEP:
                    do()
                return method(*args, **kwargs)

            setattr(trainer, name, disturbed)
        trainer.train()

    def says(self, message: str, *parts: str) -> None:
        for part in parts:
            expect(part in message, f"the error does not say {part!r}: {message}")

    def complete(self) -> list[str]:
        """The complete checkpoints, each of which is read."""
        paths = complete_checkpoints(self.output_dir)
        for path in paths:
            read_all(path)
        return [path.name for path in paths]

    def go_on(self) -> str:
        """Resume from the newest complete checkpoint, and come to the end of the undisturbed run."""
        trainer = make_trainer(self._bench.model, self.output_dir, **self.SETTINGS)
        trainer.train(resume_from_checkpoint="auto")
        expect_equal(end_of(trainer), self._bench.end_of_undisturbed(**self.SETTINGS))
        return "CheckpointSaveError, and the checkpoint before goes on to the undisturbed end"

    def is_refused(self, do: Callable[[ExitStack], Any], *, late: bool = False) -> str:
        """Train up to the refusal, which `do` brings about at the save (`late`: before its last file).

        What `do` enters is left when the run has stopped. Returns the words of the refusal.
        """
        with ExitStack() as stack:
            disturb = ("_save_rng_state" if late else "save_model", lambda: do(stack))
            message = refused(CheckpointSaveError, lambda: self.train(disturb=disturb))
        before = [f"checkpoint-{step}" for step in range(1, self.STEP)]
        self.says(message, str(self.folder), "Free disk space")
        expect(self.complete() == before, f"{self.complete()} are complete")
        return message


FULL_DISK = {  # a file that the save writes, and what the error has to say
    "checkpoint-3/vade_posterior.safetensors.tmp": "No space left on device",
    "vade_posterior.safetensors.tmp": "No space left on device",  # the copy in the output directory
    "checkpoint-3/config.json": "No space left on device",
    "checkpoint-3/optimizer.pt": "RuntimeError",
    "checkpoint-3/rng_state.pth": "RuntimeError",
    "checkpoint-3/trainer_state.json": "No space left on device",
    "checkpoint-3/vade_checkpoint.json.tmp": "No space left on device",
}


def disk_full(bench: Bench) -> Result:
    """ENOSPC from the kernel for each kind of file of a checkpoint, through a link to /dev/full in its place."""

    def full(name: str, words: str) -> str:
        run = FailingSave(bench)
        link = run.output_dir / name

        def fill(_: ExitStack) -> None:
            link.parent.mkdir(exist_ok=True)
            link.symlink_to("/dev/full")

        run.says(run.is_refused(fill, late=link.name == TRAINER_STATE_NAME), words)
        if link.is_symlink():  # else who wrote it has tidied up
            link.unlink()
        return run.go_on()

    def full_of_weights() -> str:
        run = FailingSave(bench)
        run.says(run.is_refused(lambda stack: stack.enter_context(no_room_for_weights())), "File too large")
        return run.go_on()

    def log_full() -> str:
        run = FailingSave(bench)
        log = run.output_dir / SELECTION_LOG_FILE

        def fill() -> None:
            log.rename(log.with_suffix(".kept"))
            log.symlink_to("/dev/full")

        message = refused(CheckpointSaveError, lambda: run.train(AtStep(4, fill, begins=True)))
        run.says(message, str(log), "could not be written", "resume_from_checkpoint='auto'")
        expect(run.complete()[-1] == "checkpoint-4", f"{run.complete()} are complete")
        log.unlink()
        log.with_suffix(".kept").rename(log)
        return run.go_on()

    tries: dict[str, Callable[[], str]] = {name: partial(full, name, words) for name, words in FULL_DISK.items()}
    tries |= {"model.safetensors": full_of_weights, SELECTION_LOG_FILE: log_full}
    if bench.quick:
        names = ("vade_posterior.safetensors.tmp", "checkpoint-3/optimizer.pt", "model.safetensors")
        tries = {name: tries[name] for name in (*names, SELECTION_LOG_FILE)}
    return tally("disk full", tries)


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


def permission_denied(bench: Bench) -> Result:
    """EACCES for the output directory, for one file of the checkpoint, and for the selection log."""

    def directory() -> str:
        run = FailingSave(bench)
        run.says(
            run.is_refused(lambda stack: stack.enter_context(WriteProtected(run.output_dir))), "Permission denied"
        )
        return run.go_on()

    def one_file() -> str:
        run = FailingSave(bench)
        file = run.folder / "optimizer.pt"

        def protect(stack: ExitStack) -> None:
            run.folder.mkdir()
            file.touch()
            stack.enter_context(WriteProtected(file))

        run.says(run.is_refused(protect), "Permission denied")
        return run.go_on()

    def log() -> str:
        run = FailingSave(bench)
        path = run.output_dir / SELECTION_LOG_FILE
        with ExitStack() as stack:
            protect = AtStep(4, lambda: stack.enter_context(WriteProtected(path)), begins=True)
            message = refused(CheckpointSaveError, lambda: run.train(protect))
        run.says(message, str(path), "Permission denied")
        expect(run.complete()[-1] == "checkpoint-4", f"{run.complete()} are complete")
        return run.go_on()

    def from_the_start() -> str:
        run = FailingSave(bench)
        with WriteProtected(run.output_dir):
            run.says(refused(CheckpointSaveError, run.train), str(run.output_dir), "Permission denied")
        expect(not list(run.output_dir.iterdir()), "something was written")
        return run.go_on()

    tries = {
        "output directory": directory,
        "from the start": from_the_start,
        "optimizer.pt": one_file,
        SELECTION_LOG_FILE: log,
    }
    return tally("permission denied", tries)
