"""Whether a repository on the Hub has the weights that were evaluated: a card speaks of the weights beside it."""

import hashlib
import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi
from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError
from huggingface_hub.hf_api import RepoFile

from .errors import VADEError
from .hub import HubTarget

logger = logging.getLogger(__name__)


class Refused(VADEError):
    """An `EvaluationError` on its way out of `hub.patiently`, which takes a RuntimeError for the client's."""


class EvaluatedWeights:
    """The weights that were evaluated: those of a folder, else of a commit on the Hub, else unknown ones.

    As SHA-256 by file name; the Hub has that of each file in LFS, where weights are.

    Args:
        results: the content of results.json, with the `name` and the `revision` of its `model`.
        folder: the model that was evaluated. None: the commit in the results tells the weights; where there is none,
            nothing is compared.
    """

    def __init__(self, results: Mapping[str, Any], folder: Path | None):
        self._name, self._revision = results["model"]["name"], results["model"]["revision"]
        self._folder = folder
        self._known: dict[str, str] | None = None

    def refuse_others(self, api: HfApi, target: HubTarget) -> None:
        """Compare with the weights on a branch now; one without any is fine.

        Args:
            api: the Hub's client, whose own errors are left to the caller.
            target: the branch.

        Raises:
            Refused: the branch has other weights, or the commit that was evaluated cannot be read any more.
        """
        there = _weights_at(api, target.repo_id, target.revision)
        if not there:
            return
        if not self._folder and not self._revision:
            logger.warning(f"Whether {target} has the weights that were evaluated is not known: a server had them.")
            return
        if self._known is None:  # once, whatever the attempts: weights are large
            self._known = self._read(api)
        others = sorted(name for name in there.keys() | self._known.keys() if there.get(name) != self._known.get(name))
        if others:
            raise Refused(
                f"{target} has other weights than those that were evaluated ({', '.join(others[:3])}"
                f"{', ...' * (len(others) > 3)}), so its card would speak of another model. Evaluate what is there "
                "(`--revision` takes a commit or a branch of it), or push the evaluated weights first, or name the "
                "branch that has them (`--hub_revision`)."
            )

    def _read(self, api: HfApi) -> dict[str, str]:
        if self._folder:
            files = [path for path in self._folder.iterdir() if _is_weights(path.name)]
            return {path.name: _sha256(path) for path in files}
        try:
            return _weights_at(api, self._name, self._revision)
        except (RepositoryNotFoundError, RevisionNotFoundError) as error:
            raise Refused(
                f"{self._name} at {self._revision}, which was evaluated, cannot be read any more, so nobody knows "
                "whether the repository has the same weights. Evaluate what is there."
            ) from error


def _is_weights(path: str) -> bool:
    weights = path.endswith(".safetensors") or re.fullmatch(r"(pytorch|adapter)_model.*\.bin", path)
    return bool(weights) and "/" not in path and not path.startswith("vade_")  # that is the posterior


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _weights_at(api: HfApi, repo_id: str, revision: str | None) -> dict[str, str]:
    files = [entry for entry in api.list_repo_tree(repo_id, revision=revision) if isinstance(entry, RepoFile)]
    return {file.path: file.lfs.sha256 if file.lfs else file.blob_id for file in files if _is_weights(file.path)}
