"""`PublishingTrainer`: every push is one commit, none is skipped, and a missing one is an error at the end."""

import functools
import inspect
from typing import Any

from transformers.trainer_utils import HubStrategy
from trl import GRPOTrainer

from trl_vade.errors import HubError
from trl_vade.hub.staging import break_hard_links
from trl_vade.hub.uploading import ensure_repo, offline, with_retries

from ..activity import doing
from ..main_process import on_main_process
from .publication import Publication, model_target
from .run_facts import RunFacts
from .uploads import captured_uploads


class PublishingTrainer(GRPOTrainer):
    """Base of `VADEGRPOTrainer` for uploads to the Hub. Each override calls the parent's method."""

    publication: Publication  # the uploads of the trainer; set before `GRPOTrainer.__init__`
    _training = False  # `is_in_train` of transformers 5.23 stays True after an error

    @functools.wraps(GRPOTrainer.train)
    def train(self, *positional: Any, **named: Any):
        """Train, then wait for all uploads and raise if one failed."""
        self._training = True
        try:
            output = super().train(*positional, **named)
        finally:
            self._training = False
        with doing(self, "pushing"):
            self.publication.finish()
        return output

    def init_hf_repo(self, token=None, private=None):
        """Create the repository and the branch `hub_revision`, with retries. Offline, only set `hub_model_id`.

        All processes must call it, and all get the name. The parent sets it on the main process only.

        Raises:
            HubError: on all processes, if the Hub refuses or cannot be reached.
        """
        target, create = model_target(self.args, private), super().init_hf_repo

        def found() -> str:
            create(token=token, private=private)
            self.hub_model_id = None  # set below on all processes, if nothing fails
            return ensure_repo(target, token, patience=()).repo_id

        self.hub_model_id = self.push_in_progress = None
        self.hub_model_id = target.repo_id if offline() else on_main_process(lambda: with_retries(found, target))

    def _save_checkpoint(self, model, trial):
        """Save a checkpoint, then queue its upload. TRL 1.16 writes `entropy_ctrl_state.json` last."""
        self._wanted = None
        super()._save_checkpoint(model, trial)
        if self._wanted:
            self.publication.push(self.state.global_step, self.hub_model_id, *self._wanted)
        if self.args.hub_strategy != HubStrategy.END:
            self._push_posterior()

    def _push_posterior(self):
        """Queue the posterior on the main process. Skip a posterior without rows, which datasets 5.2 cannot read."""
        if self.is_world_process_zero() and self.selection and self.selection.sampler.posterior.step:
            self.publication.push_posterior(self.state.global_step, lambda: RunFacts.of(self))

    def _push_from_checkpoint(self, checkpoint_folder):
        """Note the uploads that the parent asks for, on the main process; none with `hub_strategy="end"`."""
        if self.is_world_process_zero():
            break_hard_links(self.args.output_dir)
        with captured_uploads() as wanted:
            super()._push_from_checkpoint(checkpoint_folder)
        self._wanted = (wanted, checkpoint_folder) if wanted else None

    @functools.wraps(GRPOTrainer.push_to_hub)
    def push_to_hub(self, *positional: Any, **named: Any):
        """Upload the present model and posterior.

        With `blocking=True` all processes wait, and raise if an upload failed. During training (`save_model` calls
        this method, too) a failed upload raises only at the end of training.
        """
        call = inspect.signature(GRPOTrainer.push_to_hub).bind(self, *positional, **named)
        token, private = call.arguments.get("token"), call.arguments.get("private")
        if self.hub_model_id is None:
            try:
                self.init_hf_repo(token, private)
            except HubError:  # save anyway: the push will fail in the same way, keep its files and report it
                self.hub_model_id = model_target(self.args).repo_id
        with captured_uploads() as wanted, self.publication.on_branch(call.arguments.get("revision")):
            super().push_to_hub(*positional, **named)
        step, entry = self.state.global_step, None
        if wanted:
            entry = self.publication.push(step, self.hub_model_id, wanted, private=private)
        self._push_posterior()
        if not call.arguments.get("blocking", True):
            return entry and entry.future
        self.publication.wait() if self._training else self.publication.finish()
        return entry.future.result() if entry and entry.error is None else None
