"""A run that begins with another run's posterior or a column: what is taken over, what is refused, and resumes."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.posteriors import make_table
from tests.support.refusals import refused
from tests.support.rows import make_text_rows, numbered_rows
from tests.support.runs import StopAfter, assert_same_end, make_trainer
from trl_vade import ThompsonSampler
from trl_vade.data.row_keys import sample_keys
from trl_vade.errors import ConfigurationError, SnapshotMismatchError, SnapshotNotFoundError
from trl_vade.hub.posteriors.repository import load_posterior, stage_posterior
from trl_vade.hub.posteriors.table import posterior_table
from trl_vade.samplers.snapshot import POSTERIOR_FILE, load_snapshot
from trl_vade.selection.log import SelectionLog
from trl_vade.selection.report.record import read_run
from trl_vade.selection.report.summary import summarise
from trl_vade.trainer.initial_posterior import evidence, initial_posterior_facts, what_to_say


def keys_of(rows):
    return sample_keys(rows) if len(rows) else np.zeros(0, dtype=np.int64)


def table_of(rows, alpha, beta):
    """The table of the rows of a data set, as another run with it would have saved it."""
    counts = dict(zip(rows["id"], zip(alpha, beta, strict=True), strict=True))
    return replace(make_table(counts), sample_key=keys_of(rows))


def join(table, dataset, min_match=0.0, discount=0.2, source="the posterior"):
    saved = table.sample_key, table.alpha, table.beta
    return evidence(keys_of(dataset), saved, source, discount=discount, min_match=min_match)


COUNTS = st.floats(0, 1e6, allow_subnormal=False)


@settings(deadline=None, derandomize=True, max_examples=25)
@given(data=st.data(), discount=st.floats(0.001, 1), here=st.integers(1, 12), there=st.integers(1, 12))
def test_a_row_begins_with_the_discounted_counts_of_its_namesake_and_all_others_with_the_prior(
    data, discount, here, there
):
    order = data.draw(st.permutations(range(here)))
    counts = [data.draw(st.tuples(COUNTS, COUNTS)) for _ in range(there)]
    table, sampler = table_of(numbered_rows(there), *zip(*counts, strict=True)), ThompsonSampler(here)
    warm = join(table, numbered_rows(here).select(order), discount=discount)
    sampler.take_over(warm.sample_index, warm.successes, warm.trials)
    for place, row in enumerate(order):
        alpha, beta = counts[row] if row < there else (0.0, 0.0)
        expected = (discount * alpha + 1) / (discount * (alpha + beta) + 2)
        assert sampler.posterior.posterior_mean[place] == pytest.approx(expected, rel=1e-9)


def test_too_few_rows_in_common_are_another_data_set():
    for matched in (5, 4, 0):
        table = table_of(numbered_rows(100).select(range(30 - matched, 40 - matched)), [1] * 10, [1] * 10)
        if matched == 5:
            assert len(join(table, numbered_rows(30), 0.5).sample_index) == 5
            continue
        with refused(SnapshotMismatchError, names=["'user/repo'", 10, matched, "50%"], offers=["prior"]):
            join(table, numbered_rows(30), 0.5, source="user/repo")
    nothing = table_of(numbered_rows(1).select([]), [], [])
    with refused(SnapshotMismatchError, names=[0, 5]):
        join(nothing, numbered_rows(5), min_match=0.01)


# ------------------------------------------------------------------------------------------------------ the trainer


@pytest.fixture(scope="module")
def first_run(text_model_path, tmp_path_factory):
    """The output directory of a run over the 24 rows of `make_text_rows`, of which it has seen some."""
    trainer = make_trainer(tmp_path_factory.mktemp("first"), text_model_path, make_text_rows(), max_steps=4, seed=8)
    trainer.train()
    trainer.save_model()
    return trainer.args.output_dir


@pytest.fixture
def warm(run, first_run):
    """`run` that begins with the first run's posterior."""
    return lambda *given, **settings: run(*given, **{"vade_posterior_init": first_run} | settings)


def test_a_run_begins_with_what_the_first_one_knew_says_so_and_its_files_tell_it(warm, first_run, caplog):
    trainer = warm(max_steps=2)
    table = posterior_table(load_snapshot(first_run))
    warm_line, *batches = SelectionLog(trainer.args.output_dir).read()
    assert warm_line["sample_index"] == table.index.tolist()
    assert warm_line["successes"] == pytest.approx(0.2 * table.alpha)
    assert warm_line["trials"] == pytest.approx(0.2 * (table.alpha + table.beta))
    assert warm_line["warm_start"] == "a local posterior"  # the log may be pushed
    assert [line["step"] for line in batches] == [2, 3]
    assert trainer.selection.feedback.rollouts == 2 * 16
    (said,) = [record.getMessage() for record in caplog.records if "Warm start" in record.getMessage()]
    facts, rows = {"global_step": 4, "success_reward": "says_a_digit", "num_generations": 4}, len(table)
    assert 4 < rows < 24
    for part in (f"from {first_run} ({facts})", f"{rows} of its {rows} rows", "20 % of their counts; 0 are not"):
        assert part in said
    assert f"{24 - rows} of the 24 rows here start from the prior" in said
    summary = summarise(read_run(trainer.args.output_dir))
    assert (summary["generation_batches"], summary["rollouts"]) == (2, 32)


def test_a_resume_repeats_the_run_and_needs_no_source(warm, made, first_run, tmp_path):
    source = shutil.copytree(first_run, tmp_path / "source")
    settings = {"vade_posterior_init": str(source), "max_steps": 3}
    parts = settings | {"save_strategy": "steps", "save_steps": 2, "output_dir": tmp_path / "parts"}
    whole = warm(**settings)
    warm(more={"callbacks": [StopAfter(2)]}, **parts)
    shutil.rmtree(source)
    resumed = made(**parts)
    resumed.train(resume_from_checkpoint=True)
    assert_same_end(resumed, whole)
    with refused(SnapshotNotFoundError, names=["source"]):  # begun anew, it needs what is gone
        made(model="/no/model", **settings)
    others = Dataset.from_list([{"prompt": [{"role": "user", "content": f"{i}"}], "limit": 1} for i in range(24)])
    with refused(SnapshotMismatchError, names=[0, 24]):
        warm(rows=others)


def said_of(metadata, shared=24, **here):
    here = {"num_generations": 4, "success_threshold": "auto", "success_reward": "says_a_digit"} | here
    return what_to_say("it", metadata, here, (24, 25, shared), 0.2)


def test_what_was_learned_in_another_way_is_said_with_both_sides(first_run):
    facts = load_posterior(first_run).metadata
    assert len(said_of(facts)) == 1  # the threshold follows from rewards
    _, doubt = said_of(facts, success_threshold=0.25, num_generations=8, success_reward="another")
    for part in ("'success_reward': 'says_a_digit'", "'another'", "'success_threshold': 0.5", "0.25", "4", "8"):
        assert part in doubt


def test_why_rows_were_lost_is_said_where_some_were():
    assert ["`id`" in said_of({}, shared)[0] for shared in (24, 23)] == [False, True]


def test_facts_of_a_strangers_file_make_no_other_line_of_the_log():
    facts = {"base_model": "\x1b[31mevil\nWARNING all is well", "num_generations": "4\n"}
    facts |= {"success_reward": ["\x07\u202e" * 999], "preset": "\x1b"}
    lines = said_of(facts)
    assert all(line.isprintable() and len(line) < 1000 for line in lines)
    assert r"\nWARNING" in lines[0]


def test_a_step_of_a_repository_is_the_same_evidence_as_the_run(text_rows, first_run, tmp_path):
    stage_posterior(tmp_path, Path(first_run) / POSTERIOR_FILE, posterior_table(load_snapshot(first_run)))
    ours, shared = (join(load_posterior(source), text_rows) for source in (first_run, tmp_path))
    assert shared.sample_index.tolist() == ours.sample_index.tolist()
    assert shared.trials.tolist() == ours.trials.tolist()


def test_without_the_column_of_ids_rows_are_known_as_the_run_knows_them(run, warm):
    def right(completions, **columns):
        assert not {"id", "limit"} & columns.keys()  # as in TRL
        return [1.0, 0.0] * (len(completions) // 2)

    hidden = {"remove_unused_columns": True, "max_steps": 1}
    first = run(right, **hidden)
    first.save_model()
    taken_over = warm(right, vade_posterior_init=first.args.output_dir, **hidden).selection.feedback.log.read()[0]
    assert taken_over["sample_index"] == np.flatnonzero(first.selection.sampler.posterior.visits).tolist()


# --------------------------------------------------------------------------------- a column of the training set

RATES = [None if row % 6 == 5 else (row % 6) / 4 for row in range(24)]
COLUMN = {"vade_posterior_init": "column:solve_rate"}


@pytest.fixture
def rated(text_rows):
    return text_rows.add_column("solve_rate", RATES)


def test_each_row_starts_from_its_pass_rate_and_the_others_from_the_prior(run, rated, caplog):
    trainer = run(rows=rated, vade_sampler="greedy", max_steps=1, **COLUMN)
    first, batch = trainer.selection.feedback.log.read()
    known = [row for row, rate in enumerate(RATES) if rate is not None]
    assert (first["warm_start"], first["sample_index"], first["rollouts"]) == ("column:solve_rate", known, 0)
    assert first["trials"] == pytest.approx([8 * 0.2] * len(known))
    assert first["successes"] == pytest.approx([8 * 0.2 * RATES[row] for row in known])
    assert {RATES[row] for row in batch["sample_index"]} == {0.25}  # nearest to a third, where the gain is largest
    assert "20 of 24 rows" in caplog.text
    facts = {"posterior_init": "column:solve_rate", "warm_start_discount": 0.2}
    assert initial_posterior_facts(trainer.args) == facts


def test_a_spread_is_that_of_the_pass_rate(run, rated):
    trainer = run(rows=rated, vade_success_threshold="spread", max_steps=1, **COLUMN)
    first, _ = trainer.selection.feedback.log.read()
    p = np.array([RATES[row] for row in first["sample_index"]])
    assert first["successes"] == pytest.approx(8 * 0.2 * 2 * p * (1 - p))


def test_a_run_from_a_column_resumes_as_if_it_had_not_stopped(run, resumed, rated):
    assert_same_end(resumed(rows=rated, checkpoint=1, max_steps=3, **COLUMN), run(rows=rated, max_steps=3, **COLUMN))


def test_a_column_that_is_none_is_refused_before_the_model_is_loaded(made, make_args, rated):
    for column in ("solved", "id"):
        with refused(ConfigurationError, [f"column:{column}"]):
            made(model="/no/model", rows=rated, vade_posterior_init=f"column:{column}")
    with refused(ConfigurationError, ["vade_posterior_init='column:solve_rate'"]):
        make_args(vade_sampler="uniform", **COLUMN)
