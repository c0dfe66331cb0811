"""TRL's buffered completions as a file and back; the pictures of each row are loaded again, or said to differ."""

import json

import datasets
import pytest
from datasets import Dataset
from safetensors import safe_open

from tests.support.marks import slow_but
from tests.support.rows import with_variants
from tests.support.runs import StopAfter, assert_same_end, first_letter
from tests.support.vision_runs import picture
from trl_vade.trainer.checkpoint.generation_batch import file_name


def pixels_in(path):
    """The names of the pixels that are in the file."""
    with safe_open(path, framework="pt") as file:
        parts = json.loads(file.metadata()["others"])[0]
        return [key.partition("/")[2] for key in file.keys() if key.startswith(f"{len(parts) - 1}/")]  # noqa: SIM118


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
def start(made, vision_model_path, tmp_path):
    """A function that makes a trainer of two optimiser steps a generation batch."""

    def make(folder, rows, stop=None, **changes):
        settings = {"steps_per_generation": 2, "max_steps": 4, "save_strategy": "steps", "save_steps": 1} | changes
        more = {"callbacks": [StopAfter(stop)] if stop else None}
        return made(first_letter, rows, model=vision_model_path, output_dir=tmp_path / folder, more=more, **settings)

    return make


CASES = {
    "one picture a row or none, with refills": ("image", {"vade_dynamic_sampling": True}),
    "lists of pictures, on a part of the rows": ("images", {"vade_down_sampling": "live"}),
    "rows that come again": ("images", {"vade_replay": 2, "vade_down_sampling": "live", "max_steps": 6}),
    "variants of questions": ("images", {"vade_variants": "of"}),
    "turned by a transform": ("image", {}),
}


def turned(batch):
    return {**batch, "image": [one and one.rotate(90) for one in batch["image"]]}


@pytest.mark.parametrize("case", slow_but(["turned by a transform"], CASES))
def test_a_batch_goes_on_bit_for_bit_without_its_pictures_but_for_those_of_a_transform(start, tmp_path, case):
    column, changes = CASES[case]
    rows = vision_rows(column, variants="vade_variants" in changes)
    if case == "turned by a transform":
        rows.set_transform(turned)
    whole = start("whole", rows, **changes, save_strategy="no")
    whole.train()
    stop = changes.get("max_steps", 4) - 1
    start("parts", rows, stop=stop, **changes).train()
    checkpoint = tmp_path / "parts" / f"checkpoint-{stop}"
    with_pixels = case in ("rows that come again", "turned by a transform")
    assert pixels_in(checkpoint / file_name(0)) == ["pixel_values"] * with_pixels
    resumed = start("parts", rows, **changes)
    resumed.train(resume_from_checkpoint=str(checkpoint))
    assert_same_end(resumed, whole)


def test_where_a_row_or_the_processor_has_changed_the_batch_is_made_anew_and_that_is_said(start, tmp_path, caplog):
    """The ids are the same, so the posterior goes on."""
    start("parts", vision_rows(), stop=1, max_steps=1).train()
    for changed, steps, said in (
        ("rows", 3, "the pictures of the rows"),
        ("processor", 1, "the pictures of the rows"),
        ("once", 3, "'images_once': (1, 0)"),  # the file has numbers in place of pixels
    ):
        caplog.clear()
        settings = {"max_steps": steps, "save_strategy": "no", "vade_images_once": changed != "once"}
        trainer = start("parts", vision_rows(shift=100 * (changed == "rows")), **settings)
        if changed == "processor":
            trainer.processing_class.image_processor.image_mean = [0.0, 0.0, 0.0]
        trainer.train(resume_from_checkpoint=str(tmp_path / "parts" / "checkpoint-1"))
        assert said in caplog.text
        assert "new generation batch" in caplog.text
        assert trainer.state.global_step == steps


def test_a_batch_that_lacks_what_the_loss_needs_now_is_generated_anew_and_that_is_said(made, tmp_path, caplog):
    changes = {"num_iterations": 2, "steps_per_generation": 4, "per_device_train_batch_size": 4, "max_steps": 4}
    for more in ({"save_strategy": "steps", "save_steps": 3, "max_steps": 3}, {"beta": 0.1}):
        trainer = made(output_dir=tmp_path / "run", **changes | more)
        trainer.train(resume_from_checkpoint="auto")
    assert "'reference': (0, 1)" in caplog.text
    assert "new generation batch" in caplog.text
    assert trainer.state.global_step == 4
