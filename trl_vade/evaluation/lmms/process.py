"""lmms-eval in a process of its own: started without tokens, watched, and never left behind."""

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

# vLLM begins each line of its engine with "(EngineCore_DP0 pid=7) ERROR 11-22 10:00:00 [core.py:1] ".
_EXCEPTION = re.compile(
    r"(\(\w+ pid=\d+\) )?(ERROR \S+ \S+ \S+ )?[A-Za-z_][\w.]*(Error|Exception|Exit|Interrupt|OfflineModeIsEnabled)\b"
)
_UNFETCHED = re.compile(r"Couldn't (reach|find)|DatasetNotFoundError|OfflineModeIsEnabled|LocalEntryNotFoundError")
LOG_CAUSES = 5
"""Exceptions before these lines, in an error: the cause may have been long ago."""
LOG_LINES = 15
"""Of the log, in an error."""
PATIENCE = 10.0
"""Seconds that the process has to end by itself, after its last run and after SIGTERM."""


def run_plan(
    plan: Mapping[str, Any], log: Path, finished: Callable[[int], None], *, environment: Mapping[str, str], lock: int
) -> None:
    """Do a plan of `runner` and return when all its runs are done.

    Args:
        plan: see `runner.main`, less `done` and `parent`.
        log: file for all that the process prints.
        finished: called with the number of each run when it is done; an exception from it ends the process.
        environment: of the process, beside this one's, which goes without its tokens.
        lock: a file that this process has locked; so has the other one then, even where this one is killed.

    Raises:
        JudgeError: the judge gave nothing.
        EvaluationError: the process ended before its runs did.
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
            start_new_session=True,  # with all that it starts itself, such as vLLM's engine
        )
        try:
            whole = _watch(process, Path(folder), len(plan["runs"]), finished)
        finally:
            _end(process)
    if not whole:
        raise _error(process.returncode, log)  # which may be 0: lmms-eval has places that end so


@contextmanager
def _life_line() -> Iterator[int]:
    """The end of a pipe for the other process. Its end here goes with this process, however that ends: then there is
    nothing more to read, and the other one ends, too.
    """
    theirs, ours = os.pipe()
    try:
        yield theirs
    finally:
        os.close(theirs)
        os.close(ours)


_SECRET = re.compile(r"(^|_)TOKEN(_|$)|SECRET|PASSWORD|API_KEY|ACCESS_KEY", re.IGNORECASE)
_FOREIGN = re.compile(r"(LOCAL_|NODE_|GROUP_)?RANK|(LOCAL_)?WORLD_SIZE|(MASTER|TORCHELASTIC|ACCELERATE|LMMS)_.*")

_FIXED = {"PYTHONSAFEPATH": "1", "PYTHON_DOTENV_DISABLED": "1"}


def child_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment for lmms-eval 0.7.3: without secrets (it prints HF_TOKEN, and hands answers of the model to
    Python's `eval`), also where the Hub's login, or a `.env`, lies in a file; and without what says that this is one
    process of several, or sets lmms-eval itself. Python does not look for modules in the working directory
    there: it may have an `evaluate.py`, as scripts/ has, which lmms-eval would import in place of the library.
    """
    kept = {
        name: value for name, value in environment.items() if not _SECRET.search(name) and not _FOREIGN.fullmatch(name)
    }
    return kept | {"HF_HUB_DISABLE_IMPLICIT_TOKEN": "1", "HF_TOKEN_PATH": os.devnull, **_FIXED}


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
    causes = [line for line in lines[:-LOG_LINES] if _EXCEPTION.match(line)][-LOG_CAUSES:]
    how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
    shown = "\n".join(f"  {line[:300]}" for line in [*causes, *lines[-LOG_LINES:]])
    fetch = (
        " The questions of a benchmark could not be fetched: see whether the Hub can be reached, or give them by "
        "--data TASK=FOLDER."
        if _UNFETCHED.search("\n".join(lines))
        else ""
    )
    return EvaluationError(
        f"lmms-eval {how} before its runs were done. Runs that were finished are kept: mend the cause and give the "
        f"same command again.{fetch} The end of its log ({log}):\n{shown}"
    )
