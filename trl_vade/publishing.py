"""`GRPOTrainer` whose pushes arrive: one commit each, none skipped, and an error at the end where one is missing."""

import functools
import inspect
from pathlib import Path
from typing import Any

from transformers.trainer_utils import HubStrategy
from trl import GRPOTrainer

from .hub import HubTarget, ensure_repo, offline
from .main_process import on_main_process
from .publication import Publication
from .staging import unshare
from .uploads import taking_uploads


class PublishingTrainer(GRPOTrainer):
    """The part of `VADEGRPOTrainer` that is about the Hub. Short overrides; each calls the parent.

    Attributes:
        publication (`Publication`): its pushes; set before `GRPOTrainer.__init__`.
    """

    publication: Publication

    @functools.wraps(GRPOTrainer.train)
    def train(self, *positional: Any, **named: Any):
        output = super().train(*positional, **named)
        self.publication.finish()
        return output

    def init_hf_repo(self, token=None, private=None):
        """Also create the branch `hub_revision`; offline, only note the name."""
        if offline():
            self.hub_model_id = self.args.hub_model_id or Path(self.args.output_dir).absolute().name
            self.push_in_progress = None
            return
        super().init_hf_repo(token=token, private=private)
        if self.is_world_process_zero():
            ensure_repo(HubTarget(self.hub_model_id, "model", self.args.hub_revision, private), token)

    def _save_checkpoint(self, model, trial):
        """Push once the parent has written all that it writes; `entropy_ctrl_state.json` comes last (TRL 1.16)."""
        self._wanted = None
        super()._save_checkpoint(model, trial)
        if self._wanted:
            self.publication.push(self, *self._wanted)
        if self.args.hub_strategy != HubStrategy.END:
            self.publication.push_posterior(self)

    def _push_from_checkpoint(self, checkpoint_folder):
        """Note what the parent would push; on the main process, unless hub_strategy="end"."""
        if self.is_world_process_zero():
            unshare(self.args.output_dir)
        with taking_uploads() as wanted:
            super()._push_from_checkpoint(checkpoint_folder)
        self._wanted = (wanted, checkpoint_folder) if wanted else None

    @functools.wraps(GRPOTrainer.push_to_hub)
    def push_to_hub(self, *positional: Any, **named: Any):
        """Push the model and the posterior as they are now.

        All processes wait for it, unless `blocking=False`, and hear of an error.
        """
        call = inspect.signature(GRPOTrainer.push_to_hub).bind(self, *positional, **named)
        token, private = call.arguments.get("token"), call.arguments.get("private")
        # First, so that where it fails no process is left alone in the save: only the main one would learn of it.
        on_main_process(lambda: self.hub_model_id or self.init_hf_repo(token, private))
        with taking_uploads() as wanted:
            super().push_to_hub(*positional, **named)
        entry = self.publication.push(self, wanted, private=private) if wanted else None
        self.publication.push_posterior(self)
        if not call.arguments.get("blocking", True):
            return entry and entry.future
        self.publication.finish()
        return entry.future.result() if entry and not offline() else None
