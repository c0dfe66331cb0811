"""The weights of a checkpoint, under the names that the model has for them."""

import os
from typing import Any

from trl_vade.errors import VADEError


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
