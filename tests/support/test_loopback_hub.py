"""The stand-in itself: the real clients must find in it what they find on the Hub, faults included.

And what huggingface_hub 2.4 makes of each failure, on which `trl_vade/hub/uploading.py` rests.
"""

import sysconfig
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from huggingface_hub import (
    CommitOperationAdd,
    CommitOperationDelete,
    HfApi,
    create_commit,
    create_repo,
    hf_hub_download,
)

from tests.support.loopback_hub import run_client

pytestmark = [
    pytest.mark.contract,
    # What huggingface_hub 2.4 itself does with each LFS file.
    pytest.mark.filterwarnings("ignore:Use 'content=<...>' to upload raw bytes:DeprecationWarning"),
]

HF = Path(sysconfig.get_path("scripts"), "hf")  # the command
CARD = """---
license: mit
configs:
- config_name: latest
  default: true
  data_files: step-000200/*.parquet
- config_name: step-000100
  data_files: step-000100/*.parquet
---
Rows of a test.
"""
OVER_THE_THRESHOLD = bytes(range(256)) * (4 * 2**10 + 1)  # 1 MiB and 256 bytes
ROWS = {"repo_id": "you/rows", "repo_type": "dataset"}


def failure(call, *args, **kwargs):
    """What the call raises: the exception's type, and the status of the answer, its own or that of its cause."""
    try:
        call(*args, **kwargs)
    except Exception as error:
        responses = [getattr(one, "response", None) for one in (error, error.__cause__)]
        return type(error).__name__, next((one.status_code for one in responses if one is not None), None)
    return "none", None


def commit(**files):
    """Commit files to the repo "you/rows" by the client: their contents by name, with a dot for each "_"."""
    operations = [CommitOperationAdd(name.replace("_", "."), data) for name, data in files.items()]
    return create_commit(**ROWS, operations=operations, commit_message="files")


def asked(hub, pattern):
    """How many requests have gone to the hub with `pattern` in them."""
    return sum(pattern in request for request in hub.requests)


@pytest.fixture
def hub(hub):
    hub.lfs_threshold = 2**20
    return hub


@pytest.fixture
def repo(hub):
    """A data set repo with one file, which no client has put there."""
    repo = hub.add_repo("datasets/you/rows")
    repo.add("main", "a file", "", repo.files() | {"README.md": CARD.encode()})
    return repo


@pytest.fixture
def folder(tmp_path):
    """A folder with a file of each kind: a card, Parquet, and one over the threshold."""
    folder = tmp_path / "folder"
    for step, rows in ((100, [1, 2, 3]), (200, [4, 5])):
        (folder / f"step-{step:06}").mkdir(parents=True)
        pq.write_table(pa.table({"row": rows}), folder / f"step-{step:06}" / "posterior.parquet")
    (folder / "README.md").write_text(CARD)
    (folder / "state.dat").write_bytes(OVER_THE_THRESHOLD)
    return folder


def local_files(folder):
    files = (path for path in folder.rglob("*") if path.is_file() and ".cache" not in path.parts)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


# What is on the Hub: the commands, the libraries.


def test_the_hf_command_uploads_a_folder_byte_for_byte_and_downloads_it(hub, folder, tmp_path):
    upload = [HF, "upload", "you/rows", folder, ".", "--repo-type", "dataset"]
    run_client(hub, upload, tmp_path)
    repo = hub.repos["datasets/you/rows"]
    arrived = repo.files()
    assert arrived.pop(".gitattributes")
    assert arrived == local_files(folder)
    assert repo.commit().lfs == {"step-000100/posterior.parquet", "step-000200/posterior.parquet", "state.dat"}
    assert [commit.title for commit in repo.history()] == ["Upload folder using huggingface_hub", "initial commit"]
    assert asked(hub, "PUT /lfs-storage/") == 3
    assert hub.tokens == {hub.token}
    assert "No files have been modified" in run_client(hub, upload, tmp_path).stderr
    assert len(repo.history()) == 2
    run_client(hub, [HF, "download", "you/rows", "--repo-type", "dataset", "--local-dir", "copy"], tmp_path)
    copied = local_files(tmp_path / "copy")
    assert copied.pop(".gitattributes")
    assert copied == local_files(folder)


def test_a_snapshot_of_a_model_is_the_files_that_were_committed(hub, tmp_path):
    api = HfApi()
    api.create_repo("model", private=True)
    files = {"config.json": b"{}", "model.safetensors": bytes(2**10), "a/empty.txt": b"", "late.txt": b"x"}
    api.create_commit("you/model", [CommitOperationAdd(*file) for file in files.items()], commit_message="all")
    api.create_commit("you/model", [CommitOperationDelete("late.txt")], commit_message="less")
    api.snapshot_download("you/model", local_dir=tmp_path / "copy", ignore_patterns=".gitattributes")
    late = api.hf_hub_download("you/model", "late.txt", revision=api.list_repo_commits("you/model")[1].commit_id)
    assert Path(late).read_bytes() == files.pop("late.txt")
    assert local_files(tmp_path / "copy") == files
    siblings = api.model_info("you/model", files_metadata=True).siblings
    assert {file.rfilename: file.size for file in siblings}.items() > {"config.json": 2, "a/empty.txt": 0}.items()
    assert hub.repos["you/model"].private


# What is refused.


def test_what_is_not_there_or_must_not_be_is_an_exception_of_the_clients_own(hub, repo):
    first, api = repo.history()[-1].oid, HfApi()
    late = {"path_or_fileobj": b"x", "path_in_repo": "x.txt", "parent_commit": first}
    broken = {"path_or_fileobj": b"---\na: [\n---\n", "path_in_repo": "README.md"}
    assert failure(create_repo, **ROWS) == ("HfHubHTTPError", 409)
    assert failure(api.model_info, "you/rows") == ("RepositoryNotFoundError", 404)
    assert failure(hf_hub_download, filename="no.txt", **ROWS) == ("RemoteEntryNotFoundError", 404)
    assert failure(hf_hub_download, filename="a", revision="no", **ROWS) == ("RevisionNotFoundError", 404)
    assert failure(api.upload_file, **late, **ROWS) == ("HfHubHTTPError", 412)
    assert failure(api.upload_file, **broken, **ROWS) == ("ValueError", 400)
    assert len(repo.history()) == 2


# What goes wrong. The client has retries of its own, but not for the commit, nor for the small requests around it.


@pytest.mark.parametrize(
    ("fault", "raised", "in_effect"),
    [
        ({"status": 401}, ("HfHubHTTPError", 401), False),
        ({"status": 403}, ("HfHubHTTPError", 403), False),
        ({"status": 404, "headers": {"X-Error-Code": "RepoNotFound"}}, ("RepositoryNotFoundError", 404), False),
        ({"status": 404, "headers": {"X-Error-Code": "RevisionNotFound"}}, ("RevisionNotFoundError", 404), False),
        ({"status": 409}, ("HfHubHTTPError", 409), False),
        ({"status": 412}, ("HfHubHTTPError", 412), False),
        ({"status": 429, "headers": {"Retry-After": "30"}}, ("HfHubHTTPError", 429), False),
        ({"status": 500}, ("HfHubHTTPError", 500), False),
        ({"status": 500, "applied": True}, ("HfHubHTTPError", 500), True),
        ({"status": 503}, ("HfHubHTTPError", 503), False),
        ({}, ("RemoteProtocolError", None), False),
        ({"applied": True}, ("RemoteProtocolError", None), True),
        ({"delay": 0.2}, ("none", None), True),
    ],
)
def test_a_commit_that_fails_is_not_sent_again_and_may_be_in_effect(hub, repo, fault, raised, in_effect):
    hub.fault("/commit/main", **fault)
    assert failure(commit, x_txt=b"x") == raised
    assert ("x.txt" in repo.files()) == in_effect
    assert asked(hub, "/commit/") == 1
    assert failure(commit, x_txt=b"x") == ("none", None)
    assert repo.files()["x.txt"] == b"x"


@pytest.mark.parametrize(
    ("pattern", "status", "raised", "requests"),
    [
        ("/preupload/", 403, ("HfHubHTTPError", 403), 1),
        ("/preupload/", 429, ("HfHubHTTPError", 429), 6),
        ("/preupload/", 500, ("HfHubHTTPError", 500), 6),
        ("/preupload/", None, ("RemoteProtocolError", None), 6),
        ("/objects/batch", 503, ("HfHubHTTPError", 503), 6),
        ("PUT /lfs-storage/", 403, ("RuntimeError", 403), 1),  # no HTTP error: that is its cause
        ("PUT /lfs-storage/", 500, ("RuntimeError", 500), 6),
        ("PUT /lfs-storage/", None, ("RuntimeError", None), 6),
        ("/objects/verify", 404, ("RuntimeError", 404), 1),
        ("/validate-yaml", 500, ("HfHubHTTPError", 500), 1),
        ("/validate-yaml", 503, ("JSONDecodeError", None), 1),  # a ValueError: it does not look at the status first
    ],
)
def test_before_the_commit_the_client_tries_six_times_where_that_can_help(
    hub, repo, pattern, status, raised, requests
):
    hub.fault(pattern, status=status, times=99)
    assert failure(commit, README_md=b"---\nlicense: mit\n---\n", x_bin=b"x") == raised
    assert asked(hub, pattern) == requests
    assert len(repo.history()) == 2
