import logging

import pytest
from huggingface_hub import constants

from tests.support.hub import offline
from tests.support.refusals import refused, says
from trl_vade.errors import HubError, HubOfflineError
from trl_vade.hub import uploading as hub_module
from trl_vade.hub.staging import files_in
from trl_vade.hub.uploading import HubTarget, ensure_repo, send_folder, with_retries

RUN = HubTarget("you/run")
COMMIT = "POST /api/models/you/run/commit"


@pytest.fixture
def folder(tmp_path):
    """A folder with a file that goes to LFS, one that does not, and one in a subfolder."""
    folder = tmp_path / "staged"
    (folder / "last-checkpoint").mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(bytes(range(256)))
    (folder / "config.json").write_text('{"a": 1}\n')
    (folder / "last-checkpoint" / "trainer_state.json").write_text("{}")
    return folder


def push(folder, message="Step 4", target=RUN, **about):
    return with_retries(lambda: send_folder(target, folder, message, **about), target)


def pushed(hub, key="you/run", revision="main"):
    return {path: data for path, data in hub.repos[key].files(revision).items() if path != ".gitattributes"}


def local(folder):
    return {path: file.read_bytes() for path, file in files_in(folder).items()}


def commits(hub, key="you/run", revision="main"):
    return [commit.title for commit in hub.repos[key].history(revision)][:-1]  # the first one is the Hub's own


def test_a_folder_is_one_commit_and_the_same_again_is_none(hub, folder):
    ensure_repo(RUN)
    first = push(folder)
    assert pushed(hub) == local(folder)
    again = push(folder, "Step 4 again")
    assert (commits(hub), first.oid, again.oid) == (["Step 4"], *[hub.repos["you/run"].branches["main"]] * 2)


def test_with_xet_a_push_of_any_number_of_files_is_one_commit(hub, folder, monkeypatch):
    """`upload_folder` of huggingface_hub 2.4 makes several above 250 files."""
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", False)
    ensure_repo(RUN)
    for step in (3, 4):
        for process in range(300):
            state = folder / "last-checkpoint" / f"rng_state_{process}.pt"
            state.write_text(f"{process} at step {step}")
        push(folder, f"Step {step}")
    assert pushed(hub) == local(folder)
    assert commits(hub) == ["Step 4", "Step 3"]
    assert hub.xorbs


def test_a_repository_is_made_as_asked_and_an_existing_one_is_left_as_it_is(hub, folder):
    hub.fault("POST /api/repos/create", status=503)  # it is busy for a moment
    assert ensure_repo(HubTarget("run")).repo_id == "you/run"
    for private in (True, False):
        ensure_repo(HubTarget("you/secret", "dataset", private=private))
    assert (hub.repos["you/run"].private, hub.repos["datasets/you/secret"].private) == (False, True)
    target = ensure_repo(HubTarget("you/run", revision="run/7"))
    push(folder, target=target)
    assert (pushed(hub, revision="run/7"), pushed(hub)) == (local(folder), {})
    hub.repos["you/run"].branches.pop("run/7")  # a branch is made again
    push(folder, target=target)
    assert pushed(hub, revision="run/7") == local(folder)
    del hub.repos["you/run"]  # which might have been private
    with refused(HubError, ["you/run", 404], ["private if it was"]):
        push(folder, target=target)
    assert "you/run" not in hub.repos


@pytest.mark.parametrize("lost", [False, True])
def test_a_checkpoint_mirrors_its_folder_and_deletes_later_ones_in_the_same_commit(hub, folder, caplog, lost):
    ensure_repo(RUN)
    for name in ("checkpoint-3", "checkpoint-4", "checkpoint-12", "checkpoint-100", "checkpoint-x", "step-5"):
        (folder / name).mkdir()
        (folder / name / "state").write_text(name)
    (folder / "checkpoint-4" / "rng_state_1.pth").write_text("of two processes")
    push(folder, "first")
    before = pushed(hub)
    for path in files_in(folder).values():
        path.unlink()
    for name in ("checkpoint-3", "checkpoint-12", "checkpoint-100", "checkpoint-x", "step-5"):
        (folder / name).rmdir()
    for path in ("model.safetensors", "last-checkpoint/trainer_state.json", "checkpoint-4/state"):
        (folder / path).write_text("new")
    if lost:
        hub.fault(COMMIT, status=504, applied=True)
    push(folder, "second")
    gone = {"checkpoint-12/state", "checkpoint-100/state", "checkpoint-4/rng_state_1.pth"}
    assert pushed(hub) == {path: data for path, data in before.items() if path not in gone} | local(folder)
    assert commits(hub) == ["second", "first"]
    if not lost:
        assert says(caplog.text, "checkpoint-12, checkpoint-100")


def test_the_card_is_of_what_stays_and_a_change_that_comes_in_between_is_seen(hub, folder):
    ensure_repo(RUN)
    (folder / "last-checkpoint").rename(folder / "checkpoint-4")
    repo, seen = hub.repos["you/run"], []
    repo.add("main", "an abandoned run", "", repo.files() | {"checkpoint-7/state": b""})

    def card(files):
        seen.append(files)
        if len(seen) == 1:
            repo.add("main", "by somebody else", "", repo.files() | {"notes.txt": b""})
        return f"{len(files)} files"

    push(folder, card=card)
    assert seen == [[".gitattributes"], [".gitattributes", "notes.txt"]]
    assert pushed(hub)["README.md"] == b"2 files"


PASSING = {str(status): {"status": status} for status in (412, 429, 500)}
PASSING |= {"RemoteProtocolError": {}, "504": {"status": 504, "applied": True}}


@pytest.mark.parametrize("word", PASSING)
def test_what_may_pass_is_said_and_tried_again_and_is_an_error_after_the_last_attempt(hub, folder, caplog, word):
    ensure_repo(RUN)
    fault = PASSING[word]
    hub.fault(COMMIT, times=3, **fault | {"applied": False})
    with refused(HubError, [RUN.repo_id, word]) as raised:
        push(folder)
    assert (raised.value.status, commits(hub)) == (fault.get("status"), [])
    hub.fault(COMMIT, **fault)
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        push(folder)
    assert (pushed(hub), commits(hub)) == (local(folder), ["Step 4"])
    assert says(caplog.text, word)
    assert says(caplog.text, "1 may follow")


REFUSALS = {  # what the Hub answers, and the way out
    401: ("This token has expired", ["HF_TOKEN", "`hf auth login`"]),
    403: ("Private repository storage limit reached", ["write access", "settings/billing"]),
    400: ("Your push was rejected because it contains binary files", ["push again"]),
    507: ("No room left", ["settings/billing"]),
}


@pytest.mark.parametrize("status", REFUSALS)
def test_what_only_a_person_can_mend_is_not_tried_again_and_has_the_reason(hub, folder, caplog, status):
    ensure_repo(RUN)
    reason, offers = REFUSALS[status]
    hub.fault(COMMIT, status=status, reason=f"{reason} (https://storage.example/a?X-Amz-Signature=abc)")
    with refused(HubError, [RUN.repo_id, reason, "https://storage.example/a"], offers) as raised:
        push(folder)
    assert raised.value.status == status
    assert len([line for line in hub.requests if line.startswith(COMMIT)]) == 1
    assert not any(secret in str(raised.value) + caplog.text for secret in ("Signature", hub.token))


def test_a_login_that_may_not_write_is_named_before_anything_is_sent(hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_read_only")
    with refused(HubError, ["you/run", 403]):
        ensure_repo(RUN)
    for name in ("you/run", "somebody/run"):
        hub.add_repo(name)  # which `create_repo(exist_ok=True)` takes for granted
        with refused(HubError, [name, 403]):
            ensure_repo(HubTarget(name))
        monkeypatch.setenv("HF_TOKEN", "hf_loopback")
    monkeypatch.delenv("HF_TOKEN")
    with refused(HubError, ["you/run", 401], ["`hf auth login`"]):
        ensure_repo(RUN)


def test_the_hub_is_given_the_time_that_it_asks_for(hub, folder, monkeypatch):
    slept = []
    monkeypatch.setattr(hub_module, "LONGEST", 600.0)
    monkeypatch.setattr(hub_module.time, "sleep", slept.append)
    ensure_repo(RUN)
    for headers in ({"Retry-After": "40"}, {"Retry-After": "3600"}, {"RateLimit": '"api";r=647;t=30'}):
        hub.fault(COMMIT, status=429, headers=headers)
        (folder / "config.json").write_text(str(headers))
        push(folder)
    assert slept == [40.0, 600.0, 120.0]


@pytest.mark.parametrize("at_the_commit", [False, True])
def test_a_card_that_the_hub_refuses_holds_nothing_else_back_and_its_key_is_named(hub, folder, caplog, at_the_commit):
    ensure_repo(RUN)
    there, key = local(folder), "license" if at_the_commit else "base_model: {a: b}"
    (folder / "README.md").write_text(f"---\n{'license: mit' if at_the_commit else key}\n---\n")
    if at_the_commit:
        hub.fault(COMMIT, status=400, reason='Invalid metadata: "license" must be one of a list')
    with caplog.at_level(logging.WARNING):
        push(folder)
    assert pushed(hub) == there
    assert says(caplog.text, f'"{key.split(":")[0]}"')


def test_offline_is_said_at_once(hub, folder):
    with offline(), refused(HubOfflineError, [RUN.repo_id], ["HF_HUB_OFFLINE"]):
        push(folder)
    assert hub.requests == []
