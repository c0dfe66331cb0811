"""Results for programs: lines of a card's model index, and entries for leaderboards of the Hub.

Entries are files of `.eval_results/` in a model's repository, which others may have written, too; see
https://huggingface.co/docs/hub/eval-results. A data set declares by its `eval.yaml` that it has a leaderboard.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml
from huggingface_hub import EvalResultEntry, HfApi, constants, eval_result_entries_to_yaml
from huggingface_hub.utils import yaml_dump

from trl_vade.errors import HubError
from trl_vade.hub.uploading import HubTarget, with_retries

from ..benchmarks import BENCHMARKS, Benchmark
from ..results.table import Results, measurement

logger = logging.getLogger(__name__)

FOLDER = ".eval_results"


def leaderboard_entries(api: HfApi, results: Results, target: HubTarget, raw: str) -> dict[str, list[dict[str, Any]]]:
    """Return the entries of an evaluation for the leaderboards of its benchmarks' data sets.

    If a leaderboard cannot be read, its benchmark has no entry, and the log says why.

    Limited results, and results on a user's folder, have no entries. The entries name `raw`, the folder of the raw
    results in the repository, as their source.

    Returns:
        By benchmark, the content of `.eval_results/<benchmark>.yaml`, with values in the units of its metric.
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
                value=round(part["mean"] / 100, 4),
                date=results["finished"],
                source_url=source,
                source_name="Raw results",
                notes=f"average@{len(part['runs'])} of {part['metric']}, whose best is 1: "
                + ", ".join(measurement(name, part).values()),
            )
            entries.setdefault((part["dataset"], task), (name, entry))  # a task has one result of a model
    return {name: eval_result_entries_to_yaml([entry]) for name, entry in entries.values()}


def task_id(api: HfApi, benchmark: Benchmark, dataset: str) -> str | None:
    """Return the `id` of the task on a data set's leaderboard with the benchmark's configuration and split.

    None if there is no such task, if there are several, or if the data set cannot be read; the log says why.
    """

    def read() -> bytes | None:
        if not api.file_exists(dataset, "eval.yaml", repo_type="dataset"):
            return None
        return Path(api.hf_hub_download(dataset, "eval.yaml", repo_type="dataset")).read_bytes()

    try:
        content = with_retries(read, HubTarget(dataset, "dataset"), patience=())
        declared = None if content is None else yaml.safe_load(content)
    except (HubError, ValueError, yaml.YAMLError) as error:
        why = f"its eval.yaml cannot be read ({error})"
    else:
        tasks = declared_tasks(declared, benchmark.config, benchmark.split)
        if len(tasks) == 1:
            return tasks[0]
        why = "it has no eval.yaml" if content is None else f"{len(tasks)} of its tasks are this one"
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


def merged_files(
    entries: Mapping[str, Sequence[Any]], files: Iterable[str], read: Callable[[str], bytes], raw: str
) -> dict[str, bytes | None]:
    """Return the files of the folder `.eval_results` of a repository with an evaluation's entries merged in.

    Entries about the same task are replaced, and our entries about other weights are removed. All others stay, also
    those with a `verifyToken`. A file that cannot be read stays, and a warning is logged.

    `files` are the paths of the repository, and `raw` is `<folder>/<date>-<model>-<runs>`.

    Returns:
        By path, the content of each file, or None for an unchanged file. A file that is missing here held only our
        entries about other weights and is to be deleted.
    """
    merged: dict[str, bytes | None] = {path: None for path in files if path.startswith(f"{FOLDER}/")}
    for name in BENCHMARKS:  # our files
        path, new = f"{FOLDER}/{name}.yaml", list(entries.get(name, []))
        try:
            there = yaml.safe_load(read(path)) if path in merged else []
        except (ValueError, yaml.YAMLError):
            there = None
        if not isinstance(there, list):
            logger.warning(
                f"{path} of the repository is not a list of results and is left unchanged. Correct or delete it."
            )
            continue
        tasks = [entry["dataset"] for entry in new]
        wanted = [*(entry for entry in there if not _entry_is_replaced(entry, tasks, raw)), *new]
        if wanted:
            merged[path] = None if wanted == there else yaml_dump(wanted, sort_keys=False).encode()
        elif there:
            del merged[path]
    return merged


def _entry_is_replaced(entry: Any, tasks: Sequence[Mapping[str, Any]], raw: str) -> bool:
    """Return whether an entry is about one of `tasks`, or is ours with raw results of other weights."""
    if not isinstance(entry, Mapping) or "verifyToken" in entry:
        return False
    about, source = entry.get("dataset"), entry.get("source")
    place = [about.get("id"), about.get("task_id")] if isinstance(about, Mapping) else None
    if place in [[task["id"], task["task_id"]] for task in tasks]:
        return True
    folder, name = raw.split("/")
    _, ours, where = str(source.get("url") if isinstance(source, Mapping) else "").rpartition(f"/{folder}/")
    return bool(ours) and f"-{name.split('-')[-2]}" not in where


def index_places(names: Iterable[str]) -> list[dict[str, Any]]:
    """Return lines for `card_results.with_index` that match earlier results in these benchmarks, for their removal.

    Results on questions of the Hub have the data set, and results on other questions the lmms-eval task in its place.
    """
    lines = []
    for one in (BENCHMARKS[name] for name in names if name in BENCHMARKS):
        line = {"benchmark": one.title, "metric": one.metric, "value": 0, "dataset": one.task}
        hub = {"dataset": one.dataset, "config": one.config, "split": one.split}
        lines += [line, line | hub] if one.dataset else [line]
    return lines


def index_lines(results: Results) -> list[dict[str, Any]]:
    """Return the scores in per cent, as lines for `card_results.with_index`; see `index_places`."""
    lines = []
    for name, part in results["benchmarks"].items():
        title, folder, one = part["title"], results["data"].get(name), BENCHMARKS.get(name)
        if name == "testbed":
            title = f"{title}, the embedded data set"
        elif folder:
            title = f"{title}, questions of the folder {folder}"
        metric = f"average@{len(part['runs'])} {part['metric']} ({', '.join(measurement(name, part).values())})"
        line = {"benchmark": title, "metric": metric, "value": round(part["mean"], 2)}
        place = {"config": one.config, "split": one.split} if part["dataset"] and one else {}
        lines.append({**line, "dataset": part["dataset"] or part["task"], **place})
    return lines
