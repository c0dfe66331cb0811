"""Publication of an evaluation's results in the model's repository, in one commit.

    README.md                     a table, and the `model-index` for programs
    vade_evaluation/<time>/       results.json, results.md, evaluation.json, and the files of the runs
    .eval_results/trl_vade.yaml   entries for the leaderboards of the benchmarks' data sets that have one

A second publication replaces table and entries of the first. Its raw runs stay.
"""

import logging
import os
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml
from huggingface_hub import EvalResult, EvalResultEntry, HfApi, ModelCard, constants
from huggingface_hub import eval_result_entries_to_yaml as as_entries
from huggingface_hub.utils import yaml_dump

from trl_vade.hub.card_parts import CARD_FILE, RESULTS, RESULTS_END
from trl_vade.hub.uploading import FAILURES, HubTarget, send_folder, with_retries

from .benchmarks import BENCHMARKS, Benchmark
from .results import Results, measurement, read_results, table_of
from .run_files import run_folder

logger = logging.getLogger(__name__)

LEADERBOARDS = ".eval_results/trl_vade.yaml"
SOURCE = "trl_vade"  # the source of our entries in a model index, which tells them from those of others


def publish_results(output: Path, target: HubTarget) -> str:
    """Publish a finished evaluation in an existing model repository, and return the address of the commit.

    The card keeps its text, except the results of an earlier publication. Samples of a user's own rows, and the
    judge's words on them, are not published.
    """
    results = read_results(output)
    with tempfile.TemporaryDirectory() as name:
        # The time of the first run stays when runs are added.
        times = [Path(run["results_file"]).name for part in results["benchmarks"].values() for run in part["runs"]]
        staged, raw = Path(name), f"vade_evaluation/{min(times).removesuffix('_results.json')}"
        for path in _raw_files(output, results):
            content, copy = path.read_text(encoding="utf-8"), staged / raw / path.relative_to(output)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(_without_home(content), encoding="utf-8")
        branch, name = target.revision or constants.DEFAULT_REVISION, target.repo_id.split("/")[-1]
        index, boards = entries(results, f"{constants.ENDPOINT}/{target.repo_id}/tree/{quote(branch, safe='')}/{raw}")
        if boards:
            (staged / LEADERBOARDS).parent.mkdir()
            (staged / LEADERBOARDS).write_text(yaml_dump(as_entries(boards), sort_keys=False), encoding="utf-8")

        def card(files: list[str]) -> str:
            written = ModelCard(f"# Model Card for {name}\n")
            if CARD_FILE in files:  # Forced: without an answer, the client would return an older file from its cache.
                download = HfApi().hf_hub_download
                written = ModelCard.load(download(target.repo_id, CARD_FILE, revision=branch, force_download=True))
            return with_results(written, index, _section(results, raw), name)

        message = f"Evaluation: {', '.join(part['title'] for part in results['benchmarks'].values())}"
        send = partial(send_folder, target, staged, message, card, delete=[LEADERBOARDS])
        return str(with_retries(send, target).commit_url)


def _without_home(text: str) -> str:
    home = os.path.join(Path.home(), "")  # lmms-eval and the command name local paths, and so their user
    return text.replace(home, "~/") if len(home) > 1 else text


def _raw_files(output: Path, results: Results) -> Iterable[Path]:
    yield from (output / name for name in ("results.json", "results.md", "evaluation.json"))
    for name, part in results["benchmarks"].items():
        for run in part["runs"]:
            whole = filter(Path.is_file, run_folder(output, BENCHMARKS[name], run["seed"]).rglob("*"))
            yield from [output / run["results_file"]] if name in results["data"] else whole


def with_results(card: ModelCard, index: list[EvalResult], section: str, name: str) -> str:
    """Return a card with results in place of those of an earlier publication.

    Others' entries about the same data set and split go, too: huggingface_hub 2.4 would join them, with one source.
    """
    for one in index:
        one.task_type = card.data.pipeline_tag or one.task_type
    places = {one.unique_identifier for one in index}
    others = [one for one in card.data.eval_results or [] if one.source_name != SOURCE]
    old, new = card.data.eval_results or [], [one for one in others if one.unique_identifier not in places] + index
    card.data.eval_results = new
    there = {(one.metric_type, *one.unique_identifier[1:]) for one in new}  # the Hub's client joins names of one place
    gone = [one for one in old if (one.metric_type, *one.unique_identifier[1:]) not in there]
    if names := ", ".join(f"{one.metric_type} of {one.dataset_name}" for one in gone):
        logger.warning(f"Gone from the card: {names}. To publish these, too, evaluate with one --output_path for all.")
    card.data.model_name = card.data.model_name or name
    before, start, rest = card.text.rpartition(RESULTS)
    _, end, after = rest.partition(RESULTS_END)
    if not (start and end):
        before, after = f"{card.text.rstrip()}\n\n## Evaluation with trl_vade\n\n", "\n"
    card.text = f"{before}{RESULTS}\n\n{section}\n\n{RESULTS_END}{after}"
    return str(card.content)


def _section(results: Results, raw: str) -> str:
    model = results["model"]
    at = f" at {model['revision']}" if model["revision"] else ""
    but = ", except to the user's own questions" if results["data"] else ""
    return (
        f"{table_of(results)}\n\nThese are results of {model['name']}{at}. All answers{but}, settings and versions: "
        f"[{raw}]({raw}/results.json). The command:\n\n```bash\n{_without_home(results['command'])}\n```"
    )


def entries(results: Results, source: str) -> tuple[list[EvalResult], list[EvalResultEntry]]:
    """Return the scores for the card's index, in per cent, and for leaderboards, in the units of the metrics.

    Results on other questions than the Hub's have the task in place of a data set, and no leaderboard. A task of a
    leaderboard has one result of a model. See https://huggingface.co/docs/hub/eval-results.
    """
    index, boards = [], {}
    for name, part in results["benchmarks"].items():
        one, folder, dataset = BENCHMARKS[name], results["data"].get(name), part["dataset"]
        average, measured = f"average@{len(part['runs'])}", ", ".join(measurement(name, part).values())
        place = {"dataset_config": one.config, "dataset_split": one.split} if dataset else {}
        index.append(
            EvalResult(
                task_type="image-text-to-text",
                dataset_type=dataset or part["task"],
                dataset_name=f"{part['title']}, questions of the folder {folder}" if folder else part["title"],
                metric_type=part["metric"],
                metric_name=f"{average} {part['metric']} ({measured})",
                metric_value=round(part["mean"], 2),
                source_name=SOURCE,
                source_url=source,
                **place,
            )
        )
        if dataset and (board := task_id(one, dataset)):
            entry = EvalResultEntry(
                dataset_id=dataset,
                task_id=board,
                value=round(part["mean"] / 100, 4),
                date=results["finished"],
                source_url=source,
                source_name="Raw results",
                notes=f"{average} of {part['metric']}, whose best is 1: {measured}",
            )
            boards.setdefault((dataset, board), entry)
    return index, list(boards.values())


def task_id(benchmark: Benchmark, dataset: str) -> str | None:
    """Return the `id` of the one task of a data set's `eval.yaml` with the benchmark's configuration and split.

    `config` and `split` of a task are "default" and "test" if they are left out. None if there is no such task.
    """
    asked = (benchmark.config or "default", benchmark.split)
    with suppress(*FAILURES, yaml.YAMLError, TypeError, AttributeError):
        file = HfApi().hf_hub_download(dataset, "eval.yaml", repo_type="dataset")
        tasks: list[Mapping[str, Any]] = yaml.safe_load(Path(file).read_bytes())["tasks"]
        same = [one["id"] for one in tasks if (one.get("config") or "default", one.get("split") or "test") == asked]
        if len(same) == 1:
            return str(same[0])
    return None
