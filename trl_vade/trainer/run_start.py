"""The start of each `train()`: a folder of its own, the posterior, and a data set that may have been replaced."""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any
from uuid import uuid4
from weakref import WeakSet

from accelerate.logging import get_logger

from trl_vade.checkpoints import LOCK_FILE, look_at
from trl_vade.errors import CheckpointSaveError, ConfigurationError
from trl_vade.processes import on_main_process

from .batch import GenerationBatch
from .callbacks import TrainedCounts, callback_of
from .checkpoint.resuming import resolve_checkpoint
from .console import VADEConsoleCallback
from .images.once import ImagesOnce
from .logs import TaskMetrics
from .preflight import lay_out_rows, resolve_args, settle_choice
from .presets import is_adaptive
from .seams import never_tried
from .selection_choice import make_selection

logger = get_logger(__name__)

OF_A_RUN = (
    *("_step", "_buffered_inputs", "_last_loaded_step", "_current_train_step_time"),
    *("entropy_coef", "_last_world_entropy", "_entropy_window_stats"),
)
"""Attributes that a run of TRL 1.16 leaves to the next: one that ends inside a generation batch leaves its answers."""

_LOCKS: WeakSet[IO[str]] = WeakSet()  # a forked process shares them, and would keep them when this one is dead
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=lambda: [file.close() for file in _LOCKS])


@contextmanager
def whole_run(trainer: Any, asked: Any) -> Iterator[str | None]:
    """Give the checkpoint that the run in the block goes on from, None for a new one.

    The block holds the output directory alone. A signal leaves a last checkpoint, and the uploads end with the block.
    """
    with holding(trainer.args.output_dir):
        checkpoint = resolve_checkpoint(asked, trainer.args.output_dir, trainer.model)
        line = look_at(Path(checkpoint)).line if checkpoint else ()
        trainer._line = on_main_process(lambda: (uuid4().hex[:16], line))
        args, skips = trainer.args, trainer.args.ignore_data_skip
        if trainer.selection is not None and not is_adaptive(args):
            args.ignore_data_skip = False  # skipping tickets is free, and uniform keeps TRL's epochs
        with trainer._last_checkpoint.watching(trainer.args):
            trainer.publication.catch_up(checkpoint)
            try:
                yield checkpoint
            except (AttributeError, LookupError, TypeError) as error:  # of a seam that moved, or of a user's function
                if note := never_tried():
                    error.add_note(note)
                raise
            finally:
                args.ignore_data_skip = skips
                trainer.is_in_train = False  # transformers 5.23 leaves it True after an error
                if trainer.selection is not None:
                    trainer.selection.loader.decoder.forget()  # what is decoded ahead
            trainer.publication.finish()
            if console := callback_of(trainer, VADEConsoleCallback):
                console.finish()


@contextmanager
def holding(output_dir: str | os.PathLike[str]) -> Iterator[None]:
    """Keep other runs out of `output_dir` in the block; all raise if one is there, or it cannot be written."""
    with ExitStack() as held:
        on_main_process(lambda: bool(held.enter_context(_hold(Path(output_dir)))))  # other processes get no file
        yield


def _hold(folder: Path) -> IO[str]:
    """Return the file with its lock. With `lockf` that would be gone as soon as this process has copied the folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _LOCKS.add(file := open(folder / LOCK_FILE, "a+", encoding="utf-8"))  # noqa: SIM115
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            file.seek(0)
            raise ConfigurationError(
                f"output_dir={str(folder)!r} is in use by another run ({file.read().strip()}). Wait for it, or "
                "set another output_dir."
            ) from None
        except (ImportError, OSError):  # Windows, or a file system without locks
            pass
        file.truncate(0)
        print(json.dumps({"pid": os.getpid(), "host": socket.gethostname()}), file=file, flush=True)
        return file
    except OSError as error:
        raise CheckpointSaveError(
            f"output_dir={str(folder)!r} cannot be written ({type(error).__name__}: {error}), so this run could save "
            "nothing. Free disk space, check the permissions, or set another output_dir."
        ) from error


def start_run(trainer: Any, *, resumed: bool, trial: Any = None) -> None:
    """Set `trainer.selection` for the run that begins, or refuse new rows, or a model with nothing to train.

    The first run uses the selection that the trainer was made with. A later run starts a new one, as in TRL, and so
    does each trial of a search. A `resumed` run gets the counts of its checkpoint afterwards.
    """
    if not any(each.requires_grad for each in trainer.model.parameters()):
        raise ConfigurationError(
            "The model trains no parameter (requires_grad). PeftModel.from_pretrained freezes an adapter: pass "
            "is_trainable=True to it. Or pass the base model, and peft_config to the trainer."
        )
    vars(trainer).update(trainer._of_first_run)
    for values in (*trainer._metrics.values(), trainer._pending_extra_logs, trainer._pending_metrics):
        values.clear()
    trainer._task_metrics = TaskMetrics(trainer._task_metrics.compute)
    replaced, before = trainer.train_dataset is not trainer._rows, trainer.selection
    if replaced:
        _look_at_rows(trainer)
    if trainer.selection is not None:
        moved = trainer.selection.feedback.log.path.parent != Path(trainer.args.output_dir)
        if trainer.selection is before and (replaced or moved or trainer._has_begun or trial is not None):
            trainer.selection = make_selection(trainer)
        log = trainer.selection.feedback.log
        # The log of a start that left nothing else is set aside, too.
        if not resumed and trainer.accelerator.is_main_process and (kept := log.set_aside()):
            logger.warning(f"The earlier choices are kept in {kept}. This run writes {log.path}.")
    trainer._has_begun = True


def set_choice(trainer: Any, chooses: bool) -> None:
    """Give `trainer` what it needs where a sampler `chooses` its rows. Without, the run is plain GRPO."""
    trainer._images = ImagesOnce(trainer)
    trainer.selection = make_selection(trainer) if chooses else None
    trainer.remove_callback(TrainedCounts)  # of an earlier batch
    wanted = chooses or trainer.args.vade_down_sampling not in (None, "none")
    trainer._batch = GenerationBatch(trainer) if wanted else None


def _look_at_rows(trainer: Any) -> None:
    given = {name: getattr(trainer, name) for name in ("train_dataset", "processing_class", "tools")}
    given["environment_factory"] = trainer.environment_factories
    lay_out_rows(given, trainer.args)
    rows, args = given["train_dataset"], resolve_args(trainer.args, trainer.model)
    chooses = settle_choice(args, rows, type(trainer))
    trainer.train_dataset = trainer._rows = rows
    if chooses != (trainer.selection is not None):
        set_choice(trainer, chooses)
