"""What README.md, CONTRIBUTING.md and docs/ say: their Python runs, and their examples are judged so."""

import json
import re

import pytest
import yaml

import trl_vade
from tests.docs.pages import DOCS, ROOT, fences
from trl_vade.rewards.verifiers import judge
from trl_vade.trainer.grpo_config import VADE_DEFAULTS

pytestmark = pytest.mark.docs
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = {f"{page} {n}": block for page, blocks in fences("python").items() for n, block in enumerate(blocks, start=1)}


def test_what_the_repository_says_of_its_pages_is_there():
    sources = [*ROOT.glob("*.py"), *ROOT.glob("examples/*"), *ROOT.glob("model_cards/*"), ROOT / "CHANGELOG.md"]
    sources += [path for path in (ROOT / "trl_vade").rglob("*") if path.suffix in (".py", ".yaml")]
    texts = {path: path.read_text(encoding="utf-8") for path in sources if path.is_file()}
    named = {(path.name, page) for path, text in texts.items() for page in re.findall(r"docs/[\w/]+\.md", text)}
    assert {(source, page) for source, page in named if not (ROOT / page).exists()} == set()


def test_the_readme_is_short_and_names_settings_with_their_defaults():
    assert len(README.splitlines()) <= 160
    assert len(README) <= 9000
    assert {*re.findall(r"\bvade_[a-z_]+\b(?!\.)", README)} <= {*VADE_DEFAULTS, "vade_report"}  # the last is a file
    shown = re.findall(r"^\* `(vade_\w+)` \(default `(.+?)`:", README, flags=re.MULTILINE)
    assert shown == [(name, str(VADE_DEFAULTS[name])) for name, _ in shown] != []


def test_the_sheet_for_assistants_names_settings_that_exist_and_stays_short():
    text = (ROOT / "skills/trl-vade/SKILL.md").read_text(encoding="utf-8")
    assert yaml.safe_load(text.split("---")[1]).keys() >= {"name", "description"}
    assert set(re.findall(r"\bvade_\w+(?=[`=])", text)) <= {*VADE_DEFAULTS}
    assert len(text.splitlines()) <= 65


def test_ci_runs_the_commands_that_the_readme_gives():
    for pattern in re.findall(r"grep -m1 -E '(.+?)' README\.md", (ROOT / ".ci" / "run").read_text(encoding="utf-8")):
        assert len(re.findall(pattern, README, flags=re.MULTILINE)) == 1, pattern


@pytest.fixture
def stand_ins(text_model_path, text_rows, monkeypatch, tmp_path):
    """A function that makes a block small; its settings are checked as they are, then those of the tests hold."""
    from tests.support.runs import SMALL_RUN

    config = trl_vade.VADEGRPOConfig

    def small_config(**given):
        config(**given | {"use_cpu": True, "bf16": False})
        few_rows = {"per_device_train_batch_size": 16, "gradient_accumulation_steps": 1, "max_steps": 1}
        return config(**given | SMALL_RUN | {"num_generations": given.get("num_generations", 8)} | few_rows)

    rows = text_rows.map(lambda row: {"answer": str(row["limit"])})
    monkeypatch.setattr(trl_vade, "VADEGRPOConfig", small_config, raising=False)
    monkeypatch.setattr("datasets.load_dataset", lambda name, split: rows)
    monkeypatch.chdir(tmp_path)
    return lambda block: re.sub(r"Qwen/Qwen2\.5-\S+?(?=\")", text_model_path, block)


@pytest.mark.parametrize("name", sorted(BLOCKS.keys() - {"docs/guides/hub.md 1"}))
def test_a_python_block_runs_and_prints_what_it_says(name, stand_ins, capsys):
    exec(compile(stand_ins(BLOCKS[name]), name, "exec"), {"__name__": "__main__"})
    promised = re.findall(r"^print\(.*\)  # ((?:[\[\d(]|True|False).*)$", BLOCKS[name], flags=re.MULTILINE)
    assert {*promised} <= {*capsys.readouterr().out.splitlines()}


def test_the_examples_of_right_answers_are_judged_as_the_page_says():
    choices = ["plankton", "kelp", r"6\sqrt{2}", r"6\sqrt{3}"]
    wrong, tried = [], 0
    for section in (DOCS / "reference" / "rewards.md").read_text(encoding="utf-8").split("\n## ")[1:]:
        title = section.partition("\n")[0]
        given = {"Choices": (None, choices), "Expressions": ("expression", None)}.get(title, (None, None))
        for line in re.findall(r"^\| `(.*?)`( \(.*?\))? \| `(.*)` \| (1|0|none) \|$", section, flags=re.MULTILINE):
            reference, kind, completion, reward = line
            text = "" if reference == "(empty)" else reference.replace("⏎", "\n")
            found = judge(completion.replace("⏎", "\n"), json.loads(text) if kind else text, *given)
            wrong += [] if found == (None if reward == "none" else float(reward)) else [(title, line, found)]
            tried += 1
    assert wrong == []
    assert tried > 60
