"""What of a run goes to the Hub, and when: each checkpoint with its posterior, in one commit, and the posterior's own
data-set repository. `GRPOTrainer` decides what is pushed; `PushQueue` sees to it that it arrives.
"""

import functools
import itertools
import os
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from accelerate import PartialState
from accelerate.logging import get_logger
from numpy.typing import NDArray
from transformers.trainer_utils import HubStrategy

from trl_vade.data.row_names import RowNames, names_and_tasks
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

SAY_EVERY = 60.0
"""Seconds between two messages while the end of the pushes is waited for."""


class Publication:
    """The pushes of a trainer.

    Args:
        args: of the trainer, with VADE's fields.

    Attributes:
        revision: the branch of the model repository that is pushed to; None is main.

    Raises:
        HubError: a repository cannot be made or written: said before a model is loaded.
    """

    def __init__(self, args: Any):
        self.revision: str | None = args.hub_revision
        self._args, self._output_dir = args, Path(args.output_dir)
        self._queue = PushQueue()  # used on the main process only
        self._posterior_target: HubTarget | None = None
        self._names: RowNames | None = None
        self._tables: dict[int, PosteriorTable] = {}  # of the newest step that was sent, and of those after it
        if not args.push_to_hub and args.vade_posterior_hub_id is None:
            return
        private = args.hub_private_repo
        model = model_target(args) if args.push_to_hub else None
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
        if posterior and (args.hub_strategy == HubStrategy.END or args.save_strategy == "no"):
            logger.warning(
                f"The posterior goes to {args.vade_posterior_hub_id} only when trainer.push_to_hub() is called: it is "
                "published with each save, unless hub_strategy is 'end', and save_strategy='no' saves nothing."
            )
        for folder in unsent_folders(self._output_dir) if PartialState().is_main_process else []:
            logger.warning(
                f"{folder} was not on the Hub when an earlier run in {self._output_dir} ended. Send it by hand if it "
                "is still wanted (`hf upload REPOSITORY FOLDER .`, or `trl-vade posterior push FOLDER REPOSITORY`), "
                "then delete it."
            )

    @contextmanager
    def on_branch(self, revision: str | None) -> Iterator[None]:
        """Inside the block a push goes to the branch `revision`; None: that of the arguments."""
        usual, self.revision = self.revision, revision or self.revision
        try:
            yield
        finally:
            self.revision = usual

    @property
    def posterior_repo(self) -> str | None:
        """The data-set repository that the posterior goes to."""
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
        """Put what the parent wanted to upload into the queue, as one commit. On the main process only.

        What goes wrong here is a push that failed: it is said, and `finish` raises it on all processes.

        Args:
            step: optimiser step of the run.
            repo_id: of the model, as the trainer knows it.
            wanted: of one call of the parent.
            checkpoint: the folder that is pushed; None: the model as it is now.
            private: of a repository that is made.
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
        tries = itertools.count()  # after the first, the output directory may be of a later save than the checkpoint

        def prepare(push: Push) -> Push:
            staged = stage(name, self._output_dir, uploads, folder, late=next(tries) > 0)
            return replace(push, folder=staged, command=None)  # what is set aside is the whole of it

        return self._queue.put(push, wanted[0].token, prepare)

    def push_posterior(self, step: int, look: Callable[[], RunFacts]) -> None:
        """Put the posterior that is saved in the output directory into the queue for its own repository.

        A `look` at the run that raises is a push that failed, and ends no save.
        """
        target = self._posterior_target
        if target is None:
            return

        @functools.cache  # what the output directory has at this step, whenever it can be set aside
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
            card = self._card(step, folder, target)
            return replace(push, folder=folder, render=card, command=_posterior_command(folder, target))

        saved = _posterior_command(self._output_dir, target)
        push = Push(target, None, f"Posterior at step {step}", own=True, tag=step_name(step), command=saved)
        self._queue.put(push, None, prepare)

    def _table(self, facts: RunFacts, step: int) -> PosteriorTable:
        """The posterior of a step, which is read while the output directory has it."""
        snapshot = load_snapshot(self._output_dir)
        names = self._names_of_rows(facts, snapshot.sampler_state["posterior"]["sample_index"])
        table = posterior_table(snapshot, **names, facts=facts.values)
        if table.metadata["global_step"] != step:
            raise HubError(f"the posterior in {self._output_dir} is not any more that of optimiser step {step}")
        return table

    def _card(self, step: int, folder: Path, target: HubTarget) -> Render:
        """What makes the card of a step, from the files that are in the repository when it is sent."""
        table, picture = self._tables[step], (folder / PICTURE_FILE).exists()

        def card(files: list[str]) -> dict[str, bytes | None]:
            """The card of this step, or of a later one of this run that was sent before it: then nothing of it."""
            steps = steps_in(files)
            sent = [one for one in list(self._tables) if one in steps]
            for older in [one for one in list(self._tables) if sent and one < max(sent)]:
                self._tables.pop(older)
            newest = max([step, *sent])
            described = table if newest == step else self._tables[newest]
            text = render_posterior_card(described, {*steps, step}, target.repo_id, picture=picture)
            return {CARD_FILE: text.encode()} | ({} if newest == step else {PICTURE_FILE: None})

        return card

    def _names_of_rows(self, facts: RunFacts, visited: NDArray[np.int64]) -> dict[str, Any]:
        """The identity of each of these rows, and its task where there is a column for it."""
        if self._names is None:  # which takes a look at all rows
            self._names = RowNames(facts.rows, facts.sample_keys)
        column = self._args.vade_stratify_by or self._args.vade_strata or "task"
        return names_and_tasks(self._names, visited, column)

    def wait(self) -> None:
        """Wait until nothing is being sent or waiting. All processes must take part."""
        wait_for_main_process(self._telling(self._queue.done))

    def finish(self) -> None:
        """Wait until all is on the Hub, try once more what is not, and say what could not be sent. On all processes.

        Raises:
            HubError: on all processes, where something is missing there; nothing is lost here.
        """
        self.wait()
        if any(not isinstance(error, HubOfflineError) for _, error in self._queue.failures()):
            self._queue.again()
        self.wait()
        on_main_process(self._refuse_missing)

    def _telling(self, done: Callable[[], bool]) -> Callable[[], bool]:
        """`done`, but it says now and then what is waited for: the client itself waits without a limit."""
        start = last = time.monotonic()

        def telling() -> bool:
            nonlocal last
            now = time.monotonic()
            if now - last > SAY_EVERY:
                last = now
                what = ", ".join(repr(push.message) for push in self._queue.unfinished())
                logger.warning(f"Still being sent to the Hub, after {now - start:.0f} s: {what}.")
            return done()

        return telling

    def _refuse_missing(self) -> None:
        failures = self._queue.failures()
        for push, error in failures:
            if isinstance(error, HubOfflineError):
                logger.warning(f"Offline, so not on the Hub: {push.message!r}. {push.kept()}")
        missing = [(push, error) for push, error in failures if not isinstance(error, HubOfflineError)]
        if missing:
            listed = "\n".join(f"- {push.message!r}: {error} {push.kept()}" for push, error in missing)
            raise HubError(
                f"The run in {self._output_dir} is saved here, but not all of it is on the Hub. Nothing is lost:\n"
                f"{listed}",
                status=missing[0][1].status,
            )


def model_target(args: Any, private: bool | None = None) -> HubTarget:
    """The model repository of a run, under the name that `Trainer.init_hf_repo` gives it (transformers 5.23)."""
    name = args.hub_model_id or Path(args.output_dir).absolute().name
    return HubTarget(name, "model", args.hub_revision, args.hub_private_repo if private is None else private)


def _posterior_command(source: Path, target: HubTarget) -> str:
    words = ["trl-vade", "posterior", "push", str(source.absolute()), target.repo_id]
    return shlex.join([*words, *(["--private"] if target.private else [])])
