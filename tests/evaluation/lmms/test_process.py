"""lmms-eval's process: what it gets and does not get, how its end is told, and that nothing of it stays.

In place of lmms-eval small real processes, started by the same code: `python -m trl_vade.evaluation.lmms.runner` finds
the module of the working directory first. The real one is in tests/lmms.
"""

import json
import os
import select
import signal
import subprocess
import sys
import textwrap
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.evaluations import write_runner
from tests.support.refusals import refused, says
from trl_vade.errors import EvaluationError, JudgeError
from trl_vade.evaluation.lmms.judge_guard import JUDGE_EXIT
from trl_vade.evaluation.lmms.process import (
    LOG_LINES,
    _end,
    _error,
    _life_line,
    _watch,
    child_environment,
    run_plan,
)

REPOSITORY = Path(__file__).parents[3]


@contextmanager
def pipe():
    """Both ends of a pipe, the first as a file; the test closes the second when a process has it."""
    reading, writing = os.pipe()
    with open(reading, "rb", buffering=0) as file:
        yield file, writing


def said(file):
    """What came through the pipe next, b"" when no process has the other end any more; a failure if neither comes."""
    assert select.select([file], [], [], 30)[0], "the process neither says a word nor ends"
    return file.read(100)


class Child:
    """Processes in the place of lmms-eval's, as `run_plan` treats them; after each nothing of it may be left."""

    def __init__(self, folder, monkeypatch):
        self.folder, self.log, self.finished = folder, folder / "out" / "logs" / "now.log", []
        monkeypatch.chdir(folder)
        monkeypatch.setenv("PYTHONPATH", str(folder))

    def run(self, code, runs=2, finished=None, **environment):
        """Run a plan of so many runs; return its log. The process is told under LOCK which file it has to hold."""
        write_runner(self.folder, code)
        with pipe() as (reading, writing):
            try:
                plan = {"runs": [{"number": number} for number in range(runs)], "tasks": "here"}
                environment["LOCK"] = str(writing)
                run_plan(plan, self.log, finished or self.finished.append, environment=environment, lock=writing)
            finally:
                os.close(writing)
                self.held = said(reading)
                assert not self.held or said(reading) == b""  # whoever had the lock's file is gone
        return self.log.read_text(encoding="utf-8")

    def fails(self, code, *names, error=EvaluationError, **options):
        with refused(error, names) as raised:
            self.run(code, **options)
        assert type(raised.value) is error
        return str(raised.value)


@pytest.fixture
def child(tmp_path, monkeypatch):
    return Child(tmp_path, monkeypatch)


# ------------------------------------------------------------------------------------------------- what it is given


def test_no_secret_goes_to_lmms_eval_and_the_login_on_the_disk_is_not_read():
    kept = {"PATH": "/bin", "HF_HOME": "/h", "TOKENIZERS_PARALLELISM": "false", "CUDA_VISIBLE_DEVICES": "0"}
    names = ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "GITHUB_TOKEN", "HF_TOKEN_WRITE", "OPENAI_API_KEY", "WANDB_API_KEY"]
    names += ["AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "hf_token", "CLIENT_SECRET"]
    login = {"HF_TOKEN_PATH": "/h/token"}
    given = child_environment({**kept, **dict.fromkeys(names, "hf_secret"), **login})
    login = {"HF_TOKEN_PATH": os.devnull, "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}
    assert given == kept | login | {"PYTHONSAFEPATH": "1", "PYTHON_DOTENV_DISABLED": "1"}


def test_lmms_eval_is_one_process_whatever_this_one_is_part_of():
    names = ["RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"]
    names += ["TORCHELASTIC_RUN_ID", "ACCELERATE_MIXED_PRECISION", "LMMS_EVAL_PLUGINS", "GROUP_RANK"]
    assert "x" not in child_environment(dict.fromkeys(names, "x")).values()


@contextmanager
def typed(text):
    """Somebody has typed this into the terminal of this process."""
    before = os.dup(0)
    with pipe() as (reading, writing):
        os.write(writing, text)
        os.close(writing)
        os.dup2(reading.fileno(), 0)
        try:
            yield
        finally:
            os.dup2(before, 0)
            os.close(before)


def test_the_process_has_the_plan_and_the_environment_and_neither_token_nor_input(child, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("MINE", "kept")
    with typed(b"the answer to another question"):
        code = "print(json.dumps([plan, dict(os.environ), sys.stdin.read()])); done(0); done(1)"
        log = child.run(code, MODEL_VERSION="judge")
    plan, environment, read = json.loads(log)
    assert plan["tasks"] == "here"
    assert plan["runs"] == [{"number": 0}, {"number": 1}]
    assert (environment["MINE"], environment["MODEL_VERSION"], read) == ("kept", "judge", "")
    assert "hf_secret" not in log
    assert not Path(plan["done"]).exists()  # and nothing is left of it


def test_the_process_holds_the_lock_as_long_as_it_lives(child):
    child.run("os.write(int(os.environ['LOCK']), b'held'); done(0); done(1)")
    assert child.held == b"held"


def test_each_run_is_told_when_it_is_done_and_both_outputs_are_in_the_log(child):
    """The process goes on when the run before was looked at: it sees what `finished` has left."""
    looked = child.folder / "looked"
    code = f"""
        done(0)
        while not Path({str(looked)!r}).exists():
            time.sleep(0.01)
        print("out")
        sys.stdout.flush()
        print("error", file=sys.stderr)
        done(1)
    """

    def finished(number):
        child.finished.append(number)
        looked.touch()

    assert child.run(code, finished=finished) == "out\nerror\n"
    assert child.finished == [0, 1]


# ------------------------------------------------------------------------------------------------------- how it ends


@pytest.mark.parametrize("end", [0, 3])
def test_a_process_that_ends_before_its_runs_are_done_has_failed_whatever_its_exit_code_says(child, end):
    code = f"done(0); print('first'); print('Traceback: the reason'); sys.exit({end})"
    message = child.fails(code, f"exit code {end}", child.log, "same command")
    assert message.endswith("\n  first\n  Traceback: the reason")
    assert child.finished == [0]


def test_a_process_that_was_killed_is_said_to_be(child):
    """As the kernel does it when memory is short."""
    child.fails("os.kill(os.getpid(), signal.SIGKILL)", "signal 9")
    assert child.finished == []


def test_of_a_long_log_the_end_is_shown_and_of_long_lines_the_beginning(child):
    code = "[print(n, 'x' * 1000) for n in range(50)]; sys.stdout.buffer.write(b'\\xff no text\\n'); sys.exit(1)"
    shown = child.fails(code).partition("):\n")[2].splitlines()
    assert len(shown) == LOG_LINES
    assert [line.split()[0] for line in shown[:-1]] == [str(number) for number in range(51 - LOG_LINES, 50)]
    assert max(map(len, shown)) <= 302
    assert shown[-1].endswith(" no text")


@pytest.fixture
def message_of(tmp_path):
    """The message about a process that failed and left this log."""

    def message(*lines):
        (tmp_path / "log").write_text("\n".join(map(str, lines)))
        return str(_error(1, tmp_path / "log"))

    return message


CAUSES = [
    "torch.OutOfMemoryError: CUDA out of memory.",
    "SystemExit: 3",
    "(EngineCore_DP0 pid=12) ERROR 11-22 10:00:00 [core.py:708] torch.OutOfMemoryError: CUDA out of memory.",
    "(EngineCore_DP0 pid=12) ValueError: no room for the cache",
]


def test_a_cause_is_shown_also_where_much_was_said_after_it(message_of):
    """vLLM ends with "See root cause above", and a bar draws a line for each step."""
    others = ["loading", "  File x.py: raise ValueError", "no ValueError: in the middle of a line"]
    shown = message_of(*others, *CAUSES, *others, *range(40)).partition("):\n")[2].splitlines()
    assert shown == [f"  {line}" for line in (*CAUSES, *range(40 - LOG_LINES, 40))]


def test_questions_that_could_not_be_fetched_can_be_given(message_of):
    for cause in (
        "ConnectionError: Couldn't reach 'AI4Math/MathVista' on the Hub (LocalEntryNotFoundError)",
        "datasets.exceptions.DatasetNotFoundError: Dataset 'x' doesn't exist on the Hub or cannot be accessed.",
        "huggingface_hub.errors.OfflineModeIsEnabled: Cannot reach https://huggingface.co/api: offline mode.",
    ):
        assert says(message_of(cause, *range(40)), "--data TASK=FOLDER")
    assert "--data" not in message_of("ValueError: of something else")


def test_a_dead_judge_is_told_in_its_own_words_and_is_no_score(child):
    code = f"print('trl_vade: chartqa took 3 s\\ntrl_vade: The judge said nothing.\\nmore'); sys.exit({JUDGE_EXIT})"
    child.fails(code, "The judge said nothing.", child.log, "same command", error=JudgeError)


def test_how_a_process_ends_that_has_done_all_its_runs_is_of_no_concern(child):
    """Engines crash while they are torn down; by then every file was read and believed."""
    child.run("done(0); done(1); os.abort()")
    assert child.finished == [0, 1]


def test_a_run_that_cannot_be_believed_ends_the_process(child):
    def finished(number):
        raise EvaluationError(f"run {number} does not count")

    message = child.fails("done(0); time.sleep(600)", finished=finished)
    assert message == "run 0 does not count"


# ------------------------------------------------------------------------------------------------ and nothing stays


@contextmanager
def stubborn_family():
    """A process that ignores SIGTERM, with a child that does so too; and a pipe that both hold."""
    code = """
        import os, signal, subprocess, sys, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = "import os, sys, time; os.write(int(sys.argv[1]), b'ready'); time.sleep(600)"
        subprocess.Popen([sys.executable, "-S", "-c", child, sys.argv[1]], pass_fds=[int(sys.argv[1])])
        time.sleep(600)
    """
    with pipe() as (reading, writing):
        words = [sys.executable, "-S", "-c", textwrap.dedent(code), str(writing)]
        process = subprocess.Popen(words, pass_fds=[writing], start_new_session=True)
        os.close(writing)
        try:
            assert said(reading) == b"ready"
            yield process, reading
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def test_what_does_not_end_by_itself_is_ended_with_all_that_it_started(monkeypatch):
    monkeypatch.setattr("trl_vade.evaluation.lmms.process.PATIENCE", 0.1)
    with stubborn_family() as (process, reading):
        _end(process)
        assert process.returncode == -signal.SIGKILL
        assert said(reading) == b""  # the child is gone too


def test_a_second_interrupt_while_the_process_is_being_ended_leaves_nothing_behind(monkeypatch):
    """Who presses Ctrl-C once presses it twice."""
    with stubborn_family() as (process, reading):
        wait, interrupts = process.wait, [KeyboardInterrupt]

        def interrupted(patience=None):
            if interrupts:
                raise interrupts.pop()
            return wait(patience)

        monkeypatch.setattr(process, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            _end(process)
        assert said(reading) == b""


def test_what_a_finished_process_has_left_running_is_ended(child):
    code = """
        subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"], close_fds=False)
        done(0), done(1)
    """
    child.run(code)


def test_a_process_that_hangs_in_its_end_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr("trl_vade.evaluation.lmms.process.PATIENCE", 0.1)
    (tmp_path / "0").touch()
    process = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"], start_new_session=True)
    try:
        assert _watch(process, tmp_path, 1, print)
        assert process.poll() is None
    finally:
        _end(process)


LAUNCH = """
import os, sys
from pathlib import Path
from trl_vade.evaluation.lmms.process import run_plan
os.chdir(sys.argv[1])
os.environ["PYTHONPATH"] = sys.argv[1]
run_plan({"runs": [0]}, Path("now.log"), print, environment={"LOCK": sys.argv[2]}, lock=int(sys.argv[2]))
"""


def test_where_this_process_is_killed_the_other_one_hears_of_it(tmp_path):
    """As the kernel, or a scheduler at last, does it: no handler and no `finally` is called then."""
    code = """
        tell = lambda word: os.write(int(os.environ["LOCK"]), word)
        tell(b"ready")
        tell(b"over" if os.read(plan["parent"], 1) == b"" else b"what?")
    """
    write_runner(tmp_path, code)
    with pipe() as (reading, writing):
        words = [sys.executable, "-c", LAUNCH, str(tmp_path), str(writing)]
        environment = os.environ | {"PYTHONPATH": str(REPOSITORY), "TMPDIR": str(tmp_path)}
        parent = subprocess.Popen(words, pass_fds=[writing], env=environment)
        os.close(writing)
        try:
            assert said(reading) == b"ready"
            assert not select.select([reading], [], [], 0.05)[0]  # while this one lives it is not over
        finally:
            parent.kill()
            parent.wait()
        assert said(reading) == b"over"
        assert said(reading) == b""


def test_where_the_evaluation_goes_on_without_the_process_nothing_of_the_pipe_stays():
    with _life_line() as line:
        copy = os.dup(line)
        assert not select.select([copy], [], [], 0)[0]
    with open(copy, "rb", buffering=0) as file:
        assert said(file) == b""
    with refused(OSError, ["[Errno 9]"]):
        os.fstat(line)


def test_lmms_evals_process_ends_then_with_all_that_it_started():
    code = """
        import os, signal, subprocess, sys, threading, time
        from trl_vade.evaluation.lmms.runner import _end_with_parent
        held, line = map(int, sys.argv[1:])
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"], pass_fds=[held])
        threading.Thread(target=_end_with_parent, args=[line], daemon=True).start()
        os.write(held, b"ready")
        time.sleep(600)
    """
    with pipe() as (reading, held), pipe() as (line, ours):
        words = [sys.executable, "-c", textwrap.dedent(code), str(held), str(line.fileno())]
        options = {"env": os.environ | {"PYTHONPATH": str(REPOSITORY)}, "start_new_session": True}
        process = subprocess.Popen(words, pass_fds=[held, line.fileno()], **options)
        os.close(held)
        try:
            assert said(reading) == b"ready"
            os.close(ours)
            assert said(reading) == b""
            assert process.wait() == -signal.SIGKILL
        finally:
            _end(process)
