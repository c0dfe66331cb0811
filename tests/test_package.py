"""What `import trl_vade` offers."""

import inspect
import re
import runpy
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import trl_vade
from tests.support.refusals import refused
from trl_vade import errors, version

BUILT_IN = {
    **dict.fromkeys(("ConfigurationError", "ObservationError"), ValueError),
    **dict.fromkeys(("SnapshotCorruptError", "SnapshotMismatchError"), ValueError),
    **dict.fromkeys(("SnapshotNotFoundError", "CheckpointIncompleteError"), FileNotFoundError),
    **dict.fromkeys(("CheckpointSaveError", "HubError", "HubOfflineError", "ImageDecodeError"), OSError),
    **dict.fromkeys(("EngineError", "EvaluationError", "JudgeError", "ReplicaDivergenceError"), RuntimeError),
    **{"LibraryError": ImportError, "VADEError": Exception, "SnapshotError": Exception},
}


def test_every_public_name_is_the_thing_of_that_name_in_this_package_and_says_what_it_is():
    exec("from trl_vade import *", brought := {})
    assert len(set(trl_vade.__all__)) == len(trl_vade.__all__)
    for name in {*trl_vade.__all__} - {"__version__"}:
        assert brought[name].__name__ == name
        assert brought[name].__module__.startswith("trl_vade.")
        assert inspect.getdoc(brought[name])


def test_every_error_is_public_ours_and_a_built_in_one():
    found = dict(inspect.getmembers(errors, inspect.isclass))
    ours = {name: error for name, error in found.items() if issubclass(error, errors.VADEError)}
    assert ours.keys() == BUILT_IN.keys() < set(trl_vade.__all__)
    assert [name for name, error in ours.items() if not issubclass(error, BUILT_IN[name])] == []
    for name in ("NotFound", "Corrupt", "Mismatch"):
        assert issubclass(getattr(errors, f"Snapshot{name}Error"), errors.SnapshotError)


def test_an_unknown_name_is_an_attribute_error_that_names_it():
    with refused(AttributeError, ["'trl_vade'", "'VADETrainer'"]):
        _ = trl_vade.VADETrainer


def test_dir_lists_the_public_names_before_any_of_them_was_used():
    code = "import trl_vade; print(dir(trl_vade) == sorted(trl_vade.__all__), 'VADEGRPOTrainer' in dir(trl_vade))"
    repository = Path(trl_vade.__file__).parent.parent
    printed = subprocess.check_output([sys.executable, "-c", code], text=True, cwd=repository)
    assert printed.split() == ["True", "True"]


def test_the_version_is_a_number_or_says_that_nothing_is_installed(monkeypatch):
    assert trl_vade.__version__ == "unknown" or re.match(r"\d+\.\d+", trl_vade.__version__)

    def not_installed(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", not_installed)
    assert runpy.run_path(version.__file__)["__version__"] == "unknown"


def test_type_checkers_see_the_same_names_as_users():
    source = inspect.getsource(trl_vade)
    seen = re.findall(r"^    from \.([\w.]+) import (\w+) as \2$", source, flags=re.MULTILINE)
    assert {name: module for module, name in seen} == trl_vade._EXPORTS


USER = """
from trl_vade import BetaPosterior, ConfigurationError, VADEGRPOConfig, VADEGRPOTrainer

config = VADEGRPOConfig(output_dir="out", vade_sampler="thompson")
reveal_type(config.vade_sampler)
reveal_type(BetaPosterior(3).alpha)
reveal_type(VADEGRPOTrainer("model", [], config).selection)
try:
    VADEGRPOConfig(output_dir="out", vade_preset="thomson")
except ConfigurationError as error:
    reveal_type(error)
"""
# What is skipped has no part in the types below, and takes half of the time.
CHECKER = """[mypy]
strict = True
[mypy-torch.*,datasets.*,pandas.*,PIL.*,rich.*,huggingface_hub.*,accelerate.*,pyarrow.*,matplotlib.*]
follow_imports = skip
"""


@pytest.mark.slow
def test_a_type_checker_knows_the_types_of_a_users_script(tmp_path):
    (tmp_path / "user.py").write_text(USER)
    (tmp_path / "mypy.ini").write_text(CHECKER)
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path / "cache"), "user.py"]
    printed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True).stdout
    for revealed in ("str | None", "numpy.dtype[numpy.float64]", "OnTimeSelection", "errors.ConfigurationError"):
        assert revealed in printed, printed
    assert '"Any"' not in printed
    [refusal] = re.findall(r"user.py:\d+: error: (.*)", printed)
    assert "thomson" in refusal
