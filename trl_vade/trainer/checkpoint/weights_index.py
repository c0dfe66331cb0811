"""An index of a model's weights, so that vLLM does not load other safetensors files as weights."""

import json
import os
from pathlib import Path

from safetensors import safe_open
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME

from trl_vade.files import save_whole


def index_weights(directory: str | os.PathLike[str]) -> None:
    """Write an index beside `model.safetensors`, if the file exists. transformers indexes only several files.

    Without an index, vLLM 0.31 loads every `*.safetensors` beside a `config.json` (`get_model_files`), and fails on
    the files of the posterior and of a generation batch.
    """
    weights = Path(directory) / SAFE_WEIGHTS_NAME
    if not weights.is_file():
        return
    with safe_open(weights, framework="pt") as file:
        place = dict.fromkeys(sorted(file.keys()), SAFE_WEIGHTS_NAME)
    index = {"metadata": {"total_size": weights.stat().st_size}, "weight_map": place}
    save_whole(Path(directory) / SAFE_WEIGHTS_INDEX_NAME, (json.dumps(index, indent=2) + "\n").encode())
