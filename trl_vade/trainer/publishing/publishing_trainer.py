"""`PublishingTrainer`: no push is skipped, and a missing one is an error at the end."""

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformers.trainer_utils import HubStrategy
from trl import GRPOTrainer

from ..checkpoint.folders import PREFIX
from .publication import Publication


class PublishingTrainer(GRPOTrainer):
    """Base of `VADEGRPOTrainer` for uploads to the Hub.

    transformers 5.23 uploads the output directory and the checkpoint separately, in the background, from files that
    the next save changes. It skips a push while one is running (by design, huggingface/transformers#13503), and never
    reads the errors of the uploads (since #25095). So the methods that upload are replaced here.
    """

    publication: Publication  # the uploads of the trainer; set before `GRPOTrainer.__init__`

    @functools.wraps(GRPOTrainer.train)
    def train(self, resume_from_checkpoint=None, *positional: Any, **named: Any):
        """Push what an earlier start did not, train, wait for all uploads, and raise if one failed."""
        self.publication.start(Path(resume_from_checkpoint) if resume_from_checkpoint else None)
        try:
            output = super().train(resume_from_checkpoint, *positional, **named)
        finally:
            self.is_in_train = False  # transformers 5.23 leaves it True after an error
        self.publication.finish()
        return output

    def init_hf_repo(self, token=None, private=None):
        """Create the repository and its branch, unless offline. All processes must call it: they get name or error."""
        self.publication.open(token, private)
        self.hub_model_id = self.publication.model.repo_id

    def _save_checkpoint(self, model, trial):
        """Save a checkpoint, then push it, as it is whole only now: TRL 1.16 writes `entropy_ctrl_state.json` last."""
        super()._save_checkpoint(model, trial)
        if self.args.push_to_hub and self.args.hub_strategy != HubStrategy.END and self.is_world_process_zero():
            self.callback_handler.on_push_begin(self.args, self.state, self.control)
            step = self.state.global_step
            self._push(f"Training in progress, step {step}", Path(self._get_output_dir(trial), f"{PREFIX}{step}"))

    def _push_from_checkpoint(self, checkpoint_folder):
        """Push nothing yet."""

    def _push(self, message, checkpoint=None):
        scored = self.selection and self.selection.sampler.posterior.visits.any()  # datasets 5.2 reads no empty table
        return self.publication.push(self.state.global_step, message, checkpoint, scored)

    def _rows_with_keys(self):
        return self.train_dataset, self.selection.sample_keys[0]

    @functools.wraps(GRPOTrainer.push_to_hub)
    def push_to_hub(
        self, commit_message="End of training", blocking=True, token=None, revision=None, private=None, **card: Any
    ):
        """With `blocking=True`, all processes wait, and raise if an upload failed: during training only at its end."""
        self.callback_handler.on_push_begin(self.args, self.state, self.control)
        try:
            if self.hub_model_id is None:
                self.init_hf_repo(token, private)
        finally:  # a model whose repository cannot be made is on the disk
            self.save_model(_internal_call=True)
        future = None
        if self.is_world_process_zero():
            tags = [card["tags"]] if isinstance(card.get("tags"), str) else [*(card.get("tags") or [])]
            tags += [tag for tag in getattr(self.model, "model_tags", None) or [] if tag not in tags]
            usual = self.publication.model
            self.publication.model = replace(usual, revision=revision or usual.revision, token=token or usual.token)
            try:
                self.create_model_card(**{"model_name": usual.repo_id.split("/")[-1], **card, "tags": tags})
                future = self._push(commit_message)
            finally:
                self.publication.model = usual
        if not blocking:
            return future
        self.publication.wait() if self.is_in_train else self.publication.finish()
        return future.result() if future and future.exception() is None else None
