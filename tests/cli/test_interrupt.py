"""A training command from its first second to Ctrl-C, as a user sees it."""

import functools
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

TIME = r"\d\d:\d\d:\d\d "
OURS = [
    r"loading .*",
    r"(drawing the testbed|teaching the tiny model): [\d,]+ of [\d,]+ (row|step)s",
    r"trl_vade \S+ \| tiny-qwen2.5-vl\S*, 0.3 M parameters, on testbed \| thompson, balanced \| CPU x1 \| -> \S+",
    r"1,024 rows; a generation batch is 8 rows x 8 = 64 completions; 60 batches = 47 % of the rows",
    r"Rows come too rarely to choose by: .*",
    TIME + r"validation at step 0: [\d.]+ ±[\d.]+ %",
    TIME + r"step \d+/60 useful \d+ % \(even \d+ %\) predicted \d+ % chosen \d+ % all \d+ % seen \d+ % .*",
    r"\[RANK 0\] SIGINT received\. .*",
    TIME + r"checkpoint-\d+ written",
    TIME + r"ended at step \d+ after .*",
    r"\d+ % of the groups had different rewards .*",
    r"The validation score is .*",
    r"Stopped at step \d+\. Go on from .*",
]
FLAGS = ["--max_steps", "60", "--per_device_train_batch_size", "64", "--logging_steps", "1", "--eval_steps", "60"]


@pytest.mark.slow
def test_the_quickstart_shows_lines_of_ours_only_and_ctrl_c_ends_it_with_how_to_go_on(tmp_path):
    """In a file, with everything that libraries write, through the script that accelerate launches."""
    script, out = Path(__file__).parents[2] / "scripts" / "train_vade.py", tmp_path / "run"
    command = [sys.executable, str(script), *FLAGS, "--output_dir", str(out)]
    foreground = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # see `ctrl_c` in conftest.py
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    lines = []
    with subprocess.Popen(command, **streams, text=True, preexec_fn=foreground) as process:
        watchdog = threading.Timer(300, process.kill)
        watchdog.start()
        for line in process.stdout:
            lines.append(line.rstrip("\n"))
            if " step 2/60 " in line:
                process.send_signal(signal.SIGINT)
        watchdog.cancel()
    assert process.returncode == 130
    strange = [line for line in lines if not any(re.fullmatch(pattern, line) for pattern in OURS)]
    assert strange == []
    step = re.fullmatch(
        r'Stopped at step (\d+)\. Go on from checkpoint-\d+ with resume_from_checkpoint="auto"\.', lines[-1]
    )
    assert (out / f"checkpoint-{step[1]}" / "trainer_state.json").exists()
