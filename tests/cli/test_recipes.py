"""Recipes and accelerate configurations by name; what is in them is tested in tests/recipes."""

import pytest
import yaml

from tests.support.commands import run
from tests.support.refusals import refused
from trl_vade.cli.parsing import read_command
from trl_vade.cli.recipes import ACCELERATE, RECIPES, accelerate_file, recipe_file
from trl_vade.errors import ConfigurationError

RECIPE_NAMES = sorted(path.stem for path in RECIPES.glob("*.yaml"))
LAUNCH_NAMES = sorted(path.stem for path in ACCELERATE.glob("*.yaml"))


@pytest.mark.parametrize("name", RECIPE_NAMES)
def test_a_recipe_is_found_by_its_name(name):
    assert recipe_file(name) == RECIPES / f"{name}.yaml"
    command, rest = read_command(["--seed", "1", "--recipe", name])
    assert (command.recipe, rest) == (name, ["--config", str(RECIPES / f"{name}.yaml"), "--seed", "1"])


def test_an_unknown_recipe_is_refused_with_the_nearest_name_and_all_of_them():
    with refused(ConfigurationError, ["--recipe", "quickstrat"], ["Did you mean quickstart?", *RECIPE_NAMES]):
        recipe_file("quickstrat")
    with refused(ConfigurationError, ["zzz"], RECIPE_NAMES) as raised:
        recipe_file("zzz")
    assert "Did you mean" not in str(raised.value)


def test_two_recipes_are_refused():
    with refused(ConfigurationError, ["--recipe", "quickstart", "--config"]):
        read_command(["--recipe", "quickstart", "--config", "mine.yaml"])


def test_a_file_of_the_users_own_comes_before_a_name_of_the_package(tmp_path, monkeypatch):
    assert [accelerate_file(name) for name in LAUNCH_NAMES] == [ACCELERATE / f"{name}.yaml" for name in LAUNCH_NAMES]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fsdp2").write_text("num_processes: 2")
    assert accelerate_file("fsdp2").samefile(tmp_path / "fsdp2")


def test_an_unknown_accelerate_configuration_is_refused_with_the_names_there_are():
    with refused(ConfigurationError, ["fdsp2"], ["Did you mean fsdp2?", *LAUNCH_NAMES]):
        accelerate_file("fdsp2")


@pytest.mark.parametrize("command", ["train", "plan"])
def test_the_commands_refuse_an_unknown_recipe(command):
    result = run(command, "--recipe", "nosuch", "--plan_rows", 8)
    assert result.exit_code == 2
    assert all(name in result.output for name in ("nosuch", "quickstart"))
    assert "Traceback" not in result.output


def test_the_help_names_every_recipe_and_every_accelerate_configuration():
    text = run("train", "--help-all").stdout
    assert "qwen2_5_vl_{3b,7b}_{grpo,gspo}_{vade,vanilla}" in text
    assert all(name in text for name in ["quickstart", *LAUNCH_NAMES])


def test_a_flag_of_the_command_in_a_recipe_is_refused(tmp_path):
    recipe = {"dataset_name": "x", "output_dir": str(tmp_path / "out"), "use_cpu": True, "accelerate_config": "fsdp2"}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    result = run("train", "--config", tmp_path / "recipe.yaml")
    assert result.exit_code == 2
    assert "give --accelerate_config" in result.output
