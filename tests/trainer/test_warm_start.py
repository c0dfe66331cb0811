"""A run that begins with another run's posterior: what is taken over, what is refused, that a resume needs none."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from accelerate import Accelerator
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.posteriors import make_table
from tests.support.refusals import refused
from tests.support.rows import numbered_rows
from tests.support.runs import StopAfter, assert_same_end, logged, says_a_digit, train
from trl_vade import BetaPosterior, ThompsonSampler, VADEGRPOTrainer, save_snapshot
from trl_vade.data.row_keys import sample_keys
from trl_vade.errors import SnapshotMismatchError, SnapshotNotFoundError
from trl_vade.hub.posteriors.repository import stage_posterior
from trl_vade.hub.posteriors.table import posterior_table
from trl_vade.samplers.snapshot import POSTERIOR_FILE, load_snapshot, state_digest
from trl_vade.selection.feedback import Feedback
from trl_vade.selection.log import SelectionLog, replay
from trl_vade.selection.on_time import OnTimeSelection
from trl_vade.selection.report.record import read_run
from trl_vade.selection.report.summary import summarise
from trl_vade.selection.warm_start import evidence
from trl_vade.trainer.initial_posterior import read_warm_start


def table_of(rows, alpha, beta):
    """The table of the rows of a data set, as another run with it would have saved it."""
    return replace(
        make_table(dict(zip(rows["id"], zip(alpha, beta, strict=True), strict=True))), sample_key=keys_of(rows)
    )


def keys_of(rows):
    return sample_keys(rows)[0] if len(rows) else np.zeros(0, dtype=np.int64)


def save_evidence(folder, dataset, rows=None, **facts):
    """Save the posterior of a run that has seen these rows of the data set, or all, once."""
    sampler, rows = ThompsonSampler(len(dataset)), np.arange(len(dataset)) if rows is None else rows
    sampler.observe(rows, [1] * len(rows), [4] * len(rows))
    save_snapshot(folder, sampler, metadata=facts, sample_key=keys_of(dataset))


def join(table, dataset, **changes):
    return evidence(
        table, keys_of(dataset), **{"discount": 0.2, "min_match": 0.0, "source": "the posterior"} | changes
    )


# -------------------------------------------------------------------------------------------------- what is taken over

COUNTS = st.floats(0, 1e6, allow_subnormal=False)


@settings(deadline=None, derandomize=True, max_examples=25)
@given(data=st.data(), discount=st.floats(0.001, 1), here=st.integers(1, 12), there=st.integers(1, 12))
def test_a_row_begins_with_the_discounted_counts_of_its_namesake_and_all_others_with_the_prior(
    data, discount, here, there
):
    order = data.draw(st.permutations(range(here)))
    counts = [data.draw(st.tuples(COUNTS, COUNTS)) for _ in range(there)]
    table = table_of(numbered_rows(there), *zip(*counts, strict=True))
    sampler = ThompsonSampler(here)
    warm = join(table, numbered_rows(here).select(order), discount=discount)
    sampler.take_over(warm.outcomes.sample_index, warm.outcomes.successes, warm.outcomes.trials)
    for place, row in enumerate(order):
        alpha, beta = counts[row] if row < there else (0.0, 0.0)
        expected = (discount * alpha + 1) / (discount * (alpha + beta) + 2)
        assert sampler.posterior.posterior_mean[place] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("matched", "accepted"), [(5, True), (4, False), (0, False)])
def test_too_few_rows_in_common_are_another_data_set(matched, accepted):
    table = table_of(numbered_rows(100).select(range(30 - matched, 40 - matched)), [1] * 10, [1] * 10)
    if accepted:
        assert len(join(table, numbered_rows(30), min_match=0.5).outcomes.sample_index) == matched
        return
    with refused(SnapshotMismatchError, names=["'user/repo'", 10, matched, "50%"], offers=["prior"]):
        join(table, numbered_rows(30), min_match=0.5, source="user/repo")


def test_an_empty_posterior_is_refused_unless_anything_is_accepted():
    nothing = table_of(numbered_rows(1).select([]), [], [])
    with refused(SnapshotMismatchError, names=[0, 5]):
        join(nothing, numbered_rows(5), min_match=0.01)
    assert join(nothing, numbered_rows(5), min_match=0).outcomes.sample_index.tolist() == []


# -------------------------------------------------------------------------------------------------- the sampler


def taught(rows, cooldown=5, greedy=True, **more):
    """A sampler over 12 rows that has taken over that `rows` are right in a third of the cases."""
    sampler = ThompsonSampler(12, cooldown=cooldown, greedy=greedy, **more)
    sampler.take_over(rows, np.full(len(rows), 20.0), np.full(len(rows), 60.0))
    return sampler


def test_what_is_known_is_used_at_once_and_rows_rest_once_they_were_trained_on():
    sampler = taught([3, 8, 9])
    assert sampler.draw(2).sample_index.tolist() == [3, 8]  # 1/3 is the best there is; rows without evidence have 1/2
    sampler.observe([3, 8], [20, 20], [60, 60])
    assert sampler.draw(3).sample_index.tolist() == [9, 0, 1]
    observed = ThompsonSampler(12, cooldown=5, greedy=True)
    observed.observe([3, 8, 9], [20] * 3, [60] * 3)  # the same as rows that were trained on
    assert not {3, 8, 9} & set(observed.draw(2).sample_index.tolist())


def test_a_sampler_that_goes_on_from_its_state_knows_which_rows_need_no_rest():
    first, second = taught([3, 8], greedy=False, seed=4), ThompsonSampler(12, cooldown=5, seed=4)
    second.load_state_dict(first.state_dict())
    for _ in range(8):
        ours, theirs = first.draw(2).sample_index, second.draw(2).sample_index
        assert ours.tolist() == theirs.tolist()
        for sampler in (first, second):
            sampler.observe(ours, [1, 2], [4, 4])
    assert second.state_dict()["taken_over"] == 1
    fresh = ThompsonSampler(12, cooldown=5, seed=4)
    second.load_state_dict(fresh.state_dict())
    assert state_digest(second) == state_digest(fresh)
    assert "taken_over" not in second.state_dict()  # as in the files of earlier releases


def test_a_warm_start_is_a_step_and_a_line_but_no_generation_batch(tmp_path):
    sampler = ThompsonSampler(6)
    feedback = Feedback(sampler, num_generations=4, log=SelectionLog(tmp_path))
    feedback.warm_start(join(table_of(numbered_rows(1).select([]), [], []), numbered_rows(6)).outcomes, "nothing")
    assert (sampler.posterior.step, feedback.log.read()) == (0, [])
    table = table_of(numbered_rows(6).select([1, 4]), [3, 0], [1, 4])
    warm = join(table, numbered_rows(6), source="user/repo@abc")
    feedback.warm_start(warm.outcomes, warm.source)
    (line,) = feedback.log.read()
    assert (line["warm_start"], line["step"], line["rollouts"]) == ("user/repo@abc", 1, 0)
    assert line["effective_gradient_ratio"] is line["predicted_effective_ratio"] is None
    assert sampler.metrics()["coverage"] == 2 / 6
    selection = OnTimeSelection(feedback, numbered_rows(6), num_groups=2, accelerator=Accelerator(cpu=True))
    selection.choose()
    assert selection.in_flight.posterior_step == 1


# -------------------------------------------------------------------------------------------------- the trainer


@pytest.fixture(scope="module")
def first_run(text_model_path, tmp_path_factory):
    """The output directory of a run over the 24 rows of `make_text_rows`, of which it has seen some."""
    from tests.support.rows import make_text_rows
    from tests.support.runs import SMALL_RUN
    from trl_vade import VADEGRPOConfig

    args = VADEGRPOConfig(str(tmp_path_factory.mktemp("first")), **SMALL_RUN | {"max_steps": 4, "seed": 8})
    trainer = train(text_model_path, make_text_rows(), args)
    trainer.save_model()
    return trainer.args.output_dir


@pytest.fixture
def warm_args(make_args, first_run):
    """Arguments of a run that begins with the first run's posterior."""

    def make(**changes):
        return make_args(**{"vade_posterior_init": first_run} | changes)

    return make


def warnings_of(caplog):
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def test_a_run_begins_with_what_the_first_one_knew_says_so_and_its_files_tell_it(
    text_model_path, text_rows, warm_args, first_run, caplog
):
    trainer = train(text_model_path, text_rows, warm_args())
    known = load_snapshot(first_run).sampler_state["posterior"]
    warm, *batches = SelectionLog(trainer.args.output_dir).read()
    table = posterior_table(load_snapshot(first_run))
    assert warm["sample_index"] == known["sample_index"].tolist()
    assert warm["successes"] == pytest.approx(0.2 * table.alpha)
    assert warm["trials"] == pytest.approx(0.2 * (table.alpha + table.beta))
    assert warm["warm_start"] == "a local posterior"  # the log may be pushed
    assert [line["step"] for line in batches] == [2, 3, 4, 5, 6, 7]
    assert trainer.selection.feedback.rollouts == 6 * 16
    assert logged(trainer, "vade/staleness") == [0.0] * 6
    (said,) = [message for message in warnings_of(caplog) if "Warm start" in message]
    rows = len(known["sample_index"])
    assert 4 < rows < 24
    facts = {"global_step": 4, "success_reward": "says_a_digit", "num_generations": 4}
    assert f"from {first_run} ({facts})" in said
    assert f"{rows} of its {rows} rows" in said
    assert "20 % of their counts; 0 are not" in said
    assert f"{24 - rows} of the 24 rows here start from the prior" in said

    trainer.save_model()
    trainer.save_state()
    run = read_run(trainer.args.output_dir)
    summary = summarise(run)
    assert summary["generation_batches"] == len(summary["effective_gradient_ratio"]) == 6
    assert summary["rollouts"] == 96
    posterior = trainer.selection.sampler.posterior
    *_, replayed = replay(run.lines, BetaPosterior(posterior.num_samples, **posterior.decays))
    assert replayed.alpha.tolist() == posterior.alpha.tolist()
    assert replayed.visits.tolist() == posterior.visits.tolist()


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
    anew = {"output_dir": str(tmp_path / "another")}
    with refused(SnapshotNotFoundError, names=["source"]):  # begun anew, it needs what is gone
        VADEGRPOTrainer("/no/model", says_a_digit, warm_args(**changes | anew), text_rows)


def test_a_source_that_is_not_there_or_of_other_rows_is_refused_before_the_model_is_loaded(warm_args, text_rows):
    with refused(SnapshotNotFoundError, names=["/not/there"]):
        VADEGRPOTrainer("/no/model", says_a_digit, warm_args(vade_posterior_init="/not/there"), text_rows)
    others = Dataset.from_list([{"prompt": [{"role": "user", "content": f"{i}"}], "limit": 1} for i in range(24)])
    with refused(SnapshotMismatchError, names=[0, 24]):
        VADEGRPOTrainer("/no/model", says_a_digit, warm_args(), others)


def test_a_threshold_that_follows_from_the_rewards_to_come_is_no_evidence_of_another_kind(
    text_rows, warm_args, caplog
):
    assert read_warm_start(warm_args(), text_rows, success_reward="says_a_digit") is not None
    assert len(warnings_of(caplog)) == 1  # the summary


def test_evidence_of_another_kind_is_said_with_both_sides(text_rows, warm_args, caplog):
    args = warm_args(vade_success_threshold=0.25, num_generations=8)
    assert read_warm_start(args, text_rows, success_reward="another") is not None
    _, said = warnings_of(caplog)
    for part in ("'success_reward': 'says_a_digit'", "'another'", "'success_threshold': 0.5", "0.25", "4", "8"):
        assert part in said


def test_facts_of_a_strangers_file_make_no_other_line_of_the_log(text_rows, warm_args, tmp_path, caplog):
    facts = {"base_model": "\x1b[31mevil\nWARNING all is well", "num_generations": "4\n"}
    facts |= {"success_reward": ["\x07\u202e" * 999], "preset": "\x1b"}
    save_evidence(tmp_path / "evil", text_rows, **facts)
    read_warm_start(warm_args(vade_posterior_init=str(tmp_path / "evil")), text_rows, success_reward="right")
    summary, doubt = warnings_of(caplog)
    for line in (summary, doubt):
        assert line.isprintable()
        assert len(line) < 1000
    assert r"\nWARNING" in summary


def test_a_step_of_a_repository_is_the_same_evidence_as_the_run(text_rows, warm_args, first_run, tmp_path):
    table = posterior_table(load_snapshot(first_run))
    stage_posterior(tmp_path / "shared", Path(first_run) / POSTERIOR_FILE, table)
    ours = read_warm_start(warm_args(), text_rows).outcomes
    shared = read_warm_start(warm_args(vade_posterior_init=str(tmp_path / "shared")), text_rows).outcomes
    assert shared.sample_index.tolist() == ours.sample_index.tolist()
    assert shared.trials.tolist() == ours.trials.tolist()


def test_without_the_column_of_ids_rows_are_known_as_the_run_knows_them(
    text_model_path, text_rows, make_args, tmp_path
):
    hidden = {"remove_unused_columns": True, "max_steps": 1}

    def right(completions, **columns):
        return [1.0, 0.0] * (len(completions) // 2)

    first = train(text_model_path, text_rows, make_args(output_dir=str(tmp_path / "first"), **hidden), reward=right)
    first.save_model()
    warm = read_warm_start(make_args(vade_posterior_init=first.args.output_dir, **hidden), text_rows)
    assert sorted(warm.outcomes.sample_index) == np.flatnonzero(first.selection.sampler.posterior.visits).tolist()


def test_another_way_to_begin_and_a_stream_read_nothing(text_rows, make_args):
    assert [read_warm_start(make_args(vade_posterior_init=word), text_rows) for word in ("prior", "rollout")] == [
        None,
        None,
    ]
    assert read_warm_start(make_args(vade_posterior_init="/not/there"), text_rows.to_iterable_dataset()) is None
