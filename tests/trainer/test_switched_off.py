"""Where a library has mended a fault of docs/upstream, its correction changes nothing; where it has not, it does."""

from types import SimpleNamespace

import pytest
import torch
from transformers import Trainer

from trl_vade import VADEGRPOTrainer
from trl_vade.trainer import grpo_trainer
from trl_vade.trainer.batch_rows import with_pixels_counted
from trl_vade.trainer.generation.corrections import without_empty_images


def test_empty_pixels():
    model = SimpleNamespace(config=SimpleNamespace(image_token_id=5))
    mended = {"input_ids": torch.ones(1, 2)}
    pixels = mended | {"pixel_values": torch.ones(4, 6), "image_grid_thw": torch.ones(1, 3)}
    for named in (mended, pixels):
        assert without_empty_images(model, (), named)[1] is named
    assert without_empty_images(model, (), pixels | {"pixel_values": torch.ones(0, 6)})[1].keys() == mended.keys()


def test_pixels_by_row():
    mended = {"pixel_values": torch.ones(3, 2), "pixel_attention_mask": torch.ones(3, 2), "num_images": [1, 1, 1]}
    assert with_pixels_counted(mended)["num_images"] == mended["num_images"]
    assert with_pixels_counted(mended | {"num_images": [2, 1, 0]})["num_images"] == mended["num_images"]
    of_qwen = {"pixel_values": torch.ones(3, 2), "num_images": [2, 1, 0]}
    assert with_pixels_counted(of_qwen) is of_qwen


@pytest.mark.parametrize("left_out", [[], ["model.visual"]])
def test_checkpoint_names(monkeypatch, left_out):
    def loads(self, checkpoint, model=None):
        self._issue_warnings_after_load(SimpleNamespace(unexpected_keys=left_out, missing_keys=[]))

    loaded = []
    monkeypatch.setattr(Trainer, "_load_from_checkpoint", loads)
    monkeypatch.setattr(grpo_trainer, "load_saved_weights", lambda model, folder: loaded.append(folder))
    trainer = VADEGRPOTrainer.__new__(VADEGRPOTrainer)
    trainer.model = SimpleNamespace(_keys_to_ignore_on_save=None, tie_weights=lambda: None)
    trainer._load_from_checkpoint("folder")
    assert loaded == (["folder"] if left_out else [])


@pytest.mark.parametrize("by_transformers", [{}, {"LastCheckpoint": {"args": {}, "attributes": {"of": "it"}}}])
def test_callback_states(run, by_transformers):
    trainer = run(max_steps=1, save_strategy="steps", save_steps=1)
    trainer.state.stateful_callbacks = dict(by_transformers)
    trainer._load_optimizer_and_scheduler(f"{trainer.args.output_dir}/checkpoint-1")
    assert "TrainedCounts" in trainer.state.stateful_callbacks
    assert by_transformers.items() <= trainer.state.stateful_callbacks.items()
