"""What the README says is checked where a test can check it."""

import re
from pathlib import Path

from tests.support.runs import says_a_digit
from trl_vade import VADEGRPOTrainer
from trl_vade.trainer.grpo_config import VADE_DEFAULTS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def first_column(heading):
    section = README.split(f"## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"^\| `([^`]+)`", section, flags=re.MULTILINE)


def test_the_metrics_table_names_what_is_logged_and_nothing_else(text_model_path, text_rows, make_args):
    trainer = VADEGRPOTrainer(text_model_path, says_a_digit, make_args(max_steps=1), text_rows)
    trainer.train()
    logged = {name for entry in trainer.state.log_history for name in entry if name.startswith("vade/")}
    assert sorted(first_column("What is logged")) == sorted(logged)


def test_the_table_of_settings_names_every_new_field_with_its_default():
    assert first_column("In your own script") == list(VADE_DEFAULTS)
    for name, default in VADE_DEFAULTS.items():
        shown = "-" if default is None else str(default)
        assert re.search(rf"^\| `{name}` \| `?{re.escape(shown)}`? \|", README, flags=re.MULTILINE), name


def test_the_example_trains(text_model_path, text_rows, make_args, monkeypatch, capsys):
    """As it stands in the README, but with the tests' model, data and CPU arguments."""
    example = re.search(r"```python\n(.+?)```", README, flags=re.DOTALL).group(1)
    assert len([line for line in example.splitlines() if line.strip()]) <= 15
    for shown, small in (
        ("Qwen/Qwen2.5-VL-3B-Instruct", text_model_path),
        ('VADEGRPOConfig(output_dir="qwen-vade", num_generations=8)', "small_args"),
    ):
        assert shown in example
        example = example.replace(shown, small)
    rows = text_rows.map(lambda row: {"answer": str(row["limit"])})
    monkeypatch.setattr("datasets.load_dataset", lambda name, split: rows)
    exec(compile(example, "README.md", "exec"), {"small_args": make_args(max_steps=1)})
    assert capsys.readouterr().out.strip().endswith("]")


def test_ci_runs_the_commands_that_the_readme_gives():
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    for pattern in re.findall(r"grep -m1 -E '(.+?)' README\.md", script):
        assert len(re.findall(pattern, README, flags=re.MULTILINE)) == 1, pattern
