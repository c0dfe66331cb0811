import pytest

from trl_vade import errors


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (errors.ConfigurationError, ValueError),
        (errors.ObservationError, ValueError),
        (errors.SnapshotNotFoundError, FileNotFoundError),
        (errors.SnapshotCorruptError, ValueError),
        (errors.SnapshotMismatchError, ValueError),
        (errors.CheckpointIncompleteError, FileNotFoundError),
        (errors.CheckpointIncompleteError, ValueError),
        (errors.CheckpointSaveError, OSError),
        (errors.EvaluationError, RuntimeError),
        (errors.JudgeError, errors.EvaluationError),
        (errors.HubError, OSError),
        (errors.HubOfflineError, OSError),
        (errors.ImageDecodeError, OSError),
        (errors.SourceSchemaError, ValueError),
        (errors.SourceShortageError, ValueError),
        (errors.ReplicaDivergenceError, RuntimeError),
    ],
)
def test_every_error_can_be_caught_as_ours_and_as_the_built_in_one(error, builtin):
    assert issubclass(error, errors.VADEError)
    assert issubclass(error, builtin)
    assert str(error("what happened")) == "what happened"


def test_only_the_snapshot_errors_are_snapshot_errors():
    snapshot = {error.__name__ for error in errors.SnapshotError.__subclasses__()}
    assert snapshot == {"SnapshotNotFoundError", "SnapshotCorruptError", "SnapshotMismatchError"}
