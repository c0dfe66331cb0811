import concurrent.futures
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import pytest

from tests.support.refusals import refused, says
from trl_vade.errors import HubError
from trl_vade.hub import uploading
from trl_vade.hub.staging import Staging
from trl_vade.hub.uploading import HubTarget, ensure_repo

RUN = HubTarget("you/run")
COMMIT = "POST /api/models/you/run/commit"


@pytest.fixture
def staging(hub, tmp_path):
    ensure_repo(RUN)
    return Staging(RUN, tmp_path)


def fill(new, step):
    for folder in (new, new / "last-checkpoint"):
        folder.mkdir(exist_ok=True)
        (folder / "step.txt").write_text(str(step))


def save(staging, step):
    return staging.stage(step, f"Step {step}", partial(fill, step=step))


def settle(staging):
    concurrent.futures.wait([staging.job])


def titles(hub):
    return [commit.title for commit in reversed(hub.repos["you/run"].history())][1:]


def step_there(hub):
    files = hub.repos["you/run"].files()
    assert files["step.txt"] == files["last-checkpoint/step.txt"]
    return int(files["step.txt"])


@contextmanager
def sending(hub, staging, step, **fault):
    """In this context a step is being sent."""
    held = threading.Event()
    hub.fault(COMMIT, hold=held, **fault)
    future = save(staging, step)
    while not any(line.startswith(COMMIT) for line in hub.requests):
        threading.Event().wait(0.005)
    yield future
    held.set()


def test_the_newest_replaces_what_waits_and_nothing_is_left_here(hub, staging, tmp_path):
    with sending(hub, staging, 1) as first:
        futures = [first, *(save(staging, step) for step in (2, 3, 3))]
    settle(staging)
    assert (titles(hub), step_there(hub)) == (["Step 1", "Step 3"], 3)
    messages = [future.result() and future.result().commit_message for future in futures]
    assert messages == ["Step 1", None, None, "Step 3"]
    assert list(tmp_path.glob("_hub*")) == []


@pytest.mark.parametrize("patience", [(), (0.0, 0.0)])
def test_what_failed_is_followed_by_the_newest_whatever_its_step(hub, staging, caplog, monkeypatch, patience):
    """Between two attempts, too."""
    monkeypatch.setattr(uploading, "PATIENCE", patience)
    with sending(hub, staging, 5, status=500):
        save(staging, 2)
    settle(staging)
    assert says(caplog.text, "500")
    assert (titles(hub), step_there(hub), staging.job.exception()) == (["Step 2"], 2, None)


def test_files_that_cannot_be_set_aside_are_an_error_until_others_are(hub, staging, tmp_path):
    def full(new):
        (new / "half").write_text("")
        raise OSError(28, "No space left on device")

    with sending(hub, staging, 1):  # which arrives later
        failed = staging.stage(2, "Step 2", full)
    with refused(HubError, ["you/run", "Step 2", "No space left"]):
        failed.result()
    assert (titles(hub), staging.job) == (["Step 1"], failed)
    assert save(staging, 3).result()
    assert not list(tmp_path.glob("_hub*"))


def test_a_token_that_was_given_goes_with_every_request(hub, staging, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_read_only")
    staging.target, seen = replace(RUN, token=hub.token), len(hub.tokens)
    save(staging, 1).result()
    assert (titles(hub), len(hub.tokens)) == (["Step 1"], seen)


def test_the_newest_step_of_a_branch_is_that_of_its_last_push(hub, staging):
    repo = hub.repos["you/run"]
    repo.add("main", "an abandoned run", "step-12", repo.files())
    save(staging, 5).result()
    repo.add("main", "a user", "", repo.files())
    assert staging.newest_step() == 5


ENDING = """
import sys
from pathlib import Path
from trl_vade.hub.staging import Staging
from trl_vade.hub.uploading import HubTarget
staging = Staging(HubTarget("you/run"), Path())
staging.stage(1, "Step 1", lambda new: [(new / f"{n}.bin").write_bytes(bytes([n])) for n in range(3)] and None)
raise SystemExit(3)
"""


def test_a_process_that_ends_first_sends_what_waits(hub, staging, tmp_path):
    process = subprocess.run([sys.executable, "-c", ENDING], cwd=tmp_path)
    assert (process.returncode, titles(hub)) == (3, ["Step 1"])
