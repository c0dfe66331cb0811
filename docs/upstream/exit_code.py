"""lmms-eval 0.7.3: a failed evaluation ends with exit code 0.

A script that goes on after an evaluation takes the missing results for done.

Expected:
    exit code after an error: 1

Printed:
    exit code after an error: 0
"""

import subprocess
import sys

command = [
    sys.executable,
    "-m",
    "lmms_eval",
    "--model",
    "dummy_video_reader",
    "--tasks",
    "mmmu_val",
    "--model_args",
    "nonsense=1",
]
print("exit code after an error:", subprocess.run(command, capture_output=True, timeout=300).returncode)
