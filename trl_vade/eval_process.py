"""lmms-eval in a process of its own: started without tokens, watched, and never left behind."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from .errors import EvaluationError, JudgeError
from .eval_guard import JUDGE_EXIT

LOG_LINES = 15
"""Of the log, in an error."""
PATIENCE = 10.0
"""Seconds that the process has to end by itself, after its last run and after SIGTERM."""


def run_plan(
    plan: Mapping[str, Any],
    log: Path,
    finished: Callable[[int], None],
    *,
    environment: Mapping[str, str],
    lock: int,
) -> None:
    """Do a plan of `lmms_runner` and return when all its runs are done.

    Args:
        plan: see `lmms_runner.main`, less `done`.
        log: file for all that the process prints.
        finished: called with the number of each run when it is done; an exception from it ends the process.
        environment: of the process, beside this one's, which goes without its tokens.
        lock: a file that this process has locked; so has the other one then, even where this one is killed.

    Raises:
        JudgeError: the judge gave nothing.
        EvaluationError: the process ended before its runs did.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="vade-plan-") as folder, log.open("wb") as output:
        plan_file = Path(folder, "plan.json")
        plan_file.write_text(json.dumps({**plan, "done": folder}), encoding="utf-8")
        process = subprocess.Popen(
            [sys.executable, "-m", "trl_vade.lmms_runner", str(plan_file)],
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=without_tokens(os.environ) | dict(environment),
            pass_fds=[lock],
            start_new_session=True,  # with all that it starts itself, such as vLLM's engine
        )
        try:
            whole = _watch(process, Path(folder), len(plan["runs"]), finished)
        finally:
            _end(process)
    if not whole:
        raise _error(process.returncode, log)  # which may be 0: lmms-eval has places that end so


def without_tokens(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without secrets that lmms-eval 0.7.3 would print (it logs HF_TOKEN); a judge's key stays."""
    switch = "HF_HUB_DISABLE_IMPLICIT_TOKEN"  # is no token
    return {name: value for name, value in environment.items() if not name.endswith("TOKEN") or name == switch}


def _watch(
    process: "subprocess.Popen[bytes]",
    folder: Path,
    runs: int,
    finished: Callable[[int], None],
    patience: float = PATIENCE,
) -> bool:
    """Call `finished` for each run until the process is through with them (True), or is no more (False)."""
    for number in range(runs):
        while not (folder / str(number)).exists():
            if process.poll() is not None and not (folder / str(number)).exists():
                return False
            time.sleep(0.05)
        finished(number)
    # All is there and was believed: how it ends is nobody's concern, and an engine may hang, or crash, in its end.
    with suppress(subprocess.TimeoutExpired):
        process.wait(patience)
    return True


def _end(process: "subprocess.Popen[bytes]", patience: float = PATIENCE) -> None:
    """Leave nothing of the process's group behind, also where a second signal, or Ctrl-C, interrupts the waiting."""
    try:
        with suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(patience)
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
            f"have counted that as a wrong answer, so it was ended. Log: {log}. Runs that were finished are kept: "
            "mend the judge and give the same command again."
        )
    how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
    shown = "\n".join(f"  {line[:300]}" for line in lines[-LOG_LINES:])
    return EvaluationError(
        f"lmms-eval {how} before its runs were done. Runs that were finished are kept: mend the cause and give the "
        f"same command again. The end of its log ({log}):\n{shown}"
    )
