"""The benchmarks end to end on stand-ins with the schemas of the Hub: who answers from the key has 100 per cent.

One command, and so one process of lmms-eval, for all benchmarks: the served model answers from the key with seed 0,
and says A to everything with seed 1.
"""

import datasets
import pytest

from tests.lmms import stand_ins
from tests.support.commands import run
from tests.support.loopback_judge import LoopbackJudge
from trl_vade.evaluation.benchmarks import BENCHMARKS, FIVE
from trl_vade.evaluation.results import read_results

pytestmark = pytest.mark.lmms
ROWS = 20
NAMES = (*FIVE, "mathvision_rules", "scienceqa")
MAKERS = {"mathvision_rules": "mathvision", "scienceqa_img": "scienceqa"}


def letter(row):
    """The letter of the right choice, where there are choices."""
    choices, answer = row.get("choices") or row.get("options"), row["answer"]
    if answer in ("A", "B", "C"):
        return answer
    return "ABC"[answer if isinstance(answer, int) else choices.index(answer)] if choices else None


class KeyModel(LoopbackJudge):
    """A served model that sees the questions alone, and knows the answers."""

    def __init__(self, tables):
        super().__init__(model="key")
        rows = [row for table in tables.values() for row in table]
        self.answers = {row["question"]: letter(row) or row["answer"] for row in rows}
        self.unknown = []

    def _completion(self, mode, asked):
        texts = [part["text"] for part in asked["messages"][-1]["content"] if part["type"] == "text"]
        return super()._completion(mode, asked | {"messages": [{"role": "user", "content": "".join(texts)}]})

    def reply(self, prompt, asked):
        if asked["seed"] == 1:
            return "<answer>A</answer>"
        found = [answer for question, answer in self.answers.items() if question in prompt]
        if len(found) != 1:
            self.unknown.append(prompt)
        return f"<think>As the key says.</think>\n<answer>{found[0]}</answer>"


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Rows by benchmark, each question with the name of its benchmark, and their folders."""
    folder = tmp_path_factory.mktemp("rows")
    made = {name: getattr(stand_ins, MAKERS.get(name, name))(folder / name, ROWS) for name in NAMES}
    return {name: (at, datasets.load_dataset(str(at), split=BENCHMARKS[name].split)) for name, at in made.items()}


def test_who_answers_from_the_key_has_all_and_who_always_says_a_has_what_chance_says(tables, tmp_path):
    images = ("image", "decoded_image")
    rows = {name: table.remove_columns({*images} & {*table.features}) for name, (_, table) in tables.items()}
    words = ["evaluate", "key", "--output_path", str(tmp_path / "out"), "--tasks", ",".join(NAMES), "--seeds", "0,1"]
    words += [word for name, (path, _) in tables.items() for word in ("--data", f"{name}={path}")]
    with KeyModel(rows) as model, LoopbackJudge() as judge:
        words += ["--backend", "server", "--server_url", model.url, "--temperature", "1.0"]
        words += ["--judge_url", judge.url, "--judge_model", judge.model]
        result = run(*words)
    assert result.exit_code == 0, result.output + result.stderr
    assert model.unknown == []
    found = read_results(tmp_path / "out")["benchmarks"]
    assert {name: part["runs"][0]["score"] for name, part in found.items()} == dict.fromkeys(found, 100.0)
    chance = {name: 100 * sum(letter(row) == "A" for row in rows[name]) / ROWS for name in NAMES}
    assert {name: part["runs"][1]["score"] for name, part in found.items()} == chance
    assert all(0 < share < 100 for share in chance.values())
