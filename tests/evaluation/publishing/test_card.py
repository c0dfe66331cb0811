"""Results in a card: in its metadata, where other programs read them, and in its text."""

import pytest
import yaml
from huggingface_hub import ModelCard
from hypothesis import given
from hypothesis import strategies as st

from trl_vade.evaluation.publishing.card import with_results, with_section
from trl_vade.evaluation.results.table import Results
from trl_vade.hub.cards import RESULTS, RESULTS_END

TASK = "image-text-to-text"
RAW = "https://huggingface.co/you/run/tree/main/vade_evaluation/1"
CHARTQA = {
    **{"metric": "relaxed_overall", "title": "ChartQA (test)", "task": "vade_chartqa"},
    **{"dataset": "lmms-lab-encoder/ChartQA", "mean": 81.254, "questions": 2500, "scorer": "rules"},
    **{"decoding": "greedy", "runs": [{}] * 4},
}


def written(content, mean=81.254, limit=None, data=None, **part):
    results = {"limit": limit, "data": data or {}, "benchmarks": {"chartqa": CHARTQA | {"mean": mean} | part}}
    return with_results(content, Results(results), f"| {mean} |", name="run", source=RAW)


def card(**data):
    return f"---\n{yaml.safe_dump(data, sort_keys=False)}---\n# Mine\n"


def entry(**more):
    """An entry about the same data set."""
    about = {"type": CHARTQA["dataset"], "split": "test", "name": "Charts"} | more.pop("dataset", {})
    return {"task": {"type": TASK}, "dataset": about, "metrics": [{"type": "f1", "value": 9.0}], **more}


def results_of(text):
    return ModelCard(text).data.eval_results or []


def test_an_entry_names_data_set_metric_and_source():
    [result] = results_of(written("# Mine\n"))
    assert (result.task_type, result.dataset_type, result.dataset_name) == (TASK, CHARTQA["dataset"], "ChartQA (test)")
    assert (result.dataset_config, result.dataset_split) == (None, "test")
    assert (result.metric_type, result.metric_value) == ("relaxed_overall", 81.25)
    assert result.metric_name == "average@4 relaxed_overall (2,500, greedy, 4 runs, rules)"
    assert (result.source_name, result.source_url) == ("trl_vade", RAW)
    assert ModelCard(written("# Mine\n")).data.model_name == "run"


def test_results_on_a_folder_of_the_users_do_not_pass_for_those_of_the_hub():
    [result] = results_of(written("# Mine\n", dataset=None, data={"chartqa": "my_charts"}))
    assert result.dataset_name == "ChartQA (test), questions of the folder my_charts"
    assert (result.dataset_type, result.dataset_split) == ("vade_chartqa", None)


def test_a_second_time_replaces_the_first_and_all_else_stays():
    theirs = [entry(dataset={"split": "validation"}), entry(source={"url": "https://example.org", "name": "Board"})]
    about = {"license": "mit", "tags": ["a", "b"], "pipeline_tag": "text-generation", "x": {"y": [1, None]}}
    text = written(card(**about, **{"model-index": [{"name": "their name", "results": theirs}]}))
    for _ in range(2):
        text = written(text, mean=90.0)
        assert [one.metric_value for one in results_of(text)] == [9.0, 9.0, 90.0]
        assert results_of(text)[-1].task_type == "text-generation"
        assert text.count("| 90.0 |") == 1
        assert "81" not in text
        found = yaml.safe_load(text.split("---\n")[1])
        assert found.pop("model-index")[0]["name"] == "their name"
        assert found == about


def test_no_result_gets_a_source_that_did_not_report_it():
    """huggingface_hub would write one entry about a data set, with the source of the first."""
    theirs = entry(source={"url": "https://example.org", "name": "Board"})
    [ours] = results_of(written(card(**{"model-index": [{"name": "run", "results": [theirs]}]})))
    assert (ours.metric_value, ours.source_name) == (81.25, "trl_vade")


def test_limited_results_are_in_no_index_and_leave_that_of_others():
    text = written(written(card(license="mit")), limit=8)
    assert results_of(text) == []
    assert "| 81.254 |" in text
    theirs = card(**{"model-index": [{"name": "run", "results": [entry()]}]})
    assert [one.metric_value for one in results_of(written(theirs, limit=8))] == [9.0]


@pytest.mark.parametrize(
    "text",
    [
        *("---\n- a list\n---\n# Mine\n", "---\na: [\n---\n# Mine\n", "---\nmodel-index: run\n---\n"),
        "---\nmodel-index: [{name: run, results: [none]}]\n---\n",
    ],
)
def test_metadata_that_are_none_are_refused(text):
    with pytest.raises((ValueError, yaml.YAMLError)):
        written(text)


# ------------------------------------------------------------------------------------------------------ the text


def test_the_block_is_replaced_wherever_it_was_moved_to():
    block = f"{RESULTS}\n\nNot evaluated yet.\n\n{RESULTS_END}"
    text = f"# Mine\n\nLook:\n\n{block}\n\nThat was it.\n"
    assert with_section(text, "| 82 |\n") == text.replace("Not evaluated yet.", "| 82 |")


def test_a_mark_whose_end_somebody_deleted_takes_no_text_with_it():
    broken = with_section("# Mine\n", "| 81 |").replace(RESULTS_END, "My own words.")
    for _ in range(2):
        broken = with_section(broken, "| 82 |")
        assert "My own words." in broken
        assert broken.count("| 82 |") == 1


@given(text=st.text("ab#\n |-<>!", max_size=60), sections=st.lists(st.text("xyz|\n", min_size=1), max_size=3))
def test_the_text_of_a_stranger_stays_whatever_it_is(text, sections):
    changed = text
    for section in sections:
        changed = with_section(changed, section)
    assert changed.startswith(text.rstrip())
    assert changed.count(RESULTS_END) == bool(sections)
