"""Benchmarks during the training, as the script is told of them; a plan's arguments are in test_plan.py."""

import inspect
from pathlib import Path

import pytest

from tests.support.refusals import refused
from trl_vade.cli.parsing import VADEScriptArguments
from trl_vade.errors import ConfigurationError
from trl_vade.evaluation.callback import planned
from trl_vade.evaluation.settings import Evaluation


def test_without_benchmarks_there_is_nothing_to_evaluate():
    assert VADEScriptArguments("d").lmms_options() == {}


def test_the_options_of_the_benchmarks_are_those_of_the_callback():
    given = {"lmms_tasks": ["mixture"], "lmms_steps": 5, "lmms_data": ["mixture=a=b"], "lmms_instruction": "mixture"}
    options = VADEScriptArguments("d", **given).lmms_options()
    fields = inspect.signature(planned).parameters.keys() | Evaluation.__dataclass_fields__.keys()
    assert options.keys() <= fields
    assert options["data"] == {"mixture": Path("a=b")}
    assert (options["every_steps"], options["limit"]) == (5, 64)


@pytest.mark.parametrize(("tasks", "data"), [(["mixture"], ["folder"]), (["mixture"], ["=a"]), ([], ["mixture=a"])])
def test_rows_for_no_benchmark_are_refused(tasks, data):
    with refused(ConfigurationError, ["--lmms_data", *data], ["TASK=FOLDER", "--lmms_tasks"]):
        VADEScriptArguments("d", lmms_tasks=tasks, lmms_data=data).lmms_options()
