"""`GRPOTrainer` whose pushes arrive: one commit each, none skipped, and an error at the end where one is missing."""

import functools
import inspect
from typing import Any

from transformers.trainer_utils import HubStrategy
from trl import GRPOTrainer

from trl_vade.errors import HubError
from trl_vade.hub.staging import break_hard_links
from trl_vade.hub.uploading import ensure_repo, offline, with_retries

from ..main_process import on_main_process
from .publication import Publication, model_target
from .run_facts import RunFacts
from .uploads import captured_uploads


class PublishingTrainer(GRPOTrainer):
    """The part of `VADEGRPOTrainer` that is about the Hub. Short overrides; each calls the parent.

    Attributes:
        publication (`Publication`): its pushes; set before `GRPOTrainer.__init__`.
    """

    publication: Publication
    _training = False  # `is_in_train` of transformers 5.23 stays set where a training ends in an error

    @functools.wraps(GRPOTrainer.train)
    def train(self, *positional: Any, **named: Any):
        self._training = True
        try:
            output = super().train(*positional, **named)
        finally:
            self._training = False
        self.publication.finish()
        return output

    def init_hf_repo(self, token=None, private=None):
        """Also create the branch `hub_revision`, and try again where the Hub is busy; offline, only note the name.

        All processes must call it, and have the name then; the parent tells it to the main one alone.

        Raises:
            HubError: on all processes.
        """
        target, create = model_target(self.args, private), super().init_hf_repo

        def found() -> str:
            create(token=token, private=private)
            self.hub_model_id = None  # until all processes have it, should what follows fail
            return ensure_repo(target, token, patience=()).repo_id

        self.hub_model_id = self.push_in_progress = None
        self.hub_model_id = target.repo_id if offline() else on_main_process(lambda: with_retries(found, target))

    def _save_checkpoint(self, model, trial):
        """Push once the parent has written all that it writes; `entropy_ctrl_state.json` comes last (TRL 1.16)."""
        self._wanted = None
        super()._save_checkpoint(model, trial)
        if self._wanted:
            self.publication.push(self.state.global_step, self.hub_model_id, *self._wanted)
        if self.args.hub_strategy != HubStrategy.END:
            self._push_posterior()

    def _push_posterior(self):
        """On the main process, where a row was scored: datasets 5.2 reads no table without any."""
        if self.is_world_process_zero() and self.selection and self.selection.sampler.posterior.step:
            self.publication.push_posterior(self.state.global_step, lambda: RunFacts.of(self))

    def _push_from_checkpoint(self, checkpoint_folder):
        """Note what the parent would push; on the main process, unless hub_strategy="end"."""
        if self.is_world_process_zero():
            break_hard_links(self.args.output_dir)
        with captured_uploads() as wanted:
            super()._push_from_checkpoint(checkpoint_folder)
        self._wanted = (wanted, checkpoint_folder) if wanted else None

    @functools.wraps(GRPOTrainer.push_to_hub)
    def push_to_hub(self, *positional: Any, **named: Any):
        """Push the model and the posterior as they are now.

        All processes wait for it, unless `blocking=False`, and hear of an error. In the middle of training, where
        `save_model` comes here, too, what is not on the Hub is an error only at its end.
        """
        call = inspect.signature(GRPOTrainer.push_to_hub).bind(self, *positional, **named)
        token, private = call.arguments.get("token"), call.arguments.get("private")
        if self.hub_model_id is None:
            try:
                self.init_hf_repo(token, private)
            except HubError:  # save all the same: the push fails like this, too, keeps its files, and says it
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
