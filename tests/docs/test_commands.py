"""Every command of README.md and docs/ is tried: those that train in the slow tests, page by page in their order."""

import re
from contextlib import chdir
from itertools import groupby

import pytest

from tests.docs.commands import (
    READS_THE_HUB,
    RULES,
    commands,
    has_options,
    inline_commands,
    installs,
    python_blocks,
    rules_for,
    selects_tests,
)
from tests.docs.prose import ROOT

ALL = commands()
PAGES = {page: [command.text for command in group] for page, group in groupby(ALL, lambda command: command.page)}


def test_each_command_is_claimed_by_one_rule():
    assert {command.text: rules_for(command.text) for command in ALL if len(rules_for(command.text)) != 1} == {}


def test_each_rule_claims_a_command():
    idle = [pattern for pattern, _ in RULES if not any(re.fullmatch(pattern, command.text) for command in ALL)]
    assert idle == []


def claimed_by(*wanted):
    """The commands of these rules, each once."""
    return list(dict.fromkeys(command.text for command in ALL if {*rules_for(command.text)} & {*wanted}))


@pytest.fixture
def clone(tmp_path, vision_model_path):
    """A folder that looks like a clone of the repository, with tiny models; the working directory of a page."""
    for name in ("scripts", "eval", "examples", "tests", "docs", "trl_vade", "pyproject.toml", "README.md"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "tiny-model").symlink_to(vision_model_path)
    (tmp_path / "my_samplers.py").write_text("from tests.support.own_samplers import WorstLast\n")
    (tmp_path / "recipe.yaml").write_text("output_dir: out\ndataset_name: you/questions\n")
    with chdir(tmp_path):
        yield tmp_path


@pytest.mark.parametrize("text", claimed_by(installs, selects_tests))
def test_a_command_that_installs_or_tests_names_what_is_there(text):
    rules_for(text)[0](text)


@pytest.mark.slow
@pytest.mark.parametrize("text", [*claimed_by(has_options), *inline_commands()])
def test_a_command_has_the_options_that_a_page_gives_it(text, clone):
    has_options(text)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_run_in_their_order(page, clone, hub):
    for text in PAGES[page]:
        how = rules_for(text)[0]
        if callable(how) and how is not has_options:
            how(text)
    for name, block in python_blocks():
        if name in READS_THE_HUB and name.startswith(page):
            exec(compile(block, name, "exec"), {})
