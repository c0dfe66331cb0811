"""`PublishingTrainer`: no push is skipped, and a missing one is an error at the end."""

import functools
from pathlib import Path
from typing import Any

from transformers.trainer_utils import HubStrategy
from trl import GRPOTrainer

from trl_vade.errors import HubError

from .publication import Publication


class PublishingTrainer(GRPOTrainer):
    """Base of `VADEGRPOTrainer` for uploads to the Hub.

    transformers 5.23 uploads the output directory and the checkpoint separately, in the background, from files that
    the next save changes. It skips a push while one is running (by design, huggingface/transformers#13503), and never
    reads the errors of the uploads (since #25095). So the methods that upload are replaced here.
    """

    publication: Publication  # the uploads of the trainer; set before `GRPOTrainer.__init__`
    _training = False  # `is_in_train` of transformers 5.23 stays True after an error

    @functools.wraps(GRPOTrainer.train)
    def train(self, resume_from_checkpoint=None, *positional: Any, **named: Any):
        """Push what an earlier start did not, train, wait for all uploads, and raise if one failed."""
        checkpoint = Path(resume_from_checkpoint) if resume_from_checkpoint else None
        self.publication.start(checkpoint, self._rows_with_keys)
        self._training = True
        try:
            output = super().train(resume_from_checkpoint, *positional, **named)
        finally:
            self._training = False
        self.publication.finish()
        return output

    def init_hf_repo(self, token=None, private=None):
        """Create the repository and the branch `hub_revision`. All processes must call it, and all get name or error.

        The parent sets the name on the main process only. Offline, nothing is created.
        """
        self.hub_model_id = self.push_in_progress = None
        self.publication.open(token, private)
        self.hub_model_id = self.publication.model.repo_id

    def _save_checkpoint(self, model, trial):
        """Save a checkpoint, then push it. TRL 1.16 writes `entropy_ctrl_state.json` last."""
        self._to_push = None
        super()._save_checkpoint(model, trial)
        if self._to_push:
            step = self.state.global_step
            self.publication.push_model(step, f"Training in progress, step {step}", Path(self._to_push))
            self._push_posterior()

    def _push_from_checkpoint(self, checkpoint_folder):
        """Note the checkpoint, which is not whole yet; nothing with `hub_strategy="end"`."""
        if self.is_world_process_zero() and self.args.hub_strategy != HubStrategy.END:
            self.callback_handler.on_push_begin(self.args, self.state, self.control)
            self._to_push = checkpoint_folder

    def _push_posterior(self):
        if self.selection and self.selection.sampler.posterior.visits.any():  # datasets 5.2 reads no empty table
            self.publication.push_posterior(self.state.global_step, self._rows_with_keys)

    def _rows_with_keys(self):
        return self.train_dataset, self.selection.sample_keys[0]

    @functools.wraps(GRPOTrainer.push_to_hub)
    def push_to_hub(
        self, commit_message="End of training", blocking=True, token=None, revision=None, private=None, **card: Any
    ):
        """Upload the present model and posterior.

        With `blocking=True` all processes wait, and raise if an upload failed. During training (`save_model` calls
        this method, too) a failed upload raises only at the end of training.
        """
        self.callback_handler.on_push_begin(self.args, self.state, self.control)
        if self.hub_model_id is None:
            try:
                self.init_hf_repo(token, private)
            except HubError:  # save anyway: the push will fail in the same way, keep its files and report it
                self.hub_model_id = self.publication.model.repo_id
        self.save_model(_internal_call=True)
        future = None
        if self.is_world_process_zero():
            tags = [card["tags"]] if isinstance(card.get("tags"), str) else [*(card.get("tags") or [])]
            tags += [tag for tag in getattr(self.model, "model_tags", None) or [] if tag not in tags]
            card = {"model_name": self.hub_model_id.split("/")[-1], **card, "tags": tags}
            usual, self.publication.revision = self.publication.revision, revision or self.publication.revision
            try:
                self.create_model_card(**card)
                future = self.publication.push_model(self.state.global_step, commit_message, token=token)
                self._push_posterior()
            finally:
                self.publication.revision = usual
        if not blocking:
            return future
        self.publication.wait() if self._training else self.publication.finish()
        return future.result() if future and future.exception() is None else None
