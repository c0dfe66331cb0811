"""lmms-eval 0.7.3: the log of an evaluation holds the Hub's token.

The command adds HF_TOKEN to the arguments of its tracker, and logs these.

Expected:
    the log holds the token: False

Printed:
    the log holds the token: True
"""

import os
import subprocess
import sys

command = [sys.executable, "-m", "lmms_eval", "--model", "dummy_video_reader", "--tasks", "none"]
environment = os.environ | {"HF_TOKEN": "hf_a_secret"}
done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
print("the log holds the token:", "hf_a_secret" in done.stdout + done.stderr)
