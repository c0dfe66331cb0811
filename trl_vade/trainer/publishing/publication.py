"""The uploads of a run: each save to the model's repository, and its posterior to a data-set repository."""

import shutil
from collections.abc import Callable, Mapping
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

from trl_vade.data.row_names import names_and_tasks
from trl_vade.errors import ConfigurationError, HubError, HubOfflineError
from trl_vade.hub.posteriors.repository import posterior_card, stage_posterior, steps_in
from trl_vade.hub.posteriors.table import posterior_table
from trl_vade.hub.staging import STAGING_FOLDER, Commit, Staging, files_in, link
from trl_vade.hub.uploading import Card, HubTarget, ensure_repo
from trl_vade.samplers.snapshot import POSTERIOR_FILE, load_snapshot
from trl_vade.selection.report.record import ROWS_FILE, RUN_FILE
from trl_vade.selection.report.writing import PAGE_FILE

from ..checkpoint.folders import JIT_MARK, LAST_CHECKPOINT, PREFIX, complete_checkpoints, step_of
from ..checkpoint.lock import LOCK_FILE
from ..main_process import on_main_process, wait_for_main_process

logger = get_logger(__name__)

# They hold rows of the training data, local paths, the lock, or the choices of an earlier run.
PRIVATE = (ROWS_FILE, PAGE_FILE, RUN_FILE, LOCK_FILE, "vade_selection-*.jsonl")
_NOT_PUSHED = ("_", PREFIX, LAST_CHECKPOINT)
_FOR_A_RESUME = ("optimizer", "scheduler", "scaler", "rng_state", "trainer_state", "entropy_ctrl_state", "vade_")

Rows = Callable[[], tuple[Any, NDArray[np.int64]]]  # the training set, and the keys of its rows


class Publication:
    """The uploads of a trainer. Making one with `push_to_hub` creates the repositories, or raises `HubError`.

    The main process pushes. Errors of pushes are logged, and `finish` raises.
    """

    def __init__(self, args: Any, has_posterior: bool = True) -> None:
        self.revision: str | None = args.hub_revision  # of both repositories; None is main
        self.announce: Callable[[str], None] = logger.info  # of what arrived, in a background thread
        self.model = HubTarget("")
        self._args, self._output_dir = args, Path(args.output_dir)
        self._posterior: HubTarget | None = None
        self._stagings: dict[Any, Staging] = {}  # by branch
        if args.push_to_hub:
            self.open()
            if has_posterior:
                name = args.vade_posterior_hub_id or f"{self.model.repo_id}-posterior"
                self._posterior = _existing(replace(self.model, repo_id=name, repo_type="dataset"))

    def __deepcopy__(self, memo: object) -> "Publication":
        return self  # a copy of a trainer pushes to the same repositories

    def open(self, token: str | None = None, private: bool | None = None) -> None:
        """Create the model's repository and its branch, unless offline. All processes must take part."""
        name = self._args.hub_model_id or Path(self._args.output_dir).absolute().name  # as `Trainer.init_hf_repo`
        private = self._args.hub_private_repo if private is None else private
        self.model = HubTarget(name, "model", self.revision, private)
        self.model = _existing(self.model, token)

    @property
    def posterior_repo(self) -> str | None:
        """Return the data-set repository that receives the posterior, or None."""
        return self._posterior.repo_id if self._posterior else None

    def start(self, checkpoint: Path | None, rows: Rows) -> None:
        """Push the checkpoint that a run goes on from, if its repositories have got nothing as new."""
        if self._args.push_to_hub and self._args.hub_strategy != HubStrategy.END and not is_offline_mode():
            on_main_process(partial(self._catch_up, checkpoint, rows))

    def _catch_up(self, checkpoint: Path | None, rows: Rows) -> None:
        self._stagings.clear()
        shutil.rmtree(self._output_dir / STAGING_FOLDER, ignore_errors=True)  # of a process that was killed
        if checkpoint:
            step = step_of(checkpoint)
            if self._staging(self.model).newest_step() < step:
                self.push_model(step, f"Training in progress, step {step}", checkpoint)
            if self._posterior and self._staging(self._posterior).newest_step() < step:
                self.push_posterior(step, rows, checkpoint)

    def push_model(
        self, step: int, message: str, checkpoint: Path | None = None, token: str | None = None
    ) -> "Commit | None":
        """Push the model of a step: that of the checkpoint, or that of the output directory.

        If a push waits, the newest checkpoint goes along, as it may have waited, too.
        """
        staging = self._staging(self.model)
        staging.token = token
        saved = checkpoint or next(reversed(complete_checkpoints(self._output_dir) if staging.waiting else []), None)
        places = {HubStrategy.CHECKPOINT: LAST_CHECKPOINT, HubStrategy.ALL_CHECKPOINTS: saved and saved.name}
        folders = {place: saved} if saved and (place := places.get(self._args.hub_strategy)) else {}
        return staging.stage(step, message, partial(fill_repository, self._output_dir, checkpoint, folders))

    def push_posterior(self, step: int, rows: Rows, folder: Path | None = None) -> None:
        """Push the posterior of the step, which is in `folder` or in the output directory."""
        if self._posterior:
            fill = partial(self._fill, rows=rows, folder=folder or self._output_dir)
            self._staging(self._posterior).stage(step, f"Posterior at step {step}", fill)

    def _fill(self, new: Path, rows: Rows, folder: Path) -> Card:
        (dataset, keys), snapshot = rows(), load_snapshot(folder)
        visited = snapshot.sampler_state["posterior"]["sample_index"]
        if (keys[visited] != snapshot.sample_key).any():
            raise ConfigurationError(f"{folder} holds the posterior of other rows")
        names = names_and_tasks(dataset, keys, visited, self._args.vade_stratify_by or "task")
        table, place = posterior_table(snapshot, **names), (self.posterior_repo or "", self.revision)
        stage_posterior(new, folder / POSTERIOR_FILE, table)
        return lambda there: posterior_card(table, steps_in(there), *place)

    def _staging(self, target: HubTarget) -> Staging:
        target = replace(target, revision=self.revision)
        key, area = (target.repo_type, target.revision), self._output_dir / STAGING_FOLDER
        staging = self._stagings.setdefault(key, Staging(target, area, lambda event: self.announce(event)))
        staging.target = target  # the user may have given another name since
        return staging

    def wait(self) -> None:
        """Wait until nothing is being sent. All processes must take part."""

        def pending() -> list[str]:
            return [str(one.target) for one in self._stagings.values() if one.busy()]

        wait_for_main_process(lambda: not pending(), lambda: f"uploads to the Hub {pending()}")

    def finish(self) -> None:
        """Wait for all uploads, retry the failed ones once, and raise `HubError` for those that are still missing.

        All processes must take part, and all raise. The files are kept on disk.
        """
        self.wait()
        for staging in self._stagings.values():
            if staging.error and staging.waiting:
                staging.error = None
                staging.send()
        self.wait()
        on_main_process(self._refuse_missing)

    def _refuse_missing(self) -> None:
        errors = [one.error for one in self._stagings.values() if one.error]
        if errors and all(isinstance(error, HubOfflineError) for error in errors):
            logger.warning(f"{errors[0]} The next start of the run pushes its newest checkpoint.")
        elif errors:
            saved = f"The run in {self._output_dir} is saved on disk, but some uploads to the Hub failed. Nothing is "
            saved += "lost: trainer.push_to_hub() sends it, or the next start of the run:"
            raise HubError("\n- ".join([saved, *map(str, errors)]), status=errors[0].status)


def _existing(target: HubTarget, token: str | None = None) -> HubTarget:
    return target if is_offline_mode() else on_main_process(partial(ensure_repo, target, token))


def fill_repository(output_dir: Path, model: Path | None, folders: Mapping[str, Path], new: Path) -> None:
    """Put the files of the model repository into `new`, with hard links for those of checkpoints and for weights.

    The root has the files of the output directory and the model of the checkpoint `model`. The checkpoints `folders`
    are in folders of these names. No save writes into these files: safetensors makes a new one.
    """
    files = {path: file for path, file in files_in(output_dir).items() if not path.startswith(_NOT_PUSHED)}
    changing, saved = set(files.values()), files_in(model) if model else {}
    files |= {path: file for path, file in saved.items() if "/" not in path and not path.startswith(_FOR_A_RESUME)}
    files |= {path: file for path, file in saved.items() if path == POSTERIOR_FILE}
    for place, folder in folders.items():
        files |= {f"{place}/{path}": file for path, file in files_in(folder).items()}
    for path in filter_repo_objects(files, ignore_patterns=[*DEFAULT_IGNORE_PATTERNS, f"*{JIT_MARK}", *PRIVATE]):
        file = files[path]
        link(file, new / path, copy=file.suffix != ".safetensors" and file in changing)
