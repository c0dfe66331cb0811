"""`python -m trl_vade.evaluation.runner PLAN`: corrected lmms-eval 0.7.3, one model for all runs of a plan.

`process` starts it in a process of its own. Faults of lmms-eval 0.7.3 that are not corrected in `corrections`:

* Some requirements are not declared (decord, Levenshtein, this math-verify): the extra `eval` declares them.
* HF_TOKEN is printed, and read from a `.env` file: `process` removes it and disables python-dotenv.
* Errors end with exit code 0: `_run` calls the part that raises, and `runs` trusts only complete files.
* A dead judge scores 0, and every text with a "1" is a verdict: `judge_guard.JudgeGuard`.
* The error text of a failed request counts as an answer: `runs`.
* In MathVista, an unreadable answer becomes a near choice, no float is right, and the accuracy 0 is None. `<answer>`
  tags stay in the answer: `scoring`, with the tasks in `eval/tasks/`.
* A task with a built-in name and local rows is ignored: our tasks have other names (`benchmarks`).
* Tasks are greedy with 16 new tokens, and `-n 4` scores only the first answer: `run` sets seeds and all settings.
* Images are resized to other bounds than the model's, and vLLM may execute a repository's code: `models`.
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .corrections import correct, keep_one_model
from .judge_guard import JudgeGuard


def main(plan_file: str) -> None:
    """Do the runs of a plan, one after the other. Creates `done/<number>` after each run.

    Args:
        plan_file: a JSON file with `model` and `arguments` (lmms-eval's name of the backend and the arguments of its
            class), `tasks` (the folder of the tasks), `repetition_penalty`, `instruction`, `system_prompt`, `done` (a
            folder), and `runs`: for each run its `task`, `folder`, `judged`, and the `options` of lmms-eval.
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
    started = time.monotonic()
    command.cli_evaluate_single(options)
    print(f"trl_vade: {run['task']} took {time.monotonic() - started:.1f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
