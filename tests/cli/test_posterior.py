"""`trl-vade posterior`: on output directories of the real sampler, and on a stand-in of the Hub."""

import json
from contextlib import nullcontext
from typing import get_args

import numpy as np
import pyarrow.parquet as pq
import pytest
from datasets import ClassLabel, Dataset, DatasetDict
from huggingface_hub import HfApi

from tests.support.commands import run, said
from tests.support.hub import offline
from trl_vade import ThompsonSampler, save_snapshot
from trl_vade.cli.posterior import Sort
from trl_vade.data.row_keys import dataset_fingerprint, sample_keys
from trl_vade.hub.posteriors.repository import load_posterior
from trl_vade.hub.posteriors.table import TYPES

ROWS = 12
TITLE = "The rows, from the lowest pass_rate to the highest"


def make_rows(count=ROWS, **changes):
    columns = {
        "id": [f"q-{row}" for row in range(count)],
        "prompt": [f"What is {row} + 1?" for row in range(count)],
        "task": ["algebra" if row % 2 else "geometry" for row in range(count)],
    }
    return Dataset.from_dict(columns | changes)


def write_posterior(folder, rows, *, step=100, solved=lambda row: row / ROWS, batches=3):
    """An output directory of a run in which row i is solved in `solved(i)` of the tries; the last is never scored."""
    sampler = ThompsonSampler(len(rows), seed=3, decay_sampled=1.0)
    chosen = np.arange(len(rows) - 1)
    for _ in range(batches):
        sampler.draw(len(chosen))
        sampler.observe(chosen, [8 * solved(row) for row in chosen], [8] * len(chosen))
    keys, _ = sample_keys(rows)
    metadata = {
        "success_reward": "accuracy_reward",
        "sampler": "thompson",
        "dataset_fingerprint": dataset_fingerprint(keys),
        "run": {"global_step": step, "rollouts": batches * 8 * len(chosen)},
    }
    save_snapshot(folder, sampler, metadata=metadata, sample_key=keys)
    return folder


@pytest.fixture
def output_dir(tmp_path):
    return write_posterior(tmp_path / "out", make_rows())


def done(result):
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def first_words(text, title):
    """The first word of each line below `title`, up to the next gap of the output."""
    lines = text.split(title)[1].splitlines()
    return [line.split()[0] for line in lines if line.split()]


def test_show_prints_facts_histogram_and_rows(output_dir):
    text = done(run("posterior", "show", output_dir))
    for expected in ("accuracy_reward", "11 of 12", "How many rows have which pass rate", "0.9 to 1.0", "thompson"):
        assert expected in text
    names = load_posterior(output_dir).sample_id
    assert [word for word in first_words(text, TITLE) if word in names] == names
    words = first_words(done(run("posterior", "show", output_dir, "--rows", 5)), TITLE)
    assert [word for word in words if word in (*names, "...")] == [*names[:3], "...", *names[-2:]]
    assert "lowest beta" in done(run("posterior", "show", output_dir, "--sort", "beta"))
    assert "lowest" not in done(run("posterior", "show", output_dir, "--rows", 0))
    assert {*get_args(Sort)} == {*TYPES} - {"task"}


@pytest.mark.parametrize("checkpoint", [False, True])
def test_show_names_rows_by_the_id_and_the_question_that_their_run_keeps(output_dir, checkpoint, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    keys = load_posterior(output_dir).sample_id
    kept = {str(row): {"key": key, "id": f"{'long ' * 100}{row}"} for row, key in enumerate(keys)}
    kept["0"] = {"key": keys[0], "id": "first", "question": "How many?"}
    kept["1"] = {"key": keys[1], "question": "\x1b[2J\u202e" + "q" * 999}
    (output_dir / "vade_rows.json").write_text(json.dumps({"rows": kept}))
    source = write_posterior(output_dir / "checkpoint-100", make_rows()) if checkpoint else output_dir
    text = done(run("posterior", "show", source))
    assert keys[0] not in text
    assert {"first", keys[1]} <= {*text.split()}
    assert "How many?" in text
    assert not {"\x1b", "\u202e"} & {*text}
    assert text.count("q") < 60 * len(keys)
    assert max(map(len, text.splitlines())) <= 120
    records = json.loads(done(run("posterior", "show", source, "--json")))
    [first] = [each for each in records["lowest"] + records["highest"] if each["sample_id"] == "first"]
    assert first["question"] == "How many?"


def test_show_for_other_programs_is_json_alone(output_dir):
    told = json.loads(done(run("posterior", "show", output_dir, "--json", "--rows", 2)))
    assert (told["rows"], told["num_samples"], told["sorted_by"]) == (11, 12, "pass_rate")
    assert sum(told["histogram"]) == 11
    assert told["facts"]["global_step"] == 100
    assert [told["lowest"][0]["index"], told["highest"][0]["index"]] == [0, 10]


def test_a_source_that_is_not_there_ends_with_one_message(tmp_path, hub, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = said(run("posterior", "show", "nowhere"), 2, "nowhere")
    assert hub.requests == []
    assert text.startswith("Error: ")
    assert text.count("\n") == 1


def test_a_posterior_goes_to_the_hub_and_comes_back_the_same(output_dir, hub):
    assert "Published: " in done(run("posterior", "push", output_dir, "you/posterior", "--private"))
    assert hub.repos["datasets/you/posterior"].private
    there, here = load_posterior("you/posterior"), load_posterior(output_dir)
    assert there.sample_id == here.sample_id
    np.testing.assert_array_equal(there.alpha, here.alpha)


def shown(hub, tmp_path, repo="you/posterior"):
    """The table that people see of the newest step."""
    _, content = max((path, data) for path, data in hub.repos[f"datasets/{repo}"].files().items() if "parquet" in path)
    (tmp_path / "shown.parquet").write_bytes(content)
    return pq.read_table(tmp_path / "shown.parquet").to_pydict()


def test_steps_are_told_apart_by_step_revision_and_at_sign(tmp_path, hub):
    rows = make_rows()
    for step in (100, 200):
        folder = write_posterior(tmp_path / f"out-{step}", rows, step=step)
        done(run("posterior", "push", folder, "you/posterior"))
    for source in (["you/posterior"], ["you/posterior@step-000200"], ["you/posterior", "--step", 200]):
        assert json.loads(done(run("posterior", "show", *source, "--json")))["facts"]["global_step"] == 200
    for source in (["you/posterior@step-000100"], ["you/posterior", "--revision", "step-000100"]):
        assert json.loads(done(run("posterior", "show", *source, "--json")))["facts"]["global_step"] == 100


@pytest.mark.parametrize("split", [None, "validation"])
def test_rows_are_named_by_the_data_set_where_it_is_given(output_dir, hub, tmp_path, split):
    rows = make_rows()
    saved = rows if split is None else DatasetDict({"train": make_rows(3), split: rows})
    saved.save_to_disk(tmp_path / "data")
    flags = ["--dataset", tmp_path / "data", *([] if split is None else ["--split", split])]
    done(run("posterior", "push", output_dir, "you/posterior", *flags))
    table = shown(hub, tmp_path)
    assert table["sample_id"] == [f"q-{row}" for row in range(ROWS - 1)]
    assert table["task"][:2] == ["geometry", "algebra"]
    assert str(tmp_path) not in hub.repos["datasets/you/posterior"].files()["README.md"].decode()


def test_a_data_set_of_the_hub_is_named_on_the_card(output_dir, hub, tmp_path):
    api, lines = HfApi(), "".join(json.dumps(row) + "\n" for row in make_rows())
    where = {"repo_id": "you/rows", "repo_type": "dataset"}
    api.create_repo(**where)
    api.upload_file(path_or_fileobj=lines.encode(), path_in_repo="train.jsonl", **where)
    for name in ("you/rows", "you/rows@main"):
        done(run("posterior", "push", output_dir, "you/posterior", "--dataset", name))
        card = hub.repos["datasets/you/posterior"].files()["README.md"].decode()
        assert shown(hub, tmp_path)["sample_id"][0] == "q-0"
        assert "| `dataset` | [you/rows](" in card
        assert ("| `dataset_revision` | `main` |" in card) == name.endswith("@main")


def test_tasks_are_names_and_may_be_in_another_column(output_dir, hub, tmp_path):
    rows = make_rows(level=["low", "high", None] * 4)
    rows.cast_column("task", ClassLabel(names=["algebra", "geometry"])).save_to_disk(tmp_path / "data")
    flags = ["--dataset", tmp_path / "data"]
    done(run("posterior", "push", output_dir, "you/one", *flags))
    assert shown(hub, tmp_path, "you/one")["task"][:2] == ["geometry", "algebra"]
    done(run("posterior", "push", output_dir, "you/two", *flags, "--task_column", "level"))
    assert shown(hub, tmp_path, "you/two")["task"][:3] == ["low", "high", None]


def test_a_data_set_that_is_another_or_cannot_be_loaded_is_refused_before_anything_is_sent(output_dir, hub, tmp_path):
    make_rows().save_to_disk(tmp_path / "data")
    make_rows(ROWS - 1).save_to_disk(tmp_path / "fewer")
    make_rows(id=[f"q-{ROWS - row}" for row in range(ROWS)]).save_to_disk(tmp_path / "turned")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "train.jsonl").write_text('{"prompt": "x"}\n{oops')
    for name, *words in (
        ("fewer", "fingerprints", "fewer"),
        ("turned", "fingerprints", "turned"),
        ("bad", "bad"),
        ("data --split trian", "--split", "trian", "'train'"),
        ("data --task_column levle", "--task_column", "levle", "task"),
    ):
        flags = f"{tmp_path}/{name}".split()
        said(run("posterior", "push", output_dir, "you/posterior", "--dataset", *flags), 2, *words)
    assert hub.requests == []
    said(run("posterior", "push", output_dir, "you/posterior", "--dataset", "you/none"), 2, "you/none")


@pytest.mark.parametrize("place", ["a checkpoint", "the Hub", "the client's cache"])
def test_a_pulled_posterior_is_the_same_and_a_run_can_start_from_it(output_dir, hub, tmp_path, place):
    source, names = output_dir, load_posterior(output_dir).sample_id
    if place != "a checkpoint":
        make_rows().save_to_disk(tmp_path / "data")
        done(run("posterior", "push", output_dir, "you/posterior", "--dataset", tmp_path / "data"))
        source = "you/posterior"
    if place == "the Hub":
        names = [f"q-{row}" for row in range(ROWS - 1)]  # which are in its table alone
    if place == "the client's cache":
        load_posterior(source)
    with offline() if place == "the client's cache" else nullcontext():
        said_so = done(run("posterior", "pull", source, tmp_path / "pulled"))
    assert str(tmp_path / "pulled" / "step-000100") in said_so
    np.testing.assert_array_equal(load_posterior(tmp_path / "pulled").alpha, load_posterior(output_dir).alpha)
    table = pq.read_table(tmp_path / "pulled" / "step-000100" / "posterior.parquet")
    assert table["sample_id"].to_pylist() == names
