"""What an evaluation tells the leaderboards of the Hub: where a data set says that it is a benchmark, an entry for it.

The format is that of `.eval_results/` in a model's repository; https://huggingface.co/docs/hub/eval-results.
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml
from huggingface_hub import EvalResultEntry, HfApi, constants, eval_result_entries_to_yaml

from .benchmarks import BENCHMARKS, Benchmark
from .card_metadata import declared_tasks
from .errors import HubError
from .hub import HubTarget, patiently

logger = logging.getLogger(__name__)


def leaderboard_entries(
    api: HfApi, results: Mapping[str, Any], target: HubTarget, raw: str
) -> dict[str, list[dict[str, Any]]]:
    """The entries of an evaluation for the leaderboards of its benchmarks' data sets.

    Args:
        api: the Hub's client.
        results: the content of results.json. Limited ones, and those on a folder of the user's, have no entries.
        target: the branch of the model's repository, which the entries name as their source.
        raw: the folder of the raw results in it.

    Returns:
        The content of `.eval_results/<benchmark>.yaml` for each benchmark that has a leaderboard; values in the units
        of the benchmark's own metric.

    Raises:
        Nothing where a leaderboard cannot be read: then its benchmark has no entry, and the log says why.
    """
    source = f"{constants.ENDPOINT}/{target.repo_id}/tree/{quote(target.revision or 'main', safe='')}/{raw}"
    entries: dict[tuple[str, str], tuple[str, EvalResultEntry]] = {}
    for name, part in results["benchmarks"].items() if results["limit"] is None else ():
        benchmark = BENCHMARKS.get(name)
        if benchmark is None or part["dataset"] is None:
            continue
        task = task_id(api, benchmark, part["dataset"])
        if task is not None:
            entry = EvalResultEntry(
                dataset_id=part["dataset"],
                task_id=task,
                value=round(part["mean"] * benchmark.scale / 100, 4),
                date=results["finished"],
                source_url=source,
                source_name="Raw results",
                notes=f"average@{len(results['seeds'])} of {part['metric']}, whose best is {benchmark.scale:g}",
            )
            entries.setdefault((part["dataset"], task), (name, entry))  # one task has one result of a model
    return {name: eval_result_entries_to_yaml([entry]) for name, entry in entries.values()}


def task_id(api: HfApi, benchmark: Benchmark, dataset: str) -> str | None:
    """The benchmark's name on the leaderboard of its data set.

    Args:
        api: the Hub's client.
        benchmark: whose configuration and split the task must have.
        dataset: the data set on the Hub. Its `eval.yaml` says that it is a benchmark.

    Returns:
        The task's `id`; None: it has none, or nobody can say which it is. The log says why.

    Raises:
        Nothing where the data set does not answer: that is None, too.
    """

    def read() -> bytes | None:
        if not api.file_exists(dataset, "eval.yaml", repo_type="dataset"):
            return None
        return Path(api.hf_hub_download(dataset, "eval.yaml", repo_type="dataset")).read_bytes()

    try:
        content = patiently(read, HubTarget(dataset, "dataset"), patience=())
        declared = None if content is None else yaml.safe_load(content)
    except (HubError, ValueError, yaml.YAMLError) as error:
        logger.info(
            f"Nothing of {benchmark.title} for a leaderboard of {dataset}: its eval.yaml cannot be read ({error})."
        )
        return None
    tasks = declared_tasks(declared, benchmark.config, benchmark.split)
    if len(tasks) != 1:
        why = "it is no benchmark of the Hub" if content is None else f"{len(tasks)} of its tasks are this one"
        logger.info(f"Nothing of {benchmark.title} for a leaderboard of {dataset}: {why}.")
        return None
    return tasks[0]
