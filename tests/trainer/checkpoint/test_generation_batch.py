"""TRL's buffered completions as a file and back; the pictures of each row are loaded again, or said to differ."""

import json
from types import SimpleNamespace

import datasets
import numpy as np
import pytest
import torch
from accelerate import Accelerator
from datasets import Dataset
from PIL import Image
from safetensors import safe_open
from trl.trainer.utils import shuffle_sequence_dict, split_tensor_dict

from tests.support.marks import slow
from tests.support.rows import with_variants
from tests.support.runs import StopAfter, assert_same_end, first_letter, says_a_digit
from trl_vade import VADEGRPOTrainer
from trl_vade.trainer.checkpoint import generation_batch
from trl_vade.trainer.checkpoint.generation_batch import SIZES, file_name, layout
from trl_vade.trainer.images.store import PixelStore

ROWS = [5, 2, 9]


def pixels(change=0.0):
    """Those of the three rows; the file must keep their type and every bit."""
    seeded = torch.Generator().manual_seed(1)
    return {"pixel_values": torch.rand(16, 3, generator=seeded).to(torch.bfloat16) + change}


def micro_batches():
    """A generation batch as TRL 1.16 buffers it: shuffled and split, of slices that share memory."""
    batch = {
        "prompt_ids": torch.arange(24).reshape(8, 3),
        "pixel_values": torch.arange(16, dtype=torch.int32).reshape(8, 2),
        "advantages": torch.tensor([0.5, -0.5, float("nan"), 1e-30, 1, 2, 3, 4]),
        "mask": torch.tensor([True, False] * 4),
        "num_items_in_batch": torch.tensor(11),
        "num_images": [1, 1, 1, 1, 2, 2, 0, 0],
        "nothing": None,
    }
    return split_tensor_dict(shuffle_sequence_dict(batch), 4)


def assert_same(loaded, expected):
    assert len(loaded) == len(expected)
    for left, right in zip(loaded, expected, strict=True):
        assert left.keys() == right.keys()
        for name, value in left.items():
            if isinstance(value, torch.Tensor):
                assert value.dtype == right[name].dtype
                torch.testing.assert_close(value, right[name], rtol=0, atol=0, equal_nan=True)
            else:
                assert value == right[name]


def pixels_in(path):
    """The names of the pixels that are in the file."""
    with safe_open(path, framework="pt") as file:
        parts = json.loads(file.metadata()["others"])[0]
        return [key.partition("/")[2] for key in file.keys() if key.startswith(f"{len(parts) - 1}/")]  # noqa: SIM118


@pytest.fixture
def standing_in():
    """What a save and a resume read of a trainer inside a generation batch of these micro-batches."""

    def make(of_rows=ROWS, found=None):
        store = PixelStore(pixels() if found is None else found, of_rows)
        return SimpleNamespace(
            args=SimpleNamespace(output_dir="elsewhere", **dict.fromkeys(SIZES, 2)),
            accelerator=Accelerator(cpu=True),
            **{"num_iterations": 2, "beta": 0.0, "use_vllm": False, "_step": 1, "_buffered_inputs": micro_batches()},
            _images=SimpleNamespace(on=True, store=store),
        )

    return make


@pytest.mark.parametrize("of_rows", [ROWS, None], ids=["of rows", "of a transform"])
def test_what_was_saved_comes_back_to_the_bit_with_pixels_of_the_rows_made_again(
    standing_in, tmp_path, monkeypatch, caplog, of_rows
):
    asked, saved, resumed = [], standing_in(of_rows), standing_in(None, {})
    monkeypatch.setattr(generation_batch, "process_again", lambda _, rows: asked.append(rows) or pixels())
    generation_batch.save_batch_in_use(saved, tmp_path)
    path, run = tmp_path / file_name(0), {"layout": layout(saved), "micro_step": 1}
    assert path.stat().st_size < 20_000  # each slice alone
    assert pixels_in(path) == ([] if of_rows else ["pixel_values"])
    generation_batch.resume_batch_in_use(resumed, tmp_path, run)
    store = resumed._images.store
    assert_same([*resumed._buffered_inputs, store.tensors], [*saved._buffered_inputs, pixels()])
    assert (store.of_rows, asked) == (of_rows, [ROWS] if of_rows else [])
    if of_rows:
        others = (
            {"pixel_values": pixels()["pixel_values"][:-1]},
            {"pixel_values": torch.zeros(16, 3)},
            pixels(1.0),
            {},
        )
        for other in others:
            monkeypatch.setattr(generation_batch, "process_again", lambda _, rows, other=other: other)
            caplog.clear()
            generation_batch.resume_batch_in_use(resumed, tmp_path, run)
            assert "the pictures of the rows [5, 2, 9] are others" in caplog.text
            assert resumed._buffered_inputs is None


def picture(number, size=56):
    noise = np.random.default_rng(number).integers(0, 255, (size, size + 28 * (number % 3), 3), dtype=np.uint8)
    return Image.fromarray(noise)


def vision_rows(column="image", shift=0, variants=False):
    """12 rows, every third without a picture. With `shift` the pictures are others under the same ids."""
    rows, hints = [], []
    for i in range(12):
        one = None if i % 3 == 2 else picture(i + shift)
        entry = one if column == "image" else [] if one is None else [one, picture(i)][: 1 + i % 2]
        rows.append({"prompt": [{"role": "user", "content": f"What is {i}?"}], column: entry, "id": f"row-{i}"})
        hints.append([{"kind": "hint", "prompt": [{"role": "user", "content": f"What is {i}? It is round."}]}])
    feature = datasets.Image() if column == "image" else datasets.List(datasets.Image())
    rows = Dataset.from_list(rows).cast_column(column, feature)
    return with_variants(rows, hints) if variants else rows


@pytest.fixture
def start(vision_model_path, make_args, tmp_path):
    """A function that makes a trainer of two optimiser steps a generation batch."""

    def make(folder, rows, stop=None, **changes):
        changes = {"steps_per_generation": 2, "max_steps": 4, "save_strategy": "steps", "save_steps": 1} | changes
        args = make_args(output_dir=str(tmp_path / folder), **changes)
        callbacks = [StopAfter(stop)] if stop else None
        return VADEGRPOTrainer(vision_model_path, first_letter, args, rows, callbacks=callbacks)

    return make


CASES = {
    "one picture a row or none, with refills": ("image", {"vade_dynamic_sampling": True}),
    "lists of pictures, on a part of the rows": ("images", {"vade_down_sampling": "live"}),
    "variants of questions": ("images", {"vade_variants": "of"}),
}


@pytest.mark.parametrize("case", [next(iter(CASES)), *map(slow, list(CASES)[1:])])
def test_a_batch_without_pictures_goes_on_bit_for_bit(start, tmp_path, case):
    column, changes = CASES[case]
    rows = vision_rows(column, variants="vade_variants" in changes)
    whole = start("whole", rows, **changes, save_strategy="no")
    whole.train()
    start("parts", rows, stop=3, **changes).train()
    checkpoint = tmp_path / "parts" / "checkpoint-3"
    assert pixels_in(checkpoint / file_name(0)) == []
    resumed = start("parts", rows, **changes)
    resumed.train(resume_from_checkpoint=str(checkpoint))
    assert_same_end(resumed, whole)


def test_where_a_row_or_the_processor_has_changed_the_batch_is_generated_anew_and_that_is_said(
    start, tmp_path, caplog
):
    """The ids are the same, so the posterior goes on."""
    start("parts", vision_rows(), stop=1, max_steps=1).train()
    for changed, steps in ((True, 3), (False, 1)):
        caplog.clear()
        trainer = start("parts", vision_rows(shift=100 * changed), max_steps=steps, save_strategy="no")
        if not changed:
            trainer.processing_class.image_processor.image_mean = [0.0, 0.0, 0.0]
        trainer.train(resume_from_checkpoint=str(tmp_path / "parts" / "checkpoint-1"))
        assert "the pictures of the rows" in caplog.text
        assert "new generation batch" in caplog.text
        assert trainer.state.global_step == steps


def test_a_batch_that_lacks_what_the_loss_needs_now_is_generated_anew_and_that_is_said(
    text_model_path, text_rows, make_args, caplog
):
    changes = {"num_iterations": 2, "steps_per_generation": 4, "per_device_train_batch_size": 4, "max_steps": 4}
    for more in ({"save_strategy": "steps", "save_steps": 3, "max_steps": 3}, {"beta": 0.1}):
        trainer = VADEGRPOTrainer(text_model_path, says_a_digit, make_args(**changes | more), text_rows)
        trainer.train(resume_from_checkpoint="auto")
    assert "'reference': (0, 1)" in caplog.text
    assert "new generation batch" in caplog.text
    assert trainer.state.global_step == 4
