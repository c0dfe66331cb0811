import inspect

from trl_vade import errors

BUILT_IN = {
    **dict.fromkeys(("ConfigurationError", "ObservationError"), ValueError),
    **dict.fromkeys(("SnapshotCorruptError", "SnapshotMismatchError"), ValueError),
    **dict.fromkeys(("SnapshotNotFoundError", "CheckpointIncompleteError"), FileNotFoundError),
    **dict.fromkeys(("CheckpointSaveError", "HubError", "HubOfflineError", "ImageDecodeError"), OSError),
    **dict.fromkeys(("EngineError", "EvaluationError", "JudgeError", "ReplicaDivergenceError"), RuntimeError),
    **{"LibraryError": ImportError, "VADEError": Exception, "SnapshotError": Exception},
}


def test_every_error_is_ours_and_a_built_in_one():
    found = dict(inspect.getmembers(errors, inspect.isclass))
    ours = {name: error for name, error in found.items() if issubclass(error, errors.VADEError)}
    assert ours.keys() == BUILT_IN.keys()
    assert [name for name, error in ours.items() if not issubclass(error, BUILT_IN[name])] == []
    for name in ("NotFound", "Corrupt", "Mismatch"):
        assert issubclass(getattr(errors, f"Snapshot{name}Error"), errors.SnapshotError)
