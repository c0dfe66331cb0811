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


def test_its_example_is_short():
    """It is run by tests/docs/test_python_blocks.py."""
    example = re.search(r"```python\n(.+?)```", README, flags=re.DOTALL).group(1)
    assert len([line for line in example.splitlines() if line.strip()]) <= 15


def test_ci_runs_the_commands_that_the_readme_gives():
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    for pattern in re.findall(r"grep -m1 -E '(.+?)' README\.md", script):
        assert len(re.findall(pattern, README, flags=re.MULTILINE)) == 1, pattern
