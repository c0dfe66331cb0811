"""Resumes inside a generation batch of a real Qwen2.5-VL: pictures are read from the rows again, or said to differ."""

import datasets
import numpy as np
import pytest
from datasets import Dataset
from PIL import Image
from safetensors import safe_open

from tests.support.marks import slow
from tests.support.runs import StopAfter, assert_same_end, first_letter
from trl_vade import VADEGRPOTrainer
from trl_vade.trainer.checkpoint.generation_batch import file_name


def picture(number, size=56):
    noise = np.random.default_rng(number).integers(0, 255, (size, size + 28 * (number % 3), 3), dtype=np.uint8)
    return Image.fromarray(noise)


def vision_rows(column="image", shift=0, variants=False):
    """12 rows, every third without a picture. With `shift` the pictures are others under the same ids."""
    rows = []
    for i in range(12):
        one = None if i % 3 == 2 else picture(i + shift)
        entry = one if column == "image" else [] if one is None else [one, picture(i)][: 1 + i % 2]
        rows.append({"prompt": [{"role": "user", "content": f"What is {i}?"}], column: entry, "id": f"row-{i}"})
        if variants:
            hint = [{"role": "user", "content": f"What is {i}? It is round."}]
            rows[-1]["variants"] = [{"kind": "hint", "prompt": hint}]
    feature = datasets.Image() if column == "image" else datasets.List(datasets.Image())
    return Dataset.from_list(rows).cast_column(column, feature)


@pytest.fixture
def start(vision_model_path, make_args, tmp_path):
    """A function that makes a trainer of two optimiser steps a generation batch."""

    def make(folder, rows, stop=None, **changes):
        changes = {"steps_per_generation": 2, "max_steps": 4, "save_strategy": "steps", "save_steps": 1} | changes
        args = make_args(output_dir=str(tmp_path / folder), **changes)
        callbacks = [StopAfter(stop)] if stop else None
        return VADEGRPOTrainer(vision_model_path, first_letter, args, rows, callbacks=callbacks)

    return make


def sizes_of_pictures(checkpoint):
    with safe_open(checkpoint / file_name(0), "pt") as file:
        return [file.get_tensor(key).numel() for key in file.keys() if key.endswith("/pixel_values")]  # noqa: SIM118


CASES = {
    "one picture a row or none, with refills": ("image", {"vade_dynamic_sampling": True}),
    "lists of pictures, on a part of the rows": ("images", {"vade_down_sampling": "live"}),
    "variants of questions": ("images", {"vade_variants": "variants", "vade_variant_groups": 1}),
}


@pytest.mark.parametrize("case", [next(iter(CASES)), *map(slow, list(CASES)[1:])])
def test_a_batch_without_pictures_goes_on_bit_for_bit(start, tmp_path, case):
    column, changes = CASES[case]
    rows = vision_rows(column, variants="vade_variants" in changes)
    whole = start("whole", rows, **changes, save_strategy="no")
    whole.train()
    start("parts", rows, stop=3, **changes).train()
    checkpoint = tmp_path / "parts" / "checkpoint-3"
    assert set(sizes_of_pictures(checkpoint)) == {0}
    resumed = start("parts", rows, **changes)
    resumed.train(resume_from_checkpoint=str(checkpoint))
    assert_same_end(resumed, whole)


def test_pictures_of_a_transform_stay_in_the_file(start, tmp_path):
    rows = vision_rows()
    rows.set_transform(lambda batch: {**batch, "image": [one and one.rotate(90) for one in batch["image"]]})
    start("parts", rows, stop=1, max_steps=1).train()
    assert sum(sizes_of_pictures(tmp_path / "parts" / "checkpoint-1")) > 0


def test_where_a_row_or_the_processor_has_changed_the_batch_is_generated_anew_and_that_is_said(
    start, tmp_path, caplog
):
    """The ids are the same, so the posterior goes on."""
    start("parts", vision_rows(), stop=1, max_steps=1).train()
    checkpoint = str(tmp_path / "parts" / "checkpoint-1")
    changed = start("parts", vision_rows(shift=100), max_steps=3, save_strategy="no")
    changed.train(resume_from_checkpoint=checkpoint)
    assert "the pictures of row" in caplog.text
    assert "new generation batch" in caplog.text
    assert changed.state.global_step == 3
    assert changed.selection.sampler.posterior.step == 2
    caplog.clear()
    other = start("parts", vision_rows(), max_steps=1, save_strategy="no")
    other.processing_class.image_processor.image_mean = [0.0, 0.0, 0.0]
    other.train(resume_from_checkpoint=checkpoint)
    assert "the processor is another" in caplog.text
