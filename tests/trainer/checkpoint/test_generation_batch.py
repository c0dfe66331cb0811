"""TRL's buffered completions as a file and back; the pictures of each row are loaded again, or said to differ."""

import json

import datasets
import numpy as np
import pytest
import torch
from datasets import Dataset
from PIL import Image
from safetensors import SafetensorError, safe_open
from trl.trainer.utils import shuffle_sequence_dict, split_tensor_dict

from eval.benchmarks.faults.disks import file_size_limit
from tests.support.marks import slow
from tests.support.refusals import refused
from tests.support.rows import with_variants
from tests.support.runs import StopAfter, assert_same_end, first_letter, says_a_digit
from trl_vade import VADEGRPOTrainer
from trl_vade.trainer.checkpoint.generation_batch import file_name, load_generation_batch, save_generation_batch
from trl_vade.trainer.images.store import PixelStore

ROWS = [5, 2, 9]


def pixels(change=0.0):
    """Those of the three rows; the file must keep their type and every bit."""
    seeded = torch.Generator().manual_seed(1)
    return {"pixel_values": torch.rand(16, 3, generator=seeded).to(torch.bfloat16) + change}


def store(of_rows=ROWS):
    return PixelStore(pixels(), of_rows)


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
        last = len(json.loads(file.metadata()["others"])[0]) - 1
        return [key.split("/")[1] for key in file.keys() if key.startswith(f"{last}/")]  # noqa: SIM118


@pytest.mark.parametrize("of_rows", [ROWS, None], ids=["of rows", "of a transform"])
def test_what_was_saved_comes_back_to_the_bit_with_pixels_of_the_rows_made_again(tmp_path, of_rows):
    path, asked, expected = tmp_path / "batch.safetensors", [], micro_batches()
    save_generation_batch(path, expected, store(of_rows))
    assert path.stat().st_size < 20_000  # each slice alone
    assert pixels_in(path) == ([] if of_rows else ["pixel_values"])
    loaded, found, rows = load_generation_batch(path, lambda rows: asked.append(rows) or pixels())
    assert_same([*loaded, found], [*expected, pixels()])
    assert rows == of_rows
    assert asked == ([ROWS] if of_rows else [])


def test_a_batch_without_pixels_asks_for_none(tmp_path):
    path = tmp_path / "batch.safetensors"
    batches = [{name: value for name, value in each.items() if name != "pixel_values"} for each in micro_batches()]
    assert save_generation_batch(path, batches, PixelStore(of_rows=ROWS)) is None
    loaded, found, _ = load_generation_batch(path, lambda rows: 1 / 0)
    assert_same([*loaded, found], [*batches, {}])


@pytest.mark.parametrize(
    "other", [pixels(1.0), {"pixel_values": pixels()["pixel_values"][:-1]}, {"pixel_values": torch.zeros(16, 3)}, {}]
)
def test_rows_with_other_pictures_are_named(tmp_path, other):
    path = tmp_path / "batch.safetensors"
    save_generation_batch(path, micro_batches(), store())
    with refused(ValueError, names=["[5, 2, 9]", "pictures"]):
        load_generation_batch(path, lambda rows: other)


@pytest.mark.parametrize("content", [None, b"", b"no tensors"])
def test_a_file_that_is_missing_or_damaged_is_an_error(tmp_path, content):
    if content is not None:
        (tmp_path / "batch.safetensors").write_bytes(content)
    with pytest.raises((OSError, SafetensorError)):
        load_generation_batch(tmp_path / "batch.safetensors", lambda rows: {})


def test_values_that_the_file_cannot_hold_leave_none_and_a_resume_generates_anew(tmp_path):
    save_generation_batch(tmp_path / "batch.safetensors", [{"new": object()}], store())
    assert not any(tmp_path.iterdir())


def test_a_full_disk_is_an_error(tmp_path):
    with file_size_limit(100), pytest.raises((OSError, SafetensorError)):
        save_generation_batch(tmp_path / "batch.safetensors", micro_batches(), store())


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


def test_pictures_of_a_transform_stay_in_the_file(start, tmp_path):
    rows = vision_rows()
    rows.set_transform(lambda batch: {**batch, "image": [one and one.rotate(90) for one in batch["image"]]})
    start("parts", rows, stop=1, max_steps=1).train()
    assert pixels_in(tmp_path / "parts" / "checkpoint-1" / file_name(0)) == ["pixel_values"]


def test_where_a_row_or_the_processor_has_changed_the_batch_is_generated_anew_and_that_is_said(
    start, tmp_path, caplog
):
    """The ids are the same, so the posterior goes on."""
    start("parts", vision_rows(), stop=1, max_steps=1).train()
    checkpoint = str(tmp_path / "parts" / "checkpoint-1")
    changed = start("parts", vision_rows(shift=100), max_steps=3, save_strategy="no")
    changed.train(resume_from_checkpoint=checkpoint)
    assert "the pictures of the rows" in caplog.text
    assert "new generation batch" in caplog.text
    assert changed.state.global_step == 3
    assert changed.selection.sampler.posterior.step == 2
    caplog.clear()
    other = start("parts", vision_rows(), max_steps=1, save_strategy="no")
    other.processing_class.image_processor.image_mean = [0.0, 0.0, 0.0]
    other.train(resume_from_checkpoint=checkpoint)
    assert "the processor is another" in caplog.text


def test_a_batch_that_lacks_what_the_loss_needs_now_is_generated_anew_and_that_is_said(
    text_model_path, text_rows, make_args, caplog
):
    changes = {"num_iterations": 2, "steps_per_generation": 4, "per_device_train_batch_size": 4, "max_steps": 4}
    for more in ({"save_strategy": "steps", "save_steps": 3, "max_steps": 3}, {"beta": 0.1}):
        trainer = VADEGRPOTrainer(text_model_path, says_a_digit, make_args(**changes | more), text_rows)
        trainer.train(resume_from_checkpoint="auto")
    assert "no ref_per_token_logps" in caplog.text
    assert "new generation batch" in caplog.text
    assert trainer.state.global_step == 4
