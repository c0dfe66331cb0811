"""Two real processes over gloo: each loads its share of one choice, and their replicas stay equal."""

import json
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

from tests.support.checkpoints import without_later
from tests.support.loopback_hub import client_environment
from trl_vade import load_snapshot
from trl_vade.hub.posteriors.repository import steps_in
from trl_vade.samplers.snapshot import POSTERIOR_FILE
from trl_vade.selection.log import SelectionLog
from trl_vade.trainer.checkpoint.resuming import REFERENCE_FILE

pytestmark = pytest.mark.slow


SCRIPT = Path(__file__).with_name("two_processes.py")


def launch(model, output_dir, scenario, *checkpoint, env=None, processes=2):
    for name in scenario.split(",") if checkpoint else ():
        without_later(output_dir / (name if "," in scenario else "") / f"checkpoint-{checkpoint[0]}")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    # Not `accelerate launch --cpu --num_processes 2`: accelerate 1.15 silently runs one process then.
    launcher = [
        "torch.distributed.run",
        f"--nproc_per_node={processes}",
        "--master_addr=127.0.0.1",
        f"--master_port={port}",
    ]
    command = [sys.executable, "-m", *launcher, str(SCRIPT), model, str(output_dir), scenario, *checkpoint]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, env=env)


def run(model, output_dir, scenario, *checkpoint, env=None):
    finished = launch(model, output_dir, scenario, *checkpoint, env=env)
    assert finished.returncode == 0, finished.stderr[-3000:]
    return what_was_seen(output_dir)


PLAIN = ("default", "iterations", "straddling", "rollout")
REFILLED = ("odd-refilled", "straddling-refilled", "rollout-refilled", "iterations-refilled")
OTHERS = ("synced", "pictures", "images", "images-refilled", "chance-refilled")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of the next two fixtures, whose runs follow each other in the same two processes."""
    return tmp_path_factory.mktemp("several")


@pytest.fixture(scope="module")
def several(text_model_path, vision_model_path, folder):
    """Runs of several scenarios: what both processes saw, and the lines of the selection log."""
    return launch_several(text_model_path, vision_model_path, folder, [*PLAIN, *REFILLED, *OTHERS])


@pytest.fixture(scope="module")
def resumed(text_model_path, vision_model_path, folder, several):
    """The same of runs that go on from checkpoint-3 in two new processes."""
    return launch_several(text_model_path, vision_model_path, folder, INSIDE, "3")


def launch_several(text_model, vision_model, folder, scenarios, *checkpoint):
    finished = launch(f"{text_model},{vision_model}", folder, ",".join(scenarios), *checkpoint)
    assert finished.returncode == 0, finished.stderr[-3000:]
    return {name: (*what_was_seen(folder / name), SelectionLog(folder / name).read()) for name in scenarios}


def what_was_seen(folder):
    return [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in (0, 1)]


@pytest.mark.parametrize(("scenario", "batches", "groups"), zip(PLAIN, (6, 3, 6, 7), (2, 2, 1, 2), strict=True))
def test_the_processes_share_one_choice_and_learn_the_same(folder, several, scenario, batches, groups):
    first, second, lines = several[scenario]
    for name in ("digest", "alpha", "visits", "weights"):
        assert first[name] == second[name]
    assert set(first["staleness"]) == {0.0}
    assert len(lines) == batches
    assert load_snapshot(folder / scenario / "checkpoint-3").sampler_state["posterior"]["num_samples"] == 13
    chosen = [line for line in lines if len(line["sample_index"]) == groups]
    generations = 8 // groups
    shares = list(zip(first["shares"], second["shares"], strict=True))[-len(chosen) :]
    for line, (left, right) in zip(chosen, shares, strict=True):
        assert left + right == [f"row-{row}" for row in line["sample_index"] for _ in range(generations)]
    for rank in (first, second):  # each loads the rows of its own share and no other, each of them once
        for loaded, share in zip(rank["loaded"], rank["shares"], strict=True):
            assert sorted(f"row-{row}" for row in loaded) == sorted(set(share))


@pytest.mark.parametrize("scenario", ["images", "images-refilled"])
def test_a_process_whose_rows_are_all_text_trains_beside_one_with_images(several, scenario):
    first, second, _ = several[scenario]
    assert first["weights"] == second["weights"]
    assert (sum(first["refills"]) > 0) == (scenario == "images-refilled")
    has_images = [
        [any(int(name.removeprefix("row-")) % 3 == 0 for name in share) for share in rank["shares"]]
        for rank in (first, second)
    ]
    assert any(left != right for left, right in zip(*has_images, strict=True))


INSIDE = {"default": True, "iterations": True, "iterations-refilled": True, "synced": False, "pictures": True}


@pytest.mark.parametrize("scenario", INSIDE)
def test_two_processes_resume_bit_for_bit(folder, several, resumed, scenario):
    *whole, lines = several[scenario]
    *rest, lines_of_both = resumed[scenario]
    assert lines_of_both == lines
    inside = list((folder / scenario / "checkpoint-3").glob("vade_generation_batch_*"))
    assert len(inside) == (2 if INSIDE[scenario] else 0)  # in `default` for the groups that come again
    for mine, theirs in zip(rest, whole, strict=True):
        for name in ("alpha", "visits", "weights", "reference", "rollouts", "kept", "trained", "replayed"):
            assert mine[name] == theirs[name]
    assert whole[0]["weights"] == whole[1]["weights"]
    assert any(whole[0]["replayed"]) == (scenario in ("default", "pictures"))
    assert min(whole[0]["kept"]) < 16


def test_two_processes_resume_the_reference_model_that_each_checkpoint_has(folder, resumed):
    of_3, of_6, before = (
        (folder / "synced" / name / REFERENCE_FILE).read_bytes()
        for name in ("checkpoint-3", "checkpoint-6", "_aside/checkpoint-6")
    )
    assert of_6 == before != of_3


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2)])
def test_a_run_goes_on_with_another_number_of_processes(text_model_path, tmp_path, before, after):
    """A node that comes back half as large: rules follow, evidence stays, and the batch in use is generated anew."""
    first = launch(text_model_path, tmp_path, "sizes", processes=before)
    assert first.returncode == 0, first.stderr[-3000:]
    lines = SelectionLog(tmp_path).read()
    then = launch(text_model_path, tmp_path, "sizes", "3", processes=after)
    assert then.returncode == 0, then.stderr[-3000:]
    assert f"'processes': ({before}, {after})" in then.stderr
    rests = {1: 6, 2: 3}  # half an epoch of 13 rows, in generation batches of one row or two
    assert f"'cooldown': ({rests[before]}, {rests[after]})" in then.stderr
    again = SelectionLog(tmp_path).read()
    assert again[:2] == lines[:2]  # of the steps 1 to 3, and the new batch of the steps 4 and 5
    assert [line["step"] for line in again] == [1, 2, 3, 4]
    assert [len(line["sample_index"]) for line in again] == [before, before, after, after]
    seen = [json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in range(after)]
    assert {each["digest"] for each in seen} == {seen[0]["digest"]}
    assert {each["rollouts"] for each in seen} == {4 * (2 * before + 2 * after)}
    assert set(seen[0]["staleness"]) == {0.0}


SAME = ("same", "same-refilled", "varied", "again")


@pytest.fixture(scope="module")
def two_and_one(text_model_path, tmp_path_factory):
    """Runs of `SAME`, in two processes and in one; returns the folders of both."""
    two, one = (tmp_path_factory.mktemp(name) for name in ("two", "one"))
    command = [sys.executable, str(SCRIPT), text_model_path, str(one), ",".join(SAME)]
    for finished in (
        launch(text_model_path, two, ",".join(SAME)),
        subprocess.run(command, capture_output=True, text=True, timeout=200),
    ):
        assert finished.returncode == 0, finished.stderr[-3000:]
    return two, one


@pytest.mark.parametrize("scenario", SAME)
def test_two_processes_end_where_one_with_the_same_global_batch_does(text_model_path, two_and_one, scenario):
    """Choices and posterior are the same to the bit. The weights are up to float32 sums in another order: 1e-6."""
    of_two, of_one = (folder / scenario for folder in two_and_one)
    first, second = what_was_seen(of_two)
    one = json.loads((of_one / "rank-0.json").read_text())
    assert SelectionLog(of_two).read() == SelectionLog(of_one).read()
    assert one["digest"] == first["digest"] == second["digest"]
    assert one["tokens"] == first["tokens"]
    assert one["refills"] == first["refills"]
    assert one["replayed"] == first["replayed"]
    assert (sum(filter(None, one["replayed"])) > 0) == (scenario == "again")
    assert (min(one["kept"]) < 8) == (scenario != "same-refilled")  # refills make all rollouts teach
    assert (sum(one["refills"]) > 0) == (scenario == "same-refilled")
    before, after, together = (
        load_file(path / "model.safetensors")
        for path in (Path(text_model_path), of_one / "checkpoint-6", of_two / "checkpoint-6")
    )
    assert max((after[name] - before[name]).abs().max().item() for name in after) > 1e-3  # it did learn
    assert max((after[name] - together[name]).abs().max().item() for name in after) < 1e-6


@pytest.mark.parametrize(("scenario", "generations"), zip(REFILLED, (3, 8, 4, 4), strict=True))
def test_kept_groups_are_dealt_again_over_the_processes(several, scenario, generations):
    """`odd`: a refill of one group of three would not divide between two processes, so it is one of two."""
    first, second, lines = several[scenario]
    for name in ("digest", "alpha", "visits", "weights", "rollouts", "tokens", "refills"):
        assert first[name] == second[name]
    assert set(first["staleness"]) == {0.0}
    assert sum(first["refills"]) > 0 or scenario == "straddling-refilled"
    refills = [line for line in lines if "refill" in line]
    assert len(refills) == sum(first["refills"])
    assert {len(line["sample_index"]) * generations % 2 for line in refills} <= {0}


def test_what_a_transform_has_made_by_chance_goes_with_its_completions_to_the_process_that_trains_on_them(several):
    for process in several["chance-refilled"][:2]:
        assert sum(process["refills"]) > 0
        strangers, answers = process["strangers"]
        assert answers > 0
        assert strangers == 0


def test_a_replica_that_differs_stops_the_run_at_the_next_save_by_name(text_model_path, tmp_path):
    stopped = launch(text_model_path, tmp_path, "perturbed")
    assert stopped.returncode != 0
    message = r"ReplicaDivergenceError: .* at step 3; .* \['[0-9a-f]{12}', '[0-9a-f]{12}'\]"
    assert re.search(message, stopped.stderr), stopped.stderr[-3000:]
    assert not (tmp_path / "checkpoint-3" / "trainer_state.json").exists()


def test_one_process_pushes_and_another_run_of_two_starts_from_what_it_published(hub, text_model_path, tmp_path):
    environment = client_environment(hub, tmp_path / "home")
    first, second = run(text_model_path, tmp_path / "pushed", "push", env=environment)
    files = hub.repos["you/run"].files()
    assert {f"last-checkpoint/rng_state_{rank}.pth" for rank in (0, 1)} <= files.keys()
    assert files[f"last-checkpoint/{POSTERIOR_FILE}"] == files[POSTERIOR_FILE]
    assert files[POSTERIOR_FILE] == (tmp_path / "pushed" / "checkpoint-6" / POSTERIOR_FILE).read_bytes()
    assert steps_in(hub.repos["datasets/you/beliefs"].files()) == [3, 6]
    warm, other = run(text_model_path, tmp_path / "warm", "warm", env=environment)
    assert warm["digest"] == other["digest"] != first["digest"] == second["digest"]
    assert sum(visits > 0 for visits in warm["visits"]) >= sum(visits > 0 for visits in first["visits"])


def test_a_push_that_is_refused_ends_all_processes_with_its_error(hub, text_model_path, tmp_path):
    hub.fault("POST /api/models/you/run/commit", status=403, times=100)
    stopped = launch(text_model_path, tmp_path, "push", env=client_environment(hub, tmp_path / "home"))
    assert stopped.returncode != 0
    for rank in (0, 1):
        assert re.search(rf"rank{rank}\]: .*HubError: The run in ", stopped.stderr), stopped.stderr
    assert list(tmp_path.glob("_hub-*/last-checkpoint/trainer_state.json"))


def test_reference_models_that_differ_stop_the_run_before_it_begins(text_model_path, tmp_path):
    """The policy's weights would be those of process 0 on both, and each would have another KL."""
    stopped = launch(text_model_path, tmp_path, "copies")
    assert stopped.returncode != 0
    for rank in (0, 1):
        message = rf"rank{rank}\]: .*ConfigurationError: The reference model differs between processes.*revision"
        assert re.search(message, stopped.stderr), stopped.stderr[-3000:]
    assert not list(tmp_path.glob("checkpoint-*"))
