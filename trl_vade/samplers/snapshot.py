"""Snapshots: the state of a sampler as one file, which is replaced at one instant.

    arrays      sample_index, last_update, visits (int64), alpha and beta (float64), one entry for each scored row;
                optionally sample_key (int64), which identifies these rows
    metadata    `vade_posterior`: a JSON document with format_version, package_version, sampler (its state without
                these arrays), metadata (of the caller) and document_sha256

`document_sha256` is the SHA-256 of the whole file with zeros in its place. Equal states give equal bytes.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load as load_safetensors
from safetensors.numpy import save as to_safetensors

from trl_vade.checks import IntArray
from trl_vade.errors import (
    ConfigurationError,
    SnapshotCorruptError,
    SnapshotError,
    SnapshotMismatchError,
    SnapshotNotFoundError,
)
from trl_vade.files import save_whole
from trl_vade.version import __version__

from .base import PromptSampler
from .posterior import STATE_ARRAYS

POSTERIOR_FILE = "vade_posterior.safetensors"
FORMAT_VERSION = 1
MOST_HEADER = 2**24  # bytes, with the state of a sampler of one's own; takes 400 MB to parse

_DOCUMENT = "vade_posterior"  # the only key: safetensors may write several in any order
_FIELDS = ("format_version", "package_version", "sampler", "metadata")
_DIGEST, _ZEROS, _BEFORE_DIGEST = "document_sha256", b"0" * 64, rb"{\"document_sha256\":\""
_SAMPLE_KEY = "sample_key"


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """A snapshot in memory."""

    sampler_state: dict[str, Any]  # the state for `PromptSampler.load_state_dict`
    metadata: dict[str, Any]  # the values that the caller of `save_snapshot` added
    digest: str  # the SHA-256 of the file, 64 hexadecimal digits
    sample_key: IntArray | None  # (V,) the keys of the scored rows, in ascending order of the row, if they were saved


def save_snapshot(
    directory: str | os.PathLike[str],
    sampler: PromptSampler,
    *,
    metadata: Mapping[str, Any] | None = None,
    sample_key: IntArray | None = None,
) -> str:
    """Write the sampler's state to the folder `directory`, and return the SHA-256 of the file.

    Args:
        directory: it is created if needed. An older snapshot in it is replaced.
        sampler: a sampler whose state is JSON values and, under `posterior`, the state of a `BetaPosterior`.
        metadata: JSON values to save with the state, such as the data set's fingerprint.
        sample_key: (N,) int64, a key of each row that survives adding, dropping and reordering rows. With it the
            counts can be joined with another version of the data set.

    Raises:
        ConfigurationError: the metadata or the state is no strict JSON or too large, or `sample_key` does not fit.
        OSError: the disk refused a write. An older snapshot in the directory stays complete.
    """
    content = _encode(sampler, metadata or {}, sample_key)
    save_whole(Path(directory) / POSTERIOR_FILE, content)
    return hashlib.sha256(content).hexdigest()


def load_snapshot(directory: str | os.PathLike[str]) -> Snapshot:
    """Read the snapshot in a folder, or a `.safetensors` file, and check every byte of it against its digest.

    Raises:
        SnapshotNotFoundError: the file is missing.
        SnapshotCorruptError: the file is truncated, altered or lacks fields.
        SnapshotMismatchError: a newer release of trl_vade wrote the file.
    """
    path = Path(directory)
    path = path if path.suffix == ".safetensors" and path.is_file() else path / POSTERIOR_FILE
    try:
        with path.open("rb") as file:
            if (size := int.from_bytes(file.read(8), "little")) > MOST_HEADER:
                raise ValueError(f"a header of {size:,} bytes, and at most {MOST_HEADER:,} are possible")
            document = _parse(path, json.loads(file.read(size))["__metadata__"][_DOCUMENT])
            most = 8 + size + 8 * (len(STATE_ARRAYS) + 1) * document["sampler"]["posterior"]["num_samples"]
            if os.fstat(file.fileno()).st_size > most:  # such as a sparse file of 16 GB
                raise ValueError(f"it is larger than {most:,} bytes, and its rows cannot take more")
            file.seek(0)
            content = file.read()
        if document[_DIGEST] != (digest := _digest(content)):
            raise ValueError(f"a value was altered: {_DIGEST} is {document[_DIGEST]}, but the content gives {digest}")
        arrays: dict[str, Any] = load_safetensors(content)
        sampler, metadata, sample_key = document["sampler"], document["metadata"], arrays.pop(_SAMPLE_KEY, None)
        state = {**sampler, "posterior": {**sampler["posterior"], **arrays}}
        if arrays.keys() != set(STATE_ARRAYS) or type(metadata) is not dict:
            raise TypeError(f"it holds {sorted(arrays)} and metadata of type {type(metadata).__name__}")
        if sample_key is not None and (sample_key.dtype, sample_key.shape) != (np.int64, arrays["sample_index"].shape):
            raise TypeError(f"sample_key is {sample_key.dtype}, {sample_key.shape}, and not an int64 a row")
    except (FileNotFoundError, NotADirectoryError) as error:
        message = f"{path.name} is not in {path.parent}. Name the directory of a checkpoint that trl_vade saved."
        raise SnapshotNotFoundError(message) from error
    except (SnapshotError, OSError, MemoryError):
        raise
    except Exception as error:  # of any kind: a stranger's file may hold anything
        raise SnapshotCorruptError(
            f"{path} is no snapshot ({type(error).__name__}: {error}). It was damaged, or of another program: load "
            "another."
        ) from error
    return Snapshot(state, metadata, hashlib.sha256(content).hexdigest(), sample_key)


def state_digest(sampler: PromptSampler) -> str:
    """Return the SHA-256 of the whole state, random stream included, to compare replicas on several ranks."""
    return hashlib.sha256(_encode(sampler, {}, None)).hexdigest()


def _encode(sampler: PromptSampler, metadata: Mapping[str, Any], sample_key: IntArray | None) -> bytes:
    state = sampler.state_dict()
    posterior = state["posterior"]
    arrays = {name: posterior[name] for name in STATE_ARRAYS}
    if sample_key is not None:
        if sample_key.dtype != np.int64 or sample_key.shape != (posterior["num_samples"],):
            raise ConfigurationError(
                f"sample_key is {sample_key.dtype} of shape {sample_key.shape}; it must be int64, an entry for each "
                f"of the {posterior['num_samples']} rows."
            )
        arrays[_SAMPLE_KEY] = sample_key[posterior["sample_index"]]
    scalars = {name: value for name, value in posterior.items() if name not in STATE_ARRAYS}
    values = (FORMAT_VERSION, __version__, {**state, "posterior": scalars}, dict(metadata))
    document = {**dict(zip(_FIELDS, values, strict=True)), _DIGEST: _ZEROS.decode()}
    try:
        plain = json.loads(json.dumps(document, allow_nan=False))  # every key becomes a string, and can be sorted
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"The metadata or the sampler's state cannot be written as strict JSON: {error}. Only None, booleans, "
            "finite numbers, strings, lists and dicts are allowed. Convert other values before the call."
        ) from error
    content = to_safetensors(arrays, metadata={_DOCUMENT: json.dumps(plain, sort_keys=True, separators=(",", ":"))})
    if (size := int.from_bytes(content[:8], "little")) > MOST_HEADER:
        raise ConfigurationError(
            f"The metadata and the sampler's state take {size:,} bytes of JSON; a snapshot holds {MOST_HEADER:,}."
        )
    return content.replace(_ZEROS, _digest(content).encode(), 1)


def _parse(path: Path, text: str) -> dict[str, Any]:
    """Return the document of a snapshot, or raise a `ValueError` if it is no strict JSON or not whole."""
    document: dict[str, Any] = json.loads(text)
    json.dumps(document, allow_nan=False)  # NaN and 1e999 are read, and an error here
    version = document["format_version"]
    if version > FORMAT_VERSION:  # it may have any fields
        ours = f"this release reads versions up to {FORMAT_VERSION}. Upgrade trl_vade."
        raise SnapshotMismatchError(f"{path} has format version {version}; {ours}")
    missing = [name for name in _FIELDS if name not in document]
    if missing or type(version) is not int or version != FORMAT_VERSION:  # True is 1, and 1.0
        raise ValueError(f"format_version {version!r}, missing fields {missing}")
    return document


def _digest(content: bytes) -> str:
    """Return the SHA-256 of a snapshot with zeros in place of its own digest."""
    start = content.find(_BEFORE_DIGEST) + len(_BEFORE_DIGEST)
    digest, view = hashlib.sha256(), memoryview(content)
    for part in (view[:start], _ZEROS, view[start + len(_ZEROS) :]):
        digest.update(part)
    return digest.hexdigest()
