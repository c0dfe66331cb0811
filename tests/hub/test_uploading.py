import logging
import os

import pytest
from huggingface_hub import HfApi, constants, lfs
from huggingface_hub.utils import sha

from tests.support.hub import offline
from tests.support.refusals import refused, says
from trl_vade.errors import HubError, HubOfflineError
from trl_vade.hub import commit
from trl_vade.hub import uploading as hub_module
from trl_vade.hub.commit import files_in
from trl_vade.hub.uploading import HubTarget, commit_folder, ensure_repo

RUN = HubTarget("you/run")
COMMIT = "POST /api/models/you/run/commit"


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(hub_module, "PATIENCE", (0.0, 0.0))
    monkeypatch.setattr(hub_module, "LONGEST", 0.0)


@pytest.fixture
def folder(tmp_path):
    """A folder with a file that goes to LFS, one that does not, and one in a subfolder."""
    folder = tmp_path / "staged"
    (folder / "last-checkpoint").mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(bytes(range(256)))
    (folder / "config.json").write_text('{"a": 1}\n')
    (folder / "last-checkpoint" / "trainer_state.json").write_text("{}")
    return folder


def pushed(hub, key="you/run", revision="main"):
    return {path: data for path, data in hub.repos[key].files(revision).items() if path != ".gitattributes"}


def local(folder):
    return {path: file.read_bytes() for path, file in files_in(folder).items()}


def commits(hub, key="you/run", revision="main"):
    return [commit.title for commit in hub.repos[key].history(revision)][:-1]  # the first one is the Hub's own


def test_a_folder_is_one_commit_and_the_same_again_is_none(hub, folder):
    ensure_repo(RUN)
    first = commit_folder(RUN, folder, message="Step 4", tag="step-4")
    assert pushed(hub) == local(folder)
    again = commit_folder(RUN, folder, message="Step 4 again", tag="step-4")
    assert (commits(hub), first.oid, again.oid) == (["Step 4"], *[hub.repos["you/run"].branches["main"]] * 2)
    (folder / "config.json").write_text("{}")
    other = commit_folder(RUN, folder, message="another run", tag="step-4")
    assert hub.repos["you/run"].tags == {"step-4": other.oid} != {"step-4": first.oid}


def test_a_repository_is_made_as_asked_and_an_existing_one_is_left_as_it_is(hub, folder):
    hub.fault("POST /api/repos/create", status=503)  # it is busy for a moment
    assert ensure_repo(HubTarget("run")).repo_id == "you/run"
    for private in (True, False):
        ensure_repo(HubTarget("you/secret", "dataset", private=private))
    assert (hub.repos["you/run"].private, hub.repos["datasets/you/secret"].private) == (False, True)
    target = ensure_repo(HubTarget("you/run", revision="run/7"))
    commit_folder(target, folder, message="Step 4")
    assert (pushed(hub, revision="run/7"), pushed(hub)) == (local(folder), {})


def test_more_files_are_rendered_from_those_that_are_there(hub, folder):
    ensure_repo(RUN)
    seen = []

    def render(files):
        seen.append(files)
        return {"README.md": f"{len(files)} files".encode()}

    commit_folder(RUN, folder, message="first", render=render)
    commit_folder(RUN, folder, message="second", render=render)
    assert pushed(hub)["README.md"] == b"5 files"  # those of the first commit and .gitattributes
    assert seen == [[".gitattributes"], sorted(hub.repos["you/run"].files())]


def test_a_mirrored_folder_loses_what_is_not_in_it_now(hub, folder):
    ensure_repo(RUN)
    (folder / "last-checkpoint" / "rng_state_1.pth").write_bytes(b"of two processes")
    (folder / "notes.txt").write_text("stays")
    commit_folder(RUN, folder, message="first", mirror=["last-checkpoint"])
    (folder / "last-checkpoint" / "rng_state_1.pth").unlink()
    (folder / "notes.txt").unlink()
    commit_folder(RUN, folder, message="second", mirror=["last-checkpoint"])
    assert pushed(hub) == local(folder) | {"notes.txt": b"stays"}


# What goes wrong with the one request that the client itself never repeats; the log and the error name its status, or
# what became of the connection.
PASSING = {
    **{str(status): {"status": status} for status in (404, 412, 429, 500)},
    "cut": {},
    "500, but it took effect": {"status": 500, "applied": True},
}


@pytest.mark.parametrize("case", PASSING)
def test_what_may_pass_is_said_and_tried_again_and_is_an_error_after_the_last_attempt(hub, folder, caplog, case):
    ensure_repo(RUN)
    fault, before, word = PASSING[case], local(folder), str(PASSING[case].get("status", "RemoteProtocolError"))
    if not fault.get("applied"):
        hub.fault(COMMIT, times=3, **fault)
        with refused(HubError, [RUN.repo_id, word]) as raised:
            commit_folder(RUN, folder, message="Step 4")
        assert (raised.value.status, commits(hub), local(folder)) == (fault.get("status"), [], before)
    hub.fault(COMMIT, **fault)
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        commit_folder(RUN, folder, message="Step 4")
    assert (pushed(hub), commits(hub)) == (before, ["Step 4"])
    assert says(caplog.text, word)
    assert says(caplog.text, "2 of 3")


@pytest.mark.parametrize("step", ["PUT /lfs-storage", "preupload", "lfs/objects/batch", "refs", "paths-info"])
def test_a_failure_on_the_way_is_explained_and_tried_again_like_one_at_the_end(hub, folder, step):
    ensure_repo(RUN)
    fault = hub.fault(step, status=500, times=1000)
    with refused(HubError, [RUN.repo_id, "500"]):
        commit_folder(RUN, folder, message="Step 4", tag="step-4")
    fault.times = 1
    commit_folder(RUN, folder, message="Step 4", tag="step-4")
    assert pushed(hub) == local(folder)
    assert hub.repos["you/run"].tags == {"step-4": hub.repos["you/run"].branches["main"]}


REFUSALS = {  # what the Hub answers, and the way out
    401: ("This token has expired", ["HF_TOKEN", "`hf auth login`"]),
    403: ("You don't have the rights", ["write access"]),
    "storage": ("Private repository storage limit reached, please upgrade your plan", ["settings/billing"]),
    400: ("Your push was rejected because it contains binary files", ["push again"]),
    402: ("Subscribe to PRO", ["settings/billing"]),
    413: ("More than 1 GB in a commit", ["shrink"]),
    422: ("No such object", ["pip install -U huggingface_hub"]),
    507: ("No room left", ["settings/billing"]),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_only_a_person_can_mend_is_not_tried_again_and_has_the_reason(hub, folder, caplog, case):
    ensure_repo(RUN)
    body, offers = REFUSALS[case]
    status = 403 if case == "storage" else case
    hub.fault(COMMIT, status=status, body=f"{body} (https://storage.example/a?X-Amz-Signature=abc)")
    with refused(HubError, [RUN.repo_id, body, "https://storage.example/a"], offers) as raised:
        commit_folder(RUN, folder, message="Step 4")
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


def test_an_empty_folder_is_refused_and_deletes_nothing(hub, folder, tmp_path):
    ensure_repo(RUN)
    commit_folder(RUN, folder, message="Step 4", mirror=["last-checkpoint"])
    (tmp_path / "empty").mkdir()
    with refused(HubError, [tmp_path / "empty"]):
        commit_folder(RUN, tmp_path / "empty", message="Step 8", mirror=["last-checkpoint"])
    assert pushed(hub) == local(folder)


def test_a_file_in_two_places_is_hashed_and_sent_once_however_many_attempts_it_takes(hub, folder, monkeypatch):
    ensure_repo(RUN)
    hub.fault(COMMIT, status=500, times=2)
    os.link(folder / "model.safetensors", folder / "last-checkpoint" / "model.safetensors")
    hashed = []
    whole = sha.sha_fileobj
    monkeypatch.setattr(lfs, "sha_fileobj", lambda file, *size: hashed.append(file.name) or whole(file, *size))
    commit_folder(RUN, folder, message="Step 4")
    assert pushed(hub) == local(folder)
    assert len(hashed) == 1
    assert len([line for line in hub.requests if line.startswith("PUT /lfs-storage")]) == 1


def test_many_files_are_compared_in_parts(hub, folder, monkeypatch):
    """The Hub refuses a request about more than a thousand."""
    ensure_repo(RUN)
    monkeypatch.setattr(commit, "MOST_PATHS", 2)
    commit_folder(RUN, folder, message="Step 4")
    assert len([line for line in hub.requests if "paths-info" in line]) == 2


def test_what_a_gitignore_there_leaves_out_is_named_and_not_tried_again(hub, folder, monkeypatch):
    """The Hub tells the client to leave such files out. The stand-in reads no .gitignore: the client is told here."""
    ensure_repo(RUN)
    told = HfApi.preupload_lfs_files

    def without_json(self, *arguments, additions, **named):
        told(self, *arguments, additions=additions, **named)
        for addition in additions:
            addition._should_ignore = addition.path_in_repo.endswith(".json")

    monkeypatch.setattr(HfApi, "preupload_lfs_files", without_json)
    with refused(HubError, ["2 of 3", "config.json", ".gitignore"]):
        commit_folder(RUN, folder, message="Step 4")


def test_damaged_bytes_are_found_and_the_message_names_a_file(hub, folder, monkeypatch):
    monkeypatch.setattr(hub_module, "PATIENCE", ())
    ensure_repo(RUN)
    hub.fault("PUT /lfs-storage", corrupt=True)
    with refused(HubError, [RUN.repo_id, "1 of 3", "model.safetensors"]):
        commit_folder(RUN, folder, message="Step 4")


WAITS = {  # what the Hub says with 429, and the seconds to wait
    "RateLimit": ({"RateLimit": '"api";r=0;t=280'}, 281.0),
    "Retry-After": ({"Retry-After": "40"}, 40.0),
    "an hour": ({"Retry-After": "3600"}, 600.0),
    "commits of the hour": ({"RateLimit": '"api";r=647;t=30'}, 120.0),
}


@pytest.mark.parametrize("case", WAITS)
def test_the_hub_is_given_the_time_that_it_asks_for(hub, folder, monkeypatch, caplog, case):
    slept = []
    monkeypatch.setattr(hub_module, "LONGEST", 600.0)
    monkeypatch.setattr(hub_module.time, "sleep", slept.append)
    headers, seconds = WAITS[case]
    ensure_repo(RUN)
    hub.fault(COMMIT, status=429, headers=headers, body="the rate limit for repository commits (128 per hour)")
    with caplog.at_level(logging.WARNING):
        commit_folder(RUN, folder, message="Step 4")
    assert slept == [seconds]
    assert says(caplog.text, f"{seconds:.0f} s")
    assert says(caplog.text, "128 per hour")


def test_large_files_go_by_lfs_where_xet_is_refused(hub, folder, monkeypatch, caplog):
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", False)
    ensure_repo(RUN)
    hub.fault("xet-write-token", status=403, times=100)
    with caplog.at_level(logging.WARNING):
        commit_folder(RUN, folder, message="Step 4")
    assert pushed(hub) == local(folder)
    assert len([line for line in hub.requests if "xet-write-token" in line]) == 1
    assert says(caplog.text, "HF_HUB_DISABLE_XET=1")


def test_a_repository_that_was_deleted_meanwhile_is_made_again(hub, folder):
    target = ensure_repo(HubTarget("you/run", revision="other"))
    del hub.repos["you/run"]
    commit_folder(target, folder, message="Step 4")
    assert pushed(hub, revision="other") == local(folder)


BAD_CARDS = {
    "tags: [unclosed": "flow sequence",
    "base_model: {a: b}": '"base_model"',
    "tags: [1]": '"tags[0]"',
    "model-index: [{name: a, results: [{task: {}}]}]": '"model-index[0].results[0].task.type"',
}


@pytest.mark.parametrize("metadata", BAD_CARDS)
def test_a_card_that_the_hub_refuses_holds_nothing_else_back_and_its_key_is_named(hub, folder, caplog, metadata):
    ensure_repo(RUN)
    there = local(folder)
    (folder / "README.md").write_text(f"---\n{metadata}\n---\n")
    hub.fault(COMMIT, status=500)
    with caplog.at_level(logging.WARNING):
        commit_folder(RUN, folder, message="Step 4")
    assert pushed(hub) == there
    assert says(caplog.text, BAD_CARDS[metadata])


def test_a_card_that_is_refused_with_the_commit_holds_nothing_else_back_but_alone_it_is_an_error(hub, folder, caplog):
    ensure_repo(RUN)
    there = local(folder)
    (folder / "README.md").write_text("---\nlicense: mit\n---\n")
    hub.fault(COMMIT, status=400, body='Invalid metadata: "model-index[0].name" must be a string')
    with caplog.at_level(logging.WARNING):
        commit_folder(RUN, folder, message="Step 4")
    assert pushed(hub) == there
    assert says(caplog.text, '"model-index[0].name"')
    (folder / "last-checkpoint" / "README.md").write_text("---\nlicense: [mit]\n---\n")
    (folder / "last-checkpoint" / "trainer_state.json").unlink()
    with refused(HubError, [RUN.repo_id, "README.md", '"license"']):
        commit_folder(RUN, folder / "last-checkpoint", message="Step 4")
    assert pushed(hub) == there


def test_offline_is_said_at_once(hub, folder):
    with offline(), refused(HubOfflineError, [RUN.repo_id], ["HF_HUB_OFFLINE"]):
        commit_folder(RUN, folder, message="Step 4")
    assert hub.requests == []
