import copy
import logging
import shutil
import subprocess
import sys
import threading
from dataclasses import replace

import pytest

from tests.support.hub import offline
from tests.support.refusals import says
from trl_vade.errors import HubOfflineError
from trl_vade.hub import push_queue
from trl_vade.hub import uploading as hub_module
from trl_vade.hub.push_queue import Push, PushQueue
from trl_vade.hub.uploading import HubTarget, ensure_repo

RUN = HubTarget("you/run")
COMMIT = "POST /api/models/you/run/commit"


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(hub_module, "PATIENCE", ())


@pytest.fixture
def push(hub, tmp_path):
    """Makes a push of a staged folder with one file that says its step."""
    ensure_repo(RUN)

    def make(step, **settings):
        folder = tmp_path / "out" / "_hub" / f"checkpoint-{step}"
        for part in ("", *settings.get("mirror", ())):
            (folder / part).mkdir(parents=True, exist_ok=True)
            (folder / part / "step.txt").write_text(str(step))
        return Push(RUN, folder, f"Step {step}", **settings)

    return make


def settle(queue):
    while not queue.done():
        threading.Event().wait(0.005)  # `time.sleep` is replaced in a test


def titles(hub):
    return [commit.title for commit in reversed(hub.repos["you/run"].history())][1:]


def test_pushes_arrive_in_their_order_and_their_staged_files_go(hub, push, tmp_path):
    queue = PushQueue()
    for step in (1, 2, 3):
        queue.put(push(step, own=True))
    settle(queue)
    assert titles(hub) == ["Step 1", "Step 2", "Step 3"]
    assert queue.failures() == []
    assert list((tmp_path / "out").iterdir()) == []


def test_a_push_that_waits_gives_way_to_a_newer_one(hub, push, tmp_path):
    slow = hub.fault(COMMIT, delay=0.5)
    queue = PushQueue()
    queue.put(push(1))
    while not any(line.startswith(COMMIT) for line in hub.requests):  # it is being sent
        assert slow.times <= 1
    for step in (2, 3):
        queue.put(push(step))
    settle(queue)
    assert titles(hub) == ["Step 1", "Step 3"]
    assert list((tmp_path / "out").iterdir()) == []


def test_what_no_later_push_holds_never_gives_way(hub, push):
    hub.fault(COMMIT, delay=0.2)
    queue = PushQueue()
    for step in (1, 2, 3):
        queue.put(push(step, own=True))
    settle(queue)
    assert titles(hub) == ["Step 1", "Step 2", "Step 3"]


def test_a_failed_push_is_said_with_the_command_and_its_files_stay(hub, push, caplog):
    hub.fault(COMMIT, status=500)
    queue, failing = PushQueue(), push(1)
    with caplog.at_level(logging.WARNING):
        queue.put(failing)
        settle(queue)
    assert says(caplog.text, "'Step 1'")
    assert f"hf upload you/run {failing.folder} ." in caplog.text
    assert (failing.folder / "step.txt").read_text() == "1"
    assert [(pushed, error.status) for pushed, error in queue.failures()] == [(failing, 500)]


def test_the_next_push_takes_the_place_of_a_failed_one(hub, push):
    hub.fault(COMMIT, status=500)
    queue, failing = PushQueue(), push(1)
    queue.put(failing)
    settle(queue)
    queue.put(push(2))
    settle(queue)
    assert titles(hub) == ["Step 2"]
    assert queue.failures() == []
    assert not failing.folder.exists()


def test_a_failed_push_of_its_own_goes_before_the_next_one(hub, push):
    hub.fault(COMMIT, status=500)
    queue = PushQueue()
    queue.put(push(1, own=True))
    settle(queue)
    queue.put(push(2, own=True))
    settle(queue)
    assert titles(hub) == ["Step 1", "Step 2"]


def test_what_failed_can_be_tried_again_at_the_end(hub, push):
    hub.fault(COMMIT, status=500, times=100)
    queue = PushQueue()
    queue.put(push(1, own=True))
    queue.put(push(2, own=True))
    settle(queue)
    hub.faults.clear()
    queue.again()
    settle(queue)
    assert titles(hub) == ["Step 1", "Step 2"]
    assert queue.failures() == []


def test_offline_nothing_is_warned_of_and_all_is_kept(push, caplog):
    queue, kept = PushQueue(), push(1)
    with offline(), caplog.at_level(logging.WARNING):
        queue.put(kept)
        settle(queue)
    assert caplog.text == ""
    assert isinstance(queue.failures()[0][1], HubOfflineError)
    assert kept.folder.is_dir()


def files(hub):
    return {path: data.decode() for path, data in hub.repos["you/run"].files().items() if path != ".gitattributes"}


def test_what_failed_never_undoes_a_push_that_arrived_after_it(hub, push):
    hub.fault(COMMIT, status=500, delay=0.3)  # the second one comes while the first one is being sent
    queue = PushQueue()
    for step in (1, 2):
        queue.put(push(step, mirror=("last-checkpoint",)))
    settle(queue)
    queue.again()
    settle(queue)
    assert titles(hub) == ["Step 2"]
    assert queue.failures() == []
    assert files(hub) == {"step.txt": "2", "last-checkpoint/step.txt": "2"}


def test_of_a_late_checkpoint_only_its_own_folder_is_sent(hub, push):
    hub.fault(COMMIT, status=500, delay=0.3)
    queue = PushQueue()
    for step in (1, 2):
        queue.put(push(step, own=True, mirror=(f"checkpoint-{step}",)))
    settle(queue)
    assert [failing.message for failing, _ in queue.failures()] == ["Step 1"]
    queue.again()
    settle(queue)
    assert files(hub) == {"step.txt": "2", "checkpoint-1/step.txt": "1", "checkpoint-2/step.txt": "2"}


def test_the_model_alone_does_not_take_the_place_of_a_checkpoint(hub, push):
    fault = hub.fault(COMMIT, status=500, times=100)
    queue = PushQueue()
    queue.put(push(1, mirror=("last-checkpoint",)))
    queue.put(push(2))
    settle(queue)
    assert [failing.message for failing, _ in queue.failures()] == ["Step 1", "Step 2"]
    fault.times = 0
    queue.again()
    settle(queue)
    assert files(hub) == {"step.txt": "2", "last-checkpoint/step.txt": "1"}


def no_space(push):
    raise OSError(28, "No space left on device")


def test_a_push_that_could_not_be_staged_is_a_failure_until_one_covers_it(hub, push):
    queue = PushQueue()
    entry = queue.put(Push(RUN, None, "Step 1"), None, no_space)
    queue.again()
    assert [failing.message for failing, _ in queue.failures()] == ["Step 1"]
    assert says(str(entry.future.exception()), "[Errno 28]")
    queue.put(push(2))
    settle(queue)
    assert queue.failures() == []


def test_a_push_that_could_not_be_staged_is_staged_once_more_at_the_end(hub, push):
    full = True
    queue, ready = PushQueue(), push(2)
    hub.fault(COMMIT, status=500)
    queue.put(push(1))
    settle(queue)
    entry = queue.put(Push(RUN, None, "Step 2"), None, lambda one: no_space(one) if full else ready)
    settle(queue)
    assert titles(hub) == ["Step 1"]  # what is older was sent, as nothing newer can be
    full = False
    queue.again()
    settle(queue)
    assert titles(hub) == ["Step 1", "Step 2"]
    assert (entry.error, queue.failures(), ready.folder.exists()) == (None, [], False)
    assert entry.future.result().oid == hub.repos["you/run"].branches["main"]


def test_what_failed_is_sent_in_its_order_though_it_was_staged_late(hub, push):
    full = True
    queue, middle = PushQueue(), push(2, own=True)
    hub.fault(COMMIT, status=500, times=100)
    queue.put(push(1, own=True))
    queue.put(Push(RUN, None, "Step 2", own=True), None, lambda one: no_space(one) if full else middle)
    queue.put(push(3, own=True))
    settle(queue)
    hub.faults.clear()
    full = False
    queue.again()
    settle(queue)
    assert titles(hub) == ["Step 1", "Step 2", "Step 3"]


def test_a_kept_folder_that_was_deleted_is_taken_as_sent_by_hand(hub, push, caplog):
    queue, failing = PushQueue(), push(1, own=True)
    hub.fault(COMMIT, status=500)
    queue.put(failing)
    settle(queue)
    shutil.rmtree(failing.folder)
    queue.put(push(2))
    settle(queue)
    assert (titles(hub), queue.failures()) == (["Step 2"], [])
    assert says(caplog.text, str(failing.folder))
    assert says(caplog.text, "by hand")


def test_a_kept_folder_may_be_deleted_while_the_next_one_is_sent(hub, push):
    queue, failing = PushQueue(), push(1, own=True, mirror=("checkpoint-1",))

    def send_by_hand(files):
        shutil.rmtree(failing.folder)
        return {}

    hub.fault(COMMIT, status=500, times=2)
    queue.put(failing)
    settle(queue)
    queue.put(push(2, render=send_by_hand))
    settle(queue)
    assert (titles(hub), queue.failures()) == (["Step 2"], [])


def test_a_late_push_that_cannot_be_cut_down_is_not_sent_as_it_is(hub, push, monkeypatch):
    """As it is it would put the older model over the newer one."""

    def refuse(folder, parts):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(push_queue, "keep_only", refuse)
    queue = PushQueue()
    hub.fault(COMMIT, status=500, times=1)
    queue.put(push(1, mirror=("last-checkpoint",), command="hf upload you/run checkpoint-1 last-checkpoint"))
    settle(queue)
    hub.fault(COMMIT, status=500, times=1)  # again before that of step 2
    queue.put(push(2))
    settle(queue)
    queue.again()
    settle(queue)
    [(failing, error)] = queue.failures()
    assert (files(hub), failing.message) == ({"step.txt": "2"}, "Step 1")
    assert says(str(error), "[Errno 5]")
    assert says(failing.kept(), "hf upload you/run checkpoint-1 last-checkpoint")


def test_a_late_push_that_waits_for_another_attempt_is_not_sent_when_it_cannot_be_cut_down(hub, push, monkeypatch):
    def refuse(folder, parts):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(push_queue, "keep_only", refuse)
    queue = PushQueue()
    hub.fault(COMMIT, status=500)
    queue.put(push(1, own=True, mirror=("checkpoint-1",)))
    settle(queue)

    def put_another(files):  # while step 2 is being sent: step 1 waits behind it
        if len(queue.unfinished()) == 1:
            queue.put(push(3))
        return {}

    hub.fault(COMMIT, status=500)  # of step 1, before step 2
    queue.put(push(2, own=True, render=put_another))
    settle(queue)
    assert titles(hub) == ["Step 2", "Step 3"]
    assert [says(str(error), "[Errno 5]") for _, error in queue.failures()] == [True]


def test_a_refused_repository_takes_no_patience_from_another_one(hub, push, monkeypatch):
    slept = []
    monkeypatch.setattr(hub_module, "PATIENCE", (1.0, 2.0))
    monkeypatch.setattr(hub_module.time, "sleep", slept.append)
    other = HubTarget("you/beliefs", "dataset")
    ensure_repo(other)
    hub.fault("POST /api/datasets/you/beliefs/commit", status=403, times=100)
    hub.fault(COMMIT, status=500, times=2)
    queue = PushQueue()
    queue.put(replace(push(1, own=True), target=other))
    queue.put(push(2))
    settle(queue)
    assert (titles(hub), slept) == (["Step 2"], [1.0, 2.0])
    assert [error.status for _, error in queue.failures()] == [403]


def test_a_token_that_was_given_goes_with_every_attempt(hub, push, monkeypatch):
    monkeypatch.delenv("HF_TOKEN")
    fault = hub.fault(COMMIT, status=500, times=100)
    queue = PushQueue()
    queue.put(push(1, own=True), hub.token)
    settle(queue)
    fault.times = 0
    queue.again()
    settle(queue)
    assert titles(hub) == ["Step 1"]


def test_a_process_that_ends_first_sends_what_is_waiting(hub, push):
    """The client starts threads for large files, which is not allowed any more when Python's own hooks have run."""
    folders = [push(step).folder for step in (1, 2)]
    for folder in folders:
        (folder / f"{folder.name}.safetensors").write_bytes(folder.name.encode())
    code = (
        "from pathlib import Path; from trl_vade.hub.push_queue import HubTarget, Push, PushQueue;"
        f"queue = PushQueue(); folders = {[str(folder) for folder in folders]};"
        "[queue.put(Push(HubTarget('you/run'), Path(folder), folder[-1], own=True)) for folder in folders];"
        "raise SystemExit(3)"
    )
    hub.fault(COMMIT, delay=0.5, times=2)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 3, done.stderr
    assert titles(hub) == ["1", "2"]
    assert "checkpoint-2.safetensors" in files(hub)


def test_a_trainer_can_be_copied(hub, push):
    queue = PushQueue()
    queue.put(push(1))
    settle(queue)
    assert copy.deepcopy(queue).failures() == []


def test_a_defect_in_a_push_is_a_failure_like_any_other(push):
    def broken(files):
        raise RuntimeError("the card cannot be written")

    queue = PushQueue()
    queue.put(push(1, render=broken))
    settle(queue)
    assert "RuntimeError: the card cannot be written" in str(queue.failures()[0][1])


def test_behind_a_push_that_failed_the_next_ones_do_not_wait_as_long_again(hub, push, monkeypatch):
    slept = []
    monkeypatch.setattr(hub_module, "PATIENCE", (1.0, 2.0))
    monkeypatch.setattr(hub_module.time, "sleep", slept.append)
    hub.fault(COMMIT, status=500, times=100)
    queue = PushQueue()
    for step in (1, 2, 3):
        queue.put(push(step, own=True))
    settle(queue)
    assert slept == [1.0, 2.0]
    queue.again()
    settle(queue)
    assert slept == [1.0, 2.0] * 2
    assert len(queue.failures()) == 3
