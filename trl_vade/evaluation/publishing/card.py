"""Results in a model card: a table in its text, and the `model-index` for programs, as huggingface_hub reads both."""

from huggingface_hub import EvalResult, ModelCard

from trl_vade.hub.cards import RESULTS, RESULTS_END

from ..benchmarks import BENCHMARKS
from ..results.table import Results, measurement

SOURCE = "trl_vade"  # the source of our entries, which tells them from those of others


def with_results(content: str, results: Results, section: str, *, name: str, source: str) -> str:
    """Return a card with results, which replace those of an earlier publication.

    Other text stays. So do entries of other sources in the index, except about the same data set, configuration and
    split: huggingface_hub 2.4 would write them as one entry, with one source for both. Limited results are not in the
    index.

    `section` is the text with the table, `name` the model's name if the index has none, and `source` the address of
    the raw results.

    Raises:
        ValueError: huggingface_hub cannot read the card's metadata or its index.
        yaml.YAMLError: the metadata are not YAML.
    """
    card = ModelCard(content)
    task = card.data.pipeline_tag or "image-text-to-text"
    ours = eval_results(results, task, source) if results["limit"] is None else []
    places = {one.unique_identifier for one in ours}
    there = [one for one in card.data.eval_results or [] if one.source_name != SOURCE]
    if found := [one for one in there if one.unique_identifier not in places] + ours:
        card.data.model_name = card.data.model_name or name
    card.data.eval_results = found or None
    card.text = with_section(card.text, section)
    return str(card.content)


def eval_results(results: Results, task: str, source: str) -> list[EvalResult]:
    """Return the scores in per cent as entries of a model index. `task` is the card's pipeline tag.

    Results on questions of the Hub have the data set, and results on other questions the lmms-eval task in its place.
    """
    found = []
    for name, part in results["benchmarks"].items():
        title, folder, one = part["title"], results["data"].get(name), BENCHMARKS[name]
        if name == "testbed":
            title = f"{title}, the embedded data set"
        elif folder:
            title = f"{title}, questions of the folder {folder}"
        place = {"dataset_config": one.config, "dataset_split": one.split} if part["dataset"] else {}
        measured = ", ".join(measurement(name, part).values())
        found.append(
            EvalResult(
                task_type=task,
                dataset_type=part["dataset"] or part["task"],
                dataset_name=title,
                metric_type=part["metric"],
                metric_name=f"average@{len(part['runs'])} {part['metric']} ({measured})",
                metric_value=round(part["mean"], 2),
                source_name=SOURCE,
                source_url=source,
                **place,
            )
        )
    return found


def with_section(text: str, section: str) -> str:
    """Return the text of a card with `section` between the marks of results, or at its end if it has no marks."""
    block = f"{RESULTS}\n\n{section.strip()}\n\n{RESULTS_END}"
    before, start, rest = text.rpartition(RESULTS)
    _, end, after = rest.partition(RESULTS_END)
    if start and end:
        return before + block + after
    return f"{text.rstrip()}\n\n## Evaluation with trl_vade\n\n{block}\n"
