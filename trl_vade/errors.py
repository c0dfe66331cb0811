"""The exceptions of trl_vade.

All derive from `VADEError`. Most also derive from a built-in exception, so that code without knowledge of this package
can catch them. A message states the received value, the rule, the reason, and the remedy.
"""

from importlib import metadata, util
from typing import Any

from .version import TESTED_TRL, __version__


class VADEError(Exception):
    """The base of every exception that trl_vade raises on purpose."""


class ConfigurationError(VADEError, ValueError):
    """A setting or an argument that cannot work."""


class ObservationError(VADEError, ValueError):
    """Numbers that no set of rollouts can produce: more successes than trials, a pass rate of 1.2, a row twice."""


class SnapshotError(VADEError):
    """A saved sampler cannot be used."""


class SnapshotNotFoundError(SnapshotError, FileNotFoundError):
    """A saved sampler is missing."""


class SnapshotCorruptError(SnapshotError, ValueError):
    """A saved sampler is damaged."""


class SnapshotMismatchError(SnapshotError, ValueError):
    """A saved sampler belongs to another data set, other settings or a newer release."""


class CheckpointIncompleteError(VADEError, FileNotFoundError, ValueError):
    """A resume found no complete checkpoint; the stock Trainer raises one or the other built-in exception."""


class CheckpointSaveError(VADEError, OSError):
    """A checkpoint or the selection log could not be written: the disk is full or read-only."""


class EngineError(VADEError, RuntimeError):
    """A generation engine (a vLLM server) lacks something that training needs."""


class LibraryError(VADEError, ImportError):
    """TRL or transformers lacks something that trl_vade needs of it."""


class EvaluationError(VADEError, RuntimeError):
    """A benchmark was not evaluated, or not in full: a run left no result, or an impossible one."""


class JudgeError(EvaluationError):
    """The judge model is unreachable, returns nothing, or returns something other than a verdict."""


class HubError(VADEError, OSError):
    """The Hub refused a request or could not be reached. The local files are unchanged.

    Attributes:
        status: the HTTP status of the answer, or None without an answer.
        may_pass: whether a later retry may succeed.
        retry_after: seconds that the Hub asks to wait; 0 if it names none.
    """

    def __init__(
        self, message: str = "", *, status: int | None = None, may_pass: bool = False, retry_after: float = 0.0
    ) -> None:
        super().__init__(message)
        self.status, self.may_pass, self.retry_after = status, may_pass, retry_after


class HubOfflineError(HubError):
    """The Hub is switched off: HF_HUB_OFFLINE is set."""


class ImageDecodeError(VADEError, OSError):
    """An image of a chosen row cannot be decoded: it is damaged, missing, or in an unknown format."""


class ReplicaDivergenceError(VADEError, RuntimeError):
    """The sampler replicas of several ranks differ, although they see the same rewards."""


def naming_library(error: ImportError) -> ImportError:
    """Return a `LibraryError` for a name that TRL or transformers lacks, and any other error as it is."""
    library = (error.name or "").partition(".")[0]
    if library not in ("transformers", "trl") or not util.find_spec(library):
        return error
    return LibraryError(
        f"trl_vade {__version__} does not work with {library} {metadata.version(library)}: {error}. Install "
        f"'trl{TESTED_TRL}' with a transformers of its time, or a newer trl_vade.",
        name=error.name,
    )


def abbreviated(value: Any) -> str:
    """Return the repr of `value`, shortened beyond 200 characters, for a message."""
    try:
        text = repr(value)
    except Exception:  # the value's own code, a list nested too deep, or an `int` of more than 4300 digits
        return f"a {type(value).__name__} that cannot be printed"
    return text if len(text) <= 200 else f"{text[:150]}... ({len(text)} characters)"
