"""The evaluated model: found, and named by what tells it from others."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trl_vade.errors import ConfigurationError, EvaluationError

from .judge import served_models, told
from .settings import Evaluation

SERVER_KEY = "VADE_SERVER_API_KEY"  # the environment variable with the key of an evaluated server
MODEL_FILES = ("config.json", "*processor*.json", "tokenizer*", "*.jinja", "*.safetensors")


@dataclass(frozen=True)
class EvaluatedModel:
    """A model to evaluate."""

    name: str  # a folder's name, a Hub id, or the name on a server
    folder: Path | None  # the folder of its files; None for a served model
    revision: str | None  # the commit on the Hub; None for a local or served model
    fingerprint: str  # see `fingerprint`; of a served model its name


def find_model(evaluation: Evaluation) -> EvaluatedModel:
    """Return the model: a folder, a model of the Hub, which is downloaded, or a model on a server.

    The download uses the login of this process; the process that evaluates gets no token.
    """
    name, folder, commit = evaluation.model, Path(evaluation.model), None
    try:
        if evaluation.backend == "server":
            served = served_models(str(evaluation.server_url), SERVER_KEY)
            if name not in served:
                raise EvaluationError(f"the server has {', '.join(served) or 'no model'}")
            return EvaluatedModel(name, None, None, name)
        if not folder.is_dir() or evaluation.revision:
            from huggingface_hub import snapshot_download

            others = ["checkpoint-*", "last-checkpoint/*", "vade_evaluation/*"]
            folder = Path(snapshot_download(name, revision=evaluation.revision, ignore_patterns=others))
            commit = folder.name  # the name of a snapshot in the cache is its commit
        kind = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("model_type")
    except Exception as error:  # of many kinds: no repository, network or login, a wrong name, no model
        raise EvaluationError(f"The model {name} cannot be evaluated: {told(error, SERVER_KEY)}") from error
    if evaluation.backend == "transformers" and kind != "qwen2_5_vl":
        raise ConfigurationError(
            f"{name} is a {kind!r}, but --backend transformers is for Qwen2.5-VL. Use --backend vllm, or serve the "
            "model and use --backend server."
        )
    own = [path for pattern in MODEL_FILES for path in folder.glob(pattern) if not path.name.startswith("vade_")]
    return EvaluatedModel(name if commit else folder.resolve().name, folder.resolve(), commit, fingerprint(own))


def fingerprint(files: Iterable[Path]) -> str:
    """Return 16 hexadecimal digits of the names, sizes and times of files, which tell whether they have changed.

    In the Hub's cache a file that a commit did not change stays as it is: publishing results changes no model.
    """
    facts = sorted((path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in files)
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def model_arguments(evaluation: Evaluation, model: EvaluatedModel) -> dict[str, Any]:
    """Return the arguments of lmms-eval's class of the backend, with the user's.

    By default vLLM's class executes code of the model's repository, and takes the larger of its own `max_new_tokens`
    (4096) and the request's (lmms-eval 0.7.3, models/chat/vllm.py, models/simple/vllm.py). Both are turned off.
    """
    folder, size, given = str(model.folder), evaluation.batch_size, evaluation.model_args
    own = {
        "transformers": {"pretrained": folder, "batch_size": size},
        "vllm": {"model": folder, "batch_size": size, "trust_remote_code": False, "max_new_tokens": 1},
        "server": {"model_version": model.name, "base_url": evaluation.server_url, "num_concurrent": size},
    }[evaluation.backend]
    if clash := sorted({*own, "api_key", "seed", "system_prompt"} & given.keys()):
        raise ConfigurationError(f"--model_args {', '.join(clash)}: MODEL, the options and {SERVER_KEY} set these.")
    return own | dict(given)
