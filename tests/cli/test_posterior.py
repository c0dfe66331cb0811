"""`trl-vade posterior`: on output directories of the real sampler, and on a stand-in of the Hub."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st

from tests.support.commands import run, said
from tests.support.posteriors import make_table
from trl_vade import ThompsonSampler, save_snapshot
from trl_vade.cli.commands import print_columns, print_table
from trl_vade.cli.showing import both_ends, summarise_posterior
from trl_vade.data.columns import pass_rates
from trl_vade.data.row_keys import dataset_fingerprint, sample_keys
from trl_vade.hub.posteriors.repository import load_posterior

ROWS = 12


def make_rows():
    return Dataset.from_dict({"id": [f"q-{row}" for row in range(ROWS)], "prompt": ["What is 1 + 1?"] * ROWS})


def write_posterior(folder, rows, *, step=100, solved=lambda row: row / ROWS, batches=3):
    """An output directory of a run in which row i is solved in `solved(i)` of the tries; the last is never scored."""
    sampler = ThompsonSampler(len(rows), seed=3, decay_sampled=1.0)
    chosen = np.arange(len(rows) - 1)
    for _ in range(batches):
        sampler.draw(len(chosen))
        sampler.observe(chosen, [8 * solved(row) for row in chosen], [8] * len(chosen))
    keys = sample_keys(rows)
    run = {"global_step": step, "rollouts": batches * 8 * len(chosen)}
    metadata = {"success_reward": "accuracy_reward", "sampler": "thompson", "run": run}
    metadata["dataset_fingerprint"] = dataset_fingerprint(keys)
    save_snapshot(folder, sampler, metadata=metadata, sample_key=keys)
    return folder


@pytest.fixture
def output_dir(tmp_path):
    return write_posterior(tmp_path / "out", make_rows())


def done(result):
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def test_show_prints_facts_histogram_and_rows(output_dir):
    text = done(run("posterior", "show", output_dir))
    for expected in ("accuracy_reward", "11 of 12", "How many rows have which pass rate", "0.9 to 1.0", "thompson"):
        assert expected in text
    names = load_posterior(output_dir).sample_id
    assert [word for word in text.split() if word in names] == names
    words = done(run("posterior", "show", output_dir, "--rows", 5)).split("lowest")[1].split()
    assert [word for word in words if word in (*names, "...")][:6] == [*names[:3], "...", "...", "..."]
    assert "lowest" not in done(run("posterior", "show", output_dir, "--rows", 0))


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
    assert (told["rows"], told["num_samples"]) == (11, 12)
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


def test_a_summary_worked_out_by_hand_and_one_of_no_rows():
    table = make_table({"hard": (0, 8), "even": (3, 3), "easy": (8, 0), "also even": (0, 0)}, num_samples=9)
    assert summarise_posterior(table) == {
        **{"rows": 4, "num_samples": 9, "mean_visits": 2.5, "most_visits": 4},
        **dict.fromkeys(("mean_pass_rate", "median_pass_rate"), pytest.approx(0.5)),
        "histogram": [0, 1, 0, 0, 0, 2, 0, 0, 0, 1],
    }
    first, last = both_ends(table, 4, "")
    assert [record["sample_id"] for record in first + last] == ["hard", "also even", "even", "easy"]
    summary = summarise_posterior(make_table({}))
    assert (summary["rows"], summary["mean_pass_rate"], sum(summary["histogram"])) == (0, None, 0)


@given(st.integers(0, 12), st.integers(0, 15))
def test_both_ends_are_as_many_rows_as_asked_for_and_none_twice(rows, count):
    first, last = both_ends(make_table({f"{row:02}": (row, 0) for row in range(rows)}), count, "")
    shown = [record["index"] for record in first + last]
    assert len(shown) == len(set(shown)) == min(rows, count)
    assert sorted(shown) == shown
    assert 0 <= len(first) - len(last) <= 1
    assert not first or shown[0] == 0
    assert not last or shown[-1] == rows - 1


def test_data_is_printed_as_it_is_and_is_no_markup(capsys):
    for name in ("[bold]b[/bold]", ":smile:", "[/]"):
        print_columns("Rows", ["row"], [[name]])
        print_table("Rows", [(name, name)])
        assert capsys.readouterr().out.count(name) == 3


def test_the_column_that_is_exported_is_where_the_next_run_starts(tmp_path):
    rows = make_rows()
    write_posterior(tmp_path / "run", rows)
    assert run("posterior", "show", str(tmp_path / "run"), "--export", str(tmp_path / "rates.parquet")).exit_code == 0
    column = pq.read_table(tmp_path / "rates.parquet")["pass_rate"].to_pylist()
    assert (len(column), column[-1]) == (ROWS, None)
    found = pass_rates(rows.add_column("pass_rate", column), "pass_rate")
    assert found[:-1].tolist() == load_posterior(tmp_path / "run").pass_rate.tolist()
