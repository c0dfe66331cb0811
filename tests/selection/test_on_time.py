"""`OnTimeSelection` with a real data set and a real Accelerator: what it chooses, knows and reports, and when."""

import itertools
import json
import math

import numpy as np
import pytest
from accelerate import Accelerator

from tests.support.rows import ids, numbered_rows, picture, process
from trl_vade import ThompsonSampler, UniformSampler
from trl_vade.samplers.snapshot import state_digest
from trl_vade.selection.batch_metrics import log_metrics
from trl_vade.selection.feedback import Feedback
from trl_vade.selection.log import SelectionLog
from trl_vade.selection.on_time import OnTimeSelection
from trl_vade.selection.outcomes import group_outcomes
from trl_vade.selection.report.record import Run

NAN = float("nan")


@pytest.fixture
def make_selection(tmp_path):
    """A selection over 6 rows, 2 rows of 4 completions a generation batch, unless told otherwise."""

    def make(dataset=None, sampler=None, *, num_groups=2, num_generations=4, accelerator=None, **more):
        dataset = numbered_rows(6) if dataset is None else dataset
        accelerator = accelerator or Accelerator(cpu=True)
        sampler = sampler or UniformSampler(len(dataset), seed=3)
        facts = {"num_generations": num_generations, "writes": accelerator.is_main_process, **more}
        feedback = Feedback(sampler, log=SelectionLog(tmp_path / "out"), **facts)
        return OnTimeSelection(feedback, dataset, num_groups=num_groups, accelerator=accelerator)

    return make


def score(selection, *groups):
    """Feed the rewards of each group of the batch in flight back, and return the metrics."""
    rewards = np.array(groups, dtype=np.float64).ravel()
    return selection.record(group_outcomes(rewards, selection.in_flight.sample_index, threshold=0.5), 0)


def test_what_was_said_last_is_kept_of_the_rows_that_came_last(make_selection, monkeypatch):
    monkeypatch.setattr("trl_vade.selection.on_time.MOST_SAID", 4)
    selection = make_selection(numbered_rows(9))
    for rows, text in (([0, 1], "a"), ([2, 0], "b"), ([3, 4], "c")):
        selection.in_flight = selection.feedback.in_flight(np.array(rows))
        selection.note([f"{text}{row}{n}" for row in rows for n in range(4)])
    assert selection.said == {2: "b23", 0: "b03", 3: "c33", 4: "c43"}


def test_a_choice_that_was_not_foreseen_is_made_all_the_same(make_selection):
    """As when a callback of the user's tells the sampler something of its own."""
    selection = make_selection(numbered_rows(9, image=picture), ThompsonSampler(9, seed=5, cooldown=9))
    selection.prefetch()
    selection.sampler.observe(selection.sampler.peek(2).sample_index, [1, 1], [2, 2])
    rows = selection.choose()
    assert ids(rows) == [f"row-{row}" for row in selection.in_flight.sample_index for _ in range(4)]
    assert [row["image"].getpixel((0, 0))[0] for row in rows[::4]] == selection.in_flight.sample_index.tolist()


def initialise(selection, rewards_of):
    """Score every batch of `initial_batches`; `rewards_of(row)` gives the rewards of its G completions."""
    seen = []
    for rows in selection.initial_batches():
        seen.extend(ids(rows))
        assert score(selection, *(rewards_of(row) for row in selection.in_flight.sample_index.tolist())) == {}
    selection.feedback.finish_initialisation()
    return seen


def test_initialisation_covers_every_row_once_and_is_one_step_and_one_line(make_selection):
    selection = make_selection(numbered_rows(5), num_groups=2)
    seen = initialise(selection, lambda row: [1.0] * row + [0.0] * (4 - row))
    assert seen == [f"row-{i}" for i in range(5) for _ in range(4)]
    posterior = selection.sampler.posterior
    assert (posterior.alpha.tolist(), posterior.beta.tolist()) == ([0, 1, 2, 3, 4], [4, 3, 2, 1, 0])
    assert (posterior.visits.tolist(), posterior.step) == ([1] * 5, 1)
    (line,) = selection.feedback.log.read()
    assert (line["effective_gradient_ratio"], line["rollouts"]) == (3 / 5, 20)
    selection.choose()
    score(selection, [1.0, 0.0, 0.0, 0.0], [1.0] * 4)
    assert [line["step"] for line in Run(selection.feedback.log.read(), []).selections] == [2]
    assert line["predicted_effective_ratio"] == pytest.approx(0.6)  # Beta(1, 1), G = 4: 1 - 2/5


def test_rows_of_the_initial_pass_need_not_rest_and_every_stratum_gets_its_share(make_selection):
    rows, strata = numbered_rows(64), np.arange(64) % 4
    sampler = ThompsonSampler(64, cooldown=3, stratify=strata)
    selection = make_selection(rows, sampler, num_groups=32)
    initialise(selection, lambda row: [1.0, 1.0, 0.0, 0.0])
    chosen = sampler.peek(32).sample_index
    assert np.bincount(strata[chosen]).tolist() == [8, 8, 8, 8]


def test_rows_that_fill_the_last_batch_up_are_added_and_no_rollout_is_thrown_away(make_selection):
    # 5 rows x 2 completions over 4 processes, 4 rows at a time: the last batch needs a second row, which is row 0.
    sizes = {"num_groups": 4, "num_generations": 2}
    slices = []
    for index in range(4):
        selection = make_selection(numbered_rows(5), accelerator=process(index, 4), **sizes)
        slices.append([ids(rows) for rows in selection.initial_batches()])
    batches = [list(itertools.chain.from_iterable(parts)) for parts in zip(*slices, strict=True)]
    assert batches == [[f"row-{i}" for i in (0, 0, 1, 1, 2, 2, 3, 3)], [f"row-{i}" for i in (4, 4, 0, 0)]]

    selection = make_selection(numbered_rows(5), accelerator=process(0, 4), **sizes)
    initialise(selection, lambda row: [1.0, 0.0] if row == 0 else [1.0, 1.0])
    assert selection.sampler.posterior.alpha.tolist() == [2, 2, 2, 2, 2]
    assert selection.sampler.posterior.beta.tolist() == [2, 0, 0, 0, 0]
    assert selection.feedback.rollouts == 12


def test_the_metrics_of_two_generation_batches_worked_out_by_hand(make_selection):
    selection = make_selection(numbered_rows(4), UniformSampler(4, decay_sampled=0.5, decay_unsampled=1.0))
    selection.choose()
    first = score(selection, [1, 0, 0, 0], [1, 1, 1, 1])
    selection.choose()  # the other two rows: of them nothing is known yet
    second = score(selection, [0, 0, 0, 0], [NAN, NAN, NAN, NAN])
    assert min(each.pop("selection_seconds") for each in (first, second)) > 0
    same = {"predicted_effective_ratio": pytest.approx(1 - 2 / 5)}  # of Beta(1, 1) with G = 4
    same |= {"outage": 0.0, "refills": 0.0, "staleness": 0.0}
    assert first == same | {
        "coverage": 0.5,
        "mean_pass_rate": pytest.approx((2 / 6 + 5 / 6 + 1 / 2 + 1 / 2) / 4),
        "effective_gradient_ratio": 0.5,
        "brier": pytest.approx(((1 / 2 - 1 / 4) ** 2 + (1 / 2 - 1) ** 2) / 2),
        "selected_pass_rate": pytest.approx((1 / 4 + 1) / 2),
        # Of Beta(2, 4), Beta(5, 1) and twice Beta(1, 1), for G = 4.
        "even_draw_ratio": pytest.approx((1 - 960 / 3024 + 1 - 1704 / 3024 + 2 * 0.6) / 4),
        "rollouts": 8.0,
    }
    assert second == same | {
        "coverage": 0.75,
        "mean_pass_rate": pytest.approx((2 / 6 + 5 / 6 + 1 / 6 + 1 / 2) / 4),
        "effective_gradient_ratio": 0.0,
        "brier": pytest.approx((1 / 2) ** 2),
        "selected_pass_rate": 0.0,
        "even_draw_ratio": pytest.approx((1 - 960 / 3024 + 2 * (1 - 1704 / 3024) + 0.6) / 4),
        "rollouts": 16.0,  # a completion without a score was paid for all the same
    }


def test_a_batch_without_any_score_has_unknown_metrics_and_still_counts(make_selection):
    selection = make_selection()
    selection.choose()
    metrics = score(selection, [NAN] * 4, [NAN] * 4)
    assert {name for name, value in metrics.items() if math.isnan(value)} == {"brier", "selected_pass_rate"}
    assert [metrics[name] for name in ("effective_gradient_ratio", "rollouts", "coverage")] == [0, 8, 0]
    assert selection.sampler.posterior.step == 1
    assert selection.in_flight is None  # until the next choice


def test_each_stratum_has_its_figures_and_what_is_not_known_is_left_out(make_selection):
    labels = np.array(["logic", "algebra", "logic", "geometry", "geometry", "geometry"])
    sampler = UniformSampler(6, seed=3, decay_sampled=1.0, decay_unsampled=1.0)
    selection = make_selection(sampler=sampler, num_groups=3, stratify=labels)
    selection.choose()
    rewards = {0: [1, 0, 0, 0], 1: [NAN] * 4, 2: [1, 1, 1, 1], 3: [0, 0, 0, 0], 4: [0, 0, 0, 1], 5: [1, 1, 0, 0]}
    chosen = selection.in_flight.sample_index
    metrics = score(selection, *(rewards[row] for row in chosen.tolist()))
    for label in set(labels):
        rates = [np.mean(rewards[row]) for row in chosen.tolist() if labels[row] == label]
        known = [rate for rate in rates if not math.isnan(rate)]
        expected = {"selected_share": len(rates) / 3}
        expected["mean_pass_rate"] = selection.sampler.posterior.posterior_mean[labels == label].mean()
        if known:
            expected |= {"selected_pass_rate": np.mean(known)}
            expected |= {"effective_gradient_ratio": np.mean([0 < rate < 1 for rate in known])}
        ours = {name.split("/")[0]: value for name, value in metrics.items() if name.endswith(f"/{label}")}
        assert ours == pytest.approx(expected)
    assert {"selected_pass_rate/algebra", "selected_pass_rate/logic", "selected_pass_rate/geometry"} - metrics.keys()


def test_more_strata_than_a_trainer_state_can_hold_have_no_metrics(make_selection):
    for num_strata, with_metrics in ((100, 100), (101, 0)):
        labels = np.arange(202) % num_strata
        selection = make_selection(numbered_rows(202), UniformSampler(202), stratify=labels)
        selection.choose()
        metrics = score(selection, [1, 0, 0, 0], [0, 0, 0, 0])
        assert sum("selected_share/" in name for name in metrics) == with_metrics


def test_a_figure_that_some_batches_lack_is_averaged_over_those_that_have_it():
    """TRL averages what is listed here, leaving NaN out. A refill replaces its own batch's figure and no other's."""
    to = {}
    log_metrics({}, to)  # of the rollouts that initialise the posterior
    assert to == {}
    log_metrics({"refills": 0.0, "rollouts": 8.0, "ratio/a": 0.5}, to)
    log_metrics({"refills": 0.0, "rollouts": 16.0, "coverage": 0.5, "mean_pass_rate/b": 0.25}, to)
    log_metrics({"refills": 1.0, "rollouts": 20.0, "ratio/a": 1.0}, to)
    log_metrics({"refills": 2.0, "rollouts": 24.0, "ratio/a": 0.75}, to)
    log_metrics({"refills": 0.0, "rollouts": 32.0, "ratio/b": 0.25, "coverage": 0.625, "mean_pass_rate/b": 0.5}, to)
    assert to["vade/refills"] == [0.0, 2.0, 0.0]
    states = ("rollouts", "coverage", "mean_pass_rate/b")  # the mean would be of no batch's time
    assert [to[f"vade/{name}"] for name in states] == [[32.0], [0.625], [0.5]]
    assert to["vade/ratio/a"] == [0.5, 0.75]
    assert np.isnan(to["vade/ratio/b"][:2]).all()
    assert to["vade/ratio/b"][2:] == [0.25]
    log_metrics({"refills": 1.0, "rollouts": 36.0, "ratio/b": 0.5, "ratio/c": 1.0}, to)
    assert [len(to[f"vade/ratio/{label}"]) for label in "abc"] == [2, 3, 3]
    assert to["vade/ratio/b"][2] == 0.5


def test_a_refill_draws_other_rows_and_is_declined_when_too_few_are_left(make_selection):
    selection = make_selection(sampler=ThompsonSampler(6, seed=1))
    for _ in range(2):  # the next batch may draw all again
        selection.choose()
        drawn = selection.in_flight.sample_index.tolist()
        score(selection, [0, 0, 0, 0], [0, 0, 0, 0])
        rows, second = selection.refill(2), selection.in_flight
        assert ids(rows) == [f"row-{row}" for row in second.sample_index for _ in range(4)]
        assert second.posterior_step == selection.sampler.posterior.step
        score(selection, [0, 0, 0, 0], [0, 1, 0, 0])
        selection.refill(1)
        assert selection.in_flight.refill == 2
        drawn += [*second.sample_index.tolist(), *selection.in_flight.sample_index.tolist()]
        assert (len(drawn), len(set(drawn))) == (5, 5)
        score(selection, [0, 0, 0, 0])
        assert selection.refill(2) is None


def test_a_refill_is_rounded_up_until_its_completions_divide_among_the_processes(make_selection):
    selection = make_selection(numbered_rows(9), accelerator=process(1, 4), num_groups=4, num_generations=2)
    selection.choose()
    score(selection, [0, 0], [0, 0], [0, 0], [0, 1])
    rows = selection.refill(3)
    chosen = selection.in_flight.sample_index
    assert len(chosen) == 4
    assert ids(rows) == [f"row-{chosen[1]}"] * 2


def test_the_metrics_of_a_refilled_batch_and_of_its_strata_are_of_all_its_groups(make_selection):
    selection, drawn = make_selection(sampler=UniformSampler(6, seed=3), stratify=[1, 2, 1, 2, 1, 2]), []
    for refill, groups in enumerate([([1] * 4, [0] * 4), ([1, 0, 0, 0], [NAN] * 4), ([1, 1, 0, 0],)]):
        selection.refill(len(groups)) if refill else selection.choose()
        drawn += selection.in_flight.sample_index.tolist()
        metrics = score(selection, *groups)
    names = ("refills", "effective_gradient_ratio", "rollouts", "staleness")
    assert [metrics[name] for name in names] == [2, 2 / 5, 20, 0]
    assert metrics["selected_pass_rate"] == pytest.approx((1 + 0 + 1 / 4 + 1 / 2) / 4)
    assert metrics["brier"] == pytest.approx((1 / 4 + 1 / 4 + 1 / 16 + 0) / 4)
    assert metrics["predicted_effective_ratio"] == pytest.approx(0.6)
    rates = np.array([1, 0, 1 / 4, NAN, 1 / 2])
    for label, odd in (("1", 0), ("2", 1)):
        rows = np.array(drawn) % 2 == odd
        assert metrics[f"selected_share/{label}"] == rows.mean()
        assert metrics[f"selected_pass_rate/{label}"] == pytest.approx(np.nanmean(rates[rows]))
    assert [line.get("refill") for line in selection.feedback.log.read()] == [None, 1, 2]
    selection.choose()
    assert score(selection, [1, 0, 0, 0], [1, 0, 0, 0])["effective_gradient_ratio"] == 1.0


def test_selection_inside_a_timed_block_is_not_counted_twice(make_selection):
    selection = make_selection()
    with selection.feedback.timed("generation"):
        selection.choose()
        selection.feedback.seconds["selection"] += 1000.0  # as if the choice had taken that long
    assert selection.feedback.seconds["generation"] < 0  # the 1000 seconds that nobody waited for were left out


OUTAGE = range(10, 15)  # generation batches from 0, in which every answer is wrong


def play_outage(selection, steps):
    """Score the batches `steps`, half of the answers right outside the outage; the rows and metrics of each."""
    played = []
    for step in steps:
        rows = ids(selection.choose())
        rewards = np.random.default_rng(step).permuted(np.tile([1.0, 1.0, 0.0, 0.0], 16)).reshape(16, 4)
        metrics = score(selection, *rewards * (step not in OUTAGE))
        played.append((rows, metrics | {"selection_seconds": 0}))
    return played


@pytest.fixture
def make_large(make_selection):
    return lambda: make_selection(numbered_rows(40), ThompsonSampler(40, seed=2), num_groups=16)


def warnings_of(caplog):
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def test_an_outage_is_said_measured_written_down_and_undone(make_large, caplog):
    selection = make_large()
    metrics = [metrics["outage"] for _, metrics in play_outage(selection, range(10))]
    counts = selection.sampler.posterior.counts()
    assert warnings_of(caplog) == []
    metrics += [metrics["outage"] for _, metrics in play_outage(selection, OUTAGE)]
    kept = 0.999**5  # five steps without evidence
    np.testing.assert_allclose(selection.sampler.posterior.counts(), np.multiply(counts, kept))
    metrics += [metrics["outage"] for _, metrics in play_outage(selection, range(15, 20))]
    assert metrics == [0.0] * 10 + [1.0] * 5 + [0.0] * 5
    begins, ends = warnings_of(caplog)
    assert "looks like a reward outage" in begins
    assert "outage of 5 generation batches is over" in ends
    lines = selection.feedback.log.read()
    assert [line["step"] for line in lines if not line.get("observed", True)] == [11, 12, 13, 14, 15]


@pytest.mark.parametrize("stopped_after", [9, 11, 15])
def test_a_resume_before_in_or_after_an_outage_goes_on_bit_for_bit(make_large, stopped_after, caplog):
    first, second = make_large(), make_large()
    play_outage(first, range(stopped_after))
    sampler, totals = first.sampler.state_dict(), json.dumps(first.feedback.state_dict(), allow_nan=False)
    caplog.clear()
    went_on, said, lines = play_outage(first, range(stopped_after, 20)), warnings_of(caplog), first.feedback.log.read()
    second.sampler.load_state_dict(sampler)
    second.feedback.load_state_dict(json.loads(totals))
    second.feedback.resume_log(json.loads(totals))
    caplog.clear()
    assert play_outage(second, range(stopped_after, 20)) == went_on
    assert (warnings_of(caplog), second.feedback.log.read()) == (said, lines)
    assert state_digest(second.sampler) == state_digest(first.sampler)
    assert second.feedback.state_dict()["outage"] == first.feedback.state_dict()["outage"]
