"""A posterior is found wherever it is: here, on the Hub, in the client's cache; and an error says where it was not."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from huggingface_hub import constants

from tests.support.loopback_hub import LoopbackHub, run_client
from tests.support.posteriors import RUN, example_table, same, stage, trained
from tests.support.refusals import refused, says
from trl_vade import ThompsonSampler, save_snapshot
from trl_vade.errors import ConfigurationError, SnapshotCorruptError, SnapshotMismatchError, SnapshotNotFoundError
from trl_vade.hub.posteriors.repository import CARD_FILE, render_posterior_card, table_path
from trl_vade.hub.posteriors.source import load_posterior, split_source
from trl_vade.hub.posteriors.table import read_table, write_table


def save_checkpoint(folder, step=40):
    sampler = trained(ThompsonSampler(10))
    save_snapshot(folder, sampler, metadata=RUN | {"run": {"global_step": step}}, sample_key=np.arange(10))
    return sampler


@pytest.fixture(scope="module")
def staged(tmp_path_factory):
    """A folder of the shared layout: step 200 has 24 rows and is the newest, step 100 has 12."""
    return stage(tmp_path_factory.mktemp("staged") / "posterior", example_table(100, size=12), example_table(200))


@pytest.fixture
def posterior(staged, tmp_path):
    """A copy of it that may be changed."""
    return shutil.copytree(staged, tmp_path / "posterior")


def with_card(folder, metadata):
    (folder / CARD_FILE).write_text(f"---\n{metadata}\n---\n# Notes\n", encoding="utf-8")
    return folder


# ------------------------------------------------------------------------------------------------------------ here


def place(path):
    return {"source": str(path)}


def test_of_a_folder_the_newest_step_is_read_and_another_one_on_request(posterior):
    same(load_posterior(posterior), replace(example_table(), metadata=example_table().metadata | place(posterior)))
    assert load_posterior(str(posterior), step=100).metadata["global_step"] == 100


def test_the_newest_is_the_one_that_the_card_says(posterior):
    """After a resume from step 50 the newest table has a lower number than that of the run which was given up."""
    card = render_posterior_card(example_table(100), [100, 200], "you/posterior")
    (posterior / CARD_FILE).write_text(card, encoding="utf-8")
    assert load_posterior(posterior).metadata["global_step"] == 100


@pytest.mark.parametrize(
    "metadata",
    [
        "pretty_name: no configs",
        "configs: 7",
        "configs: [7, {data_files: 3}]",
        "configs: [{config_name: latest, data_files: ../../secret.parquet}]",
        "configs: [{config_name: latest, data_files: step-000999/posterior.parquet}]",
        "configs: [",
        "- a list",
    ],
)
def test_a_card_that_names_none_of_the_steps_leaves_the_highest(posterior, metadata):
    assert load_posterior(with_card(posterior, metadata)).metadata["global_step"] == 200
    (posterior / CARD_FILE).unlink()
    assert load_posterior(posterior).metadata["global_step"] == 200


@pytest.mark.parametrize(
    "files",
    ["step-000100/posterior.parquet", "[step-000100/posterior.parquet]", "{train: step-000100/posterior.parquet}"],
)
def test_data_files_may_be_written_in_any_way_that_datasets_reads(posterior, files):
    card = f"configs: [{{config_name: mine, default: true, data_files: {files}}}]"
    assert load_posterior(with_card(posterior, card)).metadata["global_step"] == 100


@pytest.mark.parametrize(
    ("first", "second", "newest"),
    [
        ("mine, data_files: B", "latest, data_files: A, default: true", 100),
        ("latest, data_files: A", "mine, data_files: B, default: yes", 200),
        ("latest, data_files: A, default: false", "mine, data_files: B", 100),
        ("mine, data_files: B", "latest, data_files: A", 100),
        ("mine, data_files: A", "other, data_files: B", 200),
    ],
)
def test_the_default_of_a_card_counts_then_latest_then_the_highest_wherever_they_stand(
    posterior, first, second, newest
):
    card = f"configs:\n- {{config_name: {first}}}\n- {{config_name: {second}}}"
    card = card.replace("A", table_path(100)).replace("B", table_path(200))
    assert load_posterior(with_card(posterior, card)).metadata["global_step"] == newest
    in_lines = card.replace("{", "").replace("}", "").replace(", ", "\n  ")
    assert load_posterior(with_card(posterior, in_lines)).metadata["global_step"] == newest


def test_a_step_that_is_not_there_is_refused_with_those_that_are(posterior):
    with refused(SnapshotNotFoundError, [posterior, "step-000150/posterior.parquet"], ["step-000100", "step-000200"]):
        load_posterior(posterior, step=150)


def test_tables_that_were_mixed_up_are_refused(posterior):
    shutil.copy(posterior / table_path(200), posterior / table_path(100))
    with refused(SnapshotCorruptError, [posterior / table_path(100), "200", "100"]):
        load_posterior(posterior, step=100)


def test_a_single_table_can_be_named(posterior):
    assert len(load_posterior(posterior / table_path(100))) == 12
    with refused(SnapshotCorruptError, [posterior / table_path(100), "100", "200"]):
        load_posterior(posterior / table_path(100), step=200)


def test_the_folder_of_a_step_can_be_named(posterior):
    step = posterior / "step-000100"
    assert len(load_posterior(step)) == len(load_posterior(step, step=100)) == 12
    with refused(SnapshotCorruptError, [step / "posterior.parquet", "100", "200"]):
        load_posterior(step, step=200)


def test_a_slip_in_a_path_is_not_taken_for_a_repository(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    with refused(SnapshotNotFoundError, ["run", "checkpoint-99"], ["run/checkpoint-99@main"]):
        load_posterior("run/checkpoint-99")
    for meant in (("run/checkpoint-99@main",), ("run/checkpoint-99", "main")):
        with refused(SnapshotNotFoundError, ["dataset repository run/checkpoint-99@main"]):
            load_posterior(*meant)


@pytest.mark.parametrize("ending", [".csv", ".jsonl"])
def test_an_export_for_other_programs_is_not_read_back(tmp_path, ending):
    (tmp_path / f"rows{ending}").write_text("sample_id,alpha,beta\n")
    with refused(ConfigurationError, [tmp_path / f"rows{ending}"], [".parquet"]):
        load_posterior(tmp_path / f"rows{ending}")


@pytest.mark.parametrize(
    "metadata",
    ["configs: &a [*a]", "b: &b [x, x]\nconfigs: [*b, *b]", f"configs: {'[' * 100_000}", f"configs: [{'x' * 2**21}"],
    ids=["its own part", "an alias", "deep", "long"],
)
def test_a_card_that_could_hang_a_reader_of_yaml_leaves_the_highest(posterior, metadata):
    assert load_posterior(with_card(posterior, metadata)).metadata["global_step"] == 200


def test_only_the_metadata_of_a_card_name_the_newest_step(posterior):
    (posterior / CARD_FILE).write_bytes(b"\xff\xfe # Notes\n---\nconfigs: step-000100/posterior.parquet\n---\n")
    assert load_posterior(posterior).metadata["global_step"] == 200


def test_a_table_that_lost_its_step_is_taken_for_that_of_its_folder(posterior):
    write_table(replace(read_table(posterior / table_path(100)), metadata={}), posterior / table_path(100))
    assert load_posterior(posterior, step=100).metadata == place(posterior)


def test_a_checkpoint_has_the_counts_of_its_sampler(tmp_path):
    sampler = save_checkpoint(tmp_path / "checkpoint-40")
    table = load_posterior(tmp_path / "checkpoint-40")
    np.testing.assert_array_equal(table.alpha, sampler.posterior.alpha[table.index])
    assert table.metadata["global_step"] == 40
    assert table.metadata["source"] == str(tmp_path / "checkpoint-40")


def test_of_an_output_directory_the_last_save_is_read_and_a_checkpoint_by_its_step(tmp_path):
    save_checkpoint(tmp_path, 80)
    save_checkpoint(tmp_path / "checkpoint-40", 40)
    assert [load_posterior(tmp_path, step=step).metadata["global_step"] for step in (None, 80, 40)] == [80, 80, 40]
    with refused(SnapshotNotFoundError, [tmp_path, "60"], ["step-000060"]):
        load_posterior(tmp_path, step=60)


def test_a_snapshot_without_keys_says_what_is_missing(tmp_path):
    save_snapshot(tmp_path, trained(ThompsonSampler(10)))
    with refused(SnapshotMismatchError, ["sample_key"], ["sample_id"]):
        load_posterior(tmp_path)


def test_a_folder_without_a_posterior_says_what_was_looked_for(tmp_path):
    with refused(SnapshotNotFoundError, [tmp_path], ["step-000100", "vade_posterior.safetensors"]):
        load_posterior(tmp_path)


def test_a_folder_has_no_revisions(posterior):
    with refused(ConfigurationError, [posterior, "revision main"]):
        load_posterior(posterior, "main")


# ---------------------------------------------------------------------------------------------------- what is named


def test_a_repository_is_named_with_its_revision():
    assert split_source("you/posterior") == ("you/posterior", None)
    assert split_source("you/posterior@refs/pr/1") == ("you/posterior", "refs/pr/1")
    for wrong in ("you/posterior@", "@main"):
        with refused(ConfigurationError, [wrong], ["user/name@revision"]):
            split_source(wrong)


def test_two_revisions_that_differ_are_refused():
    with refused(ConfigurationError, ["you/posterior@step-000100", "revision='main'"]):
        load_posterior("you/posterior@step-000100", "main")


def test_what_is_neither_here_nor_a_name_of_the_hub_is_said_to_be_both(tmp_path):
    for name in (tmp_path / "none", "a/b/c", "../nothing-of-this-name", ""):
        with refused(SnapshotNotFoundError, [name], ["user/name"]):
            load_posterior(name)


def test_offline_without_a_copy_the_error_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with refused(SnapshotNotFoundError, ["you/posterior"], ["HF_HUB_OFFLINE"]):
        load_posterior("you/posterior")


# --------------------------------------------------------------------------------------------------------- the Hub

LOAD = """
import json
from trl_vade.errors import VADEError
from trl_vade.hub.posteriors.source import load_posterior

outcomes = []
for arguments, options in json.load(open("cases.json")):
    try:
        table = load_posterior(*arguments, **options)
        outcomes.append([len(table), *(table.metadata[name] for name in ("global_step", "source", "revision"))])
    except VADEError as error:
        outcomes.append(f"{type(error).__name__}: {error}")
print(json.dumps(outcomes))
"""
CASES = {
    "the newest": (["you/posterior"], {}),
    "a tag": (["you/posterior@step-000100"], {}),
    "a tag as an argument": (["you/posterior", "step-000100"], {}),
    "a step": (["you/posterior"], {"step": 100}),
    "no such step": (["you/posterior"], {"step": 150}),
    "no such revision": (["you/posterior@step-000300"], {}),
    "a model": (["you/model"], {}),
    "a model with a checkpoint": (["you/resumable"], {}),
    "a step of a model": (["you/model"], {"step": 80}),
    "no such repository": (["you/nothing"], {}),
    "a hidden repository": (["you/secret"], {}),
    "another data set": (["you/questions"], {}),
    "a data set that the Hub cannot show now": (["you/busy"], {}),
    "a damaged table": (["you/damaged"], {}),
}


def contents(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def on_the_hub(staged, tmp_path_factory):
    """What a client without a login gets in each of the `CASES`; the folder of its cache; and the repositories."""
    folder = tmp_path_factory.mktemp("hub")
    both = contents(staged)
    card = render_posterior_card(example_table(100), [100], "you/posterior")
    first = {CARD_FILE: card.encode(), table_path(100): both[table_path(100)]}
    save_checkpoint(folder / "checkpoint")
    snapshot = contents(folder / "checkpoint")
    with LoopbackHub() as hub:
        posterior = hub.add_repo("datasets/you/posterior")
        posterior.tags["step-000100"] = posterior.add("main", "step 100", "", first)
        posterior.add("main", "step 200", "", both)
        hub.add_repo("you/posterior").add("main", "a model of the same name", "", snapshot)
        hub.add_repo("you/model").add("main", "a run", "", snapshot | {"README.md": b"# A model"})
        hub.add_repo("you/resumable").add("main", "a run", "", {f"last-checkpoint/{n}": snapshot[n] for n in snapshot})
        hub.add_repo("datasets/you/secret", private=True).add("main", "hidden", "", both)
        hub.add_repo("datasets/you/questions").add("main", "rows", "", {"README.md": b"# Questions"})
        hub.add_repo("datasets/you/busy").add("main", "step 200", "", both)
        hub.add_repo("you/busy").add("main", "a run", "", snapshot)
        hub.fault("/datasets/you/busy/", status=501, times=99)
        cut = both | {table_path(200): both[table_path(200)][:1000]}
        hub.add_repo("datasets/you/damaged").add("main", "cut short", "", cut)
        (folder / "cases.json").write_text(json.dumps(list(CASES.values())))
        output = run_client(hub, LOAD, folder, token="").stdout
        return dict(zip(CASES, json.loads(output.splitlines()[-1]), strict=True)), folder, dict(hub.repos)


def test_of_a_repository_the_newest_table_comes_with_the_commit_that_it_is_of(on_the_hub):
    outcomes, _, repos = on_the_hub
    assert outcomes["the newest"] == [24, 200, "you/posterior", repos["datasets/you/posterior"].commit().oid]


def test_a_tag_or_a_step_names_an_earlier_one(on_the_hub):
    outcomes, _, repos = on_the_hub
    posterior = repos["datasets/you/posterior"]
    assert outcomes["a tag"] == [12, 100, "you/posterior", posterior.tags["step-000100"]]
    assert outcomes["a tag as an argument"] == outcomes["a tag"]
    assert outcomes["a step"] == [12, 100, "you/posterior", posterior.commit().oid]


def test_a_model_repository_has_its_posterior_at_its_root_or_in_its_checkpoint(on_the_hub):
    outcomes, folder, repos = on_the_hub
    size = len(load_posterior(folder / "checkpoint"))
    assert outcomes["a model"] == [size, 40, "you/model", repos["you/model"].commit().oid]
    assert outcomes["a model with a checkpoint"] == [size, 40, "you/resumable", repos["you/resumable"].commit().oid]


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("no such step", ["dataset repository you/posterior", "step-000150", "step-000100", "step-000200"]),
        ("no such revision", ["dataset repository you/posterior@step-000300", "revision step-000300"]),
        ("a step of a model", ["model repository you/model", "80"]),
        ("no such repository", ["dataset repository you/nothing", "model repository you/nothing", "login"]),
        ("a hidden repository", ["dataset repository you/secret", "login"]),
        ("another data set", ["dataset repository you/questions", "step-000100"]),
        ("a data set that the Hub cannot show now", ["dataset repository you/busy"]),
    ],
)
def test_the_error_says_what_was_looked_for_where(on_the_hub, case, words):
    outcome = on_the_hub[0][case]
    assert outcome.startswith("SnapshotNotFoundError: ")
    assert [word for word in words if not says(outcome, word)] == [], outcome


def test_while_the_data_set_cannot_be_reached_the_model_of_that_name_does_not_step_in(on_the_hub):
    assert not says(on_the_hub[0]["a data set that the Hub cannot show now"], "model repository")


def test_a_damaged_table_is_said_to_be_damaged_and_no_other_is_taken(on_the_hub):
    assert on_the_hub[0]["a damaged table"].startswith("SnapshotCorruptError: ")


def test_without_a_network_the_copies_in_the_cache_are_read(on_the_hub, monkeypatch, tmp_path):
    """This process is offline."""
    outcomes, folder, _ = on_the_hub
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(Path(folder) / "hf_home" / "hub"))
    for case in ("the newest", "a tag", "a step", "a model", "a model with a checkpoint"):
        arguments, options = CASES[case]
        table = load_posterior(*arguments, **options)
        found = table.metadata
        assert [len(table), found["global_step"], found["source"], found["revision"]] == outcomes[case], case
    with refused(SnapshotNotFoundError, ["dataset repository you/nothing"], ["HF_HUB_OFFLINE"]):
        load_posterior("you/nothing")
    cache = Path(folder) / "hf_home" / "hub" / "datasets--you--posterior" / "snapshots"
    shutil.copytree(cache.parent, tmp_path / cache.parent.name, symlinks=True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    for table in tmp_path.rglob("step-000100/posterior.parquet"):
        table.unlink()
    with refused(SnapshotNotFoundError, ["step-000100/posterior.parquet"], ["HF_HUB_OFFLINE"]):
        load_posterior("you/posterior", step=100)
