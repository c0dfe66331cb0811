"""math-verify in a process of its own: right where it is right, and ended where it does not end."""

import importlib.util
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.marks import slow
from tests.support.refusals import refused
from trl_vade.errors import ConfigurationError
from trl_vade.rewards import expression_worker
from trl_vade.rewards.expression_worker import as_latex
from trl_vade.rewards.expressions import JUDGE, WORKERS, ExpressionJudge, Worker, equal_expressions


def test_equal_expressions_are_equal_in_latex_and_plain_notation_and_others_are_not():
    assert JUDGE.are_equal("x^2-1", "(x-1)(x+1)")
    assert not JUDGE.are_equal(r"\sqrt{12}", r"3\sqrt{2}")
    plain = {"2*sqrt(3)": r"\sqrt{12}", "2\u221a3": r"2\sqrt{3}", "pi/2": r"\frac{\pi}{2}", "3\u03c0": r"3\pi"}
    for written, latex in {**plain, "x**2": "x^2", "sin(x)": r"\sin(x)"}.items():
        assert equal_expressions(latex, written), written
    latex = r"\frac{\pi}{2}\sin(x)+\sqrt{3}"
    assert as_latex(latex) == latex


def worker(before, questions=""):
    """Run a worker in a process that did something `before`, and return what it wrote."""
    command = f"import trl_vade.rewards.expression_worker as worker\n{before}\nworker.main()"
    done = subprocess.run([sys.executable, "-c", command], input=questions, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_worker_with_much_memory_compares_and_one_with_too_little_says_so(monkeypatch, tmp_path):
    """Allocators that are preloaded map gigabytes before anything runs."""
    assert worker("import mmap; kept = mmap.mmap(-1, 3 << 30)", '["x+1", "1+x"]\n') == "ready\ntrue\n"
    assert "not found equal" in worker("worker.are_equal = lambda *pair: False")
    stand_in = tmp_path / "stand_in.py"
    stand_in.write_text("print('a true pair is not found equal', flush=True)")
    monkeypatch.setattr(expression_worker, "__file__", str(stand_in))
    with refused(ConfigurationError, names=["a true pair is not found equal"], offers=["memory", "trl-vade[rewards]"]):
        Worker()


def test_a_file_of_the_working_directory_stands_for_no_module(tmp_path):
    (tmp_path / "tokenize.py").write_text("raise ImportError('a user has a file of this name')")
    code = "from trl_vade.rewards.expressions import equal_expressions; print(equal_expressions('x+1', '1+x'))"
    done = subprocess.run([sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == "True\n", done.stderr


def test_a_worker_that_answers_no_more_is_ended_by_the_clock_and_said(monkeypatch, caplog):
    assert JUDGE.are_equal("x+1", "1+x")
    monkeypatch.setattr("trl_vade.rewards.expressions.ANSWER_SECONDS", 0.3)
    monkeypatch.setattr(JUDGE, "ended", 0)
    for stopped in JUDGE._idle:
        os.kill(stopped.process.pid, signal.SIGSTOP)
    assert JUDGE.are_equal("x+3", "3+x") is False
    assert JUDGE.ended == 1
    assert "3+x" in caplog.text
    monkeypatch.undo()
    JUDGE.close()


@pytest.mark.slow
def test_a_worker_whose_run_was_killed_ends_without_a_word():
    command = [sys.executable, "-P", expression_worker.__file__]
    process = subprocess.Popen(command, stdin=-1, stdout=-1, stderr=-1, text=True)
    assert process.stdout.readline() == "ready\n"
    process.stdout.close()
    process.stdin.write('["x+1", "1+x"]\n')
    process.stdin.close()
    assert (process.wait(timeout=60), process.stderr.read()) == (0, "")


@pytest.mark.parametrize("hostile", ["9^{9^{9^{9}}}", slow("10^{10^{10}}")])
def test_what_would_not_end_is_ended_and_the_next_question_is_answered(hostile):
    before = JUDGE.ended
    assert not JUDGE.are_equal("x+1", hostile)
    assert JUDGE.ended == before + 1
    assert JUDGE.are_equal("x+1", "1+x")


@pytest.mark.parametrize("deep", [(), slow(("(" * 300, "{" * 300))])
def test_what_the_parser_cannot_read_is_not_equal_and_keeps_questions_apart(deep):
    for broken in ("\\frac{1}{" * 50, "\\left(", "\x00", "\\unknown{x}", 'x\n["1", "1"]\n', *deep):
        assert not JUDGE.are_equal("x+1", broken)
        assert JUDGE.are_equal("x+1", "1+x")


def test_text_is_never_evaluated(tmp_path):
    """sympy's `parse_expr` is `eval`; nothing that a policy writes may get there."""
    path = tmp_path / "written"
    for attack in [f"__import__('pathlib').Path('{path}').touch()", f"exec(\"open('{path}','w')\")"]:
        JUDGE.are_equal("1+x", attack)
    assert not path.exists()


@pytest.mark.slow
def test_threads_ask_side_by_side_and_get_their_own_answers():
    pairs = [(f"x+{i}", f"{i}+x") for i in range(20)] + [(f"x+{i}", f"{i}-x") for i in range(20)]
    with ThreadPoolExecutor(len(pairs)) as threads:
        verdicts = list(threads.map(lambda pair: JUDGE.are_equal(*pair), pairs))
    assert verdicts == [True] * 20 + [False] * 20
    assert 1 <= len(JUDGE._idle) <= WORKERS


def test_a_worker_that_was_killed_is_replaced_and_one_that_is_killed_again_is_an_error(monkeypatch):
    """The kernel ends processes where memory is short; the training run goes on."""
    assert JUDGE.are_equal("x+1", "1+x")
    for idle in JUDGE._idle:
        idle.process.kill()
        idle.process.wait()
    assert JUDGE.are_equal("x+2", "2+x")

    def killed():
        started = Worker()
        started.process.kill()
        started.process.wait()
        return started

    monkeypatch.setattr("trl_vade.rewards.expressions.Worker", killed)
    monkeypatch.setattr(JUDGE, "_idle", [])
    with refused(RuntimeError, names=["twice", "x+2"]):
        JUDGE.are_equal("x+2", "2+x")


@pytest.mark.slow
def test_a_forked_process_starts_a_worker_of_its_own_and_none_is_left_when_the_process_ends():
    """A data loader's worker that shared the pipes would read the answers of others."""
    code = (
        "import os; from trl_vade.rewards.expressions import JUDGE;"
        "assert JUDGE.are_equal('x+1', '1+x'); pid = os.fork();"
        "ok = JUDGE.are_equal('x+2', '2+x'); JUDGE.close() if pid == 0 else None; os._exit(not ok) if pid == 0 else "
        "print(ok, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), JUDGE._idle[0].process.pid)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    *verdicts, worker = run.stdout.split()
    assert verdicts == ["True", "0"], run.stderr
    assert subprocess.run(["kill", "-0", worker], capture_output=True).returncode != 0


def test_without_math_verify_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with refused(ConfigurationError, offers=["trl-vade[rewards]"]):
        ExpressionJudge().are_equal("x+1", "1+x")
