"""The training run that is disturbed, and the process in which it is killed."""

import functools
import hashlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from peft import LoraConfig
from tqdm import tqdm

from tests.support.rows import make_text_rows, with_variants
from tests.support.runs import SMALL_RUN, first_letter, rows_with_images, says_a_digit
from trl_vade import VADEGRPOConfig, VADEGRPOTrainer, VADEReportCallback
from trl_vade.samplers.snapshot import state_digest
from trl_vade.selection.log import SelectionLog

# Saves after every step, and every other save lies inside a generation batch.
SAVING_RUN = SMALL_RUN | {"save_strategy": "steps", "save_steps": 1, "num_iterations": 2, "max_steps": 8}


def make_trainer(
    model: str,
    output_dir: Path,
    *,
    pictures: bool = False,
    adapter: bool = False,
    **more: Any,
) -> Any:
    """A trainer of `SAVING_RUN` with the settings changed that `more` names, on text or on the testbed's pictures."""
    args = VADEGRPOConfig(**SAVING_RUN | {"output_dir": str(output_dir)} | more)
    rows = picture_rows("vade_variants" in more) if pictures else make_text_rows()
    reward = first_letter if pictures else says_a_digit
    adapters = LoraConfig(target_modules=["q_proj"]) if adapter else None
    trainer = VADEGRPOTrainer(model, reward, args, rows, peft_config=adapters)
    trainer.remove_callback(VADEReportCallback)
    return trainer


@functools.cache
def picture_rows(variants: bool) -> Dataset:
    """24 rows of the testbed, and a hint as the variant of each."""
    rows = rows_with_images(24)
    hinted = [
        [{"role": "user", "content": f"{prompt[0]['content']} Think of a {task}."}]
        for prompt, task in zip(rows["prompt"], rows["task"], strict=True)
    ]
    return with_variants(rows, [[{"kind": "hint-1", "prompt": prompt}] for prompt in hinted]) if variants else rows


def end_of(trainer: Any) -> dict[str, str]:
    """Hashes of what a run has come to; two runs that are one have the same."""
    weights = hashlib.sha256()
    for name, value in sorted(trainer.model.state_dict().items()):
        weights.update(name.encode() + value.contiguous().numpy().tobytes())
    log = repr(SelectionLog(trainer.args.output_dir).read())
    return {
        "step": str(trainer.state.global_step),
        "weights": weights.hexdigest(),
        "posterior": state_digest(trainer.selection.sampler),
        "selection log": hashlib.sha256(log.encode()).hexdigest(),
        "rollouts": str(trainer.selection.feedback.rollouts),
    }


def train_to_be_killed(
    pipe: Connection,
    model: str,
    output_dir: Path,
    settings: dict[str, Any],
    instant: tuple[int, int, bool] | None,
) -> None:
    """Body of the process. It tells the parent that it begins to train, and its end, or what it was refused for.

    `instant` (the save counted from 1, n, half) lets it kill itself; see `Instants`. n = 0 has the instants told.
    """
    with open(output_dir.with_suffix(".output"), "ab") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    torch.set_num_threads(1)
    tqdm.set_lock(threading.RLock())  # not the one for several processes, which a killed one would leave behind
    try:
        trainer = make_trainer(model, output_dir, **settings)
        instants = Instants(trainer, *instant) if instant else None
        pipe.send(("training", None))
        trainer.train(resume_from_checkpoint="auto")
        pipe.send(("ended", {"end": end_of(trainer), "instants": instants.seen if instants else []}))
    except Exception as error:
        pipe.send(("raised", f"{type(error).__name__}: {error}"))


class Instants:
    """Numbers what the saves of a run do to its files, and kills the process just before the n-th of these deeds.

    With `half`, what was written last, a file or a line appended to one, is cut to a half first: as if the process had
    died while it wrote it.

    Python tells an audit hook of every file that it opens, renames or removes; torch opens files on its own.
    """

    def __init__(self, trainer: Any, save: int, n: int, half: bool):
        self.seen: list[tuple[str, bool]] = []  # (what was done, whether a file was written just before)
        self._folder, self._save, self._n, self._half = str(trainer.args.output_dir), save, n, half
        self._num_saves = 0
        self._last_written: tuple[str, int] | None = None  # the file, and the size that it had if it was appended to
        trainer._save_checkpoint = self._counting_saves(trainer._save_checkpoint)
        torch.save = self._before(torch.save)
        sys.addaudithook(self._hear)

    def _counting_saves(self, save_checkpoint: Callable[..., None]) -> Callable[..., None]:
        def counting(*args: Any) -> None:
            self._num_saves += 1
            save_checkpoint(*args)
            self._at("the end of the save", None)

        return counting

    def _before(self, save: Callable[..., None]) -> Callable[..., None]:
        def saving(content: Any, path: Any, *args: Any, **kwargs: Any) -> None:
            self._at("torch.save", str(path))
            save(content, path, *args, **kwargs)

        return saving

    def _hear(self, event: str, args: tuple[Any, ...]) -> None:
        if self._num_saves < self._save or not args or not isinstance(args[0], str | os.PathLike):
            return
        path = os.fspath(args[0])
        if event == "open" and path.startswith(self._folder):
            mode, flags = args[1], args[2]
            if flags & (os.O_WRONLY | os.O_RDWR) or (mode and set(mode) & set("wax+")):
                self._at("open", path, os.path.getsize(path) if flags & os.O_APPEND else 0)
        elif event == "os.remove" and args[1] != -1:  # by a descriptor of its folder, as shutil.rmtree does
            self._at("remove", None)
        elif event == "os.mkdir" and os.path.isdir(path):
            return
        elif event in ("os.rename", "os.mkdir", "os.rmdir", "shutil.rmtree") and path.startswith(self._folder):
            self._at(event, None)

    def _at(self, deed: str, written: str | None, size_before: int = 0) -> None:
        if self._num_saves < self._save:
            return
        previous, self._last_written = self._last_written, (written, size_before) if written else None
        self.seen.append((f"{deed} {Path(written).name if written else ''}".strip(), previous is not None))
        if len(self.seen) == self._n:
            if self._half and previous is not None:
                path, size = previous
                os.truncate(path, (size + os.path.getsize(path)) // 2)
            os.kill(os.getpid(), signal.SIGKILL)
