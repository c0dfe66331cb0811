"""lmms-eval's process: what it gets and does not get, how its end is told, and that nothing of it stays.

In place of lmms-eval small real processes, started by the same code: `python -m trl_vade.evaluation.lmms_process`
finds the module of the working directory first. The real one is in tests/lmms.
"""

import inspect
import json
import os
import select
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.support.evaluations import write_runner
from tests.support.refusals import refused
from trl_vade.errors import EvaluationError, JudgeError
from trl_vade.evaluation.judge import JUDGE_EXIT
from trl_vade.evaluation.lmms_process import _end_with_parent, child_environment, run_plan

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def child(tmp_path, monkeypatch):
    """A function that runs a plan of two runs, by a process with this code, and returns its log."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    log = tmp_path / "out" / "logs" / "now.log"

    def run(code, finished=lambda number: None, **environment):
        write_runner(tmp_path, code)
        run_plan({"runs": [0, 1], "tasks": "here"}, log, finished, environment)
        return log.read_text(encoding="utf-8")

    return run


def test_neither_a_token_nor_a_distributed_run_goes_to_lmms_eval_and_no_login_is_read():
    kept = {"PATH": "/bin", "HF_HOME": "/h", "TOKENIZERS_PARALLELISM": "false", "OPENAI_API_KEY": "a"}
    names = ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"]
    names += ["MASTER_ADDR", "TORCHELASTIC_RUN_ID", "ACCELERATE_MIXED_PRECISION", "LMMS_EVAL_PLUGINS", "GROUP_RANK"]
    given = child_environment({**kept, **dict.fromkeys(names, "x"), "HF_TOKEN_PATH": "/h/token"})
    login = {"HF_TOKEN_PATH": os.devnull, "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1", "PYTHON_DOTENV_DISABLED": "1"}
    assert given == kept | login | {"PYTHONSAFEPATH": "1"}


def test_the_process_has_the_plan_and_the_environment_and_tells_each_run_when_it_is_done(child, monkeypatch):
    monkeypatch.setenv("MINE", "kept")
    done = []
    code = "print(json.dumps([plan, dict(os.environ)])); done(0); print('error', file=sys.stderr); done(1)"
    log = child(code, done.append, MODEL_VERSION="judge").splitlines()
    plan, environment = json.loads(next(line for line in log if line != "error"))
    assert (plan["tasks"], plan["runs"], done) == ("here", [0, 1], [0, 1])
    assert (environment["MINE"], environment["MODEL_VERSION"]) == ("kept", "judge")
    assert "error" in log
    assert not Path(plan["done"]).exists()  # and nothing is left of it


@pytest.mark.parametrize(
    ("end", "names"),
    [("sys.exit(0)", ["exit code 0"]), ("sys.exit(3)", ["exit code 3"]), ("os.kill(os.getpid(), 9)", ["-9"])],
)
def test_a_process_that_ends_before_its_runs_are_done_has_failed_whatever_its_exit_code_says(child, end, names):
    """What was finished is told, and the end of the log shown, with causes from before."""
    done = []
    cause = "(EngineCore_DP0 pid=12) ERROR 11-22 10:00:00 [core.py:708] torch.OutOfMemoryError: CUDA out of memory."
    code = f"done(0); print({cause!r}); [print(n, 'x' * 1000) for n in range(50)]; sys.stdout.flush(); {end}"
    with refused(EvaluationError, [*names, "now.log"], ["same command", "--data"]) as raised:
        child(code, done.append)
    shown = str(raised.value).partition("):\n")[2].splitlines()
    assert shown[0] == f"  {cause}"
    assert [line.split()[0] for line in shown[1:]] == [str(number) for number in range(35, 50)]
    assert max(map(len, shown)) <= 302
    assert done == [0]


def test_a_dead_judge_is_told_in_its_own_words_and_is_no_score(child):
    code = f"print('trl_vade: The judge said nothing.\\nmore'); sys.exit({JUDGE_EXIT})"
    with refused(JudgeError, ["The judge said nothing.", "now.log"], ["same command"]):
        child(code)


def test_how_a_process_ends_that_has_done_all_its_runs_is_of_no_concern(child, monkeypatch):
    """Engines crash or hang while they are torn down; by then every file was read and believed."""
    monkeypatch.setattr("trl_vade.evaluation.lmms_process.PATIENCE", 0.1)
    for end in ("os.abort()", "time.sleep(600)"):
        child(f"done(0); done(1); {end}")


def test_a_run_that_cannot_be_believed_ends_the_process(child):
    def finished(number):
        raise EvaluationError(f"run {number} does not count")

    with refused(EvaluationError, ["run 0"]):
        child("done(0); time.sleep(600)", finished)


LAUNCH = """
import os, sys
from pathlib import Path
from trl_vade.evaluation.lmms_process import run_plan
os.chdir(sys.argv[1])
os.environ["PYTHONPATH"] = sys.argv[1]
run_plan({"runs": [0]}, Path("now.log"), print, {})
"""


def test_where_this_process_is_killed_the_other_one_ends_with_all_that_it_started(tmp_path):
    """As the kernel, or a scheduler at last, does it: no handler and no `finally` is called then."""
    os.mkfifo(tmp_path / "fifo")
    code = """
        held = os.open("fifo", os.O_WRONLY)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"], pass_fds=[held])
        threading.Thread(target=_end_with_parent, daemon=True).start()
        os.write(held, b"ready")
        time.sleep(600)
    """
    write_runner(tmp_path, f"import threading\n{inspect.getsource(_end_with_parent)}\n{textwrap.dedent(code)}")
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY), "TMPDIR": str(tmp_path)}
    parent = subprocess.Popen([sys.executable, "-c", LAUNCH, str(tmp_path)], env=environment)
    with open(tmp_path / "fifo", "rb", buffering=0) as reading:
        assert reading.read(100) == b"ready"
        assert not select.select([reading], [], [], 0.05)[0]  # while this one lives it is not over
        parent.kill()
        parent.wait()
        assert select.select([reading], [], [], 30)[0], "the process neither says a word nor ends"
        assert reading.read(100) == b""  # nobody holds the other end any more
