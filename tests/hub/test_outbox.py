import logging
import os
import shutil
import subprocess
import sys
import threading
from functools import partial

import pytest

from tests.support.hub import offline
from tests.support.refusals import refused, says
from trl_vade.errors import HubError, HubOfflineError
from trl_vade.hub import outbox as outbox_module
from trl_vade.hub import uploading
from trl_vade.hub.commit import files_in
from trl_vade.hub.outbox import Outbox
from trl_vade.hub.uploading import HubTarget, ensure_repo

RUN = HubTarget("you/run")
COMMIT = "POST /api/models/you/run/commit"


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(uploading, "PATIENCE", ())


@pytest.fixture
def box(hub, tmp_path):
    ensure_repo(RUN)
    return Outbox(RUN, tmp_path / "_hub")


def save(step, *folders, box=None):
    """A save as `put` fills it: a file of its step in the root, and in each folder; with `box` it is put there."""

    def fill(new):
        for folder in ("", *folders):
            (new / folder).mkdir(exist_ok=True)
            (new / folder / "step.txt").write_text(str(step))
            (new / folder / f"only-{step}.txt").write_text("")

    return fill if box is None else box.put(fill, f"Step {step}", step)


def settle(box):
    while box.busy():
        threading.Event().wait(0.005)  # `time.sleep` is replaced in a test


def titles(hub):
    return [commit.title for commit in reversed(hub.repos["you/run"].history())][1:]


def steps(hub):
    """The step of each folder in the repository."""
    files = hub.repos["you/run"].files()
    return {path.removesuffix("/step.txt"): int(data) for path, data in files.items() if path.endswith("step.txt")}


def while_one_is_sent(hub, box, fault, *saves):
    """Put the first save, and the others while it is being sent."""
    held = threading.Event()
    hub.fault(COMMIT, hold=held, **fault)
    futures = [saves[0]()]
    while not any(line.startswith(COMMIT) for line in hub.requests):
        threading.Event().wait(0.005)
    futures += [one() for one in saves[1:]]
    held.set()
    settle(box)
    return futures


def test_a_save_is_one_commit_and_leaves_nothing_here(hub, box, tmp_path):
    future = save(1, "last-checkpoint", box=box)
    settle(box)
    assert (titles(hub), steps(hub)) == (["Step 1"], {"step.txt": 1, "last-checkpoint": 1})
    assert future.result().oid == hub.repos["you/run"].branches["main"]
    assert list(tmp_path.glob("_hub")) == []


def test_what_waits_goes_in_one_commit_in_which_the_newest_counts(hub, box):
    saves = [partial(save, step, "last-checkpoint", f"checkpoint-{step}", box=box) for step in (1, 2, 3)]
    futures = while_one_is_sent(hub, box, {}, *saves)
    assert titles(hub) == ["Step 1", "Step 3"]
    newest = {"step.txt": 3, "last-checkpoint": 3}
    assert steps(hub) == newest | {f"checkpoint-{step}": step for step in (1, 2, 3)}
    files = hub.repos["you/run"].files()
    assert [path for path in files if path.startswith("last-checkpoint/only")] == ["last-checkpoint/only-3.txt"]
    assert {f"only-{step}.txt" for step in (1, 2, 3)} <= files.keys()  # of the root nothing is deleted
    assert futures[1].result().oid == futures[2].result().oid == hub.repos["you/run"].branches["main"]


def test_what_failed_goes_with_the_next_save_and_undoes_nothing(hub, box, caplog):
    saves = [partial(save, step, "last-checkpoint", f"checkpoint-{step}", box=box) for step in (1, 2)]
    with caplog.at_level(logging.WARNING):
        futures = while_one_is_sent(hub, box, {"status": 500}, *saves)
    assert says(caplog.text, "500")
    assert says(caplog.text, str(box.folder))
    with refused(HubError, [500]):
        futures[0].result()
    assert (titles(hub), box.error, box.waiting()) == (["Step 2"], None, [])
    assert steps(hub) == {"step.txt": 2, "last-checkpoint": 2, "checkpoint-1": 1, "checkpoint-2": 2}


def test_while_the_hub_is_down_each_save_makes_one_attempt_and_the_end_all(hub, box, monkeypatch):
    slept = []
    monkeypatch.setattr(uploading, "PATIENCE", (1.0, 2.0))
    monkeypatch.setattr(uploading.time, "sleep", slept.append)
    fault = hub.fault(COMMIT, status=500, times=100)
    for step in (1, 2, 3):
        save(step, box=box)
        settle(box)
    assert (slept, box.error.status, len(box.waiting())) == ([1.0, 2.0], 500, 1)
    box.error = None
    box.send()
    settle(box)
    assert slept == [1.0, 2.0] * 2
    fault.times = 0
    box.send()
    settle(box)
    assert (titles(hub), box.error) == (["Step 3"], None)


def test_offline_nothing_is_warned_of_and_a_later_start_with_a_network_sends_it(hub, box, caplog, tmp_path):
    with offline(), caplog.at_level(logging.WARNING):
        for step in (1, 2):
            save(step, f"checkpoint-{step}", box=box)
        settle(box)
    assert (caplog.text, type(box.error), len(box.waiting())) == ("", HubOfflineError, 1)
    later = Outbox(RUN, tmp_path / "_hub")
    later.send()
    settle(later)
    assert steps(hub) == {"step.txt": 2, "checkpoint-1": 1, "checkpoint-2": 2}


# Which of the commits of a killed process arrived, by what it had left, and what the repository is of in the end.
KILLS = {"none": ([], 2), "the first": ([1], 2), "both": ([1, 2], 2), "later ones": ([1, 2, 9], 9)}


@pytest.mark.parametrize("case", KILLS)
def test_what_a_killed_process_left_is_sent_if_it_is_newer_and_deleted_otherwise(hub, box, caplog, tmp_path, case):
    """It was killed before a commit, or between the commit and the end of its files."""
    arrived, newest = KILLS[case]
    copy = tmp_path / "copy"
    for step in (1, 2, 9):
        box.put(save(step, "last-checkpoint"), f"Step {step}", step) if step in arrived else None
        settle(box)
        # What is left of it: the folder of this step, which is the one named in the commit.
        name = hub.repos["you/run"].history()[0].message if step in arrived else f"{9 * 10**12 + step}-step-{step}"
        if step != 9:
            (copy / box.folder.name / name).mkdir(parents=True)
            save(step, "last-checkpoint")(copy / box.folder.name / name)
    (copy / box.folder.name / "new").mkdir()  # half made
    save(3)(copy / box.folder.name / "new")
    later = Outbox(RUN, copy)
    with caplog.at_level(logging.WARNING):
        later.send()
        settle(later)
    assert steps(hub) == {"step.txt": newest, "last-checkpoint": newest}
    assert (later.error, copy.exists()) == (None, False)
    assert len([record for record in caplog.records if "earlier start" in record.message]) == 2


def test_the_first_save_of_a_start_waits_for_the_judgement_on_what_was_left(hub, box, tmp_path):
    save(9, "last-checkpoint", box=box)  # another machine went on
    settle(box)
    left = tmp_path / "copy" / box.folder.name / f"{1:013d}-step-8"
    left.mkdir(parents=True)
    save(8, "last-checkpoint")(left)
    later = Outbox(RUN, tmp_path / "copy")
    save(10, box=later)
    settle(later)
    assert steps(hub) == {"step.txt": 10, "last-checkpoint": 9}


def test_a_process_that_is_killed_at_any_moment_leaves_only_whole_saves(box, tmp_path, monkeypatch):
    """It is killed before its first link or deletion, its second, and so on."""
    with offline():
        save(1, "checkpoint-1", box=box)
        settle(box)
    whole = tmp_path / "whole"
    shutil.copytree(tmp_path / "_hub", whole)
    for limit in range(1, 9):
        shutil.rmtree(tmp_path / "_hub")
        shutil.copytree(whole, tmp_path / "_hub")
        if not (child := os.fork()):
            calls = iter(range(1, limit))

            def counted(*arguments, function, **named):
                return function(*arguments, **named) if next(calls, None) else os._exit(0)  # noqa: B023

            for module, name in ((os, "link"), (shutil, "rmtree"), (os, "rename")):
                monkeypatch.setattr(module, name, partial(counted, function=getattr(module, name)))
            box._add(save(2, "checkpoint-2"), 2)
            os._exit(0)
        os.waitpid(child, 0)
        found = {}
        for folder in Outbox(RUN, tmp_path / "_hub").waiting():
            found |= {path: file.read_text() for path, file in files_in(folder).items()}
        assert found["checkpoint-1/step.txt"] == "1"
        assert found["step.txt"] == found.get("checkpoint-2/step.txt", "1")
    assert found["step.txt"] == "2"


def test_no_more_checkpoints_wait_than_the_limit_and_those_that_never_go_are_named(hub, box, caplog, tmp_path):
    box = Outbox(RUN, tmp_path / "_hub", limit=2)
    fault = hub.fault(COMMIT, status=500, times=100)
    with caplog.at_level(logging.WARNING):
        for step in (8, 9, 10, 11):
            save(step, f"checkpoint-{step}", box=box)
            settle(box)
    [folder] = box.waiting()
    assert {path.name for path in folder.iterdir() if path.is_dir()} == {"checkpoint-10", "checkpoint-11"}
    assert all(says(caplog.text, name) for name in ("checkpoint-8", "checkpoint-9", "save_total_limit"))
    fault.times = 0
    box.send()
    settle(box)
    assert steps(hub).keys() == {"step.txt", "checkpoint-10", "checkpoint-11"}


def test_files_that_cannot_be_set_aside_are_an_error_and_leave_nothing_half_made(hub, box, tmp_path):
    def no_space(new):
        (new / "half.txt").write_text("")
        raise OSError(28, "No space left on device")

    with refused(OSError, ["[Errno 28]"]):
        box.put(no_space, "Step 1", 1)
    assert (hub.requests[2:], list(tmp_path.glob("_hub"))) == ([], [])


def test_large_files_cost_nothing_where_there_are_hard_links(box, tmp_path, monkeypatch):
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"weights")
    for name, count in {"link": 2, "copy": 2}.items():
        outbox_module.link(weights, tmp_path / name, copy=name == "copy")
        assert weights.stat().st_nlink == count
    monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(OSError("Operation not permitted")))
    outbox_module.link(weights, tmp_path / "elsewhere" / "copy")
    assert (tmp_path / "elsewhere" / "copy").read_bytes() == b"weights"


def test_commits_keep_to_the_hour_of_the_hub_and_nothing_is_lost(hub, box, monkeypatch, caplog):
    now = [0.0]
    monkeypatch.setattr(outbox_module, "COMMITS_AN_HOUR", 4)
    monkeypatch.setattr(outbox_module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(outbox_module.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    box, times = Outbox(RUN, box.folder.parent), []
    for step in range(6):
        save(step, box=box)
        settle(box)
        times.append(now[0])
    assert times == [0, 0, 1800, 3600, 5400, 7200]
    assert titles(hub) == [f"Step {step}" for step in range(6)]


def test_a_token_that_was_given_goes_with_every_attempt_and_is_not_written(hub, box, monkeypatch, tmp_path):
    monkeypatch.delenv("HF_TOKEN")
    fault = hub.fault(COMMIT, status=500, times=100)
    box.token = hub.token
    save(1, box=box)
    settle(box)
    assert not any(hub.token in path.read_text() for path in tmp_path.rglob("*") if path.is_file())
    fault.times = 0
    box.send()
    settle(box)
    assert titles(hub) == ["Step 1"]


def test_a_defect_in_a_description_is_a_failure_like_any_other(hub, box):
    def broken(folder, there):
        raise RuntimeError("the card cannot be written")

    box = Outbox(RUN, box.folder.parent, describe=broken)
    save(1, box=box)
    settle(box)
    assert says(str(box.error), "the card cannot be written")


CODE = """
import sys
from pathlib import Path
from trl_vade.hub.outbox import Outbox
from trl_vade.hub.uploading import HubTarget
box = Outbox(HubTarget("you/run"), Path(sys.argv[1]))
for step in (1, 2):
    box.put(lambda new: (new / f"{step}.safetensors").write_bytes(b"weights"), str(step), step)
    print(step, flush=True)
raise SystemExit(3)
"""


def test_a_process_that_ends_first_sends_what_waits(hub, box, tmp_path):
    """The client starts threads for large files, which is not allowed any more when Python's own hooks have run."""
    hub.fault(COMMIT, delay=0.3)
    command = [sys.executable, "-c", CODE, str(tmp_path / "_hub")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 3, done.stderr
    assert {"1.safetensors", "2.safetensors"} <= hub.repos["you/run"].files().keys()
