"""A run that begins with another run's posterior: what is taken over, what is refused, that a resume needs none."""

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
from tests.support.runs import SMALL_RUN, StopAfter, assert_same_end, says_a_digit, train
from trl_vade import ThompsonSampler, VADEGRPOConfig, VADEGRPOTrainer, save_snapshot
from trl_vade.data.row_keys import sample_keys
from trl_vade.errors import SnapshotMismatchError, SnapshotNotFoundError
from trl_vade.hub.posteriors.repository import load_posterior, stage_posterior
from trl_vade.hub.posteriors.table import posterior_table
from trl_vade.samplers.snapshot import POSTERIOR_FILE, load_snapshot
from trl_vade.selection.log import SelectionLog
from trl_vade.selection.report.record import read_run
from trl_vade.selection.report.summary import summarise
from trl_vade.trainer.initial_posterior import evidence, what_to_say


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
    args = VADEGRPOConfig(str(tmp_path_factory.mktemp("first")), **SMALL_RUN | {"max_steps": 4, "seed": 8})
    trainer = train(text_model_path, make_text_rows(), args)
    trainer.save_model()
    return trainer.args.output_dir


@pytest.fixture
def warm_args(make_args, first_run):
    """Arguments of a run that begins with the first run's posterior."""
    return lambda **changes: make_args(**{"vade_posterior_init": first_run} | changes)


def warnings_of(caplog):
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def test_a_run_begins_with_what_the_first_one_knew_says_so_and_its_files_tell_it(
    text_model_path, text_rows, warm_args, first_run, caplog
):
    trainer = train(text_model_path, text_rows, warm_args(max_steps=2))
    table = posterior_table(load_snapshot(first_run))
    warm, *batches = SelectionLog(trainer.args.output_dir).read()
    assert warm["sample_index"] == table.index.tolist()
    assert warm["successes"] == pytest.approx(0.2 * table.alpha)
    assert warm["trials"] == pytest.approx(0.2 * (table.alpha + table.beta))
    assert warm["warm_start"] == "a local posterior"  # the log may be pushed
    assert [line["step"] for line in batches] == [2, 3]
    assert trainer.selection.feedback.rollouts == 2 * 16
    (said,) = [message for message in warnings_of(caplog) if "Warm start" in message]
    facts, rows = {"global_step": 4, "success_reward": "says_a_digit", "num_generations": 4}, len(table)
    assert 4 < rows < 24
    for part in (f"from {first_run} ({facts})", f"{rows} of its {rows} rows", "20 % of their counts; 0 are not"):
        assert part in said
    assert f"{24 - rows} of the 24 rows here start from the prior" in said
    summary = summarise(read_run(trainer.args.output_dir))
    assert (summary["generation_batches"], summary["rollouts"]) == (2, 32)


def test_a_resume_repeats_the_run_and_needs_no_source(text_model_path, text_rows, warm_args, first_run, tmp_path):
    source = shutil.copytree(first_run, tmp_path / "source")
    changes = {"vade_posterior_init": str(source), "max_steps": 3}
    whole = train(text_model_path, text_rows, warm_args(output_dir=str(tmp_path / "whole"), **changes))
    saving = {"save_strategy": "steps", "save_steps": 2, "output_dir": str(tmp_path / "parts")}
    parts = warm_args(**changes | saving)
    train(text_model_path, text_rows, parts, callbacks=[StopAfter(2)])
    shutil.rmtree(source)
    resumed = VADEGRPOTrainer(text_model_path, says_a_digit, parts, text_rows)
    resumed.train(resume_from_checkpoint=True)
    assert_same_end(resumed, whole)
    with refused(SnapshotNotFoundError, names=["source"]):  # begun anew, it needs what is gone
        VADEGRPOTrainer("/no/model", says_a_digit, warm_args(**changes, output_dir=str(tmp_path / "new")), text_rows)
    others = Dataset.from_list([{"prompt": [{"role": "user", "content": f"{i}"}], "limit": 1} for i in range(24)])
    with refused(SnapshotMismatchError, names=[0, 24]):
        train(text_model_path, others, warm_args(output_dir=str(tmp_path / "others")))


def said_of(source, rows, args, success_reward):
    table = load_posterior(source)
    here = {"num_generations": args.num_generations, "success_threshold": args.vade_success_threshold}
    here["success_reward"] = success_reward
    return what_to_say(
        str(source), table.metadata, here, (len(table), len(rows), len(join(table, rows).sample_index)), 0.2
    )


def test_what_was_learned_in_another_way_is_said_with_both_sides(text_rows, first_run, warm_args):
    assert len(said_of(first_run, text_rows, warm_args(), "says_a_digit")) == 1  # the threshold follows from rewards
    args = warm_args(vade_success_threshold=0.25, num_generations=8)
    _, doubt = said_of(first_run, text_rows, args, "another")
    for part in ("'success_reward': 'says_a_digit'", "'another'", "'success_threshold': 0.5", "0.25", "4", "8"):
        assert part in doubt


def test_why_rows_were_lost_is_said_where_some_were():
    here = {"num_generations": 4, "success_threshold": "auto", "success_reward": None}
    whole, some = (what_to_say("it", {}, here, (24, 25, shared), 0.2)[0] for shared in (24, 23))
    assert "`id`" in some
    assert "`id`" not in whole


def test_facts_of_a_strangers_file_make_no_other_line_of_the_log(text_rows, warm_args, tmp_path):
    facts = {"base_model": "\x1b[31mevil\nWARNING all is well", "num_generations": "4\n"}
    facts |= {"success_reward": ["\x07\u202e" * 999], "preset": "\x1b"}
    sampler = ThompsonSampler(24)
    sampler.observe(np.arange(24), [1] * 24, [4] * 24)
    save_snapshot(tmp_path, sampler, metadata=facts, sample_key=keys_of(text_rows))
    lines = said_of(tmp_path, text_rows, warm_args(), "right")
    assert all(line.isprintable() and len(line) < 1000 for line in lines)
    assert r"\nWARNING" in lines[0]


def test_a_step_of_a_repository_is_the_same_evidence_as_the_run(text_rows, first_run, tmp_path):
    stage_posterior(tmp_path, Path(first_run) / POSTERIOR_FILE, posterior_table(load_snapshot(first_run)))
    ours, shared = (join(load_posterior(source), text_rows) for source in (first_run, tmp_path))
    assert shared.sample_index.tolist() == ours.sample_index.tolist()
    assert shared.trials.tolist() == ours.trials.tolist()


def test_without_the_column_of_ids_rows_are_known_as_the_run_knows_them(
    text_model_path, text_rows, make_args, tmp_path
):
    def right(completions, **columns):
        assert not {"id", "limit"} & columns.keys()  # as in TRL
        return [1.0, 0.0] * (len(completions) // 2)

    hidden = {"remove_unused_columns": True, "max_steps": 1}
    args = make_args(output_dir=str(tmp_path / "first"), **hidden)
    first = train(text_model_path, text_rows, args, reward=right)
    first.save_model()
    warm = make_args(vade_posterior_init=args.output_dir, output_dir=str(tmp_path / "second"), **hidden)
    taken_over = train(text_model_path, text_rows, warm, reward=right).selection.feedback.log.read()[0]
    assert taken_over["sample_index"] == np.flatnonzero(first.selection.sampler.posterior.visits).tolist()
