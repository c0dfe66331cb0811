"""`GRPOTrainer` whose checkpoints hold the posterior and a synced reference model, and whose resume has all of it."""

import functools
import os
from pathlib import Path
from typing import Any

from transformers.trainer_callback import ExportableState
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from trl import GRPOTrainer

from trl_vade.errors import VADEError
from trl_vade.selection.on_time import OnTimeSelection

from .completeness import explaining_failed_saves
from .posterior import resume_posterior, save_posterior
from .reference_model import load_reference_model, save_reference_model
from .weights_index import index_weights


def load_saved_weights(model: Any, directory: str | os.PathLike[str]) -> None:
    """Fill `model` from what `save_pretrained` wrote into `directory`, by the loader that undoes its renaming.

    `save_pretrained` writes Qwen2.5-VL under its old names (`visual.*`, `model.layers.*`), which `from_pretrained`
    translates back and the Trainer's resume does not (reported since transformers 4.52, measured on 5.23): it matches
    no name, loads nothing, warns, and trains on from the base model with the optimiser of another
    (QwenLM/Qwen3-VL#1763, modelscope/ms-swift#7947). A test says when this can go.

    Raises:
        VADEError: the checkpoint lacks weights of the model; it is then unchanged.
    """
    saved, report = type(model).from_pretrained(directory, dtype=model.dtype, output_loading_info=True)
    if report["missing_keys"]:
        raise VADEError(
            f"{directory} lacks {len(report['missing_keys'])} weights of {type(model).__name__} (first: "
            f"{sorted(report['missing_keys'])[0]}). A run that went on from it would train a mixture of saved and "
            "fresh weights. Resume from another checkpoint."
        )
    model.load_state_dict(saved.state_dict())


class ResumingTrainer(GRPOTrainer):
    """The part of `VADEGRPOTrainer` that is about saving and loading. Short overrides; each calls the parent.

    Attributes:
        selection (`OnTimeSelection` or `None`): what is saved beside the model.
    """

    selection: OnTimeSelection | None
    _weights_left_out = False
    _batches_to_skip = 0  # of the epoch that a resume goes on in, which the loader has gone through

    def _save_checkpoint(self, model, trial):
        """A save that fails says which checkpoint to go on from."""
        folder = Path(self._get_output_dir(trial)) / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
        with explaining_failed_saves(folder, self.callback_handler.callbacks):
            super()._save_checkpoint(model, trial)

    def _save_rng_state(self, output_dir):
        """The last file of a process; when all have theirs, the main process may write the one that ends it all."""
        super()._save_rng_state(output_dir)
        self.accelerator.wait_for_everyone()

    def save_model(self, output_dir=None, _internal_call=False):
        """Every kind of save passes here, before any upload: write the posterior and the reference model first."""
        folder = output_dir or self.args.output_dir
        if self.selection is not None:
            save_posterior(self, folder, checkpoint=_internal_call)
        if self.args.sync_ref_model and _internal_call and Path(folder) != Path(self.args.output_dir):
            save_reference_model(self, folder)
        super().save_model(output_dir, _internal_call)

    def _save(self, output_dir=None, state_dict=None):
        """Write an index of the weights, before any upload; see `weights_index`."""
        super()._save(output_dir, state_dict)
        if self.args.should_save:
            index_weights(output_dir or self.args.output_dir)

    def _issue_warnings_after_load(self, load_result):
        """Note that a checkpoint's weights were left out, which the parent takes for a warning."""
        self._weights_left_out = bool(load_result.unexpected_keys)
        if not self._weights_left_out:
            super()._issue_warnings_after_load(load_result)

    def _load_from_checkpoint(self, resume_from_checkpoint, model=None):
        """Resume with the weights of the checkpoint, also where it has other names for them."""
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        if self._weights_left_out:
            load_saved_weights(self.model if model is None else model, resume_from_checkpoint)

    def _load_best_model(self):
        """The same fault at the end of a run with `load_best_model_at_end`."""
        self._weights_left_out = False
        super()._load_best_model()
        if self._weights_left_out:
            load_saved_weights(self.model, self.state.best_model_checkpoint)

    @functools.wraps(GRPOTrainer._init_training_state)
    def _init_training_state(self, *positional: Any, **named: Any):
        """Keep the number of batches that the parent will skip."""
        epochs, self._batches_to_skip = super()._init_training_state(*positional, **named)
        return epochs, self._batches_to_skip

    def _load_optimizer_and_scheduler(self, checkpoint):
        """Runs on every process, with every backend: go on from the reference model and posterior of `checkpoint`."""
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is None:
            return
        if self.args.sync_ref_model:
            load_reference_model(self, checkpoint)
        if self.selection is not None:
            resume_posterior(self, checkpoint)
        # transformers 5.23 saves no callback's state that the checkpoint did not have.
        for callback in self.callback_handler.callbacks:
            if isinstance(callback, ExportableState):
                self.state.stateful_callbacks.setdefault(type(callback).__name__, callback.state())
