"""Snapshots: the state of a sampler as two files in a directory.

    vade_posterior.safetensors   sample_index, last_update, visits (int64), alpha and beta (float64; float32 from
                                 100,000 rows on), one entry for each visited row; optionally sample_key (int64),
                                 which identifies these rows. The metadata in the header holds the step
    vade_posterior.json          format_version, package_version, step, posterior_sha256 (of the file above), sampler
                                 (its state without those arrays), metadata (of the caller) and document_sha256
                                 (of all other fields)

Two files cannot be replaced at one instant, and a crash may come between. So `save_snapshot` first writes the new JSON
under a pending name. `load_snapshot` uses that file if the JSON does not belong to the safetensors file. A reader
finds either the previous snapshot or the new one, never a mixture.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_safetensors
from safetensors.numpy import save as to_safetensors

from trl_vade.checks import IntArray
from trl_vade.errors import ConfigurationError, SnapshotCorruptError, SnapshotError, SnapshotNotFoundError
from trl_vade.files import FORMAT_VERSION, encode_document, parse_document, replace_durably, write_durably
from trl_vade.version import __version__

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
    """A snapshot in memory, as `load_snapshot` returns it."""

    sampler_state: dict[str, Any]  # the state for `PromptSampler.load_state_dict`
    metadata: dict[str, Any]  # the values that the caller of `save_snapshot` added
    digest: str  # the SHA-256 of the safetensors file, 64 hexadecimal digits
    # (V,) the keys of the visited rows, in ascending order of the row; None if they were not saved
    sample_key: IntArray | None


def save_snapshot(
    directory: str | os.PathLike[str],
    sampler: PromptSampler,
    *,
    metadata: Mapping[str, Any] | None = None,
    sample_key: IntArray | None = None,
) -> str:
    """Write the sampler's state to `directory` and return the SHA-256 of the safetensors file.

    Args:
        directory: the folder of the two files. It is created if needed, and an older snapshot in it is replaced.
        sampler: a sampler with a state as `PromptSampler` describes it.
        metadata: JSON values to save with the state, such as the data set's fingerprint.
        sample_key: (N,) int64, a key of each row that survives adding, dropping and reordering rows. With it the
            counts can be joined with another version of the data set.

    Returns:
        64 hexadecimal digits.

    Raises:
        ConfigurationError: the metadata or the state is not strict JSON, or `sample_key` has another shape or dtype.
            Nothing is written.
        OSError: the disk refused a write. An older snapshot in the directory stays complete.
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
        if pending_tensors.exists():  # else it is in place already, and the pending JSON belongs to it
            pending_tensors.unlink()
            (folder / _PENDING_METADATA_FILE).unlink(missing_ok=True)
        raise
    replace_durably(folder / _PENDING_METADATA_FILE, folder / METADATA_FILE)
    return digest


def load_snapshot(directory: str | os.PathLike[str]) -> Snapshot:
    """Read a snapshot and check every byte of it against its digests.

    Args:
        directory: the folder that `save_snapshot` wrote to.

    Raises:
        SnapshotNotFoundError: one of the two files is missing.
        SnapshotCorruptError: a file is truncated, altered or lacks fields, or the two belong to different steps.
        SnapshotMismatchError: a newer release of trl_vade wrote the files.
    """
    folder = Path(directory)
    tensors = _read(folder, POSTERIOR_FILE)
    digest = hashlib.sha256(tensors).hexdigest()
    document = _pending_document(folder, digest) or _document(folder, METADATA_FILE)
    if document["posterior_sha256"] != digest:
        raise SnapshotCorruptError(
            f"{folder / POSTERIOR_FILE} has SHA-256 {digest[:12]}... and step {_step_in_header(tensors)}; "
            f"{METADATA_FILE} names {str(document['posterior_sha256'])[:12]}... and step {document['step']}. They "
            "must be equal: one file was truncated, altered, or copied from another snapshot. Load an earlier "
            "snapshot."
        )
    arrays = _arrays(folder, tensors)
    sample_key = arrays.pop(_SAMPLE_KEY, None)
    sampler_state = {**document["sampler"], "posterior": {**document["sampler"]["posterior"], **arrays}}
    if not document["step"] == sampler_state["posterior"].get("step") == _step_in_header(tensors):
        raise SnapshotCorruptError(
            f"{folder / METADATA_FILE} says step {document['step']}, its sampler "
            f"{sampler_state['posterior'].get('step')} and {POSTERIOR_FILE} {_step_in_header(tensors)}; they must be "
            "equal. The JSON was edited. Load an earlier snapshot."
        )
    return Snapshot(sampler_state, document["metadata"], digest, sample_key)


def state_digest(sampler: PromptSampler) -> str:
    """Return the SHA-256 of the whole state, random stream included, to compare replicas on several ranks."""
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
                f"sample_key is {sample_key.dtype} of shape {sample_key.shape}; it must be an int64 vector with one "
                f"entry for each of the {posterior['num_samples']} rows. "
                "Pass trl_vade.data.row_keys.sample_keys(dataset)[0]."
            )
        arrays[_SAMPLE_KEY] = sample_key[posterior["sample_index"]]
    # Only one key of metadata: safetensors may write several in any order, and equal states must give equal bytes.
    tensors = to_safetensors(arrays, metadata={"step": str(posterior["step"])})
    digest = hashlib.sha256(tensors).hexdigest()
    scalars = {name: value for name, value in posterior.items() if name not in STATE_ARRAYS}
    sampler = {**state, "posterior": scalars}
    values = (FORMAT_VERSION, __version__, posterior["step"], digest, sampler, dict(metadata))
    return tensors, digest, encode_document(dict(zip(_FIELDS, values, strict=True)))


def _read(folder: Path, name: str) -> bytes:
    try:
        return (folder / name).read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        other = METADATA_FILE if name == POSTERIOR_FILE else POSTERIOR_FILE
        beside = "exists" if (folder / other).exists() else "is missing, too"
        raise SnapshotNotFoundError(
            f"{name} is not in {folder} ({other} {beside}); a snapshot needs both files. Copy both, or name the "
            "directory of a checkpoint that trl_vade saved."
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
            f"{folder / name} holds {sorted(posterior.keys() & set(STATE_ARRAYS))}, which belong in {POSTERIOR_FILE} "
            "only. The file was edited. Load another snapshot."
        )
    return document


def _pending_document(folder: Path, digest: str) -> dict[str, Any] | None:
    """Return the JSON of an interrupted save if it belongs to the safetensors file of this digest."""
    try:
        document = _document(folder, _PENDING_METADATA_FILE)
    except SnapshotError:  # usually it does not exist; it is partial if a crash came while it was written
        return None
    return document if document["posterior_sha256"] == digest else None


def _finish_interrupted_save(folder: Path) -> None:
    """Rename the pending JSON to its final name if it is in use: the next save would overwrite it."""
    if (folder / _PENDING_METADATA_FILE).exists() and (folder / POSTERIOR_FILE).exists():
        digest = hashlib.sha256(_read(folder, POSTERIOR_FILE)).hexdigest()
        if _pending_document(folder, digest):
            replace_durably(folder / _PENDING_METADATA_FILE, folder / METADATA_FILE)


def _arrays(folder: Path, tensors: bytes) -> dict[str, Any]:
    try:
        arrays = load_safetensors(tensors)
    except (SafetensorError, LookupError, ArithmeticError, ValueError) as error:  # numpy lacks some of its types
        raise SnapshotCorruptError(
            f"{folder / POSTERIOR_FILE} is not a safetensors file of numpy arrays ({type(error).__name__}: {error}). "
            "Load another snapshot."
        ) from error
    if arrays.keys() - {_SAMPLE_KEY} != set(STATE_ARRAYS):
        raise SnapshotCorruptError(
            f"{folder / POSTERIOR_FILE} holds {sorted(arrays)}; it must hold {sorted(STATE_ARRAYS)}. It was not "
            "written by save_snapshot. Load another snapshot."
        )
    key = arrays.get(_SAMPLE_KEY, arrays["sample_index"])
    if key.dtype != np.int64 or key.shape != arrays["sample_index"].shape:
        raise SnapshotCorruptError(
            f"{folder / POSTERIOR_FILE} holds a sample_key of {key.dtype} and shape {key.shape}; it must be int64, "
            f"with the shape of sample_index, {arrays['sample_index'].shape}. Load another snapshot."
        )
    return arrays


def _step_in_header(tensors: bytes) -> int | None:
    """Return the step in the safetensors header (8 bytes of length, then JSON), or None if it cannot be read."""
    try:
        header = json.loads(tensors[8 : 8 + int.from_bytes(tensors[:8], "little")])
        return int(header["__metadata__"]["step"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def _array_digest(value: Any) -> list[Any]:
    if not isinstance(value, np.ndarray):
        raise TypeError(f"The sampler's state holds a {type(value).__name__}; use arrays and JSON values only.")
    return [value.dtype.str, value.shape, hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()]
