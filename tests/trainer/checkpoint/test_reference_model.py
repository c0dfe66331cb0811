"""A reference model that follows the policy (`sync_ref_model`) is saved with each checkpoint, and goes on from it."""

import shutil
from pathlib import Path

import pytest
from transformers import AutoConfig, AutoModelForCausalLM

from tests.support.checkpoints import without_later
from tests.support.marks import slow_but
from tests.support.refusals import refused
from tests.support.rows import make_text_rows
from tests.support.runs import SMALL_RUN, assert_equal_weights, assert_same_end, says_a_digit, train, weights
from trl_vade import VADEGRPOConfig, VADEGRPOTrainer
from trl_vade.errors import CheckpointIncompleteError
from trl_vade.trainer.checkpoint.resuming import REFERENCE_FILE

STEPS = 12
SYNCED = {"beta": 0.5, "sync_ref_model": True, "ref_model_sync_steps": 3, "ref_model_mixup_alpha": 0.5}
TIMES = {"step_time", "train_runtime", "train_samples_per_second", "train_steps_per_second"}


def settings(folder, **changes):
    saves = {"save_strategy": "steps", "save_steps": 1, "max_steps": STEPS}
    return VADEGRPOConfig(**SMALL_RUN | SYNCED | saves | {"output_dir": str(folder)} | changes)


def log_of(trainer):
    """All that was logged but for times."""
    entries = trainer.state.log_history
    return [{k: v for k, v in e.items() if k not in TIMES and "seconds" not in k and "time" not in k} for e in entries]


@pytest.fixture(scope="module")
def whole(text_model_path, tmp_path_factory):
    """A run of twelve steps with a checkpoint of each, whose reference model took over four times."""
    return train(text_model_path, make_text_rows(), settings(tmp_path_factory.mktemp("whole")))


@pytest.fixture
def copied(whole, tmp_path):
    """The output directory of `whole`, for a test to change and to go on in."""
    return Path(shutil.copytree(whole.args.output_dir, tmp_path / "copied"))


def go_on(model, folder, checkpoint, rewards=says_a_digit, **changes):
    trainer = VADEGRPOTrainer(model, rewards, settings(folder, **changes), make_text_rows())
    trainer.train(resume_from_checkpoint=without_later(folder / f"checkpoint-{checkpoint}"))
    return trainer


@pytest.mark.parametrize("stop", slow_but(["7"], map(str, range(1, STEPS + 1))))
def test_each_checkpoint_goes_on_with_the_reference_model_that_it_was_saved_with(whole, copied, text_model_path, stop):
    resumed = go_on(text_model_path, copied, int(stop), save_strategy="no")
    assert_same_end(resumed, whole)
    assert_equal_weights(resumed.ref_model.state_dict(), whole.ref_model.state_dict())
    ours, theirs = log_of(resumed)[:-1], log_of(whole)[:-1]
    assert ours == theirs  # the last entry is of the whole call


def test_the_reference_model_of_the_run_is_neither_the_base_model_nor_the_policy(whole, text_model_path):
    """Else the test above would pass with whatever reference model."""
    base, reference = AutoModelForCausalLM.from_pretrained(text_model_path).state_dict(), whole.ref_model.state_dict()
    assert not any(reference[name].equal(base[name]) for name in base if name.endswith("proj.weight"))
    assert not any(reference[name].equal(weights(whole)[name]) for name in base if name.endswith("proj.weight"))


def test_the_stock_trainer_in_ours_resumes_it_too(text_model_path, tmp_path):
    """Rows in file order: none is chosen here, and there is no posterior."""
    run = {"vade_sampler": "uniform", "shuffle_dataset": False, "max_steps": 5}
    whole = train(text_model_path, make_text_rows(), settings(tmp_path, **run))
    assert whole.selection is None
    resumed = go_on(text_model_path, tmp_path, 4, **run)
    assert_equal_weights(resumed.ref_model.state_dict(), whole.ref_model.state_dict())
    assert_equal_weights(weights(resumed), weights(whole))


def test_tied_weights_stay_tied(text_model_path, tmp_path):
    tied = tmp_path / "tied"
    shutil.copytree(text_model_path, tied)
    config = AutoConfig.from_pretrained(text_model_path, tie_word_embeddings=True)
    AutoModelForCausalLM.from_config(config).save_pretrained(tied)
    whole = train(str(tied), make_text_rows(), settings(tmp_path / "run", max_steps=5))
    resumed = go_on(str(tied), tmp_path / "run", 4, max_steps=5)
    assert resumed.ref_model.lm_head.weight is resumed.ref_model.model.embed_tokens.weight
    assert_equal_weights(resumed.ref_model.state_dict(), whole.ref_model.state_dict())


def test_a_checkpoint_of_a_run_without_sync_is_refused_with_what_to_set(text_model_path, tmp_path):
    train(text_model_path, make_text_rows(), settings(tmp_path, sync_ref_model=False, max_steps=1))
    assert not (tmp_path / "checkpoint-1" / REFERENCE_FILE).exists()
    with refused(CheckpointIncompleteError, ["sync_ref_model=True", REFERENCE_FILE], ["sync_ref_model=False"]):
        go_on(text_model_path, tmp_path, 1)
