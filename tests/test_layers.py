"""Imports point one way, by the contracts in pyproject.toml, and the core is light, as fresh interpreters see it."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HEAVY = ("torch", "trl", "transformers", "datasets", "accelerate", "PIL", "matplotlib", "scipy")


def test_the_contracts_on_imports_are_kept():
    code = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True, no_logo=True))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 0, run.stdout  # in a process of its own: it silences the loggers of the one that it is in


# A whole turn through the public names: draw, observe, save, load.
TURN = """
import tempfile
import trl_vade as v
sampler = v.ThompsonSampler(9)
sampler.observe(sampler.draw(2).sample_index, [1, 0], [2, 2])
with tempfile.TemporaryDirectory() as folder:
    v.save_snapshot(folder, sampler)
    sampler.load_state_dict(v.load_snapshot(folder).sampler_state)
assert sampler.posterior.step == 1
"""
REPORT = "from trl_vade.selection.report.writing import read_run, summarise, write_report"


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        *((f"import trl_vade{room}", HEAVY) for room in ("", ".samplers", ".testbed")),
        ("import trl_vade.selection.feedback", HEAVY),  # which a rollout worker's process is to hold
        *((TURN, HEAVY), (REPORT, ("torch", "trl", "matplotlib"))),
    ],
)
def test_nothing_heavy_is_loaded(code, heavy):
    code += f"\nimport sys\nprint(*[name for name in {heavy!r} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert (run.returncode, run.stdout.split()) == (0, []), run.stderr
