"""The uploads of a run: each save to the model's repository, and its posterior to a data-set repository.

transformers 5.23 uploads the output directory and the checkpoint separately, in the background, from files that the
next save changes. It skips a push while one is running (by design, huggingface/transformers#13503), and never reads
the errors of the uploads (since #25095). Here no push is skipped, and a missing one is an error at the end.
"""

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from accelerate.logging import get_logger
from huggingface_hub import is_offline_mode
from huggingface_hub.utils import DEFAULT_IGNORE_PATTERNS, filter_repo_objects
from numpy.typing import NDArray
from transformers.trainer_utils import HubStrategy

from trl_vade.checkpoints import JIT_MARK, LAST_CHECKPOINT, LOCK_FILE, PREFIX, complete_checkpoints, look_at
from trl_vade.data.row_views import names_and_tasks
from trl_vade.errors import ConfigurationError, HubError, HubOfflineError
from trl_vade.processes import on_main_process
from trl_vade.samplers.snapshot import POSTERIOR_FILE, load_snapshot

from .posteriors.repository import posterior_card, stage_posterior, steps_in
from .posteriors.table import posterior_table
from .staging import STAGED, Commit, Staging, files_in, link
from .uploading import Card, HubTarget, ensure_repo

logger = get_logger(__name__)

SAY_EVERY = 60.0  # seconds between two messages about a long wait

PRIVATE = (LOCK_FILE, "training_args.bin", "vade_selection-*.jsonl")  # all settings; the choices of earlier runs
_NOT_PUSHED = ("_", PREFIX, LAST_CHECKPOINT)
_NOT_IN_ROOT = ("README", "optimizer", "scheduler", "scaler", "rng_state", "trainer_state", "entropy_ctrl", "vade_")

Rows = Callable[[], tuple[Any, NDArray[np.int64]]]  # the training set, and the keys of its rows


class Publication:
    """The uploads of a run, by the main process. With `push_to_hub` it creates the repositories, or raises `HubError`.

    `args` are the settings of the run, `rows` those of the posterior (None for a run without one), and `private`
    patterns of the files in the output directory that are not pushed.
    """

    def __init__(self, args: Any, rows: Rows | None, private: Sequence[str] = ()) -> None:
        self.announce: Callable[[str], None] = logger.info  # of what arrived, in a background thread
        self.model = HubTarget("", revision=args.hub_revision)  # the posterior goes to a branch of the same name
        self._args, self._rows, self._private = args, rows, private
        self.posterior_repo: str | None = None  # the data-set repository that receives the posterior
        self._stagings: dict[Any, Staging] = {}  # by branch
        if args.push_to_hub:
            self.open()
            if args.load_best_model_at_end and args.hub_strategy == HubStrategy.CHECKPOINT:
                logger.warning("load_best_model_at_end: only hub_strategy='all_checkpoints' pushes the best as well.")
            if rows:
                name = args.vade_posterior_hub_id or f"{self.model.repo_id}-posterior"
                self.posterior_repo = _existing(replace(self.model, repo_id=name, repo_type="dataset")).repo_id

    @property
    def _output_dir(self) -> Path:  # the user may set another one for the next run
        return Path(self._args.output_dir)

    def open(self, token: str | None = None, private: bool | None = None) -> None:
        """Create the model's repository and its branch, unless offline. All processes must take part."""
        name = self._args.hub_model_id or self._output_dir.absolute().name  # as `Trainer.init_hf_repo`
        private = self._args.hub_private_repo if private is None else private
        self.model = _existing(HubTarget(name, "model", self.model.revision, private, token))

    @property
    def pushes_saves(self) -> bool:
        """Return whether each save is pushed, and not the last one alone."""
        return bool(self._args.push_to_hub and self._args.hub_strategy != HubStrategy.END)

    def catch_up(self, checkpoint: str | None) -> None:
        """Push the checkpoint that a run goes on from, if a repository has got nothing as new. All must take part."""
        if self.pushes_saves and not is_offline_mode():
            on_main_process(partial(self._catch_up, Path(checkpoint) if checkpoint else None))

    def _catch_up(self, checkpoint: Path | None) -> None:
        self._stagings.clear()
        for folder in self._output_dir.glob(f"{STAGED}*"):  # of a process that was killed
            shutil.rmtree(folder, ignore_errors=True)
        chose = checkpoint is not None and (checkpoint / POSTERIOR_FILE).exists()  # not if it is of plain GRPO
        kinds = ("model", "dataset") if self.posterior_repo and (chose or not checkpoint) else ("model",)
        if checkpoint is None:
            for kind in kinds:  # the first push of a new run deletes what an earlier one has left
                self._staging(kind).stale += ("last-checkpoint/*", "checkpoint-[0-9]*/*", "step-[0-9]*/*")
        elif min(self._staging(kind).newest_step() for kind in kinds) < (step := look_at(checkpoint).step):
            self.push(step, f"Training in progress, step {step}", checkpoint, posterior=chose)

    def push(self, step: int, message: str, checkpoint: Path | None = None, posterior: bool = True) -> Commit:
        """Push model and posterior of a step: those of the checkpoint, or those of the output directory."""
        if posterior and self.posterior_repo:
            fill = partial(self._fill_with_posterior, checkpoint or self._output_dir)
            self._staging("dataset").stage(step, f"Posterior at step {step}", fill)
        return self._staging("model").stage(step, message, partial(self._fill_with_model, checkpoint))

    def _fill_with_model(self, checkpoint: Path | None, new: Path) -> None:
        """Lay the repository out in `new`. Checkpoints and weights are hard links: a save makes new files of these."""
        out = self._output_dir  # a link in it may lead to private files, so none is followed
        tops = [path for path in out.iterdir() if not path.name.startswith(_NOT_PUSHED) and not path.is_symlink()]
        found = (path for top in tops for path in (top, *top.rglob("*")) if path.is_file() and not path.is_symlink())
        files = {path.relative_to(out).as_posix(): path for path in found}
        changing = set(files.values())
        saved = checkpoint or next(reversed(complete_checkpoints(out)), None)  # whose push may still wait
        for path, file in files_in(checkpoint).items() if checkpoint else ():
            if path == POSTERIOR_FILE or not ("/" in path or path.startswith(_NOT_IN_ROOT)):
                files[path] = file
        places = {HubStrategy.CHECKPOINT: LAST_CHECKPOINT, HubStrategy.ALL_CHECKPOINTS: saved and saved.name}
        if saved and (place := places.get(self._args.hub_strategy)):
            files |= {f"{place}/{path}": file for path, file in files_in(saved).items()}
        ignored = [*DEFAULT_IGNORE_PATTERNS, *(f"*{name}" for name in (JIT_MARK, *PRIVATE, *self._private))]
        for path in filter_repo_objects(files, ignore_patterns=ignored):
            link(files[path], new / path, copy=not path.endswith(".safetensors") and files[path] in changing)

    def _fill_with_posterior(self, folder: Path, new: Path) -> Card:
        (dataset, keys), snapshot = self._rows(), load_snapshot(folder)
        visited = snapshot.sampler_state["posterior"]["sample_index"]
        if (keys[visited] != snapshot.sample_key).any():
            raise ConfigurationError(f"{folder} holds the posterior of other rows")
        names = names_and_tasks(dataset, keys, visited, self._args.vade_stratify_by or "task")
        table, place = posterior_table(snapshot, **names), (self.posterior_repo or "", self.model.revision)
        stage_posterior(new, folder / POSTERIOR_FILE, table)
        return lambda there: posterior_card(table, steps_in(there), *place)

    def _staging(self, kind: str) -> Staging:
        repo_id = self.model.repo_id if kind == "model" else self.posterior_repo or ""
        target, branch = replace(self.model, repo_id=repo_id, repo_type=kind), (kind, self.model.revision)
        if branch not in self._stagings:
            self._stagings[branch] = Staging(target, self._output_dir, lambda event: self.announce(event))
        self._stagings[branch].target = target  # the user may have given another name since
        return self._stagings[branch]

    def wait(self) -> None:
        """Wait until nothing is being sent, and log now and then what is. All processes must take part."""
        # They poll: one collective as long as an upload would exceed the process group's limit (10 minutes with NCCL).
        start = said = time.monotonic()
        stagings = self._stagings.values()
        while names := on_main_process(lambda: [str(one.target) for one in stagings if not one.job.done()]):
            if (now := time.monotonic()) - said > SAY_EVERY:
                said = now
                logger.warning(f"Still waiting after {now - start:.0f} s for uploads to the Hub: {', '.join(names)}.")
            time.sleep(0.1)

    def finish(self) -> None:
        """Wait for all uploads, retry the failed ones once, and raise `HubError` on all processes for the missing."""
        self.wait()
        for staging in self._stagings.values():
            if staging.job.exception():
                staging.send()
        self.wait()
        on_main_process(self._refuse_missing)

    def _refuse_missing(self) -> None:
        errors = [error for one in self._stagings.values() if (error := one.job.exception())]
        if any(not isinstance(error, HubOfflineError) for error in errors):
            saved = f"The run in {self._output_dir} is saved on disk, but some uploads to the Hub failed. Nothing is "
            saved += "lost: trainer.push_to_hub() sends it, or the next start of the run:"
            raise HubError("\n- ".join([saved, *map(str, errors)]), status=errors[0].status)


def _existing(target: HubTarget) -> HubTarget:
    return target if is_offline_mode() else on_main_process(partial(ensure_repo, target))
