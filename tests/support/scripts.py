"""The scripts, run as a user runs them."""

import subprocess
import sys
from pathlib import Path

SCRIPTS = Path(__file__).parents[2] / "scripts"


def start(script, *arguments):
    """Run `script` to its end, whatever that is."""
    command = [sys.executable, str(SCRIPTS / script), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=400)


def run(script, *arguments):
    """Run `script`, which must succeed, and return what it printed."""
    finished = start(script, *arguments)
    assert finished.returncode == 0, finished.stderr[-3000:]
    return finished.stdout
