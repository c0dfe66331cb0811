"""A sampler as two files in a directory, so that what it knows can be resumed, read by people and shared.

    vade_posterior.safetensors   sample_index, last_update, visits (int64) and alpha, beta (float64, or float32 where
                                 there are 100,000 rows or more), an entry for each row ever visited; the header's
                                 metadata holds the step. Where the caller knows them also sample_key (int64), which
                                 says who those rows are, whatever their number
    vade_posterior.json          format_version, package_version, step, posterior_sha256 (of the file above), sampler
                                 (its state without those arrays), metadata (what the caller adds) and
                                 document_sha256 (of all the other fields)

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

from trl_vade.checks import IntArray
from trl_vade.errors import ConfigurationError, SnapshotCorruptError, SnapshotError, SnapshotNotFoundError
from trl_vade.files import FORMAT_VERSION, encode_document, parse_document, replace_durably, write_durably

from .base import PromptSampler
from .counts import STATE_ARRAYS

POSTERIOR_FILE = "vade_posterior.safetensors"
METADATA_FILE = "vade_posterior.json"

_PENDING = ".pending"
_PENDING_METADATA_FILE = METADATA_FILE + _PENDING
_FIELDS = ("format_version", "package_version", "step", "posterior_sha256", "sampler", "metadata")
_SAMPLE_KEY = "sample_key"


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """What `load_snapshot` read."""

    sampler_state: dict[str, Any]  # for PromptSampler.load_state_dict
    metadata: dict[str, Any]  # as given to save_snapshot
    digest: str  # SHA-256 of the safetensors file, 64 hexadecimal digits; save_snapshot returned the same
    sample_key: IntArray | None  # (V,) of the V rows ever visited, in ascending order of their number; None: not saved


def save_snapshot(
    directory: str | os.PathLike[str],
    sampler: PromptSampler,
    *,
    metadata: Mapping[str, Any] | None = None,
    sample_key: IntArray | None = None,
) -> str:
    """Write the sampler's state to `directory`, which is created, and return the SHA-256 of the safetensors bytes.

    Args:
        directory: where the two files go; a snapshot that is there is replaced.
        sampler: anything whose state is as `PromptSampler` says.
        metadata: JSON values to keep beside the state, such as the data set's fingerprint.
        sample_key: (N,) int64, a number of its own for each row that stays with it when rows are added, dropped or
            reordered; the counts can then be joined with another form of the data set.

    Raises:
        ConfigurationError: the metadata or the state is not strict JSON, or sample_key is not as above; nothing is
            written.
        OSError: the disk refused; the directory still holds a complete snapshot if it held one before.
    """
    tensors, digest, document = _encode(sampler.state_dict(), metadata or {}, sample_key)
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
    document = _pending_document(folder, digest) or _document(folder, METADATA_FILE)
    if document["posterior_sha256"] != digest:
        raise SnapshotCorruptError(
            f"{folder / POSTERIOR_FILE} has SHA-256 {digest[:12]}... and step {_step_in_header(tensors)}, and "
            f"{METADATA_FILE} beside it belongs to {str(document['posterior_sha256'])[:12]}... and step "
            f"{document['step']}. They must agree: one of them was truncated, altered, or copied from another "
            "snapshot. Load an earlier snapshot."
        )
    arrays = _arrays(folder, tensors)
    sample_key = arrays.pop(_SAMPLE_KEY, None)
    sampler_state = {**document["sampler"], "posterior": {**document["sampler"]["posterior"], **arrays}}
    if not document["step"] == sampler_state["posterior"].get("step") == _step_in_header(tensors):
        raise SnapshotCorruptError(
            f"{folder / METADATA_FILE} says step {document['step']}, its sampler "
            f"{sampler_state['posterior'].get('step')} and {POSTERIOR_FILE} {_step_in_header(tensors)}; they must be "
            "equal. The JSON was edited: load an earlier snapshot."
        )
    return Snapshot(sampler_state, document["metadata"], digest, sample_key)


def state_digest(sampler: PromptSampler) -> str:
    """Return the SHA-256 of the whole state, generator included; replicas on several ranks are equal if these are."""
    canonical = json.dumps(sampler.state_dict(), sort_keys=True, allow_nan=False, default=_array_digest)
    return hashlib.sha256(canonical.encode()).hexdigest()


def _encode(
    state: dict[str, Any], metadata: Mapping[str, Any], sample_key: IntArray | None
) -> tuple[bytes, str, bytes]:
    """Return the safetensors bytes, their digest and the JSON bytes."""
    posterior = state["posterior"]
    arrays = {name: posterior[name] for name in STATE_ARRAYS}
    if sample_key is not None:
        if sample_key.dtype != np.int64 or sample_key.shape != (posterior["num_samples"],):
            raise ConfigurationError(
                f"sample_key is {sample_key.dtype} of shape {sample_key.shape}; it must be an int64 vector with a "
                f"number for each of the {posterior['num_samples']} rows. "
                "Pass trl_vade.data.row_keys.sample_keys(dataset)[0]."
            )
        arrays[_SAMPLE_KEY] = sample_key[posterior["sample_index"]]
    # One key of metadata and no more: safetensors may write several in any order, and equal states give equal bytes.
    tensors = to_safetensors(arrays, metadata={"step": str(posterior["step"])})
    digest = hashlib.sha256(tensors).hexdigest()
    scalars = {name: value for name, value in posterior.items() if name not in STATE_ARRAYS}
    values = (
        FORMAT_VERSION,
        _package_version(),
        posterior["step"],
        digest,
        {**state, "posterior": scalars},
        dict(metadata),
    )
    return tensors, digest, encode_document(dict(zip(_FIELDS, values, strict=True)))


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


def _document(folder: Path, name: str) -> dict[str, Any]:
    document = parse_document(folder / name, _read(folder, name), _FIELDS)
    posterior = document["sampler"].get("posterior") if isinstance(document["sampler"], dict) else None
    if not isinstance(posterior, dict) or not isinstance(document["metadata"], dict):
        raise SnapshotCorruptError(
            f"{folder / name} lacks the sampler's posterior or the metadata; it was not written by save_snapshot. "
            "Load another snapshot."
        )
    if posterior.keys() & set(STATE_ARRAYS):
        raise SnapshotCorruptError(
            f"{folder / name} holds {sorted(posterior.keys() & set(STATE_ARRAYS))}, which belong into "
            f"{POSTERIOR_FILE} alone: the two could differ. It was edited: load another snapshot."
        )
    return document


def _pending_document(folder: Path, digest: str) -> dict[str, Any] | None:
    """Return what an interrupted save left, if it describes the safetensors file of this digest."""
    try:
        document = _document(folder, _PENDING_METADATA_FILE)
    except SnapshotError:  # none is there, which is the usual case, or the crash came while it was written
        return None
    return document if document["posterior_sha256"] == digest else None


def _finish_interrupted_save(folder: Path) -> None:
    """Give the pending JSON its name if it is in use: the save that follows would overwrite it."""
    if (folder / _PENDING_METADATA_FILE).exists() and (folder / POSTERIOR_FILE).exists():
        digest = hashlib.sha256(_read(folder, POSTERIOR_FILE)).hexdigest()
        if _pending_document(folder, digest):
            replace_durably(folder / _PENDING_METADATA_FILE, folder / METADATA_FILE)


def _arrays(folder: Path, tensors: bytes) -> dict[str, Any]:
    try:
        arrays = load_safetensors(tensors)
    except (SafetensorError, LookupError, ArithmeticError, ValueError) as error:  # the latter: types and shapes that
        raise SnapshotCorruptError(  # safetensors knows and numpy does not
            f"{folder / POSTERIOR_FILE} is not a safetensors file of numpy arrays ({type(error).__name__}: {error}). "
            "Load another snapshot."
        ) from error
    if arrays.keys() - {_SAMPLE_KEY} != set(STATE_ARRAYS):
        raise SnapshotCorruptError(
            f"{folder / POSTERIOR_FILE} holds {sorted(arrays)}; it must hold {sorted(STATE_ARRAYS)}. It was not "
            "written by save_snapshot: load another snapshot."
        )
    key = arrays.get(_SAMPLE_KEY, arrays["sample_index"])
    if key.dtype != np.int64 or key.shape != arrays["sample_index"].shape:
        raise SnapshotCorruptError(
            f"{folder / POSTERIOR_FILE} holds a sample_key of {key.dtype} and shape {key.shape}; it must be int64, "
            f"one for each of the {arrays['sample_index'].shape} rows. Load another snapshot."
        )
    return arrays


def _step_in_header(tensors: bytes) -> int | None:
    """Return the step in the safetensors header (8 bytes of length, then JSON), or None where it cannot be read."""
    try:
        header = json.loads(tensors[8 : 8 + int.from_bytes(tensors[:8], "little")])
        return int(header["__metadata__"]["step"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def _array_digest(value: Any) -> list[Any]:
    if not isinstance(value, np.ndarray):
        raise TypeError(f"a {type(value).__name__} in a sampler's state; it must hold arrays and JSON values only")
    return [value.dtype.str, value.shape, hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()]
