"""The uploads of a run: each checkpoint with its posterior in one commit, and the posterior's data-set repository.

`GRPOTrainer` decides what is uploaded. `PushQueue` uploads it, with retries.
"""

import functools
import itertools
import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from accelerate import PartialState
from accelerate.logging import get_logger
from transformers.trainer_utils import HubStrategy

from trl_vade.data.row_names import RowNames
from trl_vade.errors import HubError, HubOfflineError
from trl_vade.hub.commit import Render
from trl_vade.hub.posteriors.repository import (
    CARD_FILE,
    PICTURE_FILE,
    render_posterior_card,
    stage_posterior,
    step_name,
    steps_in,
)
from trl_vade.hub.posteriors.table import PosteriorTable, posterior_table
from trl_vade.hub.push_queue import Entry, Push, PushQueue
from trl_vade.hub.staging import STAGING_FOLDER, discard, finished, new_folder, stage, unsent_folders
from trl_vade.hub.uploading import HubTarget, ensure_repo, offline, push_command
from trl_vade.samplers.snapshot import load_snapshot

from ..main_process import on_main_process, wait_for_main_process
from .run_facts import RunFacts
from .uploads import RequestedUpload

logger = get_logger(__name__)


class Publication:
    """The uploads of a trainer. Making one creates the repositories, and logs folders that an earlier run left unsent.

    A repository that cannot be created or written is a `HubError`.
    """

    def __init__(self, args: Any):
        self.revision: str | None = args.hub_revision  # of the model repository; None is main
        self._args, self._output_dir = args, Path(args.output_dir)
        self.announce: Callable[[str], None] = logger.info  # of arrived pushes, in a background thread
        self._queue = PushQueue(lambda event: self.announce(event))  # used on the main process only
        self._posterior_target: HubTarget | None = None
        self._names: RowNames | None = None
        self._tables: dict[int, PosteriorTable] = {}  # by step: the newest that was uploaded, and all later ones
        if not args.push_to_hub and args.vade_posterior_hub_id is None:
            return
        model = model_target(args) if args.push_to_hub else None
        name = args.vade_posterior_hub_id
        posterior = name and HubTarget(name, "dataset", None, args.hub_private_repo)
        if offline():
            self._posterior_target = posterior
            logger.warning(
                "HF_HUB_OFFLINE is set, so this run uploads nothing. The uploads are kept in "
                f"{self._output_dir / STAGING_FOLDER}. The end of the log says how to send them."
            )
        else:
            opened = on_main_process(lambda: [target and ensure_repo(target) for target in (model, posterior)])
            self._posterior_target = opened[1]
        if posterior and (args.hub_strategy == HubStrategy.END or args.save_strategy == "no"):
            logger.warning(
                "With hub_strategy='end' or save_strategy='no', the posterior is uploaded to "
                f"{args.vade_posterior_hub_id} only by trainer.push_to_hub(), not with each save."
            )
        for folder in unsent_folders(self._output_dir) if PartialState().is_main_process else []:
            logger.warning(
                f"An earlier run in {self._output_dir} ended before it had uploaded {folder}. If you still want it on "
                "the Hub, run `hf upload REPOSITORY FOLDER .` or `trl-vade posterior push FOLDER REPOSITORY`. Then "
                "delete the folder."
            )

    @contextmanager
    def on_branch(self, revision: str | None) -> Iterator[None]:
        """Upload to the branch `revision` within the block. None keeps the branch of the settings."""
        usual, self.revision = self.revision, revision or self.revision
        try:
            yield
        finally:
            self.revision = usual

    @property
    def posterior_repo(self) -> str | None:
        """Return the data-set repository that receives the posterior, or None."""
        return self._posterior_target.repo_id if self._posterior_target else None

    def push(
        self,
        step: int,
        repo_id: str | None,
        wanted: list[RequestedUpload],
        checkpoint: str | os.PathLike[str] | None = None,
        *,
        private: bool | None = None,
    ) -> Entry:
        """Queue the uploads of one call of the parent as one commit, on the main process.

        An error here counts as a failed push: it is logged, and `finish` raises it on all processes. Without a folder
        `checkpoint`, the upload is that of the present model. `private=None` uses the settings.
        """
        args, uploads = self._args, [one.upload for one in wanted]
        target = replace(model_target(args, private), repo_id=repo_id, revision=wanted[0].revision)
        parts = {upload.path_in_repo: upload.folder for upload in uploads if upload.path_in_repo}
        push = Push(
            target,
            None,
            wanted[0].message,
            own=args.hub_strategy == HubStrategy.ALL_CHECKPOINTS and checkpoint is not None,
            mirror=tuple(parts),
            command="; ".join(push_command(target, folder, path) for path, folder in parts.items()),
        )
        name = f"{'model' if checkpoint is None else 'checkpoint'}-{step:06d}"
        folder = None if checkpoint is None else Path(checkpoint)
        tries = itertools.count()  # at a retry, the output directory may hold a later save than the checkpoint

        def prepare(push: Push) -> Push:
            staged = stage(name, self._output_dir, uploads, folder, late=next(tries) > 0)
            return replace(push, folder=staged, command=None)  # the folder holds everything

        return self._queue.put(push, wanted[0].token, prepare)

    def push_posterior(self, step: int, look: Callable[[], RunFacts]) -> None:
        """Queue the posterior in the output directory for its own repository. An error in `look` fails the push."""
        if (target := self._posterior_target) is None:
            return

        @functools.cache  # a retry must not read a later posterior
        def read() -> PosteriorTable:
            return self._table(look(), step)

        def prepare(push: Push) -> Push:
            table = self._tables[step] = read()
            folder = new_folder(f"posterior-{step:06d}", self._output_dir)
            try:
                stage_posterior(folder, table)
                folder = finished(folder)
            except BaseException:
                discard(folder)
                raise
            command = _posterior_command(folder, target)
            return replace(push, folder=folder, render=self._card(step, folder, target), command=command)

        saved = _posterior_command(self._output_dir, target)
        push = Push(target, None, f"Posterior at step {step}", own=True, tag=step_name(step), command=saved)
        self._queue.put(push, None, prepare)

    def _table(self, facts: RunFacts, step: int) -> PosteriorTable:
        """Return the posterior of a step, or raise if the output directory holds that of another step."""
        snapshot = load_snapshot(self._output_dir)
        if self._names is None:  # reads all rows, so only once
            self._names = RowNames(facts.rows, facts.sample_keys)
        column = self._args.vade_stratify_by or self._args.vade_strata or "task"
        names = self._names.columns(snapshot.sampler_state["posterior"]["sample_index"], column)
        table = posterior_table(snapshot, **names, facts=facts.values)
        if table.metadata["global_step"] != step:
            raise HubError(f"the posterior in {self._output_dir} is no longer that of optimiser step {step}")
        return table

    def _card(self, step: int, folder: Path, target: HubTarget) -> Render:
        """Return a function that writes the card of a step, from the files in the repository at the upload."""
        table, picture = self._tables[step], (folder / PICTURE_FILE).exists()

        def card(files: list[str]) -> dict[str, bytes | None]:
            """Describe the newest uploaded step. A late upload of an older step leaves the newer picture."""
            steps = steps_in(files)
            sent = [one for one in list(self._tables) if one in steps]
            for older in [one for one in list(self._tables) if sent and one < max(sent)]:
                self._tables.pop(older)
            newest = max([step, *sent])
            described = table if newest == step else self._tables[newest]
            text = render_posterior_card(described, {*steps, step}, target.repo_id, picture=picture)
            return {CARD_FILE: text.encode()} | ({} if newest == step else {PICTURE_FILE: None})

        return card

    def wait(self) -> None:
        """Wait until the queue is empty and no upload is running. All processes must take part."""
        wait_for_main_process(self._queue.done, lambda: f"uploads to the Hub {self._queue.unfinished()}")

    def finish(self) -> None:
        """Wait for all uploads, retry the failed ones once, and report those that are missing on the Hub.

        All processes must take part. If something is missing, all raise `HubError`; its files are kept on disk.
        """
        self.wait()
        if any(not isinstance(error, HubOfflineError) for _, error in self._queue.failures()):
            self._queue.again()
        self.wait()
        on_main_process(self._refuse_missing)

    def _refuse_missing(self) -> None:
        missing = []
        for push, error in self._queue.failures():
            if isinstance(error, HubOfflineError):
                logger.warning(f"Not uploaded (offline): {push.message!r}. {push.kept()}")
            else:
                missing.append((push, error))
        if missing:
            listed = "\n".join(f"- {push.message!r}: {error} {push.kept()}" for push, error in missing)
            raise HubError(
                f"The run in {self._output_dir} is saved on disk, but some uploads to the Hub failed. Nothing is "
                f"lost:\n{listed}",
                status=missing[0][1].status,
            )


def model_target(args: Any, private: bool | None = None) -> HubTarget:
    """Return the model repository of a run, with the name from `Trainer.init_hf_repo` (transformers 5.23)."""
    name = args.hub_model_id or Path(args.output_dir).absolute().name
    return HubTarget(name, "model", args.hub_revision, args.hub_private_repo if private is None else private)


def _posterior_command(source: Path, target: HubTarget) -> str:
    words = ["trl-vade", "posterior", "push", str(source.absolute()), target.repo_id]
    return shlex.join([*words, *(["--private"] if target.private else [])])
