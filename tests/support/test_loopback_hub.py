"""The stand-in itself: the real clients must find in it what they find on the Hub, faults included.

And what huggingface_hub 2.4 makes of each failure, on which `trl_vade/hub/uploading.py` rests.
"""

import pytest
from huggingface_hub import CommitOperationAdd, HfApi, create_commit, create_repo, hf_hub_download

pytestmark = pytest.mark.contract
ROWS = {"repo_id": "you/rows", "repo_type": "dataset"}


def failure(call, *args, **kwargs):
    """What the call raises: the exception's type, and the status of the answer, its own or that of its cause."""
    try:
        call(*args, **kwargs)
    except Exception as error:
        responses = [getattr(one, "response", None) for one in (error, error.__cause__)]
        return type(error).__name__, next((one.status_code for one in responses if one is not None), None)
    return "none", None


def commit():
    return create_commit(**ROWS, operations=[CommitOperationAdd("x.txt", b"x")], commit_message="a file")


@pytest.fixture
def repo(hub):
    """A data set repo with one file, which no client has put there."""
    repo = hub.add_repo("datasets/you/rows")
    repo.add("main", "a file", "", repo.files() | {"README.md": b"---\nlicense: mit\n---\n"})
    return repo


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


@pytest.mark.parametrize(
    ("fault", "raised", "in_effect"),
    [
        ({"status": 403}, ("HfHubHTTPError", 403), False),
        ({"status": 404, "headers": {"X-Error-Code": "RevisionNotFound"}}, ("RevisionNotFoundError", 404), False),
        ({"status": 500, "applied": True}, ("HfHubHTTPError", 500), True),
        ({}, ("RemoteProtocolError", None), False),
        ({"applied": True}, ("RemoteProtocolError", None), True),
        ({"delay": 0.2}, ("none", None), True),
    ],
)
def test_a_commit_that_fails_is_not_sent_again_and_may_be_in_effect(hub, repo, fault, raised, in_effect):
    hub.fault("/commit/main", **fault)
    assert failure(commit) == raised
    assert ("x.txt" in repo.files()) == in_effect
    assert sum("/commit/" in request for request in hub.requests) == 1
    assert failure(commit) == ("none", None)
    assert repo.files()["x.txt"] == b"x"
