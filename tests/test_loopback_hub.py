"""The stand-in itself: the real client must find in it what it finds on the Hub, faults included."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from loopback_hub import LoopbackHub, run_client

CARD = """---
license: mit
configs:
- config_name: default
  data_files: data/*.parquet
---
Rows of a test.
"""
OVER_THE_THRESHOLD = bytes(range(256)) * (4 * 2**10 + 1)  # 1 MiB and 256 bytes
ROWS = 'repo_id="you/rows", repo_type="dataset"'
UPLOAD = f"""
from huggingface_hub import HfApi
HfApi().create_repo({ROWS}, exist_ok=True)
HfApi().upload_folder(folder_path="folder", {ROWS})
"""
# Tells the type and the status of an exception instead of raising it.
OUTCOMES = """
import json
from huggingface_hub import CommitOperationAdd, HfApi
api = HfApi()
def outcome(call, *args, **kwargs):
    try:
        return ["ok", str(call(*args, **kwargs))]
    except Exception as error:
        return [type(error).__name__, getattr(getattr(error, "response", None), "status_code", None)]
"""


def told(hub, tmp_path, expression, **options):
    """The value of an expression in a client's process, which may use `api` and `outcome`."""
    process = run_client(hub, f"{OUTCOMES}\nprint(json.dumps({expression}))", tmp_path, **options)
    return json.loads(process.stdout.splitlines()[-1])


@pytest.fixture
def hub():
    with LoopbackHub(lfs_threshold=2**20) as running:
        yield running


@pytest.fixture
def repo(hub):
    """A data set repo with one file, which no client has put there."""
    repo = hub.add_repo("datasets/you/rows")
    repo.add("main", "a file", "", repo.files() | {"README.md": CARD.encode()})
    return repo


@pytest.fixture
def folder(tmp_path):
    """A folder with a file of each kind: a card, Parquet, and one over the threshold."""
    data = tmp_path / "folder" / "data"
    data.mkdir(parents=True)
    pq.write_table(pa.table({"row": [1, 2, 3]}), data / "train-0.parquet")
    (tmp_path / "folder" / "README.md").write_text(CARD)
    (tmp_path / "folder" / "state.dat").write_bytes(OVER_THE_THRESHOLD)
    return tmp_path / "folder"


def local_files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_an_uploaded_folder_arrives_byte_for_byte_and_large_files_and_parquet_through_lfs(hub, folder, tmp_path):
    run_client(hub, UPLOAD, tmp_path)
    repo = hub.repos["datasets/you/rows"]
    arrived = repo.files()
    assert arrived.pop(".gitattributes")
    assert arrived == local_files(folder)
    assert repo.commit().lfs == {"data/train-0.parquet", "state.dat"}
    assert [commit.title for commit in repo.history()] == ["Upload folder using huggingface_hub", "initial commit"]
    assert sum(request.startswith("PUT /lfs-storage/") for request in hub.requests) == 2
    assert hub.tokens == {"hf_loopback"}
    assert "No files have been modified" in run_client(hub, UPLOAD, tmp_path).stderr
    assert len(repo.history()) == 2


def test_load_dataset_reads_the_newest_rows_and_those_of_a_pinned_revision(hub, folder, tmp_path):
    run_client(hub, UPLOAD, tmp_path)
    repo = hub.repos["datasets/you/rows"]
    first = repo.commit().oid
    pq.write_table(pa.table({"row": [4, 5]}), folder / "data" / "train-1.parquet")
    run_client(hub, UPLOAD, tmp_path)
    assert len(repo.history()) == 3
    code = f"""
    import json
    from datasets import load_dataset
    rows = [load_dataset("you/rows", split="train", revision=pin)["row"][:] for pin in (None, {first!r})]
    streamed = [row["row"] for row in load_dataset("you/rows", split="train", streaming=True)]
    print(json.dumps([*rows, streamed]))
    """
    # Without torch, which a streamed data set would import for seconds.
    printed = run_client(hub, code, tmp_path, USE_TORCH="0").stdout.splitlines()[-1]
    assert json.loads(printed) == [[1, 2, 3, 4, 5], [1, 2, 3], [1, 2, 3, 4, 5]]


def test_branches_and_tags_hold_what_was_committed_to_them(hub, repo, tmp_path):
    first = repo.commit().oid
    code = f"""
    import json
    from huggingface_hub import HfApi
    api, rows = HfApi(), dict({ROWS})
    api.create_tag(tag="v1", **rows)
    api.create_branch(branch="run/1", revision="v1", **rows)
    api.create_branch(branch="run/2", **rows)
    api.delete_branch(branch="run/2", **rows)
    api.upload_file(path_or_fileobj=b"on the branch", path_in_repo="a/b c.txt", revision="run/1", **rows)
    api.delete_file("README.md", **rows)
    refs = api.list_repo_refs(**rows)
    files = [api.list_repo_files(revision=revision, **rows) for revision in ("main", "v1", "run/1")]
    print(json.dumps([[ref.name for ref in (*refs.branches, *refs.tags)], *map(sorted, files)]))
    """
    names, *files = json.loads(run_client(hub, code, tmp_path).stdout)
    assert names == ["main", "run/1", "v1"]
    assert files == [[".gitattributes"], [".gitattributes", "README.md"], [".gitattributes", "README.md", "a/b c.txt"]]
    assert repo.commit("v1").oid == first
    assert repo.files("run/1")["a/b c.txt"] == b"on the branch"


def test_a_snapshot_of_a_model_is_the_files_that_were_committed(hub, tmp_path):
    code = """
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
    api = HfApi()
    api.create_repo("you/model", private=True)
    files = {"config.json": b"{}", "model.safetensors": bytes(2**10), "a/empty.txt": b"", "late.txt": b"x"}
    api.create_commit("you/model", [CommitOperationAdd(*file) for file in files.items()], commit_message="all")
    api.create_commit("you/model", [CommitOperationDelete("late.txt")], commit_message="less")
    api.snapshot_download("you/model", local_dir="copy", ignore_patterns=".gitattributes")
    api.hf_hub_download("you/model", "late.txt", revision=api.list_repo_commits("you/model")[1].commit_id)
    print(sorted((file.rfilename, file.size) for file in api.model_info("you/model", files_metadata=True).siblings))
    """
    printed = run_client(hub, code, tmp_path).stdout
    assert str([("a/empty.txt", 0), ("config.json", 2), ("model.safetensors", 1024)])[1:-1] in printed
    copied = {path: data for path, data in local_files(tmp_path / "copy").items() if not path.startswith(".cache")}
    assert copied == {"config.json": b"{}", "model.safetensors": bytes(2**10), "a/empty.txt": b""}
    assert hub.repos["you/model"].private


COMMIT = f'outcome(api.upload_file, path_or_fileobj=b"x", path_in_repo="x.txt", {ROWS})'


@pytest.mark.parametrize(
    ("token", "refusals"),
    [
        ("hf_wrong", [["HfHubHTTPError", 401]] * 3),
        ("hf_read_only", [["HfHubHTTPError", 403], ["HfHubHTTPError", 403], ["ok", "True"]]),
        ("", [["HfHubHTTPError", 401], ["RepositoryNotFoundError", 401], ["ok", "True"]]),
    ],
)
def test_a_token_without_the_right_to_write_changes_nothing(hub, repo, tmp_path, token, refusals):
    asked = f'[outcome(api.create_repo, "you/new"), {COMMIT}, outcome(api.repo_exists, {ROWS})]'
    assert told(hub, tmp_path, asked, token=token) == refusals
    assert hub.repos.keys() == {"datasets/you/rows"}
    assert len(repo.history()) == 2
    assert hub.tokens == {token} - {""}


def test_what_is_not_there_or_must_not_be_is_an_exception_of_the_clients_own(hub, repo, tmp_path):
    first = repo.history()[-1].oid
    asked = f"""[
        outcome(api.create_repo, "others/new"),
        outcome(api.create_repo, {ROWS}),
        outcome(api.model_info, "you/rows"),
        outcome(api.hf_hub_download, filename="no.txt", {ROWS}),
        outcome(api.hf_hub_download, filename="README.md", revision="no", {ROWS}),
        outcome(api.upload_file, path_or_fileobj=b"x", path_in_repo="x.txt", parent_commit="{first}", {ROWS}),
        outcome(api.upload_file, path_or_fileobj=b"---\\na: [\\n---\\n", path_in_repo="README.md", {ROWS}),
    ]"""
    assert told(hub, tmp_path, asked) == [
        ["HfHubHTTPError", 403],
        ["HfHubHTTPError", 409],
        ["RepositoryNotFoundError", 404],
        ["RemoteEntryNotFoundError", 404],
        ["RevisionNotFoundError", 404],
        ["HfHubHTTPError", 412],
        ["ValueError", None],
    ]
    assert len(repo.history()) == 2


def test_a_commit_that_fails_is_an_error_to_the_client_whether_it_took_effect_or_not(hub, repo, tmp_path):
    kinds = [(500, False), (500, True), (None, False), (None, True)]
    faults = [hub.fault("POST .*/commit/main", status=status, applied=applied) for status, applied in kinds]
    asked = ", ".join(COMMIT.replace("x.txt", f"{number}.txt") for number in range(5))
    *failed, last = told(hub, tmp_path, f"[{asked}]")
    assert failed == [["HfHubHTTPError", 500]] * 2 + [["RemoteProtocolError", None]] * 2
    assert last[0] == "ok"
    assert repo.files().keys() == {".gitattributes", "README.md", "1.txt", "3.txt", "4.txt"}
    assert [fault.times for fault in faults] == [0] * 4


def test_the_client_asks_again_after_a_503_and_after_a_cut_connection(hub, repo, tmp_path):
    hub.fault("/preupload/", status=503)
    hub.fault("/objects/batch")
    assert told(hub, tmp_path, COMMIT.replace('b"x"', "bytes(2**20 + 1)"))[0] == "ok"
    tried = [
        sum(part in request for request in hub.requests) for part in ("/preupload/", "/objects/batch", "/commit/")
    ]
    assert tried == [2, 2, 1]
    assert repo.files()["x.txt"] == bytes(2**20 + 1)


def test_a_mistake_of_the_stand_in_is_not_taken_for_one_of_the_client(tmp_path):
    hub = LoopbackHub()
    hub.repos["you/model"] = "no repo"
    with pytest.raises(AttributeError), hub:
        assert told(hub, tmp_path, 'outcome(api.model_info, "you/model")') == ["HfHubHTTPError", 500]
