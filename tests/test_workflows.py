"""What a host of the repository reads: workflows, forms, and the sheet for coding assistants."""

import re
from dataclasses import fields
from pathlib import Path

import yaml

from trl_vade import VADEGRPOConfig

ROOT = Path(__file__).parents[1]


def test_every_workflow_and_form_is_valid_and_runs_what_is_there():
    files = sorted((ROOT / ".github").rglob("*.yml"))
    assert len(files) == 7
    for path in files:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
        for job in found.get("jobs", {}).values():
            for step in job["steps"]:
                assert ("uses" in step) != ("run" in step), path
                scripts = re.findall(r"\.ci/\w+|tests/\w+", step.get("run", ""))
                assert all((ROOT / script).exists() for script in scripts), path
                assert re.search(r"@(v\d+|release/v\d+)$", step.get("uses", "@v1")), path


def test_the_sheet_for_assistants_names_settings_that_exist_and_stays_short():
    text = (ROOT / "skills/trl-vade/SKILL.md").read_text(encoding="utf-8")
    front = yaml.safe_load(text.split("---")[1])
    assert front.keys() >= {"name", "description"}
    assert set(re.findall(r"\bvade_\w+(?=[`=])", text)) <= {field.name for field in fields(VADEGRPOConfig)}
    assert len(text.splitlines()) <= 65
