"""A plan from a list of arguments; what it counts is in test_plan.py, which also reads it from the script."""

import pytest
import yaml

from tests.support.refusals import refused, says
from trl_vade.cli.data_sets import load_splits
from trl_vade.cli.plan import command as planning
from trl_vade.cli.plan.command import print_plan
from trl_vade.cli.training_arguments import VADEScriptArguments, read_command
from trl_vade.errors import ConfigurationError


@pytest.fixture
def recipe(tmp_path):
    """A recipe on a CPU: nothing is estimated, and no model is looked for."""
    path = tmp_path / "recipe.yaml"
    settings = {"output_dir": str(tmp_path / "out"), "use_cpu": True, "num_generations": 4, "dataset_name": "you/rows"}
    path.write_text(yaml.safe_dump(settings | {"per_device_train_batch_size": 16, "num_train_epochs": 2}))
    return str(path)


@pytest.fixture
def data_folder(tmp_path, monkeypatch):
    """A folder for a data set, and one for what `datasets` keeps of it."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "rows").mkdir()
    return tmp_path / "rows"


def test_the_plans_own_flags_are_found_among_those_of_the_run():
    of_the_run = ["--learning_rate", "1e-6", "--beta=0", "--beta", "-0.0", "--reward_funcs", "a", "b", "--config", "x"]
    found, rest = read_command(["--plan-rows=7", *of_the_run[:5], "--plan", *of_the_run[5:]])
    assert (found.plan, found.plan_rows, found.plan_gpu_memory) == (True, 7, 139.0)
    assert rest == of_the_run


def test_a_prefix_of_a_flag_is_not_taken_for_the_flag():
    assert read_command(["--plan_row", "7"])[0].plan_rows is None


def test_a_plan_counts_and_says_why_it_estimates_nothing(recipe, capsys):
    print_plan(["--config", recipe, "--plan_rows", "22"])
    out = capsys.readouterr().out
    for expected in ("4 rows x 4 = 16 completions", "10 (5 an epoch)", "No estimate of GPU memory: use_cpu is set."):
        assert expected in out


def test_the_number_of_processes_can_be_given(recipe, capsys):
    print_plan(["--config", recipe, "--plan_rows", "22", "--plan_processes", "2"])
    assert "8 rows x 4 = 32 completions" in capsys.readouterr().out


def test_what_cannot_work_is_one_error_with_the_reason_and_how_it_was_planned(recipe):
    too_few, ways_out = ["3 rows", "per_device_train_batch_size 16"], ["Add rows", "steps_per_generation"]
    with refused(ConfigurationError, too_few, [*ways_out, "--plan_accelerate fsdp2"]):
        print_plan(["--config", recipe, "--plan_rows", "3"])
    with refused(ConfigurationError, too_few, ways_out) as raised:
        print_plan(["--config", recipe, "--plan_rows", "3", "--plan_processes", "1"])
    assert "--plan_accelerate" not in str(raised.value)


def test_a_plan_downloads_no_data_set(recipe):
    with refused(ConfigurationError, ["dataset_name", "'you/rows'"], ["--plan_rows"]):
        print_plan(["--config", recipe])


def test_without_a_data_set_the_plan_asks_for_one(tmp_path):
    with refused(ConfigurationError, offers=["--dataset_name", "--plan_rows"]):
        print_plan(["--model_name_or_path", "x", "--output_dir", str(tmp_path), "--use_cpu", "true"])


def test_without_a_model_the_hub_is_not_asked_for_one(tmp_path, capsys):
    flags = ["--output_dir", str(tmp_path), "--plan_rows", "64", "--plan_prompt_tokens", "5", "--plan_processes", "1"]
    print_plan(flags)
    assert says(capsys.readouterr().out, "no model")


def test_an_argument_that_no_run_has_is_refused(recipe):
    with refused(ConfigurationError, ["--learning_rat_e"]):
        print_plan(["--config", recipe, "--plan_rows", "22", "--learning_rat_e", "1"])


def test_a_recipe_that_is_no_yaml_is_named_with_the_line(tmp_path):
    (tmp_path / "broken.yaml").write_text("learning_rate: 1e-6\n  bad: [1,\n")
    with refused(ConfigurationError, [tmp_path / "broken.yaml", "line 2"]):
        print_plan(["--config", str(tmp_path / "broken.yaml"), "--plan_rows", "10"])


@pytest.mark.parametrize(
    ("flags", "names", "offers"),
    [
        (["--plan_processes", "0"], ["--plan_processes", "0"], ["1"]),
        (["--dataset_name", ".", "--dataset_streaming", "true"], ["dataset_streaming"], ["--plan_rows"]),
        (["--config"], ["--config"], ["path"]),
    ],
)
def test_flags_that_leave_nothing_to_count_are_refused(recipe, flags, names, offers):
    with refused(ConfigurationError, names, offers):
        print_plan(["--config", recipe, *flags])


@pytest.mark.parametrize(
    ("line", "flags", "names", "offers"),
    [
        ('{"prompt": "two"}', ["--dataset_train_split", "foo"], ["dataset_train_split", "'foo'"], ["'train'"]),
        ("{oops", [], ["dataset_name", "JSON parse error"], ["--plan_rows"]),
    ],
)
def test_a_local_data_set_that_cannot_be_counted_is_named(recipe, data_folder, flags, line, names, offers):
    (data_folder / "train.jsonl").write_text('{"prompt": "one"}\n' + line)
    with refused(ConfigurationError, [repr(str(data_folder)), *names], offers):
        print_plan(["--config", recipe, "--dataset_name", str(data_folder), *flags])


def test_the_rows_of_a_local_data_set_are_counted(recipe, data_folder, capsys):
    (data_folder / "train.jsonl").write_text('{"prompt": "one"}\n' * 9)
    print_plan(["--config", recipe, "--dataset_name", str(data_folder)])
    assert "4 (2 an epoch)" in capsys.readouterr().out
    assert len(load_splits(VADEScriptArguments(dataset_name=str(data_folder)))["train"]) == 9


def test_the_embedded_data_set_needs_no_network_and_is_counted(recipe, capsys, monkeypatch):
    monkeypatch.setattr(planning, "load_splits", lambda script_args: {"train": range(10)})
    print_plan(["--config", recipe, "--dataset_name", planning.TESTBED])
    assert "4 (2 an epoch)" in capsys.readouterr().out
