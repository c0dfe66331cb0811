"""Results of benchmarks in a model card: in its metadata, for programs, and in its text.

The card may be somebody else's, so its model index is merged as plain YAML. `EvalResult` (huggingface_hub 2.4) would
merge all entries of a data set into one with the name and source of the first, and so attribute numbers to a source
that did not report them.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from huggingface_hub import EvalResult
from huggingface_hub.repocard import REGEX_YAML_BLOCK
from huggingface_hub.repocard_data import eval_results_to_model_index
from huggingface_hub.utils import yaml_dump

from trl_vade.hub.cards import END, START

_INDEX = "model-index"
_INDEX_LINES = re.compile(rf"^{_INDEX}[ \t]*:.*\n?(?:(?:[ \t-].*|\r?)(?:\n|\Z))*", re.MULTILINE)  # up to the next key
_RESULTS, _RESULTS_END = "<!-- trl_vade: results of ", "<!-- trl_vade: end of the results -->"
# Without the condition in the middle, a mark without an end would match up to the end of the next block.
_BLOCK = re.compile(rf"{_RESULTS}(\w+ \w+[\w ]*) -->(?:(?!{_RESULTS}).)*?{_RESULTS_END}", re.DOTALL)
_SECTION = re.compile(
    rf"({re.escape(START)}.*?^## Evaluation[ \t]*\r?\n)(.*?)(?=^## |{re.escape(END)})", re.DOTALL | re.MULTILINE
)
_RAW = re.compile(r"\]\(([^()\s]+/results)\.(?:json|md)\)")
_AVERAGE = re.compile(r"^average@\d+ | \(.*\)$")  # around the metric's own name


def eval_result(line: Mapping[str, Any], task: str) -> EvalResult:
    """Return a result as an entry of the model index; `task` is the pipeline tag, such as "image-text-to-text".

    Of a line, `benchmark` and `metric` are display names, and `value` is a number. `dataset` (its Hub id), `config`
    and `split` may be None or missing. Without an id, a slug of the benchmark's name is used.
    """
    return EvalResult(
        task_type=task,
        dataset_type=line.get("dataset") or _slug(line["benchmark"]),
        dataset_name=line["benchmark"],
        dataset_config=line.get("config"),
        dataset_split=line.get("split"),
        # More seeds improve the estimate of the same metric, and another decoding is a newer result.
        metric_type=_slug(_AVERAGE.sub("", line["metric"])),
        metric_name=line["metric"],
        metric_value=line["value"],
    )


def with_index(
    content: str, lines: Sequence[Mapping[str, Any]], name: str, former: Sequence[Mapping[str, Any]] = ()
) -> str:
    """Return a card with results in its model index, as `metadata_update(overwrite=True)` merges them.

    All other text of the card is unchanged. Dumping the whole metadata could change values (YAML 1.1 reads `no` as
    false).

    Args:
        content: the card.
        lines: results to add; see `eval_result`. The task is the card's.
        name: the name of the model, if the index has none.
        former: results to remove, whatever their values.

    Raises:
        ValueError: the Hub could not read the metadata or the index.
        yaml.YAMLError: the metadata are not YAML.
    """
    block = REGEX_YAML_BLOCK.search(content)
    text, end = (block[2], "\r\n" if "\r\n" in block[1] else "\n") if block else ("", "\n")
    data = yaml.safe_load(text) or {}
    if not isinstance(data, dict):
        raise ValueError("its metadata are not a mapping")
    if not lines and _INDEX not in data:
        return content
    task = str(data.get("pipeline_tag") or "image-text-to-text")
    ours, gone = ([eval_result(line, task) for line in some] for some in (lines, former))
    index = merged_index(data.get(_INDEX), ours, name, gone)
    wanted = data | {_INDEX: index}
    dumped = yaml_dump({_INDEX: index}, sort_keys=False, line_break=end)
    text, there = _INDEX_LINES.subn(lambda index: dumped, text, count=1)
    text = text if there else f"{text.rstrip()}{end}{dumped}"
    if not _parses_to(text, wanted):  # the metadata are indented, or in braces
        text = yaml_dump(wanted, sort_keys=False, line_break=end)
    if block is None:
        return f"---{end}{text.strip()}{end}---{end}{end}{content.lstrip()}"
    return content[: block.start(2)] + text.strip() + content[block.end(2) :]


def _parses_to(text: str, wanted: Mapping[str, Any]) -> bool:
    try:
        return bool(yaml.safe_load(text.strip()) == wanted)
    except yaml.YAMLError:
        return False


def merged_index(
    index: Any, results: Sequence[EvalResult], name: str, former: Sequence[EvalResult] = ()
) -> list[dict[str, Any]]:
    """Return a card's model index with `results`, which replace the same metrics of the same tasks and data sets.

    Display names are ignored. Entries of other tools (with a `source`) and of the Hub (`verified`) stay. `former` are
    entries to remove. `index` is not changed, and may be None; the model is then called `name`. An index that the Hub
    could not read is a ValueError.
    """
    models = [{"name": name, "results": []}] if index is None else index
    if not isinstance(models, list) or not models or not all(isinstance(model, dict) for model in models):
        raise ValueError("its `model-index` is not a list of models")
    ours, gone = (eval_results_to_model_index(name, list(some))[0]["results"] for some in (results, former))
    same = {_identity(entry, metric) for entry in [*ours, *gone] for metric in entry["metrics"]}
    first, *others = models
    return [first | {"results": [*_without(first.get("results") or [], same), *ours]}, *others]


def _without(entries: Any, same: set[str]) -> list[Any]:
    """Return the entries without the metrics whose identity is in `same`, and without entries left empty."""
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ValueError("the `results` of its `model-index` are not a list of mappings")
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
    """Return what identifies a result: everything but its value and display names."""
    parts = [entry.get("task"), entry.get("dataset"), metric]
    told = [
        sorted((key, repr(value)) for key, value in part.items() if key not in ("name", "value", "verifyToken"))
        if isinstance(part, Mapping)
        else repr(part)
        for part in parts
    ]
    return repr(told)


def with_results(content: str, section: str, *, model: str, names: Sequence[str], limited: bool) -> str:
    """Return a card with a block about an evaluation, in the place of earlier blocks.

    The first block goes under "Evaluation" of a card of `model_card`, or to the end of any other card. Earlier blocks
    are removed, except results of the same model on other benchmarks, and results on all questions beside `limited`
    ones. An earlier table with kept and replaced benchmarks becomes a line that links to its raw results.

    `section` is the text of the block, and `model` the fingerprint of the model, letters and digits. `limited` results
    are of a part of the questions.
    """
    end = "\r\n" if "\r\n" in content else "\n"
    kind = "limited" if limited else "whole"
    mark = f"{_RESULTS}{' '.join([model, kind, *names])} -->"
    block = f"{mark}\n\n{section.strip()}\n\n{_RESULTS_END}".replace("\n", end)
    places = list(_BLOCK.finditer(content))
    kept = [left for place in places if (left := _remaining_block(place, model, names, limited))]
    for number, place in reversed(list(enumerate(places))):
        text = (end * 2).join([*kept, block]) if number == 0 else ""
        content = content[: place.start()] + text + content[place.end() :].lstrip("\r\n" * (number > 0))
    if places:
        return content
    if ours := _SECTION.search(content):
        return f"{content[: ours.start(2)]}{end}{block}{end}{end}{content[ours.end(2) :]}"
    return f"{content.rstrip()}{end}{end}## Evaluation with trl_vade{end}{end}{block}{end}"


def _remaining_block(place: re.Match[str], model: str, names: Sequence[str], limited: bool) -> str:
    """Return the part of an earlier block of results to keep beside new ones. Two tables could contradict."""
    there, kind, *before = place[1].split()
    others = [name for name in before if name not in names]
    if there == model and (others == before or (limited and kind == "whole")):
        return place[0]
    raw = _RAW.search(place[0])
    if there != model or not others or not raw:
        return ""
    end = "\r\n" if "\r\n" in place[0] else "\n"
    line = f"Earlier results of the same weights on {', '.join(others)}: [{raw[1]}.md]({raw[1]}.md)"
    return (end * 2).join([f"{_RESULTS}{' '.join([there, kind, *others])} -->", line, _RESULTS_END])


def results_of_others(content: str, model: str) -> list[str]:
    """Return the benchmarks for which the card has results of other weights, over all questions."""
    marks = [place[1].split() for place in _BLOCK.finditer(content)]
    return [name for there, kind, *names in marks if there != model and kind == "whole" for name in names]


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9_]+", "-", name.lower()).strip("-_") or "other"
