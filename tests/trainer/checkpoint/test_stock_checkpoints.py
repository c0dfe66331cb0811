"""A checkpoint of the stock trainer: uniform goes on from it as stock would, a sampler that chooses cannot."""

import shutil

import pytest
from trl import GRPOConfig, GRPOTrainer

from tests.support.checkpoints import without_later
from tests.support.marks import slow
from tests.support.refusals import refused
from tests.support.runs import assert_equal_weights, says_a_digit, weights
from trl_vade import VADEGRPOConfig, VADEGRPOTrainer
from trl_vade.errors import CheckpointIncompleteError, SnapshotNotFoundError
from trl_vade.samplers.snapshot import load_snapshot
from trl_vade.trainer.checkpoint.folders import missing_part


@pytest.fixture
def run(text_model_path, text_rows, make_args, tmp_path):
    """A function that trains in the folder named; it returns the trainer and the rows of each generation batch."""

    def start(folder, kind, checkpoint=None, **changes):
        asked = []

        def noting(completions, limit, id, **kwargs):
            asked.append(id[::4])
            return says_a_digit(completions, limit)

        config = GRPOConfig if kind is GRPOTrainer else VADEGRPOConfig
        trainer = kind(
            text_model_path, noting, make_args(config, output_dir=str(tmp_path / folder), **changes), text_rows
        )
        trainer.train(resume_from_checkpoint=checkpoint and without_later(tmp_path / folder / checkpoint))
        return trainer, asked

    return start


@pytest.mark.parametrize(
    ("changes", "saved"),
    [
        slow({"max_steps": 8}, 2),
        ({"max_steps": 14}, 8),  # in the second epoch, of which the stock trainer has the order of the first
        slow({"max_steps": 13}, 6),  # between two epochs
        ({"max_steps": 9, "num_iterations": 2}, 5),  # inside a generation batch
        # Two batches a step.
        slow({"max_steps": 7, "per_device_train_batch_size": 8, "gradient_accumulation_steps": 4}, 2),
    ],
    ids=["in an epoch", "in the second epoch", "between epochs", "inside a batch", "accumulation"],
)
def test_uniform_goes_on_with_the_rows_and_weights_of_the_stock_trainer(run, tmp_path, caplog, changes, saved):
    run("stock", GRPOTrainer, save_strategy="steps", save_steps=saved, **changes)
    shutil.copytree(tmp_path / "stock", tmp_path / "ours")
    stock, expected = run("stock", GRPOTrainer, f"checkpoint-{saved}", **changes)
    ours, asked = run("ours", VADEGRPOTrainer, f"checkpoint-{saved}", vade_sampler="uniform", **changes)
    assert asked == expected
    assert_equal_weights(weights(ours), weights(stock))
    assert ours.selection.sampler.posterior.step == len(asked)
    assert "from 0" in caplog.text


def test_a_checkpoint_that_lost_its_posterior_is_not_one_of_the_stock_trainer(run, tmp_path):
    run("lost", VADEGRPOTrainer, vade_sampler="uniform", max_steps=1, save_strategy="steps", save_steps=1)
    for path in (tmp_path / "lost" / "checkpoint-1").glob("vade_posterior.*"):
        path.unlink()
    with refused(CheckpointIncompleteError, ["vade_posterior.safetensors"]):
        run("lost", VADEGRPOTrainer, "checkpoint-1", vade_sampler="uniform")


def test_a_sampler_that_chooses_does_not_go_on_without_a_posterior(run, tmp_path):
    run("stock", GRPOTrainer, max_steps=1, save_strategy="steps", save_steps=1)
    with refused(SnapshotNotFoundError, ["checkpoint-1"], ["new run"]):
        run("stock", VADEGRPOTrainer, "checkpoint-1")


def test_a_run_that_went_on_from_a_stock_checkpoint_can_be_resumed_itself(run, tmp_path):
    run("stock", GRPOTrainer, max_steps=2, save_strategy="steps", save_steps=2)
    saving = {"vade_sampler": "uniform", "save_strategy": "steps", "save_steps": 1}
    whole, asked = run("stock", VADEGRPOTrainer, "checkpoint-2", max_steps=5, **saving)
    assert load_snapshot(tmp_path / "stock" / "checkpoint-4").sampler_state["posterior"]["step"] == 2
    resumed, again = run("stock", VADEGRPOTrainer, "checkpoint-4", max_steps=5, **saving)
    assert again == asked[2:]
    assert_equal_weights(weights(resumed), weights(whole))


def test_what_goes_on_from_a_stock_checkpoint_can_save_its_own(run, tmp_path):
    """transformers 5.23 raises a KeyError for a stateful callback that the checkpoint does not know."""
    saving = {"save_strategy": "steps", "save_steps": 1}
    run("stock", GRPOTrainer, max_steps=1, **saving)
    run("stock", VADEGRPOTrainer, "checkpoint-1", max_steps=2, **saving, vade_sampler="uniform", shuffle_dataset=False)
    assert missing_part(tmp_path / "stock" / "checkpoint-2") is None
