"""What a colocated vLLM is asked for, as `eval.benchmarks.step` counts it: requests, calls, images."""

import importlib.util
import json
import subprocess
import sys

import pytest

from tests.engines.on_cpu import REPOSITORY

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(
        importlib.util.find_spec("vllm") is None,
        reason="needs vLLM's CPU build in an environment of its own: see tests/engines/requirements.txt",
    ),
]

ROWS, GENERATIONS, ALL_ROWS = 2, 4, 32  # of a generation batch, completions of each, and of the data set


@pytest.fixture(scope="module")
def counts(tmp_path_factory):
    """Of the first two generation batches of each trainer; ours begins with rollouts of every row."""
    file = tmp_path_factory.mktemp("step") / "figures"
    sizes = ["--rows", ROWS, "--generations", GENERATIONS, "--image_tokens", 16, "--warmup", 0, "--batches", 2]
    settings = ["--repeats", 1, "--settings", '{"vade_posterior_init": "rollout"}', "--json", file]
    flags = ["--engine", "colocate", "--shape", "small", *sizes, *settings]
    command = [sys.executable, "-m", "eval.benchmarks.step", *map(str, flags)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    runs = [json.loads(line) for line in file.read_text().splitlines()]
    return {run["trainer"]: [batch["counts"] for batch in run["batches"]] for run in runs}


def test_a_prompt_is_one_request_and_its_image_is_processed_and_encoded_once(counts):
    stock, ours = counts["stock"][1], counts["vade"][1]
    assert (stock["calls"], stock["requests"]) == (1, ROWS * GENERATIONS)
    assert (ours["calls"], ours["requests"]) == (1, ROWS)
    assert ours["encoded by the engine"] <= ROWS  # fewer where a row comes again: never before a weight sync
    # For the engine once for each row, of ours also for the prompts' tokens; then for the training's own passes.
    assert ours["processed"] <= 2 * ROWS + ROWS * GENERATIONS
    assert stock["processed"] >= 2 * ROWS * GENERATIONS


def test_initial_rollouts_are_one_call_a_generation_batch_and_one_request_a_row(counts):
    first = counts["vade"][0]
    assert first["calls"] == ALL_ROWS // ROWS + 1
    assert first["requests"] == ALL_ROWS + ROWS
    assert first["encoded by the engine"] <= ALL_ROWS + ROWS
