"""Asynchronous GRPO with rows that VADE draws: TRL's own loop and worker, a stub for vLLM's server."""

import asyncio
import queue
from types import SimpleNamespace

import numpy as np
import pytest
import trl
from packaging.version import Version

from eval.benchmarks.async_grpo import stub
from eval.benchmarks.async_grpo.__main__ import Recorded, stream
from eval.benchmarks.async_grpo.loops import running
from tests.support.async_grpo import make_model, make_trainer
from tests.support.refusals import refused
from trl_vade.errors import ConfigurationError, LibraryError, SnapshotMismatchError
from trl_vade.samplers import load_snapshot
from trl_vade.selection.log import SelectionLog
from trl_vade.trainer.async_grpo import OLDEST_TRL, AsyncSelection, RolloutLoop, Stream, VADERolloutLoop
from trl_vade.trainer.seams import check_seams
from trl_vade.trainer.selection_choice import make_sampler

pytestmark = pytest.mark.skipif(
    Version(trl.__version__) < Version(OLDEST_TRL), reason=f"asynchronous GRPO needs TRL {OLDEST_TRL}"
)
ROWS, G = 60, 8
SMALL = {"groups_per_step": 4, "score_queue": 2}


class Watched(Recorded):
    """Checks at each draw that the row is not busy."""

    def draw(self, group):
        busy = {int(each[0].sample_index[0]) for each in (*self._drawn.values(), *self._scored)}
        row = super().draw(group)
        assert row not in busy
        return row


@pytest.fixture(scope="module")
def address():
    with stub.serving(stub.pass_rates(ROWS, impossible=0.5, seed=0), seconds=0.005) as served:
        yield served


@pytest.fixture
def made(tmp_path):
    def make(kind=Recorded, **changes):
        return stream(AsyncSelection(**SMALL | changes), ROWS, 0, tmp_path, kind)

    return make


def rewards_of(*successes):
    return np.array([[float(n < successes[0])] for n in range(G)])


# ------------------------------------------------------------------------------------------------ TRL's rollout loop


def test_no_row_is_drawn_while_it_is_in_flight_or_unobserved(address, made):
    watched = made(Watched)
    with running(address, stub.rows(ROWS), watched, in_flight=64) as (wait, _):
        wait(lambda: watched.num_scored >= 100)
    assert watched.feedback.sampler.posterior.step == watched.num_scored // 4


def test_the_lag_of_a_group_is_the_number_of_groups_scored_since_it_was_drawn(made):
    lagging = made(Stream, groups_per_step=3)
    lagging._channel = SimpleNamespace(put=(sent := []).append)
    for group in range(3):
        lagging.draw(group)
    for group in (1, 2, 0):
        lagging.score(group, rewards_of(group), 7)
    (step,) = sent
    assert step.lag.tolist() == [0, 1, 2]
    assert step.model_version == 7


@pytest.mark.parametrize("drop", [False, True])
def test_groups_without_a_gradient_reach_the_trainer_unless_they_are_dropped(address, made, drop):
    drawn = made(drop_dead_groups=drop)
    with running(address, stub.rows(ROWS), drawn, in_flight=32) as (wait, samples):
        wait(lambda: drawn.num_scored >= 60)
    pushed = [samples.get_nowait() for _ in range(samples.qsize())]
    dead = {sample.group_id for sample in pushed if sample.advantage == 0.0}
    live = {sample.group_id for sample in pushed} - dead
    assert live
    assert bool(dead) is not drop


def test_a_conversation_of_several_turns_counts_once_and_one_without_a_token_not_at_all(monkeypatch, made):
    kept = made()
    loop = VADERolloutLoop.__new__(VADERolloutLoop)
    loop.stream, loop.num_generations, loop.reward_func_names = kept, 4, ["says_yes"]
    kept.draw(0)

    async def scored(self, group):
        return [SimpleNamespace(metrics={"rewards/says_yes": r}, advantage=r) for r in (1.0, 1.0, 0.0, 1.0)]

    monkeypatch.setattr(RolloutLoop, "_score_group", scored)
    group = SimpleNamespace(group_id=0, model_version=3, completions_sequences=[[1, 1], [1], [], [1]])
    assert len(asyncio.run(loop._score_group(group))) == 4
    np.testing.assert_array_equal(kept._scored[0][2][:, 0], [1.0, 0.0, np.nan, 1.0])


# ------------------------------------------------------------------------------------------------- two copies of one


def test_the_trainers_copy_is_that_of_the_loop_to_the_bit(address, made, tmp_path):
    sent = queue.Queue()
    theirs = made(Stream)
    theirs._channel = SimpleNamespace(put=sent.put, cancel_join_thread=lambda: None)
    theirs.feedback.writes = False
    with running(address, stub.rows(ROWS), theirs, in_flight=32) as (wait, _):
        wait(lambda: theirs.num_scored >= 80)
    ours = made(Stream)
    while sent.qsize():
        metrics = ours.observe(sent.get())
    assert metrics["lag_groups_max"] >= metrics["lag_groups"] > 0
    mine, other = (each.feedback.sampler.state_dict()["posterior"] for each in (ours, theirs))
    for name in ("alpha", "beta", "last_update", "visits"):
        assert mine[name].tobytes() == other[name].tobytes()
    assert ours.feedback.rollouts == theirs.feedback.rollouts
    assert len(SelectionLog(tmp_path).read()) == ours.feedback.sampler.posterior.step > 0
    draws = [each.feedback.sampler.draw(5).sample_index for each in (ours, theirs)]
    assert ours.feedback.sampler.progress != {"draws": 0}
    np.testing.assert_array_equal(*draws)


def test_scores_that_are_missing_are_no_trials(made):
    kept = made(Stream, groups_per_step=1)
    row = kept.draw(0)
    rewards = rewards_of(3)
    rewards[-2:] = np.nan
    kept.score(0, rewards, 0)
    alpha, beta = kept.feedback.sampler.posterior.counts(np.array([row]))
    assert (alpha[0], beta[0]) == (3.0, 3.0)


# ------------------------------------------------------------------------------------------------------- the trainer


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("async") / "model")


@pytest.mark.slow
def test_a_training_logs_what_the_loop_chose_and_saves_its_posterior(monkeypatch, model, address, tmp_path):
    trainer = make_trainer(monkeypatch, model, address, tmp_path / "out", selection=AsyncSelection(**SMALL))
    trainer.train()
    lines = SelectionLog(tmp_path / "out").read()
    snapshot = load_snapshot(tmp_path / "out" / "checkpoint-4")
    run = snapshot.metadata["run"]
    assert 0 < run["log"]["lines"] <= len(lines)
    assert run["rollouts"] == 4 * sum(len(line["sample_index"]) for line in lines[: run["log"]["lines"]])
    assert snapshot.sampler_state["posterior"]["step"] == run["log"]["lines"]
    assert any("vade/lag_groups" in entry for entry in trainer.state.log_history)


@pytest.mark.slow
def test_a_resumed_training_goes_on_with_the_posterior_of_its_checkpoint(monkeypatch, model, address, tmp_path):
    make_trainer(monkeypatch, model, address, tmp_path / "out", selection=AsyncSelection(**SMALL)).train()
    checkpoint = tmp_path / "out" / "checkpoint-2"
    known = load_snapshot(checkpoint).metadata["run"]
    before = SelectionLog(tmp_path / "out").read()[: known["log"]["lines"]]
    trainer = make_trainer(monkeypatch, model, address, tmp_path / "out", selection=AsyncSelection(**SMALL))
    trainer.train(resume_from_checkpoint=str(checkpoint))
    assert SelectionLog(tmp_path / "out").read()[: len(before)] == before
    after = load_snapshot(tmp_path / "out" / "checkpoint-4").metadata["run"]
    assert after["rollouts"] > known["rollouts"]
    assert trainer.state.global_step == 4

    other = make_trainer(monkeypatch, model, address, tmp_path / "other", rows=61, selection=AsyncSelection(**SMALL))
    with refused(SnapshotMismatchError, ["dataset_fingerprint"], ["another checkpoint"]):
        other.train(resume_from_checkpoint=str(checkpoint))


def test_too_few_rows_are_refused(monkeypatch, model, address, tmp_path):
    with refused(ConfigurationError, [20, "max_inflight_tasks", "groups_per_step"], ["more rows"]):
        make_trainer(monkeypatch, model, address, tmp_path / "out", rows=20)


def test_a_preset_makes_the_sampler_that_the_synchronous_trainer_would_make(make_args):
    prompts = ["long", "short"] * 20
    ours = AsyncSelection(groups_per_step=4).sampler(40, 7, num_generations=4, prompts=prompts)
    theirs = make_sampler(make_args(seed=7, num_generations=4), 40, num_groups=4, prompts=prompts)
    for sampler in (ours, theirs):
        sampler.observe(np.arange(36), np.tile([1, 7], 18), np.full(36, 8))
    assert ours.state_dict()["settings"] == theirs.state_dict()["settings"]
    assert ours.draw(4).sample_index.tolist() == theirs.draw(4).sample_index.tolist()
    assert AsyncSelection("uniform").sampler(40, 7).kind == "uniform"


def test_an_unknown_preset_is_refused():
    with refused(ConfigurationError, ["'best'"], ["balanced", "'uniform'"]):
        AsyncSelection("best").sampler(10, 0)


def test_a_trl_whose_loop_was_never_tried_is_refused(monkeypatch, model, address, tmp_path):
    monkeypatch.setattr(trl, "__version__", "1.15.3")
    with refused(LibraryError, ["1.15.3"], ["trl>=1.16", "VADEGRPOTrainer"]):
        make_trainer(monkeypatch, model, address, tmp_path / "out")


def test_a_loop_that_trl_has_changed_is_refused(monkeypatch, model, address, tmp_path):
    check_seams.cache_clear()
    monkeypatch.delattr(RolloutLoop, "_repeat_iterator")
    with refused(LibraryError, ["_repeat_iterator"]):
        make_trainer(monkeypatch, model, address, tmp_path / "out")
    check_seams.cache_clear()
