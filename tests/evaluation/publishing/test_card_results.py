"""Results in a card: in its metadata, where other programs read them, and in its text."""

import re

import pytest
import yaml
from huggingface_hub import EvalResult, ModelCard
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.refusals import refused
from trl_vade.evaluation.publishing.card_results import (
    eval_result,
    merged_index,
    results_of_others,
    with_index,
    with_results,
)
from trl_vade.hub.cards import END, START

CHARTQA = {
    "benchmark": "ChartQA (test)",
    "metric": "average@4 relaxed_overall",
    "value": 81.25,
    "stderr": 0.5,
    "runs": 4,
    "dataset": "lmms-lab-encoder/ChartQA",
    "config": None,
    "split": "test",
}
OWN = CHARTQA | {"benchmark": "My charts", "value": 12.5, "dataset": None, "split": None}
TASK = "image-text-to-text"


def metadata(card):
    return yaml.safe_load(card.split("---\n")[1])


def entries(card):
    [model] = metadata(card)["model-index"]
    return model["results"]


def card(**data):
    return f"---\n{yaml.safe_dump(data, sort_keys=False)}---\n# Mine\n"


# ------------------------------------------------------------------------------------------------------- a result


def test_a_result_names_the_data_set_of_the_hub_with_configuration_and_split():
    line = CHARTQA | {"config": "ScienceQA-FULL"}
    assert eval_result(line, TASK) == EvalResult(
        task_type=TASK,
        dataset_type="lmms-lab-encoder/ChartQA",
        dataset_name="ChartQA (test)",
        dataset_config="ScienceQA-FULL",
        dataset_split="test",
        metric_type="relaxed_overall",
        metric_name="average@4 relaxed_overall",
        metric_value=81.25,
    )


def test_without_an_id_a_slug_stands_for_the_data_set_and_nothing_claims_a_source():
    result = eval_result({"benchmark": "My charts!", "metric": "%", "value": 1}, TASK)
    assert (result.dataset_type, result.dataset_config, result.dataset_split) == ("my-charts", None, None)
    assert (result.metric_type, result.source_name, result.verified) == ("other", None, None)


# --------------------------------------------------------------------------------------------------- the index


def test_a_card_without_an_index_gets_one_that_the_hubs_client_reads():
    text = with_index("# Mine\n", [CHARTQA, OWN], "run")
    assert text.endswith("---\n\n# Mine\n")
    data = ModelCard(text).data
    assert data.model_name == "run"
    assert [(result.dataset_type, result.metric_value) for result in data.eval_results] == [
        ("lmms-lab-encoder/ChartQA", 81.25),
        ("my-charts", 12.5),
    ]


def test_the_same_result_is_replaced_and_all_others_stay():
    first = with_index(card(pipeline_tag=TASK), [CHARTQA, OWN], "run")
    second = with_index(first, [CHARTQA | {"value": 82.0, "benchmark": "ChartQA"}], "another")
    assert [entry["metrics"][0]["value"] for entry in entries(second)] == [12.5, 82.0]
    assert metadata(second)["model-index"][0]["name"] == "run"
    assert with_index(second, [CHARTQA | {"value": 82.0, "benchmark": "ChartQA"}], "run") == second


def test_another_split_configuration_metric_or_data_set_is_another_result():
    others = {"split": "validation", "config": "human", "metric": "average@4 exact_match", "dataset": "x/ChartQA"}
    for name, value in others.items():
        text = with_index(with_index(card(), [CHARTQA | {name: value}], "run"), [CHARTQA], "run")
        assert len(entries(text)) == 2, name


def test_the_mean_over_more_seeds_is_the_same_result():
    text = with_index(card(), [CHARTQA | {"metric": "average@2 relaxed_overall", "value": 80}], "run")
    [entry] = entries(with_index(text, [CHARTQA], "run"))
    assert entry["metrics"] == [{"type": "relaxed_overall", "value": 81.25, "name": "average@4 relaxed_overall"}]


def test_former_results_go_whatever_their_values_and_names():
    text = with_index(card(), [CHARTQA, OWN], "run")
    former = CHARTQA | {"benchmark": "Charts", "metric": "relaxed_overall", "value": 0}
    assert [entry["dataset"]["type"] for entry in entries(with_index(text, [], "run", [former]))] == ["my-charts"]
    assert with_index("# Mine\n", [], "run", [former]) == "# Mine\n"


def entry(**more):
    """An entry about the same metric of the same data set as `CHARTQA`."""
    metric = {"type": "relaxed_overall", "value": 99.0} | more.pop("metric", {})
    return {
        "task": {"type": TASK},
        "dataset": {"type": CHARTQA["dataset"], "split": "test", "name": "Charts"},
        "metrics": [metric],
        **more,
    }


def test_what_another_tool_or_the_hub_itself_says_of_the_same_stays_and_its_source_is_not_ours():
    theirs = [entry(source={"url": "https://example.org", "name": "Board"}), entry(metric={"verified": True})]
    text = card(**{"model-index": [{"name": "run", "results": theirs}]})
    for _ in range(2):
        text = with_index(text, [CHARTQA], "run")
        *others, ours = entries(text)
        assert others == theirs
        assert "source" not in ours
        assert ours["metrics"][0]["value"] == 81.25


def test_of_an_entry_with_several_metrics_only_the_same_one_goes():
    several = entry()
    several["metrics"].append({"type": "f1", "value": 7})
    [first, ours] = entries(with_index(card(**{"model-index": [{"results": [several]}]}), [CHARTQA], "run"))
    assert first["metrics"] == [{"type": "f1", "value": 7}]
    assert ours["metrics"][0]["value"] == 81.25


@pytest.mark.parametrize("index", ["run", {}, [], ["run"], [{"results": "none"}], [{"results": ["none"]}]])
def test_an_index_that_is_none_is_refused(index):
    with refused(ValueError, ["`model-index`"]):
        merged_index(index, [eval_result(CHARTQA, TASK)], "run")


# ------------------------------------------------------------------------------- what else is in the metadata


def test_every_other_sign_of_the_metadata_stays():
    """PyYAML reads false from `no`, and forgets comments."""
    start, end = "---\n# about me\nlanguage: no\nlicense:   'mit'\n", 'tags: [a,   "b"]  # mine\n---\n# Mine\n'
    old = "model-index:\n- name: old\n  results:\n  - task: {type: x}\n    dataset: {type: y}\n    metrics: []\n"
    first = with_index(start + end, [CHARTQA], "run")
    assert first.startswith(start + end.partition("---")[0] + "model-index:\n")
    between = with_index(start + old + end, [CHARTQA], "run")
    assert between.startswith(start + "model-index:\n- name: old\n")
    assert between.endswith(end)
    assert with_index(between, [CHARTQA], "run") == between


@pytest.mark.parametrize(
    "index",
    [
        "- name: x\n  results: []\n",
        "- name: x\n  results:\n  - task: {type: t}\n    dataset: {type: d}\n    metrics: [] # empty\n",
        "- results: []\n  name: |\n    x # y\n\n",
        "[{name: x,\n  results: []}] # mine\n",
    ],
)
@pytest.mark.parametrize(
    "after", ["# which licence holds\nlicense: mit # of the data\n", "# the end\n", "\nlicense: mit\n"]
)
def test_comments_after_the_index_stay(index, after):
    text = with_index(
        f"---\ntags: [a]\nmodel-index:\n{index}{after}---\n# Mine\n".replace(":\n[", ": ["), [CHARTQA], "run"
    )
    assert text.endswith(f"{after}---\n# Mine\n")
    assert entries(text)[-1]["metrics"][0]["value"] == 81.25


def test_the_ends_of_the_lines_stay():
    text = with_index("---\r\nlicense: mit\r\n---\r\n# Mine\r\n", [CHARTQA], "run")
    text = with_results(text, "a\n\nb", model="m", names=["chartqa"], limited=False)
    assert text.count("\n") == text.count("\r\n") > 10


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text("ab:#-'\" {[|\n", max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", min_size=1), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=40)
@given(
    before=st.dictionaries(st.text("abc", min_size=1), VALUES, max_size=3),
    after=st.dictionaries(st.text("def", min_size=1), VALUES, max_size=3),
    known=st.booleans(),
    flow=st.sampled_from([None, False, True]),
)
def test_whatever_the_metadata_are_they_stay_and_a_second_time_changes_nothing(before, after, known, flow):
    index = {"model-index": [{"name": "run", "results": [entry()]}]} if known else {}
    text = f"---\n{yaml.safe_dump(before | index | after, default_flow_style=flow, sort_keys=False)}---\n# Mine\n"
    once = with_index(text, [CHARTQA], "run")
    found = yaml.safe_load(re.match(r"---\n(.*?)\n---\n# Mine\n$", once, re.DOTALL)[1])
    assert len(found.pop("model-index")[0]["results"]) == 1
    assert found == before | after
    assert with_index(once, [CHARTQA], "run") == once


# ------------------------------------------------------------------------------------------------------ the text

ABOUT = {"model": "0123abcd", "names": ["chartqa"], "limited": False}
RUN = (
    f"# Run\n\n{START}\n\n## Training\n\ntext\n\n## Evaluation\n\nNot evaluated yet.\n\n## Limits\n\n* one\n\n{END}\n"
)


def test_the_results_take_the_place_in_a_card_of_a_run():
    text = with_results(RUN, "| 81 |", **ABOUT)
    assert "Not evaluated yet" not in text
    before, section, after = re.split(r"## Evaluation\n|(?=## Limits)", text)
    assert (before, after) == (RUN.partition("## Evaluation")[0], RUN[RUN.index("## Limits") :])
    assert "\n\n| 81 |\n\n" in section
    assert with_results(text, "| 81 |", **ABOUT) == text


def test_a_heading_outside_of_the_runs_part_is_somebody_elses():
    theirs = "# Mine\n\n## Evaluation\n\nBy hand: 80.\n\n"
    text = with_results(theirs + RUN, "| 81 |", **ABOUT)
    assert text.startswith(theirs)
    assert "Not evaluated yet" not in text
    alone = with_results(theirs, "| 81 |", **ABOUT)
    assert alone.startswith(theirs.rstrip())
    assert alone.count("| 81 |") == 1


def test_a_second_time_replaces_the_first_wherever_it_was_moved_to():
    text = with_results("# Mine\n", "| 81 |", **ABOUT)
    block = text[text.index("<!--") :].rstrip()
    moved = f"# Mine\n\nLook:\n\n{block}\n\nThat was it.\n"
    assert with_results(moved, "| 82 |", **ABOUT) == moved.replace("81", "82")


def test_results_of_other_benchmarks_stay_and_those_of_other_weights_go():
    text = with_results("# Mine\n", "| charts |", **ABOUT)
    both = with_results(text, "| science |", **(ABOUT | {"names": ["scienceqa"]}))
    assert both.index("| charts |") < both.index("| science |")
    again = with_results(both, "| charts, science |", **(ABOUT | {"names": ["chartqa", "scienceqa"]}))
    assert re.findall(r"\| .* \|", again) == ["| charts, science |"]
    trained = with_results(both, "| new |", **(ABOUT | {"model": "4567", "names": ["mathvista"]}))
    assert re.findall(r"\| .* \|", trained) == ["| new |"]


def test_of_a_table_with_one_benchmark_that_is_new_a_line_is_left_for_the_others():
    both = ABOUT | {"names": ["chartqa", "scienceqa"]}
    text = with_results("# Mine\n\n", "| both |\n\nAll: [raw/1](raw/1/results.json).", **both)
    for section in ("| new |", "| newer |"):
        text = with_results(text, section, **ABOUT)
        assert re.findall(r"\| .* \|", text) == [section]
        assert text.count("on scienceqa: [raw/1/results.md](raw/1/results.md)") == 1
    assert "raw/1" not in with_results(text, "| both |", **both)
    limited = with_results(text, "| few |", **(both | {"limited": True}))
    assert re.findall(r"\| .* \|", limited) == ["| newer |", "| few |"]
    nowhere = with_results("# Mine\n", "| both |", **both)
    assert re.findall(r"\| .* \|", with_results(nowhere, "| new |", **ABOUT)) == ["| new |"]


def test_the_benchmarks_of_other_weights_are_told_from_the_text():
    text = with_results("# Mine\n", "| 81 |", **(ABOUT | {"names": ["chartqa", "scienceqa"]}))
    text = with_results(text, "| few |", **(ABOUT | {"names": ["mathvista"], "limited": True}))
    assert results_of_others(text, "4567") == ["chartqa", "scienceqa"]
    assert results_of_others(text, ABOUT["model"]) == []


def test_results_over_a_few_questions_do_not_replace_those_over_all():
    few = ABOUT | {"limited": True}
    text = with_results("# Mine\n", "| all |", **ABOUT)
    for _ in range(2):
        text = with_results(text, "| few |", **few)
        assert re.findall(r"\| .* \|", text) == ["| all |", "| few |"]
    assert re.findall(r"\| .* \|", with_results(text, "| all |", **ABOUT)) == ["| all |"]


def test_a_mark_whose_end_somebody_deleted_takes_no_text_with_it():
    text = with_results("# Mine\n", "| 81 |", **ABOUT)
    broken = text.replace("<!-- trl_vade: end of the results -->", "My own words.")
    for _ in range(2):
        broken = with_results(broken, "| 82 |", **ABOUT)
        assert "My own words." in broken
        assert broken.count("| 82 |") == 1


@given(text=st.text("ab#\n |-<>!", max_size=60), sections=st.lists(st.text("xyz|\n", min_size=1), max_size=3))
def test_the_text_of_a_stranger_stays_whatever_it_is(text, sections):
    changed = text
    for section in sections:
        changed = with_results(changed, section, **ABOUT)
    assert changed.startswith(text.rstrip())
    assert changed.count("end of the results") == bool(sections)
