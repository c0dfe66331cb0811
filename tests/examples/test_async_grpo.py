"""Asynchronous GRPO with rows that VADE draws: TRL's own loop and worker, a stub for vLLM's server."""

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest
import trl
from packaging.version import Version

from trl_vade.samplers import load_snapshot
from trl_vade.selection.log import SelectionLog

if Version(trl.__version__) < Version("1.16"):
    pytest.skip("asynchronous GRPO needs TRL 1.16", allow_module_level=True)

from examples.async_grpo import AsyncSelection, VADERolloutLoop
from tests.support.async_grpo import make_model, make_trainer, serving


@pytest.mark.slow
def test_a_training_learns_what_the_loop_chose_and_a_resumed_one_goes_on_with_it(monkeypatch, tmp_path):
    model, out = make_model(tmp_path / "model"), tmp_path / "out"
    selection = AsyncSelection(groups_per_step=4, score_queue=2, drop_dead_groups=True)
    with serving(np.linspace(0, 1, 61)) as address:
        trainer = make_trainer(monkeypatch, model, address, out, selection)
        trainer.train()
        assert any("vade/lag_groups" in entry for entry in trainer.state.log_history)
        first, last = (load_snapshot(out / f"checkpoint-{step}") for step in (2, 4))
        lines, run = SelectionLog(out).read(), last.metadata["run"]
        assert 0 < run["log"]["lines"] <= len(lines)
        assert run["rollouts"] == 4 * sum(len(line["sample_index"]) for line in lines[: run["log"]["lines"]])
        assert last.sampler_state["posterior"]["step"] == run["log"]["lines"]
        assert all(len({*line["sample_index"]}) == 4 for line in lines)  # no row is drawn while it is unobserved

        known = first.metadata["run"]
        resumed = make_trainer(monkeypatch, model, address, out, selection)
        resumed.train(resume_from_checkpoint=str(out / "checkpoint-2"))
        before = lines[: known["log"]["lines"]]
        assert SelectionLog(out).read()[: len(before)] == before
        assert load_snapshot(out / "checkpoint-4").metadata["run"]["rollouts"] > known["rollouts"]
        assert resumed.state.global_step == 4

        other = make_trainer(monkeypatch, model, address, tmp_path / "other", selection, rows=61)
        with pytest.raises(ValueError, match="dataset_fingerprint"):
            other.train(resume_from_checkpoint=str(out / "checkpoint-2"))
        with pytest.raises(ValueError, match="max_inflight_tasks"):
            make_trainer(monkeypatch, model, address, tmp_path / "few", selection, rows=11)


@pytest.mark.parametrize(("rewards", "kept"), [([0.1] * 6, 0), ([0.1] * 5 + [0.2], 6)])
def test_a_group_of_equal_rewards_is_dropped_whatever_its_advantages_are_rounded_to(monkeypatch, rewards, kept):
    samples = [SimpleNamespace(metrics={"rewards/one": reward}, advantage=1e-9) for reward in rewards]

    async def scored(self, group):
        return samples

    monkeypatch.setattr(VADERolloutLoop.__base__, "_score_group", scored)
    loop = object.__new__(VADERolloutLoop)
    loop.num_generations, loop.reward_func_names = 6, ["one"]
    loop.stream = SimpleNamespace(score=lambda *given: None, settings=AsyncSelection(drop_dead_groups=True))
    group = SimpleNamespace(completions_sequences=[[1]] * 6, group_id=0, model_version=0)
    assert len(asyncio.run(loop._score_group(group))) == kept
