"""The package as others install it: a wheel, unpacked elsewhere, run from a folder without the repository."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ADDRESS = "https://git.example.org/owner/repo"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel's path; built with an address, as from a clone."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder)]
    subprocess.run([*command, str(ROOT)], check=True, env=os.environ | {"VADE_REPOSITORY_URL": ADDRESS})
    [path] = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """A function that runs Python in a folder of its own, where only the wheel's trl_vade is to be found."""
    site, folder = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("elsewhere")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", str(site)]
    subprocess.run([*pip, str(wheel)], check=True)

    def run(*arguments):
        """Run `trl-vade`, or for "-c" Python; return what it printed."""
        command = [*([] if arguments[0] == "-c" else [str(site / "bin" / "trl-vade")]), *map(str, arguments)]
        environment = os.environ | {"PYTHONPATH": str(site)}
        done = subprocess.run(
            [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    place = run("-c", "import trl_vade; print(trl_vade.__file__)")
    assert Path(place.strip()).is_relative_to(site)
    run.folder = folder
    return run


def test_everything_that_a_user_needs_is_inside(wheel):
    inside = set(zipfile.ZipFile(wheel).namelist())
    sources = [path for path in (ROOT / "trl_vade").rglob("*") if path.suffix in (".py", ".yaml", ".typed")]
    assert {path.relative_to(ROOT).as_posix() for path in sources} <= inside
    for folder in ("model_cards", "eval/tasks", "eval/metrics"):
        files = [path for path in (ROOT / folder).rglob("*") if path.suffix in (".md", ".yaml", ".py")]
        assert {f"trl_vade/{path.relative_to(ROOT).as_posix()}" for path in files} <= inside
    assert not any(name.startswith(("tests/", "scripts/", "hatch_build")) for name in inside)


def test_its_page_names_the_project_and_its_links_are_whole(wheel):
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith("/METADATA")]
        metadata = archive.read(name).decode()
    for line in (f"Project-URL: Repository, {ADDRESS}", "Description-Content-Type: text/markdown"):
        assert line in metadata.splitlines()
    assert f"]({ADDRESS}/blob/HEAD/" in metadata
    assert "](docs/" not in metadata


def test_the_quickstart_trains_and_can_be_reported(installed):
    flags = ["--max_steps", 2, "--per_device_train_batch_size", 64, "--eval_strategy", "no", "--disable_tqdm", "true"]
    assert "done at step" in installed("train", *flags)
    run = installed.folder / "vade-quickstart-thompson"
    (run / "vade_report.png").unlink()
    assert "thompson" in installed("report", run)
    assert (run / "vade_report.png").stat().st_size > 1000


def test_a_recipe_is_planned_by_its_name(installed):
    recipe = ["--recipe", "qwen2_5_vl_3b_grpo_vade", "--accelerate_config", "fsdp2"]
    assert "512 rows x 8 = 4,096 completions" in installed("plan", *recipe)


def test_cards_metrics_and_tasks_are_found(installed):
    code = """
import evaluate
from trl_vade.files import packaged
from trl_vade.rewards import metric_path

metric = evaluate.load(metric_path("vade_accuracy"))
row = {"answer": "4", "answer_type": "number", "choices": [], "source": ""}
print(metric.compute(predictions=["<answer>4</answer>"], references=[row])["accuracy"])
print(packaged("model_cards/model.md"), packaged("eval/tasks/vade_testbed.yaml"))
"""
    accuracy, *paths = installed("-c", code).split()
    assert accuracy == "1.0"
    assert all("/trl_vade/" in path for path in paths)
    assert not any(Path(path).is_relative_to(ROOT) for path in paths)
