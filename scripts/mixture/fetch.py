"""Bring the files of the sources to this machine, and open them as streams of rows.

The Hub's own client loads the files into its cache. It goes on after an interruption, and loads no file twice.
"""

import fnmatch
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trl_vade.errors import ConfigurationError
from trl_vade.hub.uploading import FAILURES, in_one_line

from .sources import Source, SourceSchemaError


def planned_bytes(sources: Sequence[Source], mirror: Path | None = None) -> list[tuple[int, int]]:
    """Return for each source the bytes of its files and those that are to be loaded, as the Hub lists them now.

    Raises:
        OSError: the Hub cannot be reached, or has no such repository or revision.
        SourceSchemaError: the repository lacks files of a source.
    """
    if mirror is not None:
        local = local_files(sources, mirror)
        return [(sum(file.stat().st_size for file in local[source.task]), 0) for source in sources]
    found = {}
    for repo, revision, patterns in _repositories(sources):
        for info in _snapshot(repo, revision, patterns, dry_run=True):
            found[repo, info.filename] = (info.file_size or 0, info.will_download)
    sizes = []
    for source in sources:
        names = fnmatch.filter([name for repo, name in found if repo == source.repo], source.files)
        _check_complete(source, names)
        files = [found[source.repo, name] for name in names]
        sizes.append((sum(size for size, _ in files), sum(size for size, wanted in files if wanted)))
    return sizes


def local_files(sources: Sequence[Source], mirror: Path | None = None) -> dict[str, list[Path]]:
    """Return the files of each source by its task, from the mirror, or from the Hub's cache after loading them there.

    Args:
        sources: the sources.
        mirror: a folder with copies of the repositories; None loads the pinned revisions from the Hub.

    Raises:
        ConfigurationError: the mirror lacks a repository.
        SourceSchemaError: a repository lacks files of a source.
        OSError: the Hub cannot be reached, and the files are not all in the cache.
    """
    folders = {}
    for repo, revision, patterns in _repositories(sources):
        if mirror is None:
            folders[repo] = Path(_snapshot(repo, revision, patterns))
        elif not (mirror / repo).is_dir():
            raise ConfigurationError(
                f"The mirror {mirror} has no folder {repo}. It must hold each repository under its name. Run: hf "
                f"download {repo} --repo-type dataset --revision {revision} --local-dir {mirror / repo}"
            )
        else:
            folders[repo] = mirror / repo
    files = {source.task: sorted(folders[source.repo].glob(source.files)) for source in sources}
    for source in sources:
        _check_complete(source, [file.name for file in files[source.task]])
    return files


def open_stream(source: Source, files: Sequence[Path]) -> Any:
    """Open `files` as an `IterableDataset` of the columns of `source`, with images as the bytes of their files.

    Raises:
        SourceSchemaError: a column is not there or of another type.
    """
    from datasets import load_dataset

    stream = load_dataset("parquet", data_files=[str(file) for file in files], split="train", streaming=True)
    check_schema(source, stream.features)
    return stream.select_columns(list(source.columns)).decode(False)


def check_schema(source: Source, features: Mapping[str, Any] | None) -> None:
    """Refuse a stream that lacks a column of the source or has another type in it; more columns are allowed.

    Raises:
        SourceSchemaError: names the column, the expected and the found type.
    """
    found = {name: kind_of(feature) for name, feature in (features or {}).items()}
    for column, expected in source.columns.items():
        if found.get(column) != expected:
            here = f"is of the type {found[column]}" if column in found else f"is not there (columns: {sorted(found)})"
            raise SourceSchemaError(
                f"{source.name} ({source.place}): the column {column!r} {here}; expected: {expected}. The data set "
                "changed, and rows of another form would be read wrongly. Use the pinned revision, or list the "
                "other sources in --sources."
            )


def kind_of(feature: Any) -> str:
    """Return the type of a column in short, without the widths of integers and of string offsets."""
    from datasets import Image, LargeList, List, Value

    if isinstance(feature, Image) or (isinstance(feature, Mapping) and set(feature) == {"bytes", "path"}):
        return "image"  # the second is its storage, which a file without the metadata of `datasets` shows
    if isinstance(feature, List | LargeList):
        return f"list<{kind_of(feature.feature)}>"
    if isinstance(feature, Mapping):
        return "{" + ", ".join(f"{name}: {kind_of(part)}" for name, part in sorted(feature.items())) + "}"
    if not isinstance(feature, Value):
        return type(feature).__name__
    if feature.dtype in ("string", "large_string", "string_view"):
        return "string"
    return "int" if feature.dtype.lstrip("u").startswith("int") else str(feature.dtype)


def _snapshot(repo: str, revision: str, patterns: list[str], dry_run: bool = False) -> Any:
    """Load files of a repository, or list them."""
    from huggingface_hub import snapshot_download

    try:
        return snapshot_download(
            repo, repo_type="dataset", revision=revision, allow_patterns=patterns, dry_run=dry_run
        )
    except FAILURES as error:
        text = f"{repo}, revision {revision}: {in_one_line(error)}. Files that are loaded are kept if it is run again."
        raise OSError(text) from error


def _repositories(sources: Sequence[Source]) -> Iterator[tuple[str, str, list[str]]]:
    """Yield each repository with its revision and the patterns of its files."""
    by_repo = sorted(sources, key=lambda source: (source.repo, source.revision))
    for (repo, revision), some in itertools.groupby(by_repo, key=lambda source: (source.repo, source.revision)):
        yield repo, revision, [source.files for source in some]


def _check_complete(source: Source, names: Sequence[str]) -> None:
    """Refuse fewer files than their names say: train-00000-of-00003.parquet is one of three."""
    total = re.search(r"-of-(\d+)", names[0]) if names else None
    if not names or (total and len(names) != int(total[1])):
        raise SourceSchemaError(
            f"{source.name} ({source.place}) has {len(names)} files {source.files}; expected: "
            f"{int(total[1]) if total else 'one or more'}. Load the repository again, or list the other sources in "
            "--sources."
        )
