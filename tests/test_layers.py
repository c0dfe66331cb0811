"""Imports point one way, by the contracts in pyproject.toml, and the core is light, as fresh interpreters see it."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HEAVY = ("torch", "trl", "transformers", "datasets", "accelerate", "PIL", "matplotlib", "scipy")


def loaded_by(code, names=HEAVY):
    """Which of `names` a fresh interpreter has loaded after `code`."""
    code += f"; import sys; print(*[name for name in {names!r} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 0, run.stderr
    return run.stdout.split()


def test_the_contracts_on_imports_are_kept():
    code = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True, no_logo=True))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 0, run.stdout  # in a process of its own: it silences the loggers of the one that it is in


@pytest.mark.parametrize(
    "module",
    [
        *("trl_vade", "trl_vade.samplers", "trl_vade.testbed"),
        "trl_vade.selection.feedback",  # which a rollout worker's process is to hold
    ],
)
def test_importing_it_loads_nothing_heavy(module):
    assert loaded_by(f"import {module}") == []


def test_the_core_can_be_used_without_loading_anything_heavy(tmp_path):
    """A whole turn through the public names: draw, observe, save, load."""
    code = (
        "import trl_vade as v; s = v.ThompsonSampler(9);"
        "s.observe(s.draw(2).sample_index, [1, 0], [2, 2]);"
        f"v.save_snapshot({str(tmp_path)!r}, s); s.load_state_dict(v.load_snapshot({str(tmp_path)!r}).sampler_state);"
        "assert s.posterior.step == 1"
    )
    assert loaded_by(code) == []


def test_a_report_can_be_read_without_torch_and_without_matplotlib():
    code = "from trl_vade.selection.report.writing import read_run, summarise, write_report"
    assert loaded_by(code, ("torch", "trl", "matplotlib")) == []
