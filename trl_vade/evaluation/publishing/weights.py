"""Whether a repository on the Hub has the model that was evaluated: a card speaks of the weights beside it."""

import hashlib
import logging
import re
from collections.abc import Mapping
from pathlib import Path

from huggingface_hub import HfApi
from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError
from huggingface_hub.hf_api import RepoFile

from trl_vade.errors import VADEError
from trl_vade.hub.uploading import HubTarget

from ..models import fingerprint
from ..results.table import Results

logger = logging.getLogger(__name__)

SETTINGS = ("config.json", "preprocessor_config.json", "processor_config.json", "tokenizer.json")
"""Files that decide about a score as weights do; so do chat templates. Others, such as tokenizer_config.json, change
with the release that saves them."""

GIT = 40
"""Digits of a hash of git's; LFS has the 64 of SHA-256."""


class Refused(VADEError):
    """An `EvaluationError` on its way out of `uploading.with_retries`, which takes a RuntimeError for the client's."""


class EvaluatedWeights:
    """The model that was evaluated: that of a folder, else of a commit on the Hub, else an unknown one.

    Args:
        results: of the evaluation, which name its model and its revision.
        folder: the model that was evaluated. None: the commit in the results tells the weights; where there is none,
            nothing is compared.

    Raises:
        Refused: the folder is not as it was when it was evaluated.
    """

    def __init__(self, results: Results, folder: Path | None):
        self._name, self._revision = results["model"]["name"], results["model"]["revision"]
        self._folder = folder
        self._known: dict[tuple[str, int], str] = {}
        if folder and results["backend"] != "server":  # whose fingerprint is that of an address
            _refuse_changed(folder, results["model"]["fingerprint"])

    def refuse_others(self, api: HfApi, target: HubTarget) -> None:
        """Compare with the weights on a branch now, and with files of `SETTINGS` that both have; a branch without any
        weights is fine.

        Args:
            api: the Hub's client, whose own errors are left to the caller.
            target: the branch.

        Raises:
            Refused: the branch has another model, or the commit that was evaluated cannot be read any more.
        """
        there = _hashes_at(api, target.repo_id, target.revision)
        if not any(map(_is_weights, there)):
            return
        if not self._folder and not self._revision:
            logger.warning(f"Whether {target} has the weights that were evaluated is not known: a server had them.")
            return
        here = self._read(self._folder, there) if self._folder else self._at_the_commit(api)
        others = sorted(name for name in there.keys() | here.keys() if there.get(name) != here.get(name))
        weights = list(filter(_is_weights, others))
        settings = [name for name in others if name in there and name in here]
        if weights or settings:
            raise Refused(
                f"{target} has other {'weights' if weights else 'settings'} than those that were evaluated "
                f"({', '.join((weights or settings)[:3])}{', ...' * (len(weights or settings) > 3)}), so its card "
                "would speak of another model. Evaluate what is there (`--revision` takes a commit or a branch of "
                "it), or push the evaluated model first, or name the branch that has it (`--hub_revision`)."
            )

    def _read(self, folder: Path, there: Mapping[str, str]) -> dict[str, str]:
        """The hashes of a folder, as git or LFS has them; each once, whatever the attempts: weights are large."""
        found = {}
        for path in folder.iterdir():
            if _is_weights(path.name) or (_is_settings(path.name) and path.name in there):
                key = (path.name, len(there.get(path.name, "")))
                found[path.name] = self._known[key] = self._known.get(key) or _hash(path, lfs=key[1] != GIT)
        return found

    def _at_the_commit(self, api: HfApi) -> dict[str, str]:
        try:
            return _hashes_at(api, self._name, self._revision)
        except (RepositoryNotFoundError, RevisionNotFoundError) as error:
            raise Refused(
                f"{self._name} at {self._revision}, which was evaluated, cannot be read any more, so nobody knows "
                "whether the repository has the same weights. Evaluate what is there."
            ) from error


def model_key(results: Results) -> str:
    """The fingerprint in the results, as a path and a comment of HTML can have it."""
    return re.sub(r"\W", "", results["model"]["fingerprint"], flags=re.ASCII) or "unknown"


def _refuse_changed(folder: Path, evaluated: str) -> None:
    found = fingerprint(folder)
    if found != evaluated:
        raise Refused(
            f"{folder} is not the model that was evaluated: its fingerprint is {found}, and the results are of "
            f"{evaluated}. Its configuration, chat template or weights have changed since, by training for example. "
            "Give the folder as it was (model_folder), or evaluate it anew with another --output_path."
        )


def _is_weights(path: str) -> bool:
    weights = path.endswith(".safetensors") or re.fullmatch(r"(pytorch|adapter)_model.*\.bin", path)
    return bool(weights) and "/" not in path and not path.startswith("vade_")  # that is the posterior


def _is_settings(path: str) -> bool:
    return path in SETTINGS or (path.endswith(".jinja") and "/" not in path)


def _hash(path: Path, *, lfs: bool) -> str:
    with path.open("rb") as file:
        if lfs:
            return hashlib.file_digest(file, "sha256").hexdigest()
        content = file.read()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _hashes_at(api: HfApi, repo_id: str, revision: str | None) -> dict[str, str]:
    """The hashes of the weights and `SETTINGS` of a repository: git's, or for a file in LFS that of its content."""
    files = [entry for entry in api.list_repo_tree(repo_id, revision=revision) if isinstance(entry, RepoFile)]
    compared = [file for file in files if _is_weights(file.path) or _is_settings(file.path)]
    return {file.path: file.lfs.sha256 if file.lfs else file.blob_id for file in compared}
