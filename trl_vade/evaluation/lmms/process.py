"""lmms-eval in a process of its own, started without tokens, watched, and always ended."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from trl_vade.errors import EvaluationError, JudgeError

from .judge_guard import JUDGE_EXIT

# vLLM's engine starts each line with "(EngineCore_DP0 pid=7) ERROR 11-22 10:00:00 [core.py:1] ".
_EXCEPTION = re.compile(
    r"(\(\w+ pid=\d+\) )?(ERROR \S+ \S+ \S+ )?[A-Za-z_][\w.]*(Error|Exception|Exit|Interrupt|OfflineModeIsEnabled)\b"
)
_UNFETCHED = re.compile(r"Couldn't (reach|find)|DatasetNotFoundError|OfflineModeIsEnabled|LocalEntryNotFoundError")
LOG_CAUSES = 5  # lines with earlier exceptions in an error message: the cause may be long before the end
LOG_LINES = 15  # last lines of the log in an error message
PATIENCE = 10.0  # seconds for the process to end by itself, after its last run and after SIGTERM


def run_plan(
    plan: Mapping[str, Any], log: Path, finished: Callable[[int], None], *, environment: Mapping[str, str], lock: int
) -> None:
    """Run a plan of `runner` in a process, and return when all its runs are done.

    Args:
        plan: see `runner.main`, without `done` and `parent`.
        log: the file for the output of the process.
        finished: called with the number of each finished run; an exception from it ends the process.
        environment: variables for the process, added to those of this process without its tokens.
        lock: descriptor of a locked file. The process inherits the lock, and keeps it if this process is killed.

    Raises:
        JudgeError: the judge is dead.
        EvaluationError: the process ended before its runs.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="vade-plan-") as folder, log.open("wb") as output, _life_line() as line:
        plan_file = Path(folder, "plan.json")
        plan_file.write_text(json.dumps({**plan, "done": folder, "parent": line}), encoding="utf-8")
        process = subprocess.Popen(
            [sys.executable, "-m", "trl_vade.evaluation.lmms.runner", str(plan_file)],
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=child_environment(os.environ) | dict(environment),
            pass_fds=[lock, line],
            start_new_session=True,  # one group with its own children, such as vLLM's engine
        )
        try:
            whole = _watch(process, Path(folder), len(plan["runs"]), finished)
        finally:
            _end(process)
    if not whole:
        raise _error(process.returncode, log)  # the code may be 0: lmms-eval exits with 0 after some errors


@contextmanager
def _life_line() -> Iterator[int]:
    """Yield the end of a pipe for the other process. If this process dies, the pipe closes and the other one ends."""
    theirs, ours = os.pipe()
    try:
        yield theirs
    finally:
        os.close(theirs)
        os.close(ours)


_SECRET = re.compile(r"(^|_)TOKEN(_|$)|SECRET|PASSWORD|API_KEY|ACCESS_KEY", re.IGNORECASE)
_FOREIGN = re.compile(r"(LOCAL_|NODE_|GROUP_)?RANK|(LOCAL_)?WORLD_SIZE|(MASTER|TORCHELASTIC|ACCELERATE|LMMS)_.*")


def child_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for lmms-eval 0.7.3, without secrets.

    lmms-eval prints HF_TOKEN. The Hub's login and `.env` files are disabled, too. Variables of a distributed run and
    of lmms-eval are removed. Python does not import from the working directory: a file `evaluate.py` there, as in
    scripts/, would replace the library of that name.
    """
    kept = {
        name: value for name, value in environment.items() if not _SECRET.search(name) and not _FOREIGN.fullmatch(name)
    }
    no_login = {"HF_HUB_DISABLE_IMPLICIT_TOKEN": "1", "HF_TOKEN_PATH": os.devnull, "PYTHON_DOTENV_DISABLED": "1"}
    return kept | no_login | {"PYTHONSAFEPATH": "1"}


def _watch(process: "subprocess.Popen[bytes]", folder: Path, runs: int, finished: Callable[[int], None]) -> bool:
    """Call `finished` for each run. Return True after the last one, and False if the process ends before."""
    for number in range(runs):
        while not (folder / str(number)).exists():
            if process.poll() is not None and not (folder / str(number)).exists():
                return False
            time.sleep(0.05)
        finished(number)
    # All runs are valid. It does not matter how the process ends: an engine may hang or crash at its exit.
    with suppress(subprocess.TimeoutExpired):
        process.wait(PATIENCE)
    return True


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End the process and its group, also if a second signal or Ctrl-C interrupts the waiting."""
    try:
        with suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(PATIENCE)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _error(code: int, log: Path) -> EvaluationError:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    if code == JUDGE_EXIT:
        said = [line for line in lines if line.startswith("trl_vade:")]
        return JudgeError(
            f"{said[-1].removeprefix('trl_vade:').strip() if said else 'The judge gave nothing.'} lmms-eval would "
            f"have counted that as a wrong answer, so it was stopped. Log: {log}. Finished runs are kept: fix the "
            "judge and run the same command again."
        )
    causes = [line for line in lines[:-LOG_LINES] if _EXCEPTION.match(line)][-LOG_CAUSES:]
    how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
    shown = "\n".join(f"  {line[:300]}" for line in [*causes, *lines[-LOG_LINES:]])
    fetch = " The questions of a benchmark could not be downloaded. Check whether the Hub can be reached, or give "
    fetch = f"{fetch}them with --data TASK=FOLDER." if _UNFETCHED.search("\n".join(lines)) else ""
    return EvaluationError(
        f"lmms-eval {how} before its runs were done. Finished runs are kept: fix the cause and run the same command "
        f"again.{fetch} The end of its log ({log}):\n{shown}"
    )
