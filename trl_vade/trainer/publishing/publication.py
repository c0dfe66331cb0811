"""The uploads of a run: each checkpoint with its posterior in one commit, and the posterior's data-set repository."""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from accelerate import PartialState
from accelerate.logging import get_logger
from huggingface_hub import HfApi, is_offline_mode
from huggingface_hub.utils import DEFAULT_IGNORE_PATTERNS, filter_repo_objects
from transformers.trainer_utils import HubStrategy

from trl_vade.data.row_names import names_and_tasks
from trl_vade.errors import HubError, HubOfflineError
from trl_vade.hub.cards import CARD_FILE
from trl_vade.hub.commit import files_in
from trl_vade.hub.outbox import OUTBOX_FOLDER, Outbox, link
from trl_vade.hub.posteriors.repository import posterior_card, stage_posterior, step_name, steps_in
from trl_vade.hub.posteriors.table import posterior_table
from trl_vade.hub.uploading import HubTarget, ensure_repo, with_retries
from trl_vade.samplers.snapshot import POSTERIOR_FILE, load_snapshot
from trl_vade.selection.report.record import ROWS_FILE
from trl_vade.selection.report.writing import PAGE_FILE

from ..checkpoint.folders import JIT_MARK, LAST_CHECKPOINT, PREFIX, checkpoints
from ..main_process import on_main_process, wait_for_main_process

logger = get_logger(__name__)

PRIVATE = (ROWS_FILE, PAGE_FILE)  # they hold rows of the training data
_NOT_PUSHED = ("_", PREFIX, LAST_CHECKPOINT)
_FOR_A_RESUME = ("optimizer", "scheduler", "scaler", "rng_state", "trainer_state", "entropy_ctrl_state", "vade_")


class Publication:
    """The uploads of a trainer. Making one creates the repositories, and raises `HubError` if that fails.

    Later errors are logged, and `finish` raises. The uploads are those of the main process.
    """

    def __init__(self, args: Any):
        self.revision: str | None = args.hub_revision  # of the model repository; None is main
        self._args, self._output_dir = args, Path(args.output_dir)
        self.announce: Callable[[str], None] = logger.info  # of what arrived, in a background thread
        self._outboxes: dict[Any, Outbox] = {}  # by branch
        self._late: dict[Any, tuple[str, Callable[[], Any]]] = {}  # what could not be set aside: why, and another try
        self._steps: set[int] = set()  # of the posteriors that are in their repository, or on the way to it
        self._model, name = model_target(args), args.vade_posterior_hub_id
        self._posterior: HubTarget | None = name and HubTarget(name, "dataset", None, args.hub_private_repo)
        if not (args.push_to_hub or name):
            return
        if name and (args.hub_strategy == HubStrategy.END or args.save_strategy == "no"):
            never = "With hub_strategy='end' or save_strategy='no', the posterior is not uploaded with each save"
            logger.warning(f"{never}, only by trainer.push_to_hub() to {name}.")
        if is_offline_mode():
            kept = f"The uploads are kept in {self._output_dir / OUTBOX_FOLDER}"
            logger.warning(f"HF_HUB_OFFLINE is set, so this run uploads nothing. {kept}. A later start sends them.")
        else:
            self._model, self._posterior, self._steps = on_main_process(self._open)

    def __deepcopy__(self, memo: object) -> "Publication":
        return self  # a copy of a trainer pushes to the same repositories

    def _open(self) -> tuple[HubTarget, HubTarget | None, set[int]]:
        """Create the repositories. Return them with their owners, and the steps of the posterior that are there."""
        model = ensure_repo(self._model) if self._args.push_to_hub else self._model
        if self._posterior is None:
            return model, None, set()
        posterior = ensure_repo(self._posterior)
        there = with_retries(partial(HfApi().list_repo_files, **posterior.where), posterior)
        return model, posterior, set(steps_in(there))

    @property
    def posterior_repo(self) -> str | None:
        """Return the data-set repository that receives the posterior, or None."""
        return self._posterior.repo_id if self._posterior else None

    def start(self) -> None:
        """Send in the background what an earlier start left, unless the repository is newer."""
        if PartialState().is_main_process:
            for target in (self._model if self._args.push_to_hub else None, self._posterior):
                if target and (box := self._outbox(target)).waiting() and not box.busy():
                    box.send()

    def push_model(
        self, repo_id: str, step: int, message: str, checkpoint: Path | None = None, **about: Any
    ) -> "Future[Any] | None":
        """Push the model of a step: that of the checkpoint, or that of the output directory. Return a future.

        `about` are `token` and `private` if they are not those of the settings.
        """
        target = model_target(self._args, about.get("private"))
        box = self._outbox(replace(target, repo_id=repo_id, revision=self.revision))
        box.token = about.get("token")
        places = {HubStrategy.CHECKPOINT: LAST_CHECKPOINT, HubStrategy.ALL_CHECKPOINTS: checkpoint and checkpoint.name}
        place = checkpoint and places.get(self._args.hub_strategy)
        fill = partial(fill_repository, output_dir=self._output_dir, checkpoint=checkpoint, place=place)
        return self._put((box.target, place), message, lambda: box.put(fill, message, step))

    def push_posterior(self, step: int, look: Callable[[], Any]) -> None:
        """Push the posterior of the step, which the output directory has. Later ones of the repository are deleted."""
        if self._posterior:
            message = f"Posterior at step {step}"
            self._put("posterior", message, partial(self._put_posterior, message, step, look))

    def _put_posterior(self, message: str, step: int, look: Callable[[], Any]) -> None:
        assert self._posterior is not None
        (rows, keys), snapshot, target = look(), load_snapshot(self._output_dir), self._posterior
        visited = snapshot.sampler_state["posterior"]["sample_index"]
        names = names_and_tasks(rows, keys, visited, self._args.vade_stratify_by or "task")
        table = posterior_table(snapshot, **names)
        if table.metadata["global_step"] != step:
            raise HubError(f"the posterior in {self._output_dir} is no longer that of optimiser step {step}")
        if not len(table):  # datasets 5.2 cannot read a table without rows
            return

        def fill(folder: Path) -> None:
            stage_posterior(folder, self._output_dir / POSTERIOR_FILE, table)
            card = posterior_card(table, self._steps, target.repo_id, target.revision)
            (folder / CARD_FILE).write_text(card, encoding="utf-8")

        box = self._outbox(target)
        box.gone = {step_name(one) for one in self._steps if one > step}
        self._steps = {one for one in self._steps if one < step} | {step}
        box.put(fill, message, step)

    def _outbox(self, target: HubTarget) -> Outbox:
        if (key := (target.repo_type, target.revision)) not in self._outboxes:
            about = (lambda event: self.announce(event)), None, self._args.save_total_limit
            self._outboxes[key] = Outbox(target, self._output_dir / OUTBOX_FOLDER, *about)
        self._outboxes[key].target = target  # the user may have given another name since
        return self._outboxes[key]

    def _put(self, key: Any, message: str, put: Callable[[], Any]) -> Any:
        """Return the result of `put`. If it fails, such as with a full disk, log that and keep it for the end."""
        self._late.pop(key, None)
        try:
            return put()
        except Exception as error:  # the checkpoint is saved, so training continues
            why = f"{message!r}: its files could not be set aside ({type(error).__name__}: {error})."
            self._late[key] = why, partial(self._put, key, message, put)
            logger.warning(f"Not on the Hub: {why} The end of the run tries again.")

    def wait(self) -> None:
        """Wait until nothing is being sent. All processes must take part."""
        boxes = self._outboxes.values()
        wait_for_main_process(
            lambda: not any(box.busy() for box in boxes),
            lambda: f"uploads to the Hub {[str(box.target) for box in boxes if box.busy()]}",
        )

    def finish(self) -> None:
        """Wait for all uploads, retry the failed ones once, and report those that are missing on the Hub.

        All processes must take part. If something is missing, all raise `HubError`; its files are kept on disk.
        """
        self.wait()
        for _, again in list(self._late.values()):
            again()
        for box in self._outboxes.values():
            if box.error is not None and not isinstance(box.error, HubOfflineError):
                box.error = None
                box.send()
        self.wait()
        on_main_process(self._refuse_missing)

    def _refuse_missing(self) -> None:
        missing, status = [why for why, _ in self._late.values()], None
        for box in self._outboxes.values():
            if box.commit.card_refusal:
                logger.warning(f"{box.commit.card_refusal}. Its other files are on the Hub.")
            if isinstance(box.error, HubOfflineError):
                logger.warning(f"Not uploaded to {box.target} (offline). {box.kept()}")
            elif box.error is not None and box.waiting():
                missing.append(f"{box.error} {box.kept()}")
                status = box.error.status
        if missing:
            listed = "\n".join(f"- {line}" for line in missing)
            saved = f"The run in {self._output_dir} is saved on disk, but some uploads to the Hub failed"
            raise HubError(f"{saved}. Nothing is lost:\n{listed}", status=status)


def model_target(args: Any, private: bool | None = None) -> HubTarget:
    """Return the model repository of a run, with the name from `Trainer.init_hf_repo` (transformers 5.23)."""
    name = args.hub_model_id or Path(args.output_dir).absolute().name
    return HubTarget(name, "model", args.hub_revision, args.hub_private_repo if private is None else private)


def fill_repository(new: Path, output_dir: Path, checkpoint: Path | None, place: str | None) -> None:
    """Put the files of the model repository into `new`, with hard links for those of a checkpoint and for weights.

    The root has the files of the output directory and the model of the checkpoint, unless there is a newer checkpoint.
    The checkpoint is in the folder `place`, unless that is None. No save writes into these files: safetensors makes a
    new one.
    """
    saved, files = files_in(checkpoint) if checkpoint else {}, {}
    if checkpoint is None or checkpoint == checkpoints(checkpoint.parent)[-1]:
        files = {path: file for path, file in files_in(output_dir).items() if not path.startswith(_NOT_PUSHED)}
        of_model = [path for path in saved if "/" not in path and not path.startswith(_FOR_A_RESUME)]
        files |= {path: saved[path] for path in [*of_model, POSTERIOR_FILE] if path in saved}
    files |= {f"{place}/{path}": file for path, file in saved.items() if place}
    unchanging = set(saved.values())
    for path in filter_repo_objects(files, ignore_patterns=[*DEFAULT_IGNORE_PATTERNS, f"*{JIT_MARK}", *PRIVATE]):
        link(files[path], new / path, copy=files[path].suffix != ".safetensors" and files[path] not in unchanging)
