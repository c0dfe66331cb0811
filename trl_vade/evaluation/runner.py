"""`python -m trl_vade.evaluation.runner PLAN`: corrected lmms-eval 0.7.3, one model for all runs of a plan.

`process` starts it in a process of its own. docs/upstream has the faults of lmms-eval and where they are corrected.
"""

import json
import os
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .corrections import correct, keep_one_model
from .judge_guard import JudgeGuard


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
    for number, run in enumerate(plan["runs"]):
        guard = JudgeGuard()
        if run["judged"]:
            guard.install()
        _run(run, plan["tasks"])
        if run["judged"]:
            report = json.dumps(guard.report(), ensure_ascii=False)
            Path(run["folder"], "judge.json").write_text(report, encoding="utf-8")
        Path(plan["done"], str(number)).touch()


def _end_with_parent() -> None:
    """Wait until the pipe of the parent process closes, then end this process group."""
    os.read(sys.stdin.fileno(), 1)
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _run(run: Mapping[str, Any], tasks: str) -> None:
    """Run an evaluation by lmms-eval's command line, without the part that turns an exception into exit code 0."""
    from lmms_eval import __main__ as command

    os.chdir(run["folder"])  # `--output_path .`: lmms-eval splits the path at commas, and writes it into its files
    sys.argv = ["lmms-eval", *run["options"], "--include_path", tasks]
    _, options = command.parse_eval_args()
    command.cli_evaluate_single(options)


if __name__ == "__main__":
    main(sys.argv[1])
