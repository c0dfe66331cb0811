"""A reference model that follows the policy (`sync_ref_model`) is saved with each checkpoint, and goes on from it."""

import shutil
from pathlib import Path

import pytest
from transformers import AutoConfig, AutoModelForCausalLM

from tests.support.as_stock import full_history
from tests.support.checkpoints import without_later
from tests.support.marks import slow_but
from tests.support.refusals import refused
from tests.support.rows import make_text_rows
from tests.support.runs import assert_equal_weights, assert_same_end, make_trainer, weights
from trl_vade.errors import CheckpointIncompleteError
from trl_vade.trainer.checkpoint.resuming import REFERENCE_FILE

STEPS = 12
SYNCED = {"beta": 0.5, "sync_ref_model": True, "ref_model_sync_steps": 3, "ref_model_mixup_alpha": 0.5}
SYNCED |= {"save_strategy": "steps", "save_steps": 1, "max_steps": STEPS}


@pytest.fixture(scope="module")
def whole(text_model_path, tmp_path_factory):
    """A run of twelve steps with a checkpoint of each, whose reference model took over four times."""
    trainer = make_trainer(tmp_path_factory.mktemp("whole"), text_model_path, make_text_rows(), **SYNCED)
    trainer.train()
    return trainer


@pytest.fixture
def go_on(made):
    """A function that resumes from a checkpoint of a folder."""

    def resume(folder, checkpoint, **changes):
        trainer = made(**SYNCED | {"output_dir": folder} | changes)
        trainer.train(resume_from_checkpoint=without_later(folder / f"checkpoint-{checkpoint}"))
        return trainer

    return resume


@pytest.mark.parametrize("stop", slow_but(["7"], map(str, range(1, STEPS + 1))))
def test_each_checkpoint_goes_on_with_the_reference_model_that_it_was_saved_with(whole, go_on, tmp_path, stop):
    folder = Path(shutil.copytree(whole.args.output_dir, tmp_path / "copied"))
    resumed = go_on(folder, stop, save_strategy="no")
    assert_same_end(resumed, whole)
    assert_equal_weights(resumed.ref_model.state_dict(), whole.ref_model.state_dict())
    assert full_history(resumed)[:-1] == full_history(whole)[:-1]  # the last entry is of the whole call


def test_the_reference_model_of_the_run_is_neither_the_base_model_nor_the_policy(whole, text_model_path):
    """Else the test above would pass with whatever reference model."""
    base, reference = AutoModelForCausalLM.from_pretrained(text_model_path).state_dict(), whole.ref_model.state_dict()
    assert not any(reference[name].equal(base[name]) for name in base if name.endswith("proj.weight"))
    assert not any(reference[name].equal(weights(whole)[name]) for name in base if name.endswith("proj.weight"))


def test_without_a_selection_it_is_resumed_too(run, go_on, tmp_path):
    settings = SYNCED | {"output_dir": tmp_path, "vade_sampler": "uniform", "shuffle_dataset": False, "max_steps": 5}
    whole = run(**settings)
    assert whole.selection is None
    resumed = go_on(tmp_path, 4, **settings)
    assert_equal_weights(resumed.ref_model.state_dict(), whole.ref_model.state_dict())
    assert_equal_weights(weights(resumed), weights(whole))


def test_tied_weights_stay_tied(run, go_on, text_model_path, tmp_path):
    tied = str(shutil.copytree(text_model_path, tmp_path / "tied"))
    config = AutoConfig.from_pretrained(text_model_path, tie_word_embeddings=True)
    AutoModelForCausalLM.from_config(config).save_pretrained(tied)
    settings = SYNCED | {"output_dir": tmp_path / "run", "model": tied, "max_steps": 5}
    whole, resumed = run(**settings), go_on(tmp_path / "run", 4, **settings)
    assert resumed.ref_model.lm_head.weight is resumed.ref_model.model.embed_tokens.weight
    assert_equal_weights(resumed.ref_model.state_dict(), whole.ref_model.state_dict())


def test_a_checkpoint_of_a_run_without_sync_is_refused_with_what_to_set(run, go_on, tmp_path):
    run(**SYNCED | {"output_dir": tmp_path, "sync_ref_model": False, "max_steps": 1})
    assert not (tmp_path / "checkpoint-1" / REFERENCE_FILE).exists()
    with refused(CheckpointIncompleteError, ["sync_ref_model=True", REFERENCE_FILE], ["sync_ref_model=False"]):
        go_on(tmp_path, 1)
