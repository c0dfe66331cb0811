"""What an evaluation tells programs: lines of a card's index, and of a benchmark of the Hub, entries for leaderboards.

The format of the latter is that of `.eval_results/` in a model's repository, where others may have entries as well;
https://huggingface.co/docs/hub/eval-results. Which data set is a benchmark, it says itself.
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
from ..results.table import Results

logger = logging.getLogger(__name__)

FOLDER = ".eval_results"
_Entries = Mapping[str, Sequence[Mapping[str, Any]]]


def leaderboard_entries(api: HfApi, results: Results, target: HubTarget, raw: str) -> dict[str, list[dict[str, Any]]]:
    """The entries of an evaluation for the leaderboards of its benchmarks' data sets.

    Args:
        api: the Hub's client.
        results: of the evaluation. Limited ones, and those on a folder of the user's, have no entries.
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
        content = with_retries(read, HubTarget(dataset, "dataset"), patience=())
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


def declared_tasks(declared: Any, config: str | None, split: str) -> list[str]:
    """The tasks of a data set's leaderboard that are of this configuration and this split.

    Args:
        declared: what its `eval.yaml` holds: `tasks`, each with `id`, `config` (without it, the data set's default
            one) and `split` (without it, test); https://huggingface.co/docs/hub/eval-results.
        config, split: of the benchmark; None is the default one.
    """
    tasks = declared.get("tasks") if isinstance(declared, Mapping) else None
    named = [task for task in (tasks if isinstance(tasks, list) else []) if isinstance(task, Mapping)]
    asked = (config or "default", split)
    same = [task for task in named if (task.get("config") or "default", task.get("split") or "test") == asked]
    return [task["id"] for task in same if isinstance(task.get("id"), str)]


def merged_files(
    entries: _Entries, files: Iterable[str], read: Callable[[str], bytes], raw: str
) -> dict[str, bytes | None]:
    """The folder `.eval_results` of a repository with an evaluation's entries in it.

    An entry about the same task is replaced, and one of ours about other weights goes; all others stay, and so does
    one that proves by its `verifyToken` whose it is.

    Args:
        entries: of `leaderboard_entries`.
        files: of the repository, by their paths.
        read: gives the content of one.
        raw: the folder of the raw results, `<folder>/<date>-<model>-<runs>`.

    Returns:
        The content of each file, by its path; None: as it is. One that is not in it is to be deleted: it has nothing
        but ours about other weights. A file that cannot be read stays, and the log says so.
    """
    merged: dict[str, bytes | None] = {path: None for path in files if path.startswith(f"{FOLDER}/")}
    for name in BENCHMARKS:  # our files
        path, new = f"{FOLDER}/{name}.yaml", list(entries.get(name, []))
        try:
            there = yaml.safe_load(read(path)) if path in merged else []
        except (ValueError, yaml.YAMLError):
            there = None
        if not isinstance(there, list):
            logger.warning(f"{path} of the repository is no list of results, and stays as it is. Mend or delete it.")
            continue
        tasks = [entry["dataset"] for entry in new]
        wanted = [*(entry for entry in there if not _entry_is_replaced(entry, tasks, raw)), *new]
        if wanted:
            merged[path] = None if wanted == there else yaml_dump(wanted, sort_keys=False).encode()
        elif there:
            del merged[path]
    return merged


def _entry_is_replaced(entry: Any, tasks: Sequence[Mapping[str, Any]], raw: str) -> bool:
    """Whether an entry makes room for those about `tasks`, or is ours and has its raw results from other weights."""
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
    """Where an index has results in these benchmarks, as lines for `card_metadata.with_index`: on the questions of the
    Hub, and on others, which have the task of lmms-eval in place of a data set.
    """
    lines = []
    for one in (BENCHMARKS[name] for name in names if name in BENCHMARKS):
        line = {"benchmark": one.title, "metric": one.metric, "value": 0, "dataset": one.task}
        hub = {"dataset": one.dataset, "config": one.config, "split": one.split}
        lines += [line, line | hub] if one.dataset else [line]
    return lines


def index_lines(results: Results) -> list[dict[str, Any]]:
    """Lines for `card_metadata.with_index`, of `Results.card_lines` without that of the average: the index has no
    way to say what it is of.
    """
    named = zip(results["benchmarks"].items(), results.card_lines(), strict=False)
    return [
        {**line, "benchmark": _title(results, name), "dataset": line["dataset"] or part["task"]}
        for (name, part), line in named
    ]


def _title(results: Results, name: str) -> str:
    title, folder = str(results["benchmarks"][name]["title"]), results["data"].get(name)
    if name == "testbed":
        return f"{title}, the embedded data set"
    return f"{title}, questions of the folder {folder}" if folder else title
