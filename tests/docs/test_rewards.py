"""The examples on the page about right answers are judged as the page says."""

import json
import re

import pytest

from tests.docs.prose import ROOT
from trl_vade.rewards.verifiers import judge

PAGE = (ROOT / "docs" / "reference" / "rewards.md").read_text(encoding="utf-8")
CHOICES = ["plankton", "kelp", r"6\sqrt{2}", r"6\sqrt{3}"]
EXAMPLE = re.compile(
    r"^\| `(?P<reference>.*?)`(?P<kind> \(.*?\))? \| `(?P<completion>.*)` \| (?P<reward>1|0|none) \|$"
)


def examples():
    for section in PAGE.split("\n## ")[1:]:
        title = section.partition("\n")[0]
        for line in filter(None, map(EXAMPLE.match, section.splitlines())):
            reference = "" if line["reference"] == "(empty)" else line["reference"].replace("⏎", "\n")
            answer = json.loads(reference) if line["kind"] else reference
            reward = None if line["reward"] == "none" else float(line["reward"])
            choices = CHOICES if title == "Choices" else None
            kind = "expression" if title == "Expressions" else None
            yield pytest.param(answer, line["completion"].replace("⏎", "\n"), choices, kind, reward, id=line[0][2:60])


@pytest.mark.parametrize(("answer", "completion", "choices", "kind", "reward"), examples())
def test_an_example_is_judged_as_the_page_says(answer, completion, choices, kind, reward):
    assert judge(completion, answer, kind, choices) == reward


def test_every_rule_has_examples():
    sections = ("Where the answer is", "The reference", "Choices", "Numbers", "Texts", "Expressions")
    assert [section for section in sections if f"\n## {section}\n" not in PAGE] == []
    assert len(list(examples())) == PAGE.count("` | 1 |") + PAGE.count("` | 0 |") + PAGE.count("` | none |") > 60
