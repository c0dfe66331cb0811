"""The tasks in `eval/tasks/`, the folder in which lmms-eval finds them with their rows, and what they call.

How lmms-eval's own benchmarks score what comes out of the tags is tested with it, in tests/lmms.
"""

from pathlib import Path

import pytest
import yaml
from datasets import Dataset, DatasetDict
from PIL import Image
from trl.data_utils import prepare_multimodal_messages

from tests.support.evaluations import install_lmms_eval
from tests.support.rows import picture
from tests.support.verifier_cases import ARROW_CASES
from trl_vade.evaluation import tasks as scoring
from trl_vade.evaluation.benchmarks import BENCHMARKS
from trl_vade.evaluation.settings import Evaluation
from trl_vade.evaluation.tasks import THOUGHTFUL, mean, mixture, row_images, row_messages, task_folder, testbed_rows
from trl_vade.rewards.functions import accuracy_reward, format_reward

testbed_rows.__test__ = False
TASKS = Path(__file__).parents[2] / "eval" / "tasks"
OWN = ("testbed", "mixture")
"""Benchmarks of which lmms-eval has none."""


class Loader(yaml.SafeLoader):
    """Reads `!function module.name` as that text."""


Loader.add_constructor("!function", lambda loader, node: f"!function {node.value}")


def functions(value):
    """All that a task calls, wherever it stands in it."""
    if isinstance(value, dict | list):
        return [name for part in (value.values() if isinstance(value, dict) else value) for name in functions(part)]
    return [value.removeprefix("!function ")] if str(value).startswith("!function ") else []


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_task_has_its_benchmarks_name_and_calls_what_there_is(name):
    content = yaml.load((TASKS / f"vade_{name}.yaml").read_text(encoding="utf-8"), Loader)
    benchmark, called = BENCHMARKS[name], functions(content)
    assert (content["task"], content["reasoning_tags"]) == (benchmark.task, "none")  # else lmms-eval takes texts apart
    assert f"trl_vade.evaluation.tasks.{name.removesuffix('_img')}" in called
    assert all(callable(getattr(scoring, function.removeprefix("trl_vade.evaluation.tasks."))) for function in called)
    if name in OWN:
        assert (content["test_split"], content["doc_to_target"]) == (benchmark.split, "answer")
    else:
        assert content["include"].startswith("lmms_eval/")
        assert content["dataset_kwargs"] == {"token": False}  # and needs no login
        assert not {"dataset_path", "test_split", "doc_to_text"} & content.keys()  # those stay as they are
    metrics = [part["metric"] for part in content.get("metric_list", [{"metric": benchmark.metric}])]
    assert benchmark.metric in metrics


@pytest.fixture
def builtin(tmp_path, monkeypatch):
    """The folder of lmms-eval's own tasks, where the package is nothing but a name."""
    site = install_lmms_eval(tmp_path / "site")
    monkeypatch.syspath_prepend(site)
    return site / "lmms_eval" / "tasks"


def written(names, **options):
    """The tasks in the folder, by benchmark."""
    with task_folder(Evaluation("m", Path("o"), **options), [BENCHMARKS[name] for name in names]) as folder:
        assert sorted(path.name for path in folder.iterdir()) == sorted(f"vade_{name}.yaml" for name in names)
        tasks = {name: yaml.load((folder / f"vade_{name}.yaml").read_text(), Loader) for name in names}
    assert not folder.exists()
    return tasks


def test_a_task_includes_lmms_evals_and_given_rows_take_the_place_of_the_hubs(builtin, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    parquet, saved = Path("rows"), Path("saved")
    parquet.mkdir()
    DatasetDict(test=Dataset.from_list([{"answer": "4"}])).save_to_disk(saved)
    tasks = written(["chartqa", "scienceqa", "mathvista"], data={"chartqa": parquet, "scienceqa": saved})
    assert tasks["mathvista"]["include"] == f"{builtin}/mathvista/mathvista_testmini_cot.yaml"
    assert "dataset_path" not in tasks["mathvista"]
    for name, place, arguments in (
        ("chartqa", parquet, {"token": False}),
        ("scienceqa", saved, {"load_from_disk": True}),
    ):
        rows = {"dataset_path": str(tmp_path / place), "dataset_name": None, "dataset_kwargs": arguments}
        assert {part: tasks[name][part] for part in rows} == rows


def test_a_model_that_is_asked_to_think_is_not_asked_for_a_single_word(builtin, monkeypatch):
    monkeypatch.setattr("trl_vade.evaluation.tasks.testbed_rows", lambda: Path("testbed"))
    tasks = written(BENCHMARKS, instruction="Think.")
    found = {name: task.get("lmms_eval_specific_kwargs", {}).get("default") for name, task in tasks.items()}
    assert {name for name, words in found.items() if words} == THOUGHTFUL.keys()
    said = " ".join(text for words in found.values() for text in (words or {}).values())
    assert "single word" not in said
    assert "directly" not in said
    assert not any("lmms_eval_specific_kwargs" in task for task in written(BENCHMARKS).values())


def kinds(messages):
    return [(message["role"], [part["type"] for part in message["content"]]) for message in messages]


TURNS = [("system", "Be brief."), ("user", "How many?"), ("assistant", "4"), ("user", "Sure?")]
PROMPT = [{"role": role, "content": content} for role, content in TURNS]
PARTS = [{"role": "user", "content": [{"type": "text", "text": "See"}, {"type": "image"}]}]
PICTURES = {  # columns of a row, and the pictures that TRL puts into its prompt
    "several": ({"prompt": PROMPT, "images": [picture(1), picture(2)]}, [picture(1), picture(2)]),
    "one": ({"prompt": PROMPT, "image": picture(1)}, [picture(1)]),
    "one between texts": ({"prompt": PARTS, "image": picture(1)}, [picture(1)]),
    "none": ({"prompt": PROMPT}, []),
    "no image": ({"prompt": PROMPT, "image": None}, []),
    "no images": ({"prompt": PROMPT, "images": None}, []),
    "an empty list": ({"prompt": PROMPT, "images": []}, []),
}


@pytest.mark.parametrize("name", PICTURES)
def test_a_row_is_asked_as_the_trainer_asks_it(name):
    row, pictures = PICTURES[name]
    asked, trained = row_messages(row), prepare_multimodal_messages(row["prompt"], images=pictures)
    assert kinds(asked) == kinds(trained)
    for ours, theirs in zip(asked, trained, strict=True):
        for part, other in zip(ours["content"], theirs["content"], strict=True):
            if part["type"] == "text":
                assert part["text"] == other["text"]
            else:
                assert part["url"].tobytes() == other["image"].tobytes()
    assert [image.tobytes() for image in row_images(row)] == [image.tobytes() for image in pictures]


def test_a_picture_of_another_mode_or_a_path_becomes_one_that_models_take(tmp_path):
    picture(1).save(tmp_path / "a.png")
    images = [Image.new("LA", (8, 8), (7, 0)), str(tmp_path / "a.png")]
    found = row_images({"prompt": PROMPT, "images": images})
    assert [(image.mode, image.size) for image in found] == [("RGB", (8, 8))] * 2


def row_of(kind, case):
    """A row of the mixture as `datasets` gives it: every column, with None where there is nothing."""
    choices = None if case.choices is None else list(case.choices)
    source = "ChartQA" if case.relaxed else None
    return {"answer": case.answer, "answer_type": kind, "choices": choices, "source": source}


UNREADABLE = pytest.mark.filterwarnings("ignore:.*references of this batch:UserWarning")  # it is what the rows are for
QUICK = [(kind, case) for kind, case in ARROW_CASES if kind != "expression"]  # whose process takes a second to start
SOME = QUICK[::3] + [(kind, case) for kind, case in QUICK if case.verdict is None]


@UNREADABLE
def test_a_verdict_of_the_mixture_is_the_reward_that_trains():
    """With None for a row whose own answer cannot be read."""
    verdicts = []
    for kind, case in SOME:
        row = row_of(kind, case)
        found = mixture(row, [case.completion])
        verdicts.append(found["vade_accuracy"])
        assert verdicts[-1] == accuracy_reward([case.completion], **{name: [row[name]] for name in row})[0]
        assert found["vade_format"] == format_reward([case.completion])[0]
    assert verdicts == [case.verdict for _, case in SOME]
    assert {0.0, 1.0, None} == set(verdicts)
    assert mixture({"answer": "4"}, ["<answer>4</answer>"])["vade_accuracy"] == 1.0
    for answer, said in ((0, "0"), (0.0, "0"), (False, "no"), (0, "red")):
        row = {"answer": answer, "choices": ["red", "blue"] if said == "red" else None}
        scores = [mixture(row, [f"<answer>{text}</answer>"])["vade_accuracy"] for text in (said, "7")]
        assert scores == [1.0, 0.0], row
    assert [mean(scores) for scores in ([1.0, None, 0.0], [None], [])] == [0.5, None, None]


RESPONSE = "The legend has four bars.\n\nSo the *answer* is: the longest bar, which is 12 cm."
CHOICES = ["less than one half of it", "more than one half of it", "None"]
EXTRACTED = {
    "an answer": [
        *("12", "12.5", "-3", "1,200", "B", "(B)", "3/11", "3 / 11", "5 cm^2", "[1, 2, 3, 4, 5]", "none", "not equal"),
        *("x^2 + 3x - 4 = 0 or y < 2 - 5", "more than one half of it", "**Less than one half of it.**", "No"),
        *("the longest bar, which is 12 cm", "four bars. So the answer is", "The Answer is the longest bar"),
    ],
    "no answer": [
        *("", "null.", "N/A", "No answer", "No final answer was given", "The answer is not stated in the response"),
        *("The response does not provide a final answer.", "The solution is cut off before a value is found"),
        *("The model\u2019s response doesn\u2019t reach a conclusion.", "It ends without giving a value."),
    ],
    "no judge": ["The service is overloaded, please try again later.", "I cannot help with this request."],
}


def test_a_judges_words_are_an_answer_or_say_that_there_is_none_or_are_those_of_no_judge(monkeypatch):
    """lmms-eval takes the nearest choice for each, which is right here."""

    def kind(extraction):
        said = {"llm_as_judge_eval": {"extraction": extraction, "true_false": True}}
        monkeypatch.setattr(scoring, "_mathvista", lambda row, results: said)
        found = scoring.mathvista({"answer_type": "text", "choices": CHOICES}, [RESPONSE])
        if found["unreadable"]:
            return "no judge"
        return "an answer" if found["llm_as_judge_eval"] else "no answer"

    assert {text: kind(text) for texts in EXTRACTED.values() for text in texts} == {
        text: what for what, texts in EXTRACTED.items() for text in texts
    }
