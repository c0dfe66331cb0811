"""A posterior is found wherever it is: here, on the Hub, in the client's cache; and an error says where it was not."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

from tests.support.hub import offline
from tests.support.posteriors import same, stage, table_in, trained
from tests.support.refusals import refused
from trl_vade import ThompsonSampler, save_snapshot
from trl_vade.errors import ConfigurationError, SnapshotCorruptError, SnapshotMismatchError, SnapshotNotFoundError
from trl_vade.hub.posteriors.repository import load_posterior

OF_100, OF_200 = (f"step-000{step}/vade_posterior.safetensors" for step in (100, 200))


@pytest.fixture(scope="module")
def staged(tmp_path_factory):
    """A folder of the shared layout: step 200 has 24 rows and is the newest, step 100 has 12."""
    return stage(tmp_path_factory.mktemp("staged") / "posterior", (100, 12), (200, 24))


@pytest.fixture
def posterior(staged, tmp_path):
    """A copy of it that may be changed."""
    return shutil.copytree(staged, tmp_path / "posterior")


def test_of_a_folder_the_newest_step_is_read_and_another_one_on_request(posterior):
    here = table_in(posterior / OF_200)
    same(load_posterior(posterior), replace(here, metadata=here.metadata | {"source": str(posterior)}))
    assert load_posterior(str(posterior), step=100).metadata["global_step"] == 100


def test_a_step_can_be_named_by_its_folder_or_file_and_files_that_were_mixed_up_are_refused(posterior):
    for named in ("step-000100", OF_100):
        assert len(load_posterior(posterior / named)) == len(load_posterior(posterior / named, step=100)) == 12
        with refused(SnapshotCorruptError, [posterior / OF_100, "100", "200"]):
            load_posterior(posterior / named, step=200)
    shutil.copy(posterior / OF_200, posterior / OF_100)
    for source, step in ((posterior, 100), (posterior / "step-000100", None), (posterior / OF_100, None)):
        with refused(SnapshotCorruptError, [posterior / OF_100, "200", "100"]):
            load_posterior(source, step=step)


def test_what_is_not_there_or_not_to_be_known_is_refused(posterior, tmp_path):
    (tmp_path / "empty").mkdir()
    save_snapshot(tmp_path / "unnamed", trained(ThompsonSampler(10)))
    with refused(SnapshotNotFoundError, [posterior, "step-000150"], ["step-000100", "step-000200"]):
        load_posterior(posterior, step=150)
    with refused(SnapshotNotFoundError, [tmp_path], ["step-000100", "vade_posterior.safetensors"]):
        load_posterior(tmp_path / "empty")
    with refused(SnapshotMismatchError, ["sample_key"]):
        load_posterior(tmp_path / "unnamed")
    with refused(ConfigurationError, ["step-000100", 200]):
        load_posterior("you/posterior@step-000100", step=200)
    table = posterior / "step-000100" / "posterior.parquet"  # is for other programs
    with refused(SnapshotNotFoundError, [table, "vade_posterior.safetensors"]):
        load_posterior(table)


def test_a_checkpoint_has_the_counts_of_its_sampler_and_no_other_step(tmp_path):
    sampler = trained(ThompsonSampler(10))
    for folder, step in ((tmp_path, 80), (tmp_path / "checkpoint-40", 40)):
        save_snapshot(folder, sampler, metadata={"run": {"global_step": step}}, sample_key=np.arange(10))
    table = load_posterior(tmp_path / "checkpoint-40")
    np.testing.assert_array_equal(table.alpha, sampler.posterior.alpha[table.index])
    assert (table.metadata["global_step"], table.metadata["source"]) == (40, str(tmp_path / "checkpoint-40"))
    assert [load_posterior(tmp_path, step=step).metadata["global_step"] for step in (None, 80)] == [80, 80]
    with refused(SnapshotCorruptError, [tmp_path, "80", "40"], ["checkpoint"]):
        load_posterior(tmp_path, step=40)


@pytest.fixture
def shared(hub, staged):
    """The repository you/posterior, in which step 200 came after step 100, and the files of it."""
    both = {file.relative_to(staged).as_posix(): file.read_bytes() for file in staged.rglob("*.*") if file.is_file()}
    repo = hub.add_repo("datasets/you/posterior")
    repo.add("main", "step 100", "", {OF_100: both[OF_100]})
    repo.add("main", "step 200", "", both)
    return repo, both


def found(source, step=None):
    table = load_posterior(source, step=step)
    return [len(table), *(table.metadata[name] for name in ("global_step", "source", "revision"))]


def test_a_repository_has_the_newest_step_and_those_that_are_named_with_a_network_and_without(shared, hub):
    repo, _ = shared
    first = next(commit.oid for commit in repo.history() if commit.title == "step 100")

    def check():
        assert found("you/posterior") == [24, 200, "you/posterior", repo.commit().oid]
        for source, step in (("you/posterior@step-000100", None), ("you/posterior", 100)):
            assert found(source, step=step) == [12, 100, "you/posterior", repo.commit().oid]
        assert found(f"you/posterior@{first}") == [12, 100, "you/posterior", first]

    check()
    with offline():
        check()
        for source, step in (("you/nothing", None), ("you/posterior", 150)):
            with refused(SnapshotNotFoundError, [f"data-set repository {source}"], ["HF_HUB_OFFLINE"]):
                load_posterior(source, step=step)
    hub.fault("/datasets/you/posterior", status=501, times=99)
    check()


def test_the_error_says_what_was_looked_for_where(shared, hub, monkeypatch):
    _, both = shared
    hub.add_repo("you/model").add("main", "a run", "", {"README.md": b"# A model"})
    hub.add_repo("datasets/you/secret", private=True).add("main", "hidden", "", both)
    hub.add_repo("datasets/you/questions").add("main", "rows", "", {"README.md": b"# Questions"})
    hub.add_repo("datasets/you/busy").add("main", "step 200", "", both)
    hub.fault("/datasets/you/busy", status=501, times=99)
    hub.add_repo("datasets/you/damaged").add("main", "cut", "", both | {OF_200: both[OF_200][:1000]})
    monkeypatch.delenv("HF_TOKEN")
    for source, names, offers in (
        ("you/posterior@seed-3", ["Revision", "branch seed-3"], []),
        ("you/model", [], ["`hf download you/model vade_posterior.safetensors --local-dir FOLDER`"]),
        ("you/nothing", [], ["login"]),
        ("you/secret", [], ["login"]),
        ("you/questions", ["step-000100"], []),
        ("you/busy", ["501"], ["cache"]),
    ):
        with refused(SnapshotNotFoundError, [f"data-set repository {source.split('@')[0]}", *names], offers):
            load_posterior(source)
    with refused(SnapshotNotFoundError, ["step-000150", "step-000100", "step-000200"]):
        load_posterior("you/posterior", step=150)
    with refused(SnapshotCorruptError, [OF_200]):
        load_posterior("you/damaged")
