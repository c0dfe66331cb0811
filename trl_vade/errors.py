"""The exceptions of trl_vade.

    VADEError(Exception)                            whatever this package raises on purpose
    |-- ConfigurationError(ValueError)              a setting or an argument that cannot work
    |-- ObservationError(ValueError)                numbers that no set of rollouts can produce
    |-- SnapshotError                               a saved sampler cannot be used
    |   |-- SnapshotNotFoundError(FileNotFoundError)    it is not there
    |   |-- SnapshotCorruptError(ValueError)            it is there, and damaged
    |   `-- SnapshotMismatchError(ValueError)           it is sound, and belongs to something else
    |-- CheckpointIncompleteError(FileNotFoundError, ValueError)  no whole checkpoint where one was asked for
    |-- CheckpointSaveError(OSError)                a checkpoint could not be written
    |-- EngineError(RuntimeError)                   a generation engine cannot do what training needs of it
    |-- EvaluationError(RuntimeError)               a benchmark was not evaluated, or not in full
    |   `-- JudgeError                                  because of the model that judges the answers
    |-- HubError(OSError)                           the Hub refused, or could not be reached
    |   `-- HubOfflineError                             because HF_HUB_OFFLINE says so
    |-- ImageDecodeError(OSError)                   an image of a chosen row cannot be decoded
    |-- SourceSchemaError(ValueError)               a source of the training mixture is not what it was
    |-- SourceShortageError(ValueError)             a source has fewer usable rows than are asked for
    `-- ReplicaDivergenceError(RuntimeError)        the sampler replicas of several ranks differ

Every leaf also derives from the built-in exception in brackets, so code that knows nothing of this package can catch
it. A message says what was received, the rule, the reason, and what to do.
"""

from typing import Any


class VADEError(Exception):
    """Base of every exception that trl_vade raises on purpose."""


class ConfigurationError(VADEError, ValueError):
    """A setting or an argument that cannot work."""


class ObservationError(VADEError, ValueError):
    """Numbers that no set of rollouts can produce: more successes than trials, a pass rate of 1.2, a row twice."""


class SnapshotError(VADEError):
    """A saved sampler cannot be used."""


class SnapshotNotFoundError(SnapshotError, FileNotFoundError):
    """A saved sampler, or one of its two files, is not there."""


class SnapshotCorruptError(SnapshotError, ValueError):
    """A saved sampler is there, and damaged."""


class SnapshotMismatchError(SnapshotError, ValueError):
    """A saved sampler is sound, and belongs to another data set, other settings or a newer release."""


class CheckpointIncompleteError(VADEError, FileNotFoundError, ValueError):
    """No whole checkpoint is where a resume was asked for; the stock Trainer raises one or the other of the two."""


class CheckpointSaveError(VADEError, OSError):
    """A checkpoint, or the selection log, could not be written: the disk is full, or may not be written to."""


class EngineError(VADEError, RuntimeError):
    """A generation engine (a vLLM server) cannot do what training needs of it."""


class EvaluationError(VADEError, RuntimeError):
    """A benchmark was not evaluated, or not in full: a run left no result, or one that cannot be true."""


class JudgeError(EvaluationError):
    """The model that judges the answers is not there, gives nothing, or gives what is no verdict."""


class HubError(VADEError, OSError):
    """The Hub refused, or could not be reached; what was to be sent is still here.

    Attributes:
        status: of the Hub's answer; None where there was none.
        may_pass: whether another attempt, later, may succeed.
        retry_after: seconds that the Hub asks to wait, 0 where it does not.
    """

    def __init__(
        self, message: str = "", *, status: int | None = None, may_pass: bool = False, retry_after: float = 0.0
    ) -> None:
        super().__init__(message)
        self.status, self.may_pass, self.retry_after = status, may_pass, retry_after


class HubOfflineError(HubError):
    """The Hub is not to be reached: HF_HUB_OFFLINE is set."""


class ImageDecodeError(VADEError, OSError):
    """An image of a chosen row cannot be decoded: it is damaged, of no known format, or not there."""


class SourceSchemaError(VADEError, ValueError):
    """A source of the training mixture lacks a configuration or a column, or has one of another type."""


class SourceShortageError(VADEError, ValueError):
    """A source of the training mixture has fewer usable rows than are asked for."""


class ReplicaDivergenceError(VADEError, RuntimeError):
    """The sampler replicas of several ranks, which see the same rewards and must stay equal, differ."""


def abbreviated(value: Any) -> str:
    """Return `value` for a message: its repr, cut where it is long, or its type where it has none.

    A whole number of more than 4300 digits has none, nor has a list nested too deep.
    """
    try:
        text = repr(value)
    except Exception:  # it runs the value's own code
        return f"a {type(value).__name__} that cannot be printed"
    return text if len(text) <= 200 else f"{text[:150]}... ({len(text)} characters)"
