"""The commands of the README, in processes of their own: train on the testbed and push, download, go on elsewhere."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from huggingface_hub import constants

from tests.support.loopback_hub import LoopbackHub, run_client
from trl_vade import load_snapshot
from trl_vade.hub.posteriors.repository import steps_in
from trl_vade.selection.log import SelectionLog

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SCRIPT = [sys.executable, ROOT / "scripts" / "train_vade.py"]
SETTINGS = ["--max_steps", "4", "--save_steps", "2", "--report_to", "none"]
SETTINGS += ["--eval_strategy", "no", "--eval_on_start", "false"]
PUSH = ["--push_to_hub", "--hub_model_id", "you/run", "--hub_strategy", "checkpoint"]


@pytest.fixture(scope="module")
def hub():
    with LoopbackHub(token="hf_planted_in_the_environment") as running:
        yield running


def with_testbed(folder):
    """The folder, with a cache of its own in which the testbed's model is there already: it takes most of a minute."""
    shared = Path(constants.HF_HOME) / "trl_vade"
    shared.mkdir(parents=True, exist_ok=True)
    (folder / "hf_home").mkdir()
    (folder / "hf_home" / "trl_vade").symlink_to(shared)
    return folder


@pytest.fixture(scope="module")
def first(hub, tmp_path_factory):
    """A run that pushes at steps 2 and 4 and at its end: its folder, and all that it printed."""
    folder = with_testbed(tmp_path_factory.mktemp("first"))
    done = run_client(hub, [*SCRIPT, *SETTINGS, *PUSH, "--output_dir", folder / "run"], folder, timeout=300)
    return folder, done.stdout + done.stderr


def at_step(hub, step):
    """The commit of the push at an optimiser step."""
    title = f"Training in progress, step {step}"
    return next(commit.oid for commit in hub.repos["you/run"].history() if commit.title == title)


def test_what_was_downloaded_at_half_time_comes_to_the_same_end(hub, first, tmp_path):
    folder, _ = first
    with_testbed(tmp_path)
    hf = Path(sys.executable).with_name("hf")
    run_client(hub, [hf, "download", "you/run", "--revision", at_step(hub, 2), "--local-dir", "fresh"], tmp_path)
    assert json.loads((tmp_path / "fresh/last-checkpoint/trainer_state.json").read_text())["global_step"] == 2
    go_on = ["--output_dir", "fresh", "--resume_from_checkpoint", "auto"]
    run_client(hub, [*SCRIPT, *SETTINGS, *go_on], tmp_path, timeout=300)
    one, other = tmp_path / "fresh", folder / "run"
    assert (one / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()
    mine, theirs = (load_snapshot(each).sampler_state for each in (one, other))
    np.testing.assert_equal(mine, theirs)
    assert SelectionLog(tmp_path / "fresh").read() == SelectionLog(folder / "run").read()
    optimizer = Path("checkpoint-4/optimizer.pt")
    assert (tmp_path / "fresh" / optimizer).read_bytes() == (folder / "run" / optimizer).read_bytes()


def test_the_page_of_the_run_shows_what_it_did(hub, first):
    files = hub.repos["you/run"].files()
    card = files["README.md"].decode()
    assert "![" in card
    assert {"vade_report.png", "vade_selection.jsonl"} <= files.keys()
    assert "https://huggingface.co/datasets/you/run-posterior" in card
    assert steps_in(hub.repos["datasets/you/run-posterior"].files()) == [2, 4]
