"""The Hub id and the commit of the data set that training rows come from."""

from pathlib import Path
from typing import Any

from datasets import Dataset
from datasets.naming import camelcase_to_snakecase
from huggingface_hub import constants
from huggingface_hub.file_download import REGEX_COMMIT_HASH

from .uploading import hub_id


def hub_origin(dataset: Any, name: str | None = None) -> tuple[str | None, str | None]:
    """Return the Hub id of the data set that the rows come from, and its commit; None for what is not known.

    datasets 5.2 stores neither (`info.download_checksums` is None), so both are read from the cache folder:
    `<owner>___<name in snake case>/<configuration>/<version>/<commit>`. It stays the same after `filter`, `map`,
    `select`, `shuffle` and `train_test_split`. Rows in memory, rows saved to disk and concatenations have no single
    such folder. The exact spelling of the id comes from the download of this commit in the Hub client's cache.

    `name` is the Hub id, if the caller knows it. It takes precedence, and the commit is returned only if it belongs to
    that data set. A name without an owner ("testbed") is ignored.
    """
    given = name if hub_id(name) and "/" in str(name) else None
    folder = _cache_folder(dataset)
    if folder is None:
        return given, None
    owner, snake_name, commit = folder
    found = given or _downloaded(owner, snake_name, commit)
    if found is None or found.split("/")[0] != owner or camelcase_to_snakecase(found.split("/")[1]) != snake_name:
        return found, None
    return found, commit


def _cache_folder(dataset: Any) -> tuple[str, str, str] | None:
    """Return owner, name in snake case and commit from the cache folder of the rows, or None."""
    if not isinstance(dataset, Dataset):
        return None
    folders = {Path(file["filename"]).parent for file in dataset.cache_files}
    parts = folders.pop().parts[-4:] if len(folders) == 1 else ()
    owner, separator, name = parts[0].partition("___") if len(parts) == 4 else ("", "", "")
    # A concatenation with rows in memory has one folder, too, but no name of a data set.
    if not separator or name != dataset.info.dataset_name or not REGEX_COMMIT_HASH.fullmatch(parts[-1]):
        return None
    return owner, name, parts[-1]


def _downloaded(owner: str, snake_name: str, commit: str) -> str | None:
    """Return the id with its capitals, from the Hub client's cache of this commit, or None."""
    cache, prefix = Path(constants.HF_HUB_CACHE), constants.REPO_ID_SEPARATOR.join(["datasets", owner, ""])
    names = {
        folder.name.removeprefix(prefix)
        for folder in cache.glob(f"{prefix}*")
        if (folder / "snapshots" / commit).is_dir() or (folder / ".no_exist" / commit).is_dir()
    }
    fitting = [name for name in names if camelcase_to_snakecase(name) == snake_name]
    return f"{owner}/{fitting[0]}" if len(fitting) == 1 else None
