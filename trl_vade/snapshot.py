"""A sampler as two files in a directory, so that what it knows can be resumed, read by people and shared.

    vade_posterior.safetensors   sample_index, last_update, visits (int64) and alpha, beta (float64), an entry for
                                 each row ever visited; the header's metadata holds the step
    vade_posterior.json          format_version, package_version, step, posterior_sha256 (of the file above), sampler
                                 (its state without those arrays) and metadata (what the caller adds)

The JSON is strict (no NaN) and names the bytes it belongs to. Two files cannot be replaced at one instant, so a crash
could leave a new one beside an old one. `save_snapshot` therefore completes the new JSON under a pending name before
it touches either file, and `load_snapshot` turns to that when the two do not belong together: a reader finds the
previous snapshot or the new one, never a mixture.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata as distributions
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_safetensors
from safetensors.numpy import save as to_safetensors

from .durable import replace_durably, write_durably
from .errors import (
    ConfigurationError,
    SnapshotCorruptError,
    SnapshotError,
    SnapshotMismatchError,
    SnapshotNotFoundError,
)
from .posterior import STATE_DTYPES
from .prompt_sampler import PromptSampler

POSTERIOR_FILE = "vade_posterior.safetensors"
METADATA_FILE = "vade_posterior.json"
FORMAT_VERSION = 1

_PENDING = ".pending"
_PENDING_METADATA_FILE = METADATA_FILE + _PENDING
_FIELDS = ("format_version", "package_version", "step", "posterior_sha256", "sampler", "metadata")


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """What `load_snapshot` read."""

    sampler_state: dict[str, Any]  # for PromptSampler.load_state_dict
    metadata: dict[str, Any]  # as given to save_snapshot
    digest: str  # SHA-256 of the safetensors file, 64 hexadecimal digits; save_snapshot returned the same


def save_snapshot(
    directory: str | os.PathLike[str], sampler: PromptSampler, *, metadata: Mapping[str, Any] | None = None
) -> str:
    """Write the sampler's state to `directory`, which is created, and return the SHA-256 of the safetensors bytes.

    Args:
        directory: where the two files go; a snapshot that is there is replaced.
        sampler: anything whose state is as `PromptSampler` says.
        metadata: JSON values to keep beside the state, such as the data set's fingerprint.

    Raises:
        ConfigurationError: the metadata or the state is not strict JSON; nothing is written.
        OSError: the disk refused; the directory still holds a complete snapshot if it held one before.
    """
    tensors, digest, document = _encode(sampler.state_dict(), metadata or {})
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    _finish_interrupted_save(folder)
    pending_tensors = folder / (POSTERIOR_FILE + _PENDING)
    try:
        write_durably(pending_tensors, tensors)
        write_durably(folder / _PENDING_METADATA_FILE, document)
        replace_durably(pending_tensors, folder / POSTERIOR_FILE)
    except BaseException:
        # Once the file has its name, the pending JSON is the only one that belongs to it, and must stay.
        if pending_tensors.exists():
            pending_tensors.unlink()
            (folder / _PENDING_METADATA_FILE).unlink(missing_ok=True)
        raise
    replace_durably(folder / _PENDING_METADATA_FILE, folder / METADATA_FILE)
    return digest


def load_snapshot(directory: str | os.PathLike[str]) -> Snapshot:
    """Read what `save_snapshot` wrote; every byte of the posterior is checked against the digest.

    Raises:
        SnapshotNotFoundError: one of the two files is missing.
        SnapshotCorruptError: a file is truncated, altered or lacks fields, or the two are of different steps.
        SnapshotMismatchError: a newer release of trl_vade wrote them.
    """
    folder = Path(directory)
    tensors = _read(folder, POSTERIOR_FILE)
    digest = hashlib.sha256(tensors).hexdigest()
    document = _pending_document(folder, digest) or _parse(folder / METADATA_FILE, _read(folder, METADATA_FILE))
    if document["posterior_sha256"] != digest:
        raise SnapshotCorruptError(
            f"{folder / POSTERIOR_FILE} has SHA-256 {digest[:12]}... and step {_step_in_header(tensors)}, and "
            f"{METADATA_FILE} beside it belongs to {str(document['posterior_sha256'])[:12]}... and step "
            f"{document['step']}. They must agree: one of them was truncated, altered, or copied from another "
            "snapshot. Load an earlier snapshot."
        )
    sampler_state = {
        **document["sampler"],
        "posterior": {**document["sampler"]["posterior"], **_arrays(folder, tensors)},
    }
    if not document["step"] == sampler_state["posterior"].get("step") == _step_in_header(tensors):
        raise SnapshotCorruptError(
            f"{folder / METADATA_FILE} says step {document['step']}, its sampler "
            f"{sampler_state['posterior'].get('step')} and {POSTERIOR_FILE} {_step_in_header(tensors)}; they must be "
            "equal. The JSON was edited: load an earlier snapshot."
        )
    return Snapshot(sampler_state, document["metadata"], digest)


def state_digest(sampler: PromptSampler) -> str:
    """Return the SHA-256 of the whole state, generator included; replicas on several ranks are equal if these are."""
    canonical = json.dumps(sampler.state_dict(), sort_keys=True, allow_nan=False, default=_array_digest)
    return hashlib.sha256(canonical.encode()).hexdigest()


def _encode(state: dict[str, Any], metadata: Mapping[str, Any]) -> tuple[bytes, str, bytes]:
    """Return the safetensors bytes, their digest and the JSON bytes."""
    posterior = state["posterior"]
    # One key of metadata and no more: safetensors may write several in any order, and equal states give equal bytes.
    tensors = to_safetensors(
        {name: posterior[name] for name in STATE_DTYPES}, metadata={"step": str(posterior["step"])}
    )
    digest = hashlib.sha256(tensors).hexdigest()
    scalars = {name: value for name, value in posterior.items() if name not in STATE_DTYPES}
    values = (
        FORMAT_VERSION,
        _package_version(),
        posterior["step"],
        digest,
        {**state, "posterior": scalars},
        dict(metadata),
    )
    try:
        document = json.dumps(dict(zip(_FIELDS, values, strict=True)), indent=2, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"The metadata or the sampler's state cannot be written as strict JSON: {error}. Only None, booleans, "
            "finite numbers, strings, lists and dicts can; convert the rest before the call."
        ) from error
    return tensors, digest, (document + "\n").encode()


def _package_version() -> str:
    try:
        return distributions.version("trl-vade")
    except distributions.PackageNotFoundError:  # used from a checkout that was never installed
        return "unknown"


def _read(folder: Path, name: str) -> bytes:
    try:
        return (folder / name).read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        other = METADATA_FILE if name == POSTERIOR_FILE else POSTERIOR_FILE
        beside = f"{other} is there without it" if (folder / other).exists() else f"nor is {other}"
        raise SnapshotNotFoundError(
            f"{name} is not in {folder} ({beside}); a snapshot is both files, since one has the counts and the other "
            "what they belong to. Copy both, or name the directory of a checkpoint that VADE saved."
        ) from error


def _pending_document(folder: Path, digest: str) -> dict[str, Any] | None:
    """Return what an interrupted save left, if it describes the safetensors file of this digest."""
    try:
        document = _parse(folder / _PENDING_METADATA_FILE, _read(folder, _PENDING_METADATA_FILE))
    except SnapshotError:  # none is there, which is the usual case, or the crash came while it was written
        return None
    return document if document["posterior_sha256"] == digest else None


def _finish_interrupted_save(folder: Path) -> None:
    """Give the pending JSON its name if it is in use: the save that follows would overwrite it."""
    if (folder / _PENDING_METADATA_FILE).exists() and (folder / POSTERIOR_FILE).exists():
        digest = hashlib.sha256(_read(folder, POSTERIOR_FILE)).hexdigest()
        if _pending_document(folder, digest):
            replace_durably(folder / _PENDING_METADATA_FILE, folder / METADATA_FILE)


def _parse(path: Path, content: bytes) -> dict[str, Any]:
    try:
        document = json.loads(content, parse_constant=_refuse_constant)
        newer = document["format_version"] > FORMAT_VERSION
        if not newer:
            _check_document(document)
    except (KeyError, TypeError, ValueError) as error:
        raise SnapshotCorruptError(
            f"{path} is not a description of a snapshot ({type(error).__name__}: {error}); it was damaged or edited. "
            "Load an earlier snapshot."
        ) from error
    if newer:
        raise SnapshotMismatchError(
            f"{path} has format version {document['format_version']} and this release of trl_vade reads up to "
            f"{FORMAT_VERSION}; fields it does not know could change what the others mean. Upgrade trl_vade."
        )
    return dict(document)


def _check_document(document: Any) -> None:
    missing = [name for name in _FIELDS if name not in document]
    if missing or document["format_version"] != FORMAT_VERSION:
        raise ValueError(f"format_version {document['format_version']!r}, missing fields {missing}")
    if not isinstance(document["sampler"]["posterior"], dict) or not isinstance(document["metadata"], dict):
        raise TypeError("sampler.posterior and metadata must be objects")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _arrays(folder: Path, tensors: bytes) -> dict[str, Any]:
    try:
        arrays = load_safetensors(tensors)
    except SafetensorError as error:
        raise SnapshotCorruptError(
            f"{folder / POSTERIOR_FILE} is not a safetensors file ({error}). Load another snapshot."
        ) from error
    if arrays.keys() != STATE_DTYPES.keys():
        raise SnapshotCorruptError(
            f"{folder / POSTERIOR_FILE} holds {sorted(arrays)}; it must hold {sorted(STATE_DTYPES)}. It was not "
            "written by save_snapshot: load another snapshot."
        )
    return arrays


def _step_in_header(tensors: bytes) -> int | None:
    """Return the step in the safetensors header (8 bytes of length, then JSON), or None where it cannot be read."""
    try:
        header = json.loads(tensors[8 : 8 + int.from_bytes(tensors[:8], "little")])
        return int(header["__metadata__"]["step"])
    except (ValueError, KeyError, TypeError):
        return None


def _array_digest(value: Any) -> list[Any]:
    if not isinstance(value, np.ndarray):
        raise TypeError(f"a {type(value).__name__} in a sampler's state; it must hold arrays and JSON values only")
    return [value.dtype.str, value.shape, hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()]
