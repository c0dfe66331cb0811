"""The scripts, run as a user runs them."""

import subprocess
import sys
from pathlib import Path

SCRIPTS = Path(__file__).parents[2] / "scripts"


def run(script, *arguments):
    command = [sys.executable, str(SCRIPTS / script), *map(str, arguments)]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=400)
    assert finished.returncode == 0, finished.stderr[-3000:]
    return finished.stdout
