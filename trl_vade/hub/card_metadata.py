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

from .uploading import hub_id

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
_RAW = re.compile(r"\]\(([^()\s]+/results)\.(?:json|md)\)")
_AVERAGE = re.compile(r"^average@\d+ ")


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
        metric_type=_slug(_AVERAGE.sub("", line["metric"])),  # more seeds give a better figure, and no other one
        metric_name=line["metric"],
        metric_value=line["value"],
    )


def with_index(
    content: str, lines: Sequence[Mapping[str, Any]], name: str, former: Sequence[Mapping[str, Any]] = ()
) -> str:
    """The card `content` with results in its model index, as `metadata_update(overwrite=True)` merges them.

    Every other sign of the card stays: dumped anew, metadata can become others (YAML 1.1 reads false from `no`).

    Args:
        lines, former: see `eval_result`; the task is the card's. The latter go, whatever their values.
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
    if not lines and _INDEX not in data:
        return content
    task = str(data.get("pipeline_tag") or "image-text-to-text")
    ours, gone = ([eval_result(line, task) for line in some] for some in (lines, former))
    index = merged_index(data.get(_INDEX), ours, name, gone)
    wanted = data | {_INDEX: index}
    text = _replaced(text, yaml_dump({_INDEX: index}, sort_keys=False, line_break=end), end)
    if not _parses_to(text, wanted):  # it is indented, or in braces
        text = yaml_dump(wanted, sort_keys=False, line_break=end)
    if block is None:
        return f"---{end}{text.strip()}{end}---{end}{end}{content.lstrip()}"
    return content[: block.start(2)] + text.strip() + content[block.end(2) :]


def _replaced(text: str, dumped: str, end: str) -> str:
    """The YAML `text` with the lines `dumped` in place of those of the same key, or after the last one."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    for key, value in root.value if isinstance(root, yaml.MappingNode) else []:
        if key.value == _INDEX:
            return text[: key.start_mark.index] + dumped + text[_last_line(text, value) :]
    return f"{text.rstrip()}{end}{dumped}"


def _last_line(text: str, node: yaml.Node) -> int:
    """Where the line after a value begins. By its mark, a list ends at the next key, after comments on that."""
    while isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        node = node.value[-1][1] if isinstance(node, yaml.MappingNode) else node.value[-1]
    return text.find("\n", node.end_mark.index - 1) + 1 or len(text)  # a block of text ends after its line


def _parses_to(text: str, wanted: Mapping[str, Any]) -> bool:
    try:
        return bool(yaml.safe_load(text.strip()) == wanted)
    except yaml.YAMLError:
        return False


def merged_index(
    index: Any, results: Sequence[EvalResult], name: str, former: Sequence[EvalResult] = ()
) -> list[dict[str, Any]]:
    """Return the model index `index` of a card with `results` in it.

    The same metric of the same task and data set is replaced; names for people do not tell two apart. All else stays
    as it is, also what another tool (an entry with a `source`) or the Hub itself (`verified`) says of the same.

    Args:
        index: of the card's metadata; None where it has none. It is not changed.
        results, former: without a source; the latter go.
        name: of the model, where the index has none yet.

    Raises:
        ValueError: `index` is none that the Hub could read.
    """
    models = [{"name": name, "results": []}] if index is None else index
    if not isinstance(models, list) or not models or not all(isinstance(model, dict) for model in models):
        raise ValueError("its `model-index` is no list of models")
    ours, gone = (eval_results_to_model_index(name, list(some))[0]["results"] for some in (results, former))
    same = {_identity(entry, metric) for entry in [*ours, *gone] for metric in entry["metrics"]}
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


def with_results(content: str, section: str, *, model: str, names: Sequence[str], limited: bool) -> str:
    """The card `content` with the text `section` about an evaluation, each time in the same place.

    The first time that is under "Evaluation" of a card of `model_card`, and the end of any other. What earlier calls
    put there goes, but for results of the same model in other benchmarks; those over all questions stay beside
    `limited` ones. Of a table that has benchmarks of both kinds a line is left, with the way to its raw results.

    Args:
        model: its fingerprint, letters and digits.
        names: of the benchmarks.
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
    """What stays of a text of earlier results beside new ones; two tables would contradict each other."""
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
    """The benchmarks that have results of other weights, over all questions, in the text of the card `content`."""
    marks = [place[1].split() for place in _BLOCK.finditer(content)]
    return [name for there, kind, *names in marks if there != model and kind == "whole" for name in names]


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9_]+", "-", name.lower()).strip("-_") or "other"
