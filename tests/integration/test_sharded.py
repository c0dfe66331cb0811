"""Two processes that share the weights of a Qwen2.5-VL (FSDP2, the project's own configuration), over gloo."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file
from transformers import Qwen2_5_VLForConditionalGeneration

from tests.support.checkpoints import without_later
from trl_vade import load_snapshot
from trl_vade.selection.log import SelectionLog
from trl_vade.trainer.checkpoint.resuming import REFERENCE_FILE

pytestmark = pytest.mark.slow

CONFIGURATION = Path(__file__).parents[2] / "trl_vade" / "recipes" / "accelerate" / "fsdp2.yaml"


def launch(model, output_dir, *checkpoint, options=()):
    if checkpoint and checkpoint[0].isdigit():
        without_later(output_dir / f"checkpoint-{checkpoint[0]}")
    # Port 0: accelerate looks for a free one.
    launcher = ["--config_file", str(CONFIGURATION), "--num_processes", "2", "--main_process_port", "0", *options]
    script = [str(Path(__file__).with_name("sharded.py")), model, str(output_dir), *checkpoint]
    command = [sys.executable, "-m", "accelerate.commands.launch", *launcher, *script]
    return subprocess.run(command, capture_output=True, text=True, timeout=240)


def run(model, output_dir, *checkpoint):
    finished = launch(model, output_dir, *checkpoint)
    assert finished.returncode == 0, finished.stderr[-3000:]
    return [json.loads((output_dir / f"rank-{rank}.json").read_text()) for rank in (0, 1)]


def saved_weights(directory):
    return load_file(directory / "model.safetensors")


def saved_reference(directory):
    return (directory / REFERENCE_FILE).read_bytes()


@pytest.fixture(scope="module")
def runs(vision_model_path, tmp_path_factory):
    """Four steps, and the last of them again from checkpoint-3: of both the reports, logs, weights and references."""
    directory = tmp_path_factory.mktemp("sharded")
    seen = []
    for checkpoint in ([], ["3"]):
        reports = run(vision_model_path, directory, *checkpoint)
        last = directory / "checkpoint-4"
        seen.append((reports, SelectionLog(directory).read(), saved_weights(last), saved_reference(last)))
    return directory, *seen


def test_each_process_holds_half_of_the_weights_vision_blocks_included(runs):
    _, (reports, *_), _ = runs
    for report in reports:
        assert report["distributed_type"] == "FSDP"
        assert report["is_sharded"]
        assert report["held"] == pytest.approx(report["in_all"] / 2, rel=0.01)
        assert {"FSDPQwen2_5_VLDecoderLayer", "FSDPQwen2_5_VLVisionBlock"} < set(report["units"])


def test_sharded_processes_share_one_choice_begin_as_their_reference_model_and_learn_the_same(runs):
    _, ((first, second), lines, *_), _ = runs
    assert first["kl"][0] == second["kl"][0] == 0.0  # loaded as transformers before 5.18 did
    assert first["alpha"] == second["alpha"]
    assert first["visits"] == second["visits"]
    assert set(first["staleness"]) == {0.0}
    assert len(lines) == 2
    for line, left, right in zip(lines, first["shares"], second["shares"], strict=True):
        assert left + right == [f"row-{row}" for row in line["sample_index"] for _ in range(4)]


def test_a_sharded_run_resumes_bit_for_bit_inside_a_generation_batch(runs):
    directory, (whole, lines, weights, reference), (resumed, resumed_lines, resumed_weights, resumed_reference) = runs
    assert len(list((directory / "checkpoint-3").glob("vade_generation_batch_*"))) == 2
    assert resumed_lines == lines
    for mine, theirs in zip(resumed, whole, strict=True):
        for name in ("alpha", "visits", "rollouts", "loss"):
            assert mine[name] == theirs[name]
        assert mine["kl"][-1] == theirs["kl"][-1] > 0
        assert theirs["replayed"] == [0, 4]  # the batch that the checkpoint is inside of
    assert resumed_reference == reference == saved_reference(directory / "checkpoint-3")
    assert resumed_weights.keys() == weights.keys()
    assert all(resumed_weights[name].equal(weights[name]) for name in weights)


def test_a_sharded_checkpoint_is_whole_and_loads_without_the_trainer(runs, vision_model_path):
    directory, (reports, _, weights, _), _ = runs
    last = directory / "checkpoint-4"
    model, loading = Qwen2_5_VLForConditionalGeneration.from_pretrained(last, output_loading_info=True)
    assert not any(loading.values())
    assert sum(parameter.numel() for parameter in model.parameters()) == reports[0]["in_all"]
    before = saved_weights(Path(vision_model_path))
    assert before.keys() <= weights.keys()
    assert not any(weights[name].equal(before[name]) for name in before if name.endswith("proj.weight"))
    assert load_snapshot(directory / "checkpoint-4").sampler_state["posterior"]["num_samples"] == 12


def test_rows_with_and_without_images_are_refused_where_weights_are_sharded(vision_model_path, tmp_path):
    """Without this, the processes abort over gloo with a size mismatch, or wait for each other for ever."""
    stopped = launch(vision_model_path, tmp_path, "mixed")
    assert stopped.returncode != 0
    assert "ConfigurationError: This generation batch has rows with images and rows without" in stopped.stderr


def test_all_weights_go_to_the_engine_after_an_evaluation_which_stock_trl_cannot_do(runs):
    """When `stock_sync` is the number of weights, `reshard_before_sync` can go."""
    directory, (reports, *_), _ = runs
    weights = Qwen2_5_VLForConditionalGeneration.from_pretrained(directory / "checkpoint-4").named_parameters()
    expected = {name: weight.double().sum().item() for name, weight in weights}
    for report in reports:
        assert "full_tensor" in report["stock_sync"]
        assert report["synced"] == pytest.approx(expected, abs=1e-6)


def test_a_reference_model_without_weights_on_a_process_is_refused(vision_model_path, tmp_path):
    """As it is with transformers before 5.18 and a configuration that people have; the KL would be 4 at step 1."""
    stopped = launch(vision_model_path, tmp_path, options=["--fsdp_cpu_ram_efficient_loading", "true"])
    assert stopped.returncode != 0
    message = r"ConfigurationError: The reference model .*all zero.*fsdp_cpu_ram_efficient_loading.*false"
    assert re.search(message, stopped.stderr), stopped.stderr[-3000:]
