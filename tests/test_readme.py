"""What the README says is checked where a test can check it."""

import re
from pathlib import Path

from trl_vade.trainer.grpo_config import VADE_DEFAULTS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
NOT_SETTINGS = ("vade_report",)  # a file


def test_it_has_at_most_200_lines():
    assert len(README.splitlines()) <= 200


def test_its_settings_are_there_with_the_default_shown():
    assert {*re.findall(r"\bvade_[a-z_]+\b(?!\.)", README)} <= {*VADE_DEFAULTS, *NOT_SETTINGS}
    shown = re.findall(r"^\* `(vade_\w+)` \(default `(.+?)`\)", README, flags=re.MULTILINE)
    assert shown
    assert shown == [(name, str(VADE_DEFAULTS[name])) for name, _ in shown]


def test_the_example_trains(text_model_path, text_rows, make_args, monkeypatch, capsys):
    """As it stands in the README, but with the tests' model, data and CPU arguments."""
    example = re.search(r"```python\n(.+?)```", README, flags=re.DOTALL).group(1)
    assert len([line for line in example.splitlines() if line.strip()]) <= 15
    assert "Qwen/Qwen2.5-VL-3B-Instruct" in example
    example = example.replace("Qwen/Qwen2.5-VL-3B-Instruct", text_model_path)
    small = r"VADEGRPOConfig(\1, use_cpu=True, bf16=False) and make_args(max_steps=1)"
    example, arguments = re.subn(r"VADEGRPOConfig\((.+?)\)", small, example)
    assert arguments == 1
    rows = text_rows.map(lambda row: {"answer": str(row["limit"])})
    monkeypatch.setattr("datasets.load_dataset", lambda name, split: rows)
    exec(compile(example, "README.md", "exec"), {"make_args": make_args})
    assert capsys.readouterr().out.strip().endswith("]")


def test_ci_runs_the_commands_that_the_readme_gives():
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    for pattern in re.findall(r"grep -m1 -E '(.+?)' README\.md", script):
        assert len(re.findall(pattern, README, flags=re.MULTILINE)) == 1, pattern
