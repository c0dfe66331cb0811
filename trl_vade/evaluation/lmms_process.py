"""lmms-eval 0.7.3 in a process of its own: started without tokens, watched, and always ended.

`python -m trl_vade.evaluation.lmms_process PLAN` is that process: corrected, with one model for all runs of a plan.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from trl_vade.errors import EvaluationError, JudgeError

from .corrections import correct, keep_one_model
from .judge import JUDGE_EXIT, JudgeGuard

# vLLM's engine starts each line with "(EngineCore_DP0 pid=7) ERROR 11-22 10:00:00 [core.py:1] ".
_EXCEPTION = re.compile(r"(\(\w+ pid=\d+\) )?(ERROR \S+ \S+ \S+ )?[A-Za-z_][\w.]*(Error|Exception|Exit|Interrupt)\b")
PATIENCE = 10.0  # seconds for the process to end by itself, after its last run and after SIGTERM


def run_plan(plan: Mapping[str, Any], log: Path, finished: Callable[[int], None], more: Mapping[str, str]) -> None:
    """Run a plan (see `main`) in a process whose output is in `log`, and return when all its runs are done.

    `finished` is called with the number of each; an exception from it ends the process. `more` is added to its
    environment, which has no tokens. A process that ends before its runs is an `EvaluationError`.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="vade-plan-") as folder, log.open("wb") as output:
        plan_file = Path(folder, "plan.json")
        plan_file.write_text(json.dumps({**plan, "done": folder}), encoding="utf-8")
        with subprocess.Popen(
            [sys.executable, "-m", "trl_vade.evaluation.lmms_process", str(plan_file)],
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.PIPE,  # closes when this process dies, and then the other one ends
            env=child_environment(os.environ) | dict(more),
            start_new_session=True,  # one group with its own children, such as vLLM's engine
        ) as process:
            try:
                whole = _watch(process, Path(folder), len(plan["runs"]), finished)
            finally:
                _end(process)
    if not whole:
        raise _error(process.returncode, log)  # the code may be 0: lmms-eval exits with 0 after some errors


_LEFT_OUT = re.compile(
    r"HF_TOKEN|HUGGING_FACE_HUB_TOKEN|(LOCAL_|NODE_|GROUP_)?RANK|(LOCAL_)?WORLD_SIZE"
    r"|(MASTER|TORCHELASTIC|ACCELERATE|LMMS)_.*"
)


def child_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for lmms-eval 0.7.3, which prints HF_TOKEN: without it, the login and `.env` files.

    Nor does it import from the working directory, where a file `evaluate.py` would replace the library of that name.
    """
    kept = {name: value for name, value in environment.items() if not _LEFT_OUT.fullmatch(name)}
    no_login = {"HF_HUB_DISABLE_IMPLICIT_TOKEN": "1", "HF_TOKEN_PATH": os.devnull, "PYTHON_DOTENV_DISABLED": "1"}
    return kept | no_login | {"PYTHONSAFEPATH": "1"}


def _watch(process: "subprocess.Popen[bytes]", folder: Path, runs: int, finished: Callable[[int], None]) -> bool:
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
    again = "Finished runs are kept: correct the cause and run the same command again."
    if code == JUDGE_EXIT:
        said = [line.removeprefix("trl_vade: ") for line in lines if line.startswith("trl_vade: ")]
        return JudgeError(f"{' '.join(said[-1:])} {again} Log: {log}.")
    causes = [line for line in lines[:-15] if _EXCEPTION.match(line)][-5:]
    shown = "\n".join(f"  {line[:300]}" for line in [*causes, *lines[-15:]])
    return EvaluationError(
        f"lmms-eval ended with exit code {code} before its runs were done. {again} Rows of a benchmark that cannot be "
        f"downloaded are given with --data TASK=FOLDER. The end of its log ({log}):\n{shown}"
    )


def main(plan_file: str) -> None:
    """Do the runs of a plan, one after the other, and create `done/<number>` after each.

    It is a JSON file with `model` and `arguments` (lmms-eval's name of the backend and the arguments of its class),
    `repetition_penalty`, `tasks` (a folder), `instruction`, `system_prompt`, `done` (a folder), and `runs`: for each
    run its `folder`, `judged`, and the `options` of lmms-eval.
    """
    plan = json.loads(Path(plan_file).read_text(encoding="utf-8"))
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.chdir(plan["done"])
    correct(plan["instruction"], plan["system_prompt"])
    keep_one_model(plan["model"], plan["arguments"], plan["repetition_penalty"])
    from lmms_eval import __main__ as command

    for number, run in enumerate(plan["runs"]):
        guard = JudgeGuard()
        if run["judged"]:
            guard.install()
        os.chdir(run["folder"])  # `--output_path .`: lmms-eval splits the path at commas, and writes it into its files
        sys.argv = ["lmms-eval", *run["options"], "--include_path", plan["tasks"]]
        # Its command line, without the part that turns an exception into exit code 0.
        command.cli_evaluate_single(command.parse_eval_args()[1])
        if run["judged"]:
            report = json.dumps(guard.report(), ensure_ascii=False)
            Path(run["folder"], "judge.json").write_text(report, encoding="utf-8")
        Path(plan["done"], str(number)).touch()


def _end_with_parent() -> None:
    os.read(sys.stdin.fileno(), 1)  # until the pipe of the parent process closes
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1])
