"""lmms-eval 0.7.3 inside a training: its `simple_evaluate`, less what that does for several processes."""

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from lmms_eval.evaluator import evaluate
from lmms_eval.tasks import TaskManager, get_task_dict

from .benchmarks import Benchmark
from .eval_settings import Evaluation
from .lmms_runner import correct
from .lmms_tasks import task_folder


def run_tasks(model: Any, evaluation: Evaluation, benchmarks: Sequence[Benchmark]) -> dict[str, Any]:
    """Evaluate `model` in this process and return lmms-eval's results.

    `simple_evaluate` would let one of several processes wait for the others (they are not here), and patch file locks
    and SSL for good. It also seeds the generators, which is done here, and is for the caller to undo.
    """
    correct(evaluation.instruction, evaluation.system_prompt)
    seed = evaluation.seeds[0]
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    with task_folder(benchmarks, evaluation.data, asked_to_think=bool(evaluation.instruction)) as folder:
        names = [benchmark.task for benchmark in benchmarks]
        tasks = get_task_dict(names, TaskManager("ERROR", include_path=str(folder)), "chat")
        for name, task in tasks.items():
            model.task_dict[name] = task.dataset
            task.set_config(key="generation_kwargs", value=vars(evaluation.generation), update=True)
            task.set_config(key="num_fewshot", value=0)
        return evaluate(lm=model, task_dict=tasks, limit=evaluation.limit, bootstrap_iters=0)
