"""Files that survive a crash, and JSON documents: strict (no NaN), versioned, and with a digest of their fields.

`document_sha256` is the digest of the fields in a canonical form, or another one that the caller gives. Another layout
of the file keeps it; an altered value breaks it.
"""

import hashlib
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


def encode_document(fields: Mapping[str, Any], digest: str | None = None) -> bytes:
    """Return `fields` with `digest`, or that of the fields, as one line of JSON in the order of the names.

    Values that are not JSON are a `ConfigurationError`.
    """
    try:
        plain = json.loads(json.dumps(dict(fields), allow_nan=False))  # every key becomes a string, as when read back
        plain.pop(_DIGEST, None)
        return _canonical({**plain, _DIGEST: digest or _digest(plain)}).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"The metadata or the sampler's state cannot be written as strict JSON: {error}. Only None, booleans, "
            "finite numbers, strings, lists and dicts are allowed. Convert other values before the call."
        ) from error


def parse_document(
    path: Path | str, content: bytes, fields: Iterable[str], digest: str | None = None
) -> dict[str, Any]:
    """Return the fields of a document that `encode_document` wrote; it must hold at least `fields`.

    `digest` is the one that it must have; None stands for that of its fields.

    Raises:
        SnapshotCorruptError: the document is damaged or was edited.
        SnapshotMismatchError: a newer release of trl_vade wrote it.
    """
    try:
        document = json.loads(content, parse_constant=_refuse_constant)
        if not isinstance(document, dict):
            raise TypeError(f"it holds a {type(document).__name__} and no object")
        newer = document["format_version"] > FORMAT_VERSION
        if not newer:
            _check(document, fields, digest)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise SnapshotCorruptError(
            f"{path} does not describe a snapshot ({type(error).__name__}: {error}); it was damaged or edited. Load "
            "an earlier snapshot."
        ) from error
    if newer:
        raise SnapshotMismatchError(
            f"{path} has format version {document['format_version']}; this release of trl_vade reads versions up to "
            f"{FORMAT_VERSION}. Upgrade trl_vade."
        )
    return document


def _check(document: dict[str, Any], fields: Iterable[str], digest: str | None) -> None:
    found = document.pop(_DIGEST, None)
    missing = [name for name in fields if name not in document]
    version = document["format_version"]
    if missing or type(version) is not int or version != FORMAT_VERSION:  # True is 1, and so is 1.0
        raise ValueError(f"format_version {version!r}, missing fields {missing}")
    own = _digest(document)  # a number that is not finite is an error here
    if found != (digest or own):
        raise ValueError(f"a value was altered: {_DIGEST} is {found!r}, but the content gives {digest or own!r}")


def _digest(fields: dict[str, Any]) -> str:
    return hashlib.sha256(_canonical(fields).encode()).hexdigest()


def _canonical(fields: dict[str, Any]) -> str:
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
