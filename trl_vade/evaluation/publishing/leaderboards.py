"""Entries for leaderboards of the Hub, in a file of our own; see https://huggingface.co/docs/hub/eval-results.

A data set declares by its `eval.yaml` that it has a leaderboard.
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import EvalResultEntry, HfApi, eval_result_entries_to_yaml
from huggingface_hub.utils import yaml_dump

from trl_vade.hub.failures import FAILURES, in_one_line

from ..benchmarks import BENCHMARKS, Benchmark
from ..results.table import Results, measurement

logger = logging.getLogger(__name__)

FOLDER = ".eval_results"
FILE = f"{FOLDER}/trl_vade.yaml"


def leaderboard_file(api: HfApi, results: Results, source: str) -> bytes | None:
    """Return the content of `FILE`, with values in the units of the metrics; None without a leaderboard.

    Limited results, and results on a user's folder, have no entries. If a leaderboard cannot be read, its benchmark
    has none either, and the log says why. `source` is the address of the raw results.
    """
    entries: dict[tuple[str, str], EvalResultEntry] = {}
    for name, part in results["benchmarks"].items() if results["limit"] is None else ():
        task = part["dataset"] and task_id(api, BENCHMARKS[name], part["dataset"])
        if task:
            entry = EvalResultEntry(
                dataset_id=part["dataset"],
                task_id=task,
                value=round(part["mean"] / 100, 4),
                date=results["finished"],
                source_url=source,
                source_name="Raw results",
                notes=f"average@{len(part['runs'])} of {part['metric']}, whose best is 1: "
                + ", ".join(measurement(name, part).values()),
            )
            entries.setdefault((part["dataset"], task), entry)  # a task has one result of a model
    content = yaml_dump(eval_result_entries_to_yaml([*entries.values()]), sort_keys=False)
    return content.encode() if entries else None


def task_id(api: HfApi, benchmark: Benchmark, dataset: str) -> str | None:
    """Return the `id` of the task on a data set's leaderboard with the benchmark's configuration and split.

    None if there is no such task, if there are several, or if the data set cannot be read; the log says why.
    """
    try:
        declared = yaml.safe_load(Path(api.hf_hub_download(dataset, "eval.yaml", repo_type="dataset")).read_bytes())
    except (*FAILURES, yaml.YAMLError) as error:
        why = f"its eval.yaml cannot be read ({in_one_line(error)})"
    else:
        tasks = declared_tasks(declared, benchmark.config, benchmark.split)
        if len(tasks) == 1:
            return tasks[0]
        why = f"{len(tasks)} of its tasks are this one"
    logger.info(f"{benchmark.title} has no entry for a leaderboard of {dataset}: {why}.")
    return None


def declared_tasks(declared: Any, config: str | None, split: str) -> list[str]:
    """Return the ids of a leaderboard's tasks with this configuration (None: the default one) and split.

    `declared` is the content of `eval.yaml`: `tasks`, each with `id`, `config` (default: the default one) and `split`
    (default: test).
    """
    tasks = declared.get("tasks") if isinstance(declared, Mapping) else None
    named = [task for task in (tasks if isinstance(tasks, list) else []) if isinstance(task, Mapping)]
    asked = (config or "default", split)
    same = [task for task in named if (task.get("config") or "default", task.get("split") or "test") == asked]
    return [task["id"] for task in same if isinstance(task.get("id"), str)]
