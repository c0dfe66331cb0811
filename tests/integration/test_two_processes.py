"""Two real processes over gloo: each loads its share of one choice, and their replicas stay equal."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from trl_vade import load_snapshot
from trl_vade.selection_log import SelectionLog

pytestmark = pytest.mark.slow


def run(model, output_dir, scenario, *checkpoint):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    # Not `accelerate launch --cpu --num_processes 2`: accelerate 1.15 silently runs one process then.
    launcher = ["torch.distributed.run", "--nproc_per_node=2", "--master_addr=127.0.0.1", f"--master_port={port}"]
    script = Path(__file__).with_name("two_processes.py")
    finished = subprocess.run(
        [sys.executable, "-m", *launcher, str(script), model, str(output_dir), scenario, *checkpoint],
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert finished.returncode == 0, finished.stderr[-3000:]
    return [json.loads((output_dir / f"rank-{rank}.json").read_text()) for rank in (0, 1)]


@pytest.mark.parametrize(
    ("scenario", "generation_batches", "groups"),
    [("default", 6, 2), ("iterations", 3, 2), ("straddling", 6, 1), ("rollout", 7, 2)],
)
def test_the_processes_share_one_choice_and_learn_the_same(
    text_model_path, tmp_path, scenario, generation_batches, groups
):
    first, second = run(text_model_path, tmp_path, scenario)
    assert first["alpha"] == second["alpha"]
    assert first["visits"] == second["visits"]
    assert first["weights"] == second["weights"]
    assert set(first["staleness"]) == {0.0}
    lines = SelectionLog(tmp_path).read()
    assert len(lines) == generation_batches
    assert load_snapshot(tmp_path / "checkpoint-3").sampler_state["posterior"]["num_samples"] == 13
    chosen = [line for line in lines if len(line["sample_index"]) == groups]
    generations = 8 // groups
    shares = list(zip(first["shares"], second["shares"], strict=True))[-len(chosen) :]
    for line, (left, right) in zip(chosen, shares, strict=True):
        assert left + right == [f"row-{row}" for row in line["sample_index"] for _ in range(generations)]


def test_a_process_whose_rows_are_all_text_trains_beside_one_with_images(vision_model_path, tmp_path):
    first, second = run(vision_model_path, tmp_path, "images")
    assert first["weights"] == second["weights"]
    has_images = [
        [any(int(name.removeprefix("row-")) % 3 == 0 for name in share) for share in rank["shares"]]
        for rank in (first, second)
    ]
    assert any(left != right for left, right in zip(*has_images, strict=True))


@pytest.mark.parametrize(("scenario", "inside"), [("default", False), ("iterations", True)])
def test_two_processes_resume_bit_for_bit(text_model_path, tmp_path, scenario, inside):
    whole = run(text_model_path, tmp_path, scenario)
    lines = SelectionLog(tmp_path).read()
    assert len(list((tmp_path / "checkpoint-3").glob("vade_generation_batch_*"))) == (2 if inside else 0)
    resumed = run(text_model_path, tmp_path, scenario, "3")
    assert SelectionLog(tmp_path).read() == lines
    for mine, theirs in zip(resumed, whole, strict=True):
        for name in ("alpha", "visits", "weights", "rollouts"):
            assert mine[name] == theirs[name]
