"""Which model is evaluated, and by which of lmms-eval's backends: found, named and checked before it is loaded."""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trl_vade.errors import ConfigurationError, EvaluationError

from .servers import is_address, is_loopback

BACKENDS = {"transformers": "qwen2_5_vl", "vllm": "vllm", "server": "openai"}
"""Ours, and lmms-eval's names for them."""
OWN_ARGUMENTS = (
    *("pretrained", "model", "model_version", "base_url", "api_key", "batch_size", "device", "device_map"),
    *("max_new_tokens", "seed", "system_prompt", "trust_remote_code", "num_concurrent"),
)
"""What `--model_args` may not set: an option does, it would be a secret in a file, or code would be executed."""
ARGUMENTS = {
    "transformers": ("min_pixels", "max_pixels", "attn_implementation", "use_cache"),
    "server": ("max_retries", "retry_backoff_s", "max_size_in_mb"),
}
"""What it may set, by backend; all else lmms-eval 0.7.3 passes over, with a line in its log. vLLM has too many."""
WITHOUT_EFFECT = ("min_pixels", "max_pixels", "min_image_pixels", "max_frame_num", "fps", "nframes")
"""For vLLM: they are for video, or for pictures of a few pixels."""
NOT_THE_MODEL = ("evaluation.json", "results.json", "trainer_state.json", "vade_")
"""How files of a run, or of an evaluation, begin that may lie beside a model and are no part of it."""


@dataclass(frozen=True)
class EvaluatedModel:
    """A model as an evaluation knows it.

    Attributes:
        name: as it was given: a folder's name, a Hub id, or the name that a server has for it.
        folder: where its files are; None: behind a server.
        revision: the commit on the Hub; None: it is local, or behind a server.
        fingerprint: 16 hexadecimal digits that depend on configuration and weights; of a served model, on its name:
            more cannot be known.
    """

    name: str
    folder: Path | None
    revision: str | None
    fingerprint: str


def find_model(
    name: str, *, backend: str, revision: str | None = None, server_url: str | None = None
) -> EvaluatedModel:
    """The model `name`: a folder, else a model of the Hub, whose files are fetched with this process's login (the one
    that evaluates gets no token), else what `server_url` serves under that name.

    Raises:
        ConfigurationError: it is no model of this backend, or an adapter without its base.
        EvaluationError: it is not there, or the server does not serve it.
    """
    check_place(backend, revision=revision, server_url=server_url)
    if backend == "server":
        return EvaluatedModel(name, None, None, _served(name, str(server_url)))
    local = Path(name)
    if local.is_dir():
        if revision is not None:
            raise ConfigurationError(f"--revision {revision}: {name} is a folder, which has no revisions.")
        folder, commit, shown_name = local, None, local.resolve().name
    else:
        folder, commit = _from_hub(name, revision)
        shown_name = name
    _check_folder(folder, name, backend)
    return EvaluatedModel(shown_name, folder.resolve(), commit, fingerprint(folder))


def check_place(backend: str, *, revision: str | None, server_url: str | None) -> None:
    """Refuse an address and a revision that have no meaning for this backend.

    Raises:
        ConfigurationError: they have none, or the address could hold a secret.
    """
    if server_url is not None and any(sign in server_url for sign in "@?#"):
        raise ConfigurationError(
            "--server_url has a @, ? or #, so it may hold a secret, and it is written into results.json. It must be "
            "as http://HOST:8000/v1; the server's key is read from the environment variable VADE_SERVER_API_KEY."
        )
    if server_url is not None and not is_address(server_url):
        raise ConfigurationError(
            f"--server_url {server_url}: this is no http(s) address. It must be as http://HOST:8000/v1."
        )
    if (backend == "server") != (server_url is not None):
        raise ConfigurationError(
            f"--backend {backend} with --server_url {server_url}: the address is for --backend server, which needs it."
        )
    if backend == "server" and revision is not None:
        raise ConfigurationError(f"--revision {revision} with --backend server: the server has the one it was given.")


def check_arguments(given: Mapping[str, Any], backend: str) -> None:
    """Refuse what the user may not give to lmms-eval's class of this backend, or what has no effect there.

    Raises:
        ConfigurationError: an option says it, it would be a secret in a file, or nobody would read it.
    """
    refused = [name for name in given if name in OWN_ARGUMENTS or name.endswith(("key", "token", "secret"))]
    if refused:
        raise ConfigurationError(
            f"--model_args {', '.join(refused)}: MODEL and the options say that, code of a model's repository is not "
            "executed, and a server's key is read from the environment variable VADE_SERVER_API_KEY."
        )
    known = ARGUMENTS.get(backend)
    idle = [name for name in given if (name not in known if known else name in WITHOUT_EFFECT)]
    if idle:
        advice = f"There are {', '.join(known)}." if known else "vLLM takes pictures as the model's processor says."
        raise ConfigurationError(f"--model_args {', '.join(idle)} with --backend {backend}: no effect there. {advice}")


def model_arguments(
    model: EvaluatedModel, backend: str, *, batch_size: int, given: Mapping[str, Any], server_url: str | None = None
) -> dict[str, Any]:
    """What lmms-eval's class of this backend is made with; `given` are the user's, which win.

    transformers: see `picture_sizes`; vLLM and a server take those of the model themselves.

    vLLM's class executes code of the model's repository unless it is told not to, and takes the larger of its own
    `max_new_tokens` (4096) and the request's (lmms-eval 0.7.3, models/chat/vllm.py, models/simple/vllm.py).

    Raises:
        ConfigurationError: one of `given` is not the user's to set.
    """
    check_arguments(given, backend)
    if backend == "transformers":
        sizes = picture_sizes(model.folder) if model.folder else {}
        return {"pretrained": str(model.folder), "batch_size": batch_size, **sizes, **given}
    if backend == "vllm":
        own = {"model": str(model.folder), "batch_size": batch_size, "trust_remote_code": False, "max_new_tokens": 1}
        return own | dict(given)
    return {"model_version": model.name, "base_url": server_url, "num_concurrent": batch_size, **given}


def picture_sizes(folder: Path) -> dict[str, int]:
    """`min_pixels` and `max_pixels` of a model's own image processor, so that it sees pictures as in training.

    lmms-eval 0.7.3 has its own (256 * 28 * 28 and 1605632, models/simple/qwen2_5_vl.py): a smaller picture is blown up
    to more tokens than training ever showed. {} where the model's files do not say.
    """
    for file, part in (("processor_config.json", "image_processor"), ("preprocessor_config.json", None)):
        try:
            saved = json.loads((folder / file).read_text(encoding="utf-8"))
            saved = saved[part] if part else saved
            size = saved.get("size") or {}
            least = saved.get("min_pixels") or size["shortest_edge"]
            most = saved.get("max_pixels") or size["longest_edge"]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
        return {"min_pixels": int(least), "max_pixels": int(most)}
    return {}


def fingerprint(folder: Path) -> str:
    """16 hexadecimal digits of a model folder: of its configuration, chat template and weights, every byte."""
    digest = hashlib.sha256()
    for path in _files(folder, "*.json", "*.jinja", "*.safetensors"):
        with path.open("rb") as file:
            digest.update(path.name.encode() + hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]


def _files(folder: Path, *patterns: str) -> list[Path]:
    found = sorted(path for pattern in patterns for path in folder.glob(pattern))
    return [path for path in found if not path.name.startswith(NOT_THE_MODEL)]


def _from_hub(name: str, revision: str | None) -> tuple[Path, str]:
    from huggingface_hub import snapshot_download

    others = ["checkpoint-*", "last-checkpoint/*", "vade_evaluation/*"]
    try:
        folder = Path(snapshot_download(name, revision=revision, ignore_patterns=others))
    except Exception as error:  # the client's, for no such repository, no network, no login, a bad name
        at = f" at {revision}" if revision else ""
        raise EvaluationError(
            f"{name} is no folder here, and the Hub gave no model of that name{at} ({type(error).__name__}: {error}). "
            "A private or gated model needs `hf auth login`."
        ) from error
    return folder, folder.name  # the cache names a snapshot by its commit


def _check_folder(folder: Path, name: str, backend: str) -> None:
    if (folder / "adapter_config.json").is_file():
        raise ConfigurationError(
            f"{name} is an adapter, and lmms-eval's backends load whole models: load it with peft, call "
            "merge_and_unload() and save_pretrained(), and evaluate that folder."
        )
    try:
        kind = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("model_type")
    except (OSError, ValueError, AttributeError) as error:  # the last: JSON, but no object
        raise ConfigurationError(f"{name} is no model: its config.json cannot be read ({error}).") from error
    weights = {path.name for path in _files(folder, "*.safetensors")}
    if not weights:
        raise ConfigurationError(f"{name} has no weights (*.safetensors) beside its config.json.")
    index = folder / "model.safetensors.index.json"
    try:
        named = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()) if index.is_file() else set()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigurationError(f"{name}: its {index.name} cannot be read ({error!r}): copy it again.") from error
    if named - weights:
        raise ConfigurationError(
            f"{name} lacks {', '.join(sorted(named - weights))}, which its {index.name} names: fetch or copy it again."
        )
    if backend == "transformers" and kind != "qwen2_5_vl":
        raise ConfigurationError(
            f"{name} is a {kind!r}: --backend transformers is for Qwen2.5-VL. Use --backend vllm, or serve it and use "
            "--backend server."
        )


def _served(name: str, url: str) -> str:
    """The fingerprint of a served model, after the server was asked whether it has it."""
    from openai import DefaultHttpxClient, OpenAI

    key = os.environ.get("VADE_SERVER_API_KEY") or "EMPTY"
    http = DefaultHttpxClient(trust_env=not is_loopback(url))
    client = OpenAI(api_key=key, base_url=url, timeout=30, max_retries=1, http_client=http)
    try:
        served = [model.id for model in client.models.list()]
    except Exception as error:  # the client's, of many kinds
        raise EvaluationError(
            f"--server_url {url}: no list of models came from {url}/models ({type(error).__name__}: {error}). Give "
            "the address that ends in /v1, of a server that is ready."
        ) from error
    if name not in served:
        raise EvaluationError(f"--server_url {url} serves {', '.join(served) or 'nothing'}, and not {name}.")
    return hashlib.sha256(name.encode()).hexdigest()[:16]
