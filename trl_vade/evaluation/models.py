"""The evaluated model and its backend in lmms-eval: found, named and checked before it is loaded."""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trl_vade.errors import ConfigurationError, EvaluationError

from .servers import check_address, is_loopback

BACKENDS = {"transformers": "qwen2_5_vl", "vllm": "vllm", "server": "openai"}
"""Our names of the backends, and those of lmms-eval."""
OWN_ARGUMENTS = (
    *("pretrained", "model", "model_version", "base_url", "api_key", "batch_size", "device", "device_map"),
    *("max_new_tokens", "seed", "system_prompt", "trust_remote_code", "num_concurrent"),
)
"""Names that `--model_args` may not set: an option sets it, it would write a secret to a file, or execute code."""
ARGUMENTS = {
    "transformers": ("min_pixels", "max_pixels", "attn_implementation", "use_cache"),
    "server": ("max_retries", "retry_backoff_s", "max_size_in_mb"),
}
"""By backend, the names that it may set. lmms-eval 0.7.3 ignores others. vLLM has too many to list."""
WITHOUT_EFFECT = ("min_pixels", "max_pixels", "min_image_pixels", "max_frame_num", "fps", "nframes")
"""Names without effect for vLLM: they are for video, or for images of a few pixels."""
NOT_THE_MODEL = ("evaluation.json", "results.json", "trainer_state.json", "vade_")
"""Prefixes of files of a run or an evaluation that may lie beside a model."""


@dataclass(frozen=True)
class EvaluatedModel:
    """A model to evaluate."""

    name: str  # a folder's name, a Hub id, or the name on a server
    folder: Path | None  # the folder of its files; None for a served model
    revision: str | None  # the commit on the Hub; None for a local or served model
    fingerprint: str  # 16 hexadecimal digits of its configuration and weights; for a served model, of its name


def find_model(
    name: str, *, backend: str, revision: str | None = None, server_url: str | None = None
) -> EvaluatedModel:
    """Check the model `name`: a folder, a model on the Hub, which is downloaded, or a model on a server.

    The download uses the login of this process; the process that evaluates gets no token.

    Raises:
        ConfigurationError: the backend cannot load the model, or it is an adapter.
        EvaluationError: the model does not exist, or the server does not serve it.
    """
    check_place(backend, revision=revision, server_url=server_url)
    if backend == "server":
        return EvaluatedModel(name, None, None, _served(name, str(server_url)))
    local = Path(name)
    if local.is_dir():
        if revision is not None:
            raise ConfigurationError(
                f"--revision {revision}: {name} is a folder, which has no revisions. Remove --revision."
            )
        folder, commit, shown_name = local, None, local.resolve().name
    else:
        (folder, commit), shown_name = _from_hub(name, revision), name
    _check_folder(folder, name, backend)
    return EvaluatedModel(shown_name, folder.resolve(), commit, fingerprint(folder))


def check_place(backend: str, *, revision: str | None, server_url: str | None) -> None:
    """Raise `ConfigurationError` unless a server's address and a revision fit the backend."""
    if server_url is not None:
        check_address("--server_url", server_url, key="VADE_SERVER_API_KEY")
    if (backend == "server") != (server_url is not None):
        raise ConfigurationError(
            f"--backend {backend} with --server_url {server_url}: --backend server needs an address, and no other one "
            "takes it."
        )
    if backend == "server" and revision is not None:
        raise ConfigurationError(
            f"--revision {revision} with --backend server: the server has chosen its revision. Remove --revision."
        )


def check_arguments(given: Mapping[str, Any], backend: str) -> None:
    """Raise `ConfigurationError` for arguments of lmms-eval's class in `OWN_ARGUMENTS`, secret or without effect."""
    refused = [name for name in given if name in OWN_ARGUMENTS or name.endswith(("key", "token", "secret"))]
    if refused:
        raise ConfigurationError(
            f"--model_args {', '.join(refused)}: MODEL and the options set these. Code of a model's repository is not "
            "executed, and a server's key is read from the environment variable VADE_SERVER_API_KEY."
        )
    known = ARGUMENTS.get(backend)
    idle = [name for name in given if (name not in known if known else name in WITHOUT_EFFECT)]
    if idle:
        advice = f"It takes {', '.join(known)}." if known else "vLLM uses the image sizes of the model's processor."
        raise ConfigurationError(f"--model_args {', '.join(idle)} with --backend {backend} has no effect. {advice}")


def model_arguments(
    model: EvaluatedModel, backend: str, *, batch_size: int, given: Mapping[str, Any], server_url: str | None = None
) -> dict[str, Any]:
    """Return the arguments of lmms-eval's class of this backend.

    transformers gets the image sizes of `picture_sizes`; vLLM and servers read those of the model. By default vLLM's
    class executes code of the model's repository, and takes the larger of its own `max_new_tokens` (4096) and the
    request's (lmms-eval 0.7.3, models/chat/vllm.py, models/simple/vllm.py). Both are turned off. The user's arguments,
    `given`, take precedence; see `check_arguments`.
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
    """Return `min_pixels` and `max_pixels` of the model's image processor, or {} if its files lack them.

    The model then sees images as in training. lmms-eval 0.7.3 has its own bounds (256 * 28 * 28 and 1605632,
    models/simple/qwen2_5_vl.py), and enlarges small images to more tokens than in training.
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
    """Return 16 hexadecimal digits of a model folder, from every byte of configuration, chat template and weights."""
    return digest_of(folder, _files(folder, "*.json", "*.jinja", "*.safetensors"))


def digest_of(folder: Path, files: Iterable[Path]) -> str:
    """Return 16 hexadecimal digits of files in `folder`, from their names and every byte."""
    digest = hashlib.sha256()
    for path in sorted(files):
        with path.open("rb") as file:
            name = str(path.relative_to(folder)).encode(errors="surrogateescape")
            digest.update(name + hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]


def _files(folder: Path, *patterns: str) -> list[Path]:
    found = [path for pattern in patterns for path in folder.glob(pattern)]
    return [path for path in found if not path.name.startswith(NOT_THE_MODEL)]


def _from_hub(name: str, revision: str | None) -> tuple[Path, str]:
    from huggingface_hub import snapshot_download

    others = ["checkpoint-*", "last-checkpoint/*", "vade_evaluation/*"]
    try:
        folder = Path(snapshot_download(name, revision=revision, ignore_patterns=others))
    except Exception as error:  # errors of the client: no repository, network or login, a wrong name
        at = f" at {revision}" if revision else ""
        raise EvaluationError(
            f"{name} is not a local folder, and the Hub has no such model{at} ({type(error).__name__}: {error}). A "
            "private or gated model needs `hf auth login`."
        ) from error
    return folder, folder.name  # the name of a snapshot in the cache is its commit


def _check_folder(folder: Path, name: str, backend: str) -> None:
    if (folder / "adapter_config.json").is_file():
        raise ConfigurationError(
            f"{name} is an adapter, but lmms-eval's backends load whole models. Load it with peft, call "
            "merge_and_unload() and save_pretrained(), and evaluate that folder."
        )
    try:
        kind = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("model_type")
    except (OSError, ValueError, AttributeError) as error:  # AttributeError: JSON, but not an object
        raise ConfigurationError(f"{name} is not a model: its config.json cannot be read ({error}).") from error
    weights = {path.name for path in _files(folder, "*.safetensors")}
    if not weights:
        raise ConfigurationError(f"{name} has no weights (*.safetensors) beside its config.json.")
    index = folder / "model.safetensors.index.json"
    try:
        named = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()) if index.is_file() else set()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigurationError(f"{name}: its {index.name} cannot be read ({error!r}). Copy it again.") from error
    if named - weights:
        raise ConfigurationError(
            f"{name} lacks {', '.join(sorted(named - weights))}, which its {index.name} names. Download or copy it "
            "again."
        )
    if backend == "transformers" and kind != "qwen2_5_vl":
        raise ConfigurationError(
            f"{name} is a {kind!r}, but --backend transformers is for Qwen2.5-VL. Use --backend vllm, or serve the "
            "model and use --backend server."
        )


def _served(name: str, url: str) -> str:
    """Check that the server has the model, and return a fingerprint of its name."""
    from openai import DefaultHttpxClient, OpenAI

    key = os.environ.get("VADE_SERVER_API_KEY") or "EMPTY"
    http = DefaultHttpxClient(trust_env=not is_loopback(url))
    client = OpenAI(api_key=key, base_url=url, timeout=30, max_retries=1, http_client=http)
    try:
        served = [model.id for model in client.models.list()]
    except Exception as error:  # the client's, of many kinds
        raise EvaluationError(
            f"--server_url {url}: {url}/models gave no list of models ({type(error).__name__}: {error}). Give the "
            "address of a running server, ending in /v1."
        ) from error
    if name not in served:
        raise EvaluationError(
            f"--server_url {url} serves {', '.join(served) or 'nothing'}, not {name}. Give a name that it serves."
        )
    return hashlib.sha256(name.encode()).hexdigest()[:16]
