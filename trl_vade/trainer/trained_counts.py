"""What was trained on so far, in the state that every checkpoint saves."""

from typing import Any

from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState

from trl_vade.errors import ConfigurationError


class TrainedCounts(TrainerCallback, ExportableState):
    """Callback that counts the completions and tokens trained on, on all processes. Checkpoints keep the counts.

    If they are `required`, a step that does not count is an error: a subclass replaces the loss.
    """

    def __init__(self, required: bool = False, completions: int = 0, tokens: int = 0):
        self.required, self.completions, self.tokens = required, completions, tokens
        self._before = 0

    def state(self) -> dict[str, Any]:
        """Return the counts in the form that transformers saves."""
        counts = {"completions": self.completions, "tokens": self.tokens}
        return {"args": {"required": self.required}, "attributes": counts}

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Continue the counts of the checkpoint, or start at 0."""
        saved = state.stateful_callbacks.get(type(self).__name__, {}) if state.global_step else {}
        vars(self).update({"completions": 0, "tokens": 0} | saved.get("attributes", {}))

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Note the count before the step."""
        self._before = self.completions

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Raise `ConfigurationError` if the step passed by the loss that VADE corrects."""
        if self.required and self.completions == self._before:
            raise ConfigurationError(
                f"vade_down_sampling={args.vade_down_sampling!r}, but the loss did not pass "
                "VADEGRPOTrainer._compute_loss. A subclass or a patch of the trainer computes its own. Let its "
                "_compute_loss call super(), or set vade_down_sampling='none'."
            )
