"""The guard without lmms-eval; inside the real one it is tested by tests/lmms/test_guard.py."""

import subprocess
import sys

from trl_vade.evaluation.judge_guard import JUDGE_EXIT


def test_a_dead_judge_ends_the_process_from_any_thread_with_the_reason_on_a_line_of_its_own():
    code = (
        "import sys, threading; from trl_vade.evaluation.judge_guard import end_process; "
        "sys.stderr.write('\\r 10%|'); "
        "thread = threading.Thread(target=end_process, args=['gone:\\n nobody there']); "
        "thread.start(); thread.join(); print('still here')"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ended.returncode == JUDGE_EXIT
    assert ended.stderr.splitlines()[-1] == "trl_vade: gone: nobody there"
    assert ended.stdout == ""
