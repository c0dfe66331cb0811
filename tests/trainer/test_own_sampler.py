"""A run with a sampler of a user's own: it trains, tells of itself, and resumes as if it had never stopped."""

import json

import pytest
import torch

from tests.support.own_samplers import OWN, WorstLast
from tests.support.refusals import refused
from tests.support.runs import StopAfter, assert_same_end, says_a_digit, train
from trl_vade import VADEGRPOTrainer, load_posterior
from trl_vade.errors import ConfigurationError
from trl_vade.samplers.snapshot import state_digest

PEER = "eval.benchmarks.learning.peers:GRESOSampler"
GIVEN = {"an object": lambda rows: WorstLast(rows, seed=5), "a peer's path": lambda rows: PEER}


@pytest.mark.parametrize("give", GIVEN.values(), ids=GIVEN)
def test_a_resumed_run_is_the_run_that_never_stopped(text_model_path, text_rows, make_args, tmp_path, give):
    def args(folder):
        saves = {"save_strategy": "steps", "save_steps": 3, "num_iterations": 2}  # stops within a generation batch
        more = {"vade_sampler": give(len(text_rows)), "dataloader_num_workers": 1}
        return make_args(output_dir=str(tmp_path / folder), **saves, **more)

    whole = train(text_model_path, text_rows, args("whole"), report=True)
    train(text_model_path, text_rows, args("parts"), callbacks=[StopAfter(4)])
    resumed = VADEGRPOTrainer(text_model_path, says_a_digit, args("parts"), text_rows)
    resumed.train(resume_from_checkpoint=True)
    assert_same_end(resumed, whole)
    assert state_digest(resumed.selection.sampler) == state_digest(whole.selection.sampler)
    assert load_posterior(whole.args.output_dir).metadata["sampler"] == whole.args.vade_sampler
    assert json.loads((tmp_path / "whole/vade_summary.json").read_text())["sampler"] == whole.selection.sampler.kind


def test_settings_with_an_object_can_be_saved_logged_and_printed(text_model_path, text_rows, make_args, tmp_path):
    args = make_args(vade_sampler=WorstLast(len(text_rows)), max_steps=1)
    trainer = train(text_model_path, text_rows, args)
    assert "vade/failed_last" in trainer.state.log_history[0]
    trainer.save_model(tmp_path / "saved")
    saved = torch.load(tmp_path / "saved/training_args.bin", weights_only=False)
    assert {type(saved.vade_sampler), type(json.loads(args.to_json_string())["vade_sampler"])} == {str}
    assert saved.vade_sampler == args.to_dict()["vade_sampler"] == OWN
    assert OWN in str(args)


def test_a_second_training_starts_with_the_object_as_it_was_given(text_model_path, text_rows, make_args):
    trainer = train(text_model_path, text_rows, make_args(vade_sampler=WorstLast(len(text_rows)), max_steps=2))
    first = trainer.selection.feedback.log.read()
    trainer.train()
    assert [line["sample_index"] for line in trainer.selection.feedback.log.read()[:1]] == [first[0]["sample_index"]]


@pytest.mark.parametrize("path", ["no_such_module:Mine", "tests.support.own_samplers:Mine"])
def test_a_wrong_path_is_refused_before_a_model_is_loaded(text_rows, make_args, path):
    with refused(ConfigurationError, [f"vade_sampler={path!r}"], ["thompson", "greedy", "uniform"]):
        VADEGRPOTrainer("no/model", says_a_digit, make_args(vade_sampler=path), text_rows)
