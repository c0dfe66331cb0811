"""A JSON file that can be trusted: strict (no NaN), versioned, and with a digest of its own fields.

`document_sha256` is that of the fields in one canonical form, so a file laid out anew is the same document, and an
altered value never goes unnoticed.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .errors import ConfigurationError, SnapshotCorruptError, SnapshotMismatchError


def write_durably(path: Path, content: bytes) -> None:
    """Write `content` to `path` and wait until the disk has it. A crash may leave part of it: see `save_whole`."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def replace_durably(source: Path, target: Path) -> None:
    """Give the file `source` the name `target`, in one step, and wait until the disk knows."""
    os.replace(source, target)
    if os.name == "posix":  # a rename is durable once its directory is; elsewhere a directory cannot be opened
        descriptor = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def save_whole(path: Path, content: bytes) -> None:
    """Write `content` to `path`, which holds the old content or the new at any moment; its folder is created.

    Raises:
        OSError: the disk refused; `path` is as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    try:
        write_durably(temporary, content)
        replace_durably(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


FORMAT_VERSION = 1

_DIGEST = "document_sha256"


def encode_document(fields: Mapping[str, Any]) -> bytes:
    """Return `fields`, their digest added (in place of one that is among them), as the bytes of a file.

    Raises:
        ConfigurationError: a value is not strict JSON.
    """
    try:
        plain = json.loads(json.dumps(dict(fields), allow_nan=False))  # as it will be read: every key a string
        plain.pop(_DIGEST, None)
        text = json.dumps({**plain, _DIGEST: _digest(plain)}, indent=2)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"The metadata or the sampler's state cannot be written as strict JSON: {error}. Only None, booleans, "
            "finite numbers, strings, lists and dicts can; convert the rest before the call."
        ) from error
    return (text + "\n").encode()


def parse_document(path: Path, content: bytes, fields: Iterable[str]) -> dict[str, Any]:
    """Return what `encode_document` wrote; `path` is for the messages, and `fields` are what it must hold at least.

    Raises:
        SnapshotCorruptError: it is damaged or was edited.
        SnapshotMismatchError: a newer release of trl_vade wrote it.
    """
    try:
        document = json.loads(content, parse_constant=_refuse_constant)
        if not isinstance(document, dict):
            raise TypeError(f"a {type(document).__name__} in place of an object")
        newer = document["format_version"] > FORMAT_VERSION
        if not newer:
            _check(document, fields)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise SnapshotCorruptError(
            f"{path} is not a description of a snapshot ({type(error).__name__}: {error}); it was damaged or edited. "
            "Load an earlier snapshot."
        ) from error
    if newer:
        raise SnapshotMismatchError(
            f"{path} has format version {document['format_version']} and this release of trl_vade reads up to "
            f"{FORMAT_VERSION}; fields it does not know could change what the others mean. Upgrade trl_vade."
        )
    return document


def _check(document: dict[str, Any], fields: Iterable[str]) -> None:
    digest = document.pop(_DIGEST, None)
    missing = [name for name in fields if name not in document]
    version = document["format_version"]
    if missing or type(version) is not int or version != FORMAT_VERSION:  # True is 1, and so is 1.0
        raise ValueError(f"format_version {version!r}, missing fields {missing}")
    if digest != _digest(document):
        raise ValueError(f"a value was altered: {_DIGEST} is {digest!r}, and {_digest(document)!r} follows from it")


def _digest(fields: dict[str, Any]) -> str:
    canonical = json.dumps(fields, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
