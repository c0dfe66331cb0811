"""`eval/compare.py` on small output directories in lmms-eval's shape; its intervals where the truth is known."""

import json

import numpy as np
import pytest
from PIL import Image

from eval import compare
from tests.support.evaluations import FACTS, GENERATION, VERSIONS, finished
from tests.support.refusals import refused, says
from trl_vade.errors import EvaluationError
from trl_vade.selection.report.style import LIGHT

JUDGE = {"model": "Qwen2.5-72B-Instruct", "url": "http://localhost:8000/v1"}


def evaluation(output, scores, name="model", generation=GENERATION, **facts):
    decoding = dict.fromkeys(scores, f"temperature {generation['temperature']:g}")
    known = {"model": FACTS["model"] | {"name": name}, "judge": JUDGE, "decoding": decoding, "generation": generation}
    return finished(output, scores, **known | facts)


def compared(*folders, reference=0, allow=False, resamples=200, names=None):
    return compare.compare(compare.read_evaluations(folders, names), reference, allow, resamples)


RNG = np.random.default_rng(0)
HARD = RNG.random(40) < 0.4
BETTER = HARD | (RNG.random(40) < 0.5)
EASY = RNG.random((2, 30)) < 0.8


@pytest.fixture
def base(tmp_path):
    return evaluation(tmp_path / "base", {"chartqa": HARD, "scienceqa": EASY})


def test_a_question_counts_with_its_mean_over_the_runs_and_the_average_with_that_of_the_benchmarks(tmp_path):
    three = [0, 1, 2]
    runs = [[0, 1, 0, 0], [0, 1, 1, 0], [0, 1, 0, 1]]
    first = evaluation(tmp_path / "a", {"chartqa": runs, "scienceqa": [1, 0]}, seeds=three)
    runs = [[1, 1, 0, 0], [1, 1, 1, 1], [1, 1, 0, 1]]
    second = evaluation(tmp_path / "b", {"chartqa": runs, "scienceqa": [1, 1]}, seeds=three)
    found = compared(first, second, names=["a", "b"])
    assert [row["scores"][1]["differing"] for row in found["rows"]] == [2, 1, 3]
    assert [row["title"] for row in found["rows"]] == ["ChartQA (test)", "ScienceQA-FULL (test)", "Average"]
    assert [row["questions"] for row in found["rows"]] == [4, 2, 6]
    firsts, seconds = ([row["scores"][i] for row in found["rows"]] for i in (0, 1))
    assert [one["mean"] for one in firsts] == pytest.approx([125 / 3, 50, 275 / 6])
    assert [one["mean"] for one in seconds] == pytest.approx([75, 100, 87.5])
    assert [one["difference"] for one in seconds] == pytest.approx([100 / 3, 50, 125 / 3])
    assert [one["difference"] for one in firsts] == [None] * 3
    # chartqa: runs of 50, 100 and 75; the average's runs are 75, 100 and 87.5
    assert [one["stderr"] for one in seconds] == pytest.approx([25 / np.sqrt(3), 0, 12.5 / np.sqrt(3)])


def differing(better, worse=0, questions=200):
    """Scores of two directories, of which the second is right in `better` and wrong in `worse` others alone."""
    first, second = np.zeros(questions), np.zeros(questions)
    second[:better] = first[better : better + worse] = 100
    return np.array([first, second])


def test_fewer_than_ten_differing_questions_are_never_marked():
    for better in (4, 9, 10):
        cell = compare.beside([differing(better)], 0, 500)[1]
        assert cell["interval"][0] > 0  # also of four, which all are better by chance one time in 8
        assert (cell["differing"], cell["few"], cell["marked"]) == (better, better < 10, better == 10)


def test_the_interval_of_the_average_resamples_within_each_benchmark():
    """Far apart means with little spread in each: resampled as one pool, the interval would be ten times as wide."""
    rng = np.random.default_rng(2)
    samples = [rng.normal(mean, 1.0, size) for mean, size in ((-20, 400), (0, 100), (30, 200))]
    low, high = compare.interval(samples, 2000)
    error = np.sqrt(sum(sample.var() / len(sample) for sample in samples)) / 3
    assert high - low == pytest.approx(2 * 1.96 * error, rel=0.1)
    assert (low + high) / 2 == pytest.approx(np.mean([sample.mean() for sample in samples]), abs=error)


def test_other_settings_are_refused_or_said_and_what_changes_no_answer_is_not(tmp_path):
    first = evaluation(tmp_path / "first", {"mathvision": [0, 1]})
    others = [
        *(
            ("decoding of mathvision", {"generation": GENERATION | {"temperature": 0.0}}),
            ("max_pixels", {"model_args": {}}),
        ),
        *(("system_prompt", {"system_prompt": "Think."}), ("backend", {"backend": "transformers"})),
        *(("judge", {"judge": JUDGE | {"model": "small"}}), ("mathvision", {"data": {"mathvision": "mine"}})),
        ("vllm", {"versions": VERSIONS | {"vllm": "0.11"}}),
    ]
    for number, (setting, facts) in enumerate(others):
        other = evaluation(tmp_path / f"{number}", {"mathvision": [1, 1]}, **facts)
        with refused(EvaluationError, [setting], ["--allow_different_settings"]):
            compared(first, other, names=["a", "b"])
        found = compared(first, other, names=["a", "b"], allow=True)
        said = found["different_settings"]
        assert says(said[0], setting)
        assert said[0] in compare.notes(found)[-1]
    harmless = {"versions": VERSIONS | {"datasets": "3"}, "judge": JUDGE | {"url": "http://elsewhere/v1"}}
    same = evaluation(tmp_path / "same", {"mathvision": [1, 1]}, **harmless)
    assert compared(first, same)["different_settings"] == []


@pytest.mark.parametrize("allow", [False, True])
def test_other_rows_questions_and_benchmarks_are_refused_whatever_is_allowed(base, tmp_path, allow):
    def of(folder, digest, **facts):
        facts |= {"data": {"chartqa": folder}, "rows": {"chartqa": digest}}
        return evaluation(tmp_path / folder, {"chartqa": HARD}, folder, **facts)

    first = of("a", "3f")
    longer = evaluation(tmp_path / "longer", {"chartqa": [*HARD, True]}, "longer")
    limited = evaluation(tmp_path / "limited", {"chartqa": HARD[:5]}, "limited", limit=5)
    other = evaluation(tmp_path / "other", {"mathvision": [0, 1]}, "other")
    for one, another, names in (
        (first, of("b", "4e"), ["chartqa", "'3f'", "'4e'"]),
        (base, longer, ["1", "chartqa", "longer", "[40]"]),
        (base, limited, ["--limit", "5", "model", "limited"]),
        (base, other, ["'chartqa'", "'mathvision'", "model", "other"]),
    ):
        with refused(EvaluationError, names):
            compared(one, another, allow=allow)
    assert compared(first, of("copy", "3f"), allow=allow)["different_settings"] == []


def test_the_command_writes_a_table_its_numbers_and_a_picture(base, tmp_path, capsys):
    other = evaluation(tmp_path / "other", {"chartqa": BETTER, "scienceqa": EASY}, r"cost $\x$ | more")
    third = evaluation(tmp_path / "third", {"chartqa": HARD, "scienceqa": EASY}, "_third")
    output = tmp_path / "new" / "comparison"
    folders = [str(folder) for folder in (base, other, third)]
    compare.main([*folders, "--output", str(output), "--resamples", "200", "--reference", "2"])
    saved = json.loads((output / "comparison.json").read_text())
    assert saved == json.loads(json.dumps(compared(base, other, third, reference=2)))
    text = (output / "comparison.md").read_text()
    assert r"| Benchmark | Questions | Decoding | Scorer | _third | model | Difference |" in text
    assert r"| Differing | cost $\x$ \| more |" in text
    assert "| ChartQA (test) | 40 | temperature 0.6 | lmms-eval: relaxed, 5 % |" in text
    assert "![Scores](comparison.png)" in text
    printed = capsys.readouterr().out
    assert compare.notes(saved)[0] in text
    assert compare.notes(saved)[0] in printed
    with Image.open(output / "comparison.png") as picture:
        # every directory's colour is in it, the reference's among them
        colours = {"#{:02x}{:02x}{:02x}".format(*colour[:3]) for _, colour in picture.getcolors(2**20)}
    assert {LIGHT["quiet"], LIGHT["first"], LIGHT["second"]} <= colours
