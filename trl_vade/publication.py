"""What of a run goes to the Hub, and when: each checkpoint with its posterior, in one commit, and the posterior's own
data-set repository. `GRPOTrainer` decides what is pushed; `PushQueue` sees to it that it arrives.
"""

import logging
import os
import shlex
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import transformers.trainer
from transformers.trainer_utils import HubStrategy

from .complete import LAST_CHECKPOINT
from .errors import HubError, HubOfflineError
from .hub import HubTarget, ensure_repo, offline
from .main_process import on_main_process, wait_for_main_process
from .posterior_repo import CARD_FILE, PICTURE_FILE, render_posterior_card, stage_posterior, step_name, steps_in
from .posterior_table import posterior_table
from .push_queue import Push, PushQueue
from .run_facts import run_facts
from .sample_ids import sample_ids
from .snapshot import load_snapshot
from .staging import STAGING_FOLDER, Upload, left_behind, stage

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Wanted:
    """An upload that the parent has asked for."""

    upload: Upload
    message: str
    revision: str | None
    token: str | None


class UploadsTaken:
    """Stands in for the client of `transformers.trainer` while the parent pushes: notes uploads, hands on the rest.

    transformers 5.23 sends the output directory and the checkpoint as two uploads in the background, from files that
    the next save changes, and passes a push over while one is running (huggingface/transformers#13503, read there).
    """

    def __init__(self, client: Any):
        self._client = client
        self.wanted: list[Wanted] = []

    def upload_folder(
        self,
        *,
        folder_path: str,
        commit_message: str,
        path_in_repo: str = "",
        ignore_patterns: list[str] | None = None,
        revision: str | None = None,
        token: str | None = None,
        **others: Any,
    ) -> "Future[None]":
        """Note it, and answer with a push that is done: the parent then neither waits for it nor skips the next."""
        # A downloaded run has the folder that the Hub keeps the newest checkpoint in; it is no part of the model.
        ignored = () if path_in_repo else (*(ignore_patterns or ()), f"{LAST_CHECKPOINT}/*")
        upload = Upload(Path(folder_path), path_in_repo, ignored)
        self.wanted.append(Wanted(upload, commit_message, revision, token))
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


@contextmanager
def taking_uploads() -> Iterator[list[Wanted]]:
    """Inside the block the Trainer's uploads are noted in the list, and not made."""
    real = transformers.trainer.hf_api
    taken = UploadsTaken(real())
    transformers.trainer.hf_api = lambda: taken
    try:
        yield taken.wanted
    finally:
        transformers.trainer.hf_api = real


class Publication:
    """The pushes of a trainer.

    Args:
        args: of the trainer, with VADE's fields.

    Raises:
        HubError: a repository cannot be made or written: said before a model is loaded.
    """

    def __init__(self, args: Any):
        self._output_dir = Path(args.output_dir)
        self._queue = PushQueue()  # used on the main process only
        self._posterior_target: HubTarget | None = None
        self._names: dict[str, Any] | None = None
        if not args.push_to_hub and args.vade_posterior_hub_id is None:
            return
        private = args.hub_private_repo
        name = args.hub_model_id or self._output_dir.absolute().name  # as `Trainer.init_hf_repo`
        model = HubTarget(name, "model", args.hub_revision, private) if args.push_to_hub else None
        posterior = args.vade_posterior_hub_id and HubTarget(args.vade_posterior_hub_id, "dataset", None, private)
        if offline():
            self._posterior_target = posterior
            logger.warning(
                "HF_HUB_OFFLINE is set, so nothing is sent to the Hub during this run. What would have been is kept "
                f"in {self._output_dir / STAGING_FOLDER}, and the end of the log says how to send it."
            )
        else:
            opened = on_main_process(lambda: [target and ensure_repo(target) for target in (model, posterior)])
            self._posterior_target = opened[1]
        for folder in left_behind(self._output_dir):
            logger.warning(
                f"{folder} was not on the Hub when an earlier run in {self._output_dir} ended. Send it by hand if it "
                "is still wanted (`hf upload REPOSITORY FOLDER .`, or `trl-vade posterior push FOLDER REPOSITORY`), "
                "then delete it."
            )

    @property
    def posterior_repo(self) -> str | None:
        """The data-set repository that the posterior goes to."""
        return self._posterior_target.repo_id if self._posterior_target else None

    def push(
        self, trainer: Any, wanted: list[Wanted], checkpoint: str | os.PathLike[str] | None = None
    ) -> "Future[str]":
        """Put what the parent wanted to upload into the queue, as one commit. On the main process only.

        Args:
            trainer: whose push it is.
            wanted: of one call of the parent.
            checkpoint: the folder that is pushed; None: the model as it is now.
        """
        args, step = trainer.args, trainer.state.global_step
        every = args.hub_strategy == HubStrategy.ALL_CHECKPOINTS and checkpoint is not None
        name = f"{'model' if checkpoint is None else 'checkpoint'}-{step:06d}"
        uploads = [one.upload for one in wanted]
        folder = stage(name, self._output_dir, uploads, None if checkpoint is None else Path(checkpoint))
        push = Push(
            HubTarget(trainer.hub_model_id, "model", wanted[0].revision, args.hub_private_repo),
            folder,
            wanted[0].message,
            own=every,
            mirror=tuple(upload.path_in_repo for upload in uploads if upload.path_in_repo),
        )
        return self._queue.put(push, wanted[0].token)

    def push_posterior(self, trainer: Any) -> None:
        """Put the posterior that is saved in the output directory into the queue for its own repository."""
        target = self._posterior_target
        if target is None or trainer.selection is None or not trainer.is_world_process_zero():
            return
        names = self._names_of_rows(trainer)
        table = posterior_table(load_snapshot(self._output_dir), **names, facts=run_facts(trainer))
        if not len(table):  # no row was scored yet, and datasets 5.2 reads no table without rows
            return
        step = trainer.state.global_step
        folder = self._output_dir / STAGING_FOLDER / f"posterior-{step:06d}"
        stage_posterior(folder, table)
        picture = (folder / PICTURE_FILE).exists()

        def card(files: list[str]) -> dict[str, bytes]:
            text = render_posterior_card(table, steps_in(files), target.repo_id, picture=picture)
            return {CARD_FILE: text.encode()}

        by_hand = shlex.join(["trl-vade", "posterior", "push", str(folder.absolute()), target.repo_id])
        self._queue.put(
            Push(
                target,
                folder,
                f"Posterior at step {step}",
                own=True,
                render=card,
                tag=step_name(step),
                command=by_hand,
            )
        )

    def _names_of_rows(self, trainer: Any) -> dict[str, Any]:
        """The identity of each row, and its task where there is a column for it; read once."""
        if self._names is None:
            rows, args = trainer.train_dataset, trainer.args
            column = next((name for name in (args.vade_stratify_by, args.vade_strata) if name), "task")
            task = rows.with_format(None)[column][:] if column in rows.column_names else None
            self._names = {"sample_id": sample_ids(rows, trainer.selection.sample_keys[0]), "task": task}
        return self._names

    def finish(self) -> None:
        """Wait until all is on the Hub, try once more what is not, and say what could not be sent. On all processes.

        Raises:
            HubError: on all processes, where something is missing there; nothing is lost here.
        """
        wait_for_main_process(self._queue.done)
        if any(not isinstance(error, HubOfflineError) for _, error in self._queue.failures()):
            self._queue.again()
        wait_for_main_process(self._queue.done)
        on_main_process(self._refuse_missing)

    def _refuse_missing(self) -> None:
        failures = self._queue.failures()
        for push, error in failures:
            if isinstance(error, HubOfflineError):
                logger.warning(f"Offline, so not on the Hub: {push.message!r}. {push.kept()}")
        missing = [(push, error) for push, error in failures if not isinstance(error, HubOfflineError)]
        if missing:
            listed = "\n".join(f"- {push.message!r}: {error} {push.kept()}" for push, error in missing)
            raise HubError(
                f"The run is finished and saved in {self._output_dir}, but its last state is not on the Hub. Nothing "
                f"is lost:\n{listed}",
                status=missing[0][1].status,
            )
