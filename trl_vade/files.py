"""Files that survive a crash, and JSON documents: strict (no NaN), versioned, with the digest `document_sha256`."""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .errors import ConfigurationError, SnapshotCorruptError, SnapshotMismatchError


def write_durably(path: Path, content: bytes) -> None:
    """Write `content` to `path` and sync it to disk. A crash may leave a partial file; `save_whole` does not."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def replace_durably(source: Path, target: Path) -> None:
    """Rename the file `source` to `target`, atomically, and sync the folder to disk."""
    os.replace(source, target)
    if os.name == "posix":  # other systems cannot open a directory
        descriptor = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def save_whole(path: Path, content: bytes) -> None:
    """Write `content` to `path` atomically and create its folder. After an OSError `path` is unchanged."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    try:
        write_durably(temporary, content)
        replace_durably(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


_PACKAGE = Path(__file__).parent


def packaged(name: str) -> Path:
    """Return the path of the file or folder `name` that comes with the package, such as "eval/tasks".

    A wheel has it inside the package. An editable installation runs from the repository, where it lies beside the
    package.
    """
    places = (_PACKAGE / name, _PACKAGE.parent / name)
    for place in places:
        if place.exists():
            return place
    raise FileNotFoundError(f"Neither {places[0]} nor {places[1]} is there. Install trl_vade again.")


FORMAT_VERSION = 1

_DIGEST = "document_sha256"


def encode_document(fields: Mapping[str, Any], digest: str) -> bytes:
    """Return `fields` with `digest` as one line of JSON in the order of the names.

    Values that are not JSON are a `ConfigurationError`.
    """
    try:
        return json.dumps(
            {**json.loads(json.dumps(dict(fields), allow_nan=False)), _DIGEST: digest},  # every key becomes a string
            sort_keys=True,
            separators=(",", ":"),
        ).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"The metadata or the sampler's state cannot be written as strict JSON: {error}. Only None, booleans, "
            "finite numbers, strings, lists and dicts are allowed. Convert other values before the call."
        ) from error


def parse_document(path: Path | str, content: bytes, fields: Iterable[str], digest: str) -> dict[str, Any]:
    """Return the fields of a document that `encode_document` wrote; it must hold at least `fields`.

    Raises:
        SnapshotCorruptError: the document is damaged or was edited: its digest is not `digest`.
        SnapshotMismatchError: a newer release of trl_vade wrote it.
    """
    try:
        document = json.loads(content, parse_constant=_refuse_constant)
        if not isinstance(document, dict):
            raise TypeError(f"it holds a {type(document).__name__} and no object")
        json.dumps(document, allow_nan=False)  # 1e999 is read as infinite, and an error here
        version, found = document["format_version"], document.pop(_DIGEST, None)
        newer = version > FORMAT_VERSION
        missing = [name for name in fields if name not in document]
        if not newer and (missing or type(version) is not int or version != FORMAT_VERSION):  # True is 1, and 1.0
            raise ValueError(f"format_version {version!r}, missing fields {missing}")
        if not newer and found != digest:
            raise ValueError(f"a value was altered: {_DIGEST} is {found!r}, but the content gives {digest!r}")
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise SnapshotCorruptError(
            f"{path} does not describe a snapshot ({type(error).__name__}: {error}); it was damaged or edited. Load "
            "an earlier snapshot."
        ) from error
    if newer:
        raise SnapshotMismatchError(
            f"{path} has format version {version}; this release of trl_vade reads versions up to {FORMAT_VERSION}. "
            "Upgrade trl_vade."
        )
    return document


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
