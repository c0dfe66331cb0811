"""A check that a repository on the Hub has the evaluated weights, which its card will describe."""

import logging
import re
from collections.abc import Mapping
from pathlib import Path

from huggingface_hub import HfApi
from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils.sha import git_hash, sha_fileobj

from trl_vade.errors import VADEError
from trl_vade.hub.uploading import HubTarget

from ..models import fingerprint
from ..results.table import Results

logger = logging.getLogger(__name__)

SETTINGS = ("config.json", "preprocessor_config.json", "processor_config.json", "tokenizer.json")
"""Files that affect a score, as weights and chat templates do. Others, such as tokenizer_config.json, differ between
releases."""

GIT = 40  # digits of a git hash; LFS uses SHA-256 with 64


class Refused(VADEError):
    """An `EvaluationError` inside `uploading.with_retries`, which would retry a RuntimeError as the client's."""


class EvaluatedWeights:
    """The evaluated weights: those of a folder, of a commit on the Hub, or unknown ones.

    A `folder` that has changed since is `Refused`. None takes the commit in the results; without a commit, nothing is
    compared.
    """

    def __init__(self, results: Results, folder: Path | None):
        self._name, self._revision = results["model"]["name"], results["model"]["revision"]
        self._folder = folder
        self._known: dict[tuple[str, int], str] = {}
        if folder and results["backend"] != "server":  # the fingerprint of a served model is that of its name
            found, evaluated = fingerprint(folder), results["model"]["fingerprint"]
            if found != evaluated:
                raise Refused(
                    f"{folder} is not the evaluated model: its fingerprint is {found}, but the results are of "
                    f"{evaluated}. Its configuration, chat template or weights have changed since, for example by "
                    "training. Give the unchanged folder (model_folder), or evaluate this one with another "
                    "--output_path."
                )

    def refuse_others(self, api: HfApi, target: HubTarget) -> None:
        """Raise `Refused` if a branch has other weights or `SETTINGS`, or if the evaluated commit cannot be read.

        A branch without weights is accepted. The client's errors are raised unchanged.
        """
        there = _hashes_at(api, target.repo_id, target.revision)
        if not any(map(_is_weights, there)):
            return
        if not self._folder and not self._revision:
            logger.warning(f"It is not known whether {target} has the evaluated weights, because a server had them.")
            return
        here = self._read(self._folder, there) if self._folder else self._at_the_commit(api)
        others = sorted(name for name in there.keys() | here.keys() if there.get(name) != here.get(name))
        weights = list(filter(_is_weights, others))
        settings = [name for name in others if name in there and name in here]
        if weights or settings:
            raise Refused(
                f"{target} has other {'weights' if weights else 'settings'} than the evaluated model "
                f"({', '.join((weights or settings)[:3])}{', ...' * (len(weights or settings) > 3)}), so its card "
                "would describe another model. Evaluate the model there (`--revision` takes a commit or a branch), "
                "push the evaluated model first, or name the branch that has it (`--hub_revision`)."
            )

    def _read(self, folder: Path, there: Mapping[str, str]) -> dict[str, str]:
        """Return the git or LFS hashes of a folder's files. Each is computed once, because weights are large."""
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
                f"The evaluated model, {self._name} at {self._revision}, cannot be read any more, so it is not known "
                "whether the repository has the same weights. Evaluate the model of the repository."
            ) from error


def model_key(results: Results) -> str:
    """Return the fingerprint in the results, in characters for a path and an HTML comment."""
    return re.sub(r"\W", "", results["model"]["fingerprint"], flags=re.ASCII) or "unknown"


def _is_weights(path: str) -> bool:
    weights = path.endswith(".safetensors") or re.fullmatch(r"(pytorch|adapter)_model.*\.bin", path)
    return bool(weights) and "/" not in path and not path.startswith("vade_")  # the posterior


def _is_settings(path: str) -> bool:
    return path in SETTINGS or (path.endswith(".jinja") and "/" not in path)


def _hash(path: Path, *, lfs: bool) -> str:
    with path.open("rb") as file:
        return sha_fileobj(file).hex() if lfs else git_hash(file.read())


def _hashes_at(api: HfApi, repo_id: str, revision: str | None) -> dict[str, str]:
    """Return the hashes of the weights and `SETTINGS` of a repository: git's, or in LFS that of the content."""
    files = [entry for entry in api.list_repo_tree(repo_id, revision=revision) if isinstance(entry, RepoFile)]
    compared = [file for file in files if _is_weights(file.path) or _is_settings(file.path)]
    return {file.path: file.lfs.sha256 if file.lfs else file.blob_id for file in compared}
