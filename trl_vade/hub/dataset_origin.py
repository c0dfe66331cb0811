"""Which data set of the Hub, at which commit, the rows of a training set come from."""

from pathlib import Path
from typing import Any

from datasets import Dataset
from datasets.naming import camelcase_to_snakecase
from huggingface_hub import constants

from .uploading import hub_id


def hub_origin(dataset: Any, name: str | None = None) -> tuple[str | None, str | None]:
    """Return the Hub id of the data set that these rows come from, and its commit; None for what is not known.

    datasets 5.2 keeps neither: `info.download_checksums`, whose keys had both, is None now. What is left is the folder
    of its cache, `<owner>___<name in snake case>/<configuration>/<version>/<commit>`. It is the same after `filter`,
    `map`, `select`, `shuffle` and `train_test_split`; rows that are in memory, were saved to disk, or are a
    concatenation have no such folder, or it does not speak for all of them. The id as the Hub writes it is then that
    of the download that brought this commit.

    Args:
        dataset: the rows.
        name: what the caller says that the id is. It wins, and the commit is returned only where it is one of that
            data set. A name without an owner ("testbed") is none of a data set on the Hub.
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
    """Owner, name in snake case and commit, from the one folder of `datasets`' cache that the rows are in."""
    if not isinstance(dataset, Dataset):
        return None
    folders = {Path(file["filename"]).parent for file in dataset.cache_files}
    parts = folders.pop().parts[-4:] if len(folders) == 1 else ()
    owner, separator, name = parts[0].partition("___") if len(parts) == 4 else ("", "", "")
    # A concatenation with rows in memory has one folder, too, but no name.
    if not separator or name != dataset.info.dataset_name or not _is_commit(parts[-1]):
        return None
    return owner, name, parts[-1]


def _is_commit(text: str) -> bool:
    return len(text) == 40 and set(text) <= set("0123456789abcdef")


def _downloaded(owner: str, snake_name: str, commit: str) -> str | None:
    """The id with its capitals: that of the Hub client's folder in which this commit is."""
    cache, prefix = Path(constants.HF_HUB_CACHE), constants.REPO_ID_SEPARATOR.join(["datasets", owner, ""])
    names = {
        folder.name.removeprefix(prefix)
        for folder in cache.glob(f"{prefix}*")
        if (folder / "snapshots" / commit).is_dir() or (folder / ".no_exist" / commit).is_dir()
    }
    fitting = [name for name in names if camelcase_to_snakecase(name) == snake_name]
    return f"{owner}/{fitting[0]}" if len(fitting) == 1 else None
