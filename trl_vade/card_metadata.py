"""The metadata of a model card: what TRL's lacks, and results of benchmarks, which are in its text as well.

A card on the Hub may be a stranger's. Its model index is therefore merged as the plain YAML that it is: through
`EvalResult` (huggingface_hub 2.4) all entries of one data set become one, with the name and the source of the first,
and a source would stand behind numbers that are not from there.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from huggingface_hub import EvalResult, ModelCardData
from huggingface_hub.repocard import REGEX_YAML_BLOCK
from huggingface_hub.repocard_data import eval_results_to_model_index
from huggingface_hub.utils import yaml_dump

from .posterior_table import hub_id

CARD_FILE = "README.md"
START = "<!-- trl_vade: what follows is written by trl_vade, anew at every save -->"
END = "<!-- trl_vade: end -->"
TAGS = ("trl", "grpo", "vade", "trl-vade")

_INDEX = "model-index"
_RESULTS, _RESULTS_END = "<!-- trl_vade: results of ", "<!-- trl_vade: end of the results -->"
# Without the condition in the middle, a first mark that lost its end would take all text up to the next end with it.
_BLOCK = re.compile(rf"{_RESULTS}(\w+ \w+[\w ]*) -->(?:(?!{_RESULTS}).)*?{_RESULTS_END}", re.DOTALL)
_SECTION = re.compile(
    rf"({re.escape(START)}.*?^## Evaluation[ \t]*\r?\n)(.*?)(?=^## |{re.escape(END)})", re.DOTALL | re.MULTILINE
)


def complete_metadata(
    data: ModelCardData, facts: Mapping[str, Any], results: Sequence[Mapping[str, Any]], *, vision: bool, name: str
) -> None:
    """Keep what TRL says where it can be true, and add the rest; a second call changes nothing.

    Args:
        data: of the card; changed in place.
        facts: of the run; see `run_facts`.
        results: of benchmarks; see `eval_result`. Those of an earlier call are replaced.
        vision: whether the model takes pictures.
        name: of the model, for the index of results.
    """
    if data.get("licence") == "license":
        # TRL 1.16 writes `licence: license` into every card. The Hub's key is `license`, and its value one of a list:
        # this is neither, and says nothing. Which licence holds is for the owner to say.
        data.pop("licence")
    data.library_name = data.library_name or "transformers"
    data.pipeline_tag = "image-text-to-text" if vision else "text-generation"
    data.base_model = facts.get("base_model") or hub_id(data.base_model)
    # The Hub refuses a card whose `datasets` are no ids, and TRL writes whatever name it was given.
    named = [data.datasets] if isinstance(data.datasets, str) else data.datasets or []
    known = [facts.get("dataset"), *(name for name in named if hub_id(name) and "/" in name)]
    data.datasets = list(dict.fromkeys(filter(None, known))) or None
    data.tags = sorted({*(data.tags or []), *TAGS})  # TRL's come out of a set, in another order in each process
    measured = [line for line in results if line.get("value") is not None]
    data.eval_results = [eval_result(line, data.pipeline_tag) for line in measured] or None
    if data.eval_results:
        data.model_name = data.model_name or name.split("/")[-1]


def eval_result(line: Mapping[str, Any], task: str) -> EvalResult:
    """A result as the model index has it.

    Args:
        line: `benchmark` and `metric` are names for people, `value` is a number; `dataset` (its id on the Hub),
            `config` and `split` may be None or missing. Without an id, a slug of the benchmark's name stands for it.
        task: the pipeline tag, such as "image-text-to-text".
    """
    return EvalResult(
        task_type=task,
        dataset_type=line.get("dataset") or _slug(line["benchmark"]),
        dataset_name=line["benchmark"],
        dataset_config=line.get("config"),
        dataset_split=line.get("split"),
        metric_type=_slug(line["metric"]),
        metric_name=line["metric"],
        metric_value=line["value"],
    )


# ------------------------------------------------------------------------------------- results in the metadata


def with_index(content: str, lines: Sequence[Mapping[str, Any]], name: str) -> str:
    """The card `content` with results in its model index, as `metadata_update(overwrite=True)` merges them.

    Every other sign of the card stays as it was. Dumped anew, metadata can become others: of `language: no` YAML 1.1
    reads false.

    Args:
        lines: see `eval_result`; the task is the card's.
        name: of the model, where the index has none yet.

    Raises:
        ValueError: the metadata, or the index, are none that the Hub could read.
        yaml.YAMLError: the metadata are no YAML.
    """
    block = REGEX_YAML_BLOCK.search(content)
    text, end = (block[2], "\r\n" if "\r\n" in block[1] else "\n") if block else ("", "\n")
    data = yaml.safe_load(text) or {}
    if not isinstance(data, dict):
        raise ValueError("its metadata are no mapping")
    task = str(data.get("pipeline_tag") or "image-text-to-text")
    index = merged_index(data.get(_INDEX), [eval_result(line, task) for line in lines], name)
    wanted = data | {_INDEX: index}
    text = _replaced(text, yaml_dump({_INDEX: index}, sort_keys=False, line_break=end), end)
    if not _holds(text, wanted):  # it is indented, or in braces
        text = yaml_dump(wanted, sort_keys=False, line_break=end)
    if block is None:
        return f"---{end}{text.strip()}{end}---{end}{end}{content.lstrip()}"
    return content[: block.start(2)] + text.strip() + content[block.end(2) :]


def _replaced(text: str, dumped: str, end: str) -> str:
    """The YAML `text` with the lines `dumped` in place of those of the same key, or after the last one."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    for key, value in root.value if isinstance(root, yaml.MappingNode) else []:
        if key.value == _INDEX:  # a list ends where the next key begins
            return text[: key.start_mark.index] + dumped + text[value.end_mark.index :].lstrip()
    return f"{text.rstrip()}{end}{dumped}"


def _holds(text: str, wanted: Mapping[str, Any]) -> bool:
    try:
        return bool(yaml.safe_load(text.strip()) == wanted)
    except yaml.YAMLError:
        return False


def merged_index(index: Any, results: Sequence[EvalResult], name: str) -> list[dict[str, Any]]:
    """Return the model index `index` of a card with `results` in it.

    The same metric of the same task and data set is replaced; names for people do not tell two apart. All else stays
    as it is, also what another tool (an entry with a `source`) or the Hub itself (`verified`) says of the same.

    Args:
        index: of the card's metadata; None where it has none. It is not changed.
        results: without a source.
        name: of the model, where the index has none yet.

    Raises:
        ValueError: `index` is none that the Hub could read.
    """
    models = [{"name": name, "results": []}] if index is None else index
    if not isinstance(models, list) or not models or not all(isinstance(model, dict) for model in models):
        raise ValueError("its `model-index` is no list of models")
    ours = eval_results_to_model_index(name, list(results))[0]["results"]
    same = {_identity(entry, metric) for entry in ours for metric in entry["metrics"]}
    first, *others = models
    return [first | {"results": [*_without(first.get("results") or [], same), *ours]}, *others]


def _without(entries: Any, same: set[str]) -> list[Any]:
    """The entries of an index without the metrics whose identity is in `same`, and without those that had no other."""
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ValueError("the `results` of its `model-index` are no list of mappings")
    kept = []
    for entry in entries:
        metrics = entry.get("metrics")
        if not isinstance(metrics, list) or "source" in entry:
            kept.append(entry)
            continue
        others = [metric for metric in metrics if _identity(entry, metric) not in same]
        if others or not metrics:
            kept.append(entry | {"metrics": others})
    return kept


def _identity(entry: Mapping[str, Any], metric: Any) -> str:
    """What tells results apart: all but the value and the names."""
    parts = [entry.get("task"), entry.get("dataset"), metric]
    told = [
        sorted((key, repr(value)) for key, value in part.items() if key not in ("name", "value", "verifyToken"))
        if isinstance(part, Mapping)
        else repr(part)
        for part in parts
    ]
    return repr(told)


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


# ------------------------------------------------------------------------------------------ results in the text


def with_results(content: str, section: str, *, model: str, names: Sequence[str], limited: bool) -> str:
    """The card `content` with the text `section` about an evaluation, each time in the same place.

    The first time that is under "Evaluation" of a card of `model_card`, and the end of any other. What earlier calls
    put there goes, but for results of the same model in other benchmarks; those over all questions stay beside
    `limited` ones.

    Args:
        model: its fingerprint, letters and digits.
        names: of the benchmarks.
    """
    end = "\r\n" if "\r\n" in content else "\n"
    kind = "limited" if limited else "whole"
    mark = f"{_RESULTS}{' '.join([model, kind, *names])} -->"
    block = f"{mark}\n\n{section.strip()}\n\n{_RESULTS_END}".replace("\n", end)
    places = list(_BLOCK.finditer(content))
    kept = [place[0] for place in places if _stays(place[1].split(), model, names, limited)]
    for number, place in reversed(list(enumerate(places))):
        text = (end * 2).join([*kept, block]) if number == 0 else ""
        content = content[: place.start()] + text + content[place.end() :].lstrip("\r\n" * (number > 0))
    if places:
        return content
    if ours := _SECTION.search(content):
        return f"{content[: ours.start(2)]}{end}{block}{end}{end}{content[ours.end(2) :]}"
    return f"{content.rstrip()}{end}{end}## Evaluation with trl_vade{end}{end}{block}{end}"


def _stays(words: Sequence[str], model: str, names: Sequence[str], limited: bool) -> bool:
    """Whether a text of earlier results, with these words in its mark, stays beside new ones."""
    there, kind, *others = words
    return there == model and (not set(others) <= set(names) or (limited and kind == "whole"))


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "other"
