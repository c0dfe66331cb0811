"""TRL's buffered completions as a file and back; the pictures of each row are loaded again, or said to differ."""

import json

import datasets
import numpy as np
import pytest
import torch
from datasets import Dataset
from PIL import Image
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from trl.trainer.utils import shuffle_sequence_dict, split_pixel_values_by_grid, split_tensor_dict
from trl.trainer.utils import unsplit_pixel_values_by_grid as unsplit

from eval.benchmarks.faults.disks import file_size_limit
from tests.support.marks import slow
from tests.support.refusals import refused
from tests.support.runs import StopAfter, assert_same_end, first_letter
from trl_vade import VADEGRPOTrainer
from trl_vade.trainer.checkpoint.generation_batch import (
    PICTURES,
    ROW,
    file_name,
    load_generation_batch,
    save_generation_batch,
)

CPU = torch.device("cpu")
ROWS = [5, 5, 2, 2, 9, 9, 7, 7]  # of 8 completions; row 9 has two pictures and row 7 none
IMAGES = {5: 1, 2: 1, 9: 2, 7: 0}
PATCHES = {5: [4], 2: [8], 9: [4, 4], 7: []}  # of each picture


def of_row(row, form):
    """What the processor makes of the pictures of a row, for the models that TRL 1.16 splits in different ways."""
    sizes = PATCHES[row] if form in ("grid", "tiles", "spatial") else [1] * IMAGES[row]
    seeded = torch.Generator().manual_seed(row)
    entries = {"pixel_values": torch.rand(sum(sizes), 3, generator=seeded).to(torch.bfloat16)}
    if form == "grid":
        entries["image_grid_thw"] = torch.tensor([[1, 2, size // 2] for size in sizes], dtype=torch.int64).reshape(
            -1, 3
        )
    if form == "positions":
        entries["image_position_ids"] = torch.full((len(sizes), 2), row)
    if form == "spatial":
        entries["pixel_attention_mask"] = torch.ones(sum(sizes), 3, dtype=torch.int64)
        entries["spatial_shapes"] = torch.full((sum(sizes), 2), row)
    return entries


def micro_batches(form="grid", rows=ROWS):
    """A generation batch as TRL 1.16 buffers it: shuffled and split, of slices that share memory."""
    each = [of_row(row, form) for row in rows]
    batch = {
        "prompt_ids": torch.arange(24).reshape(8, 3),
        **{name: torch.cat([entries[name] for entries in each]) for name in each[0]},
        "advantages": torch.tensor([0.5, -0.5, float("nan"), 1e-30, 1, 2, 3, 4]),
        "mask": torch.tensor([True, False] * 4),
        "num_items_in_batch": torch.tensor(11),
        "num_images": [IMAGES[row] for row in rows],
        "nothing": None,
        ROW: torch.tensor(rows),
    }
    if form in ("tiles", "spatial"):
        batch["num_tiles"] = [sum(PATCHES[row]) for row in rows]
    if form == "padded":  # a row for each completion
        batch["pixel_values"] = torch.rand(8, 2, 3)
    torch.manual_seed(1)
    return [unsplit(part) for part in split_tensor_dict(shuffle_sequence_dict(split_pixel_values_by_grid(batch)), 4)]


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


def pictures_in(path):
    with safe_open(path, "pt") as file:
        return sum(file.get_tensor(key).numel() for key in file.keys() if key.split("/")[1] in PICTURES)  # noqa: SIM118


@pytest.mark.parametrize("form", ["grid", "flat", "positions", "tiles", "spatial"])
def test_what_was_saved_comes_back_to_the_bit_with_pictures_that_are_loaded_once_a_row(tmp_path, form):
    path, asked, expected = tmp_path / "batch.safetensors", [], micro_batches(form)
    assert save_generation_batch(path, expected, by_rows=True) is None
    assert pictures_in(path) == 0

    def load(rows):
        asked.append(rows)
        entries = {row: of_row(row, form) for row in rows}
        return {row: {name: entries[row][name].float() for name in PICTURES if name in entries[row]} for row in rows}

    assert_same(load_generation_batch(path, load, CPU), expected)
    assert asked == [[2, 5, 9]]


def other_copies(batches):
    batches[0]["pixel_values"] = batches[0]["pixel_values"].clone()
    batches[0]["pixel_values"][0] += 1  # as a tool adds a picture to one completion
    return batches


def unknown_rows(batches):
    return [{name: value for name, value in each.items() if name != ROW} for each in batches]


@pytest.mark.parametrize(
    ("batches", "by_rows"),
    [
        (micro_batches(), False),
        (unknown_rows(micro_batches()), True),
        (other_copies(micro_batches()), True),
        (micro_batches("padded"), True),
    ],
    ids=["a transform", "unknown rows", "copies that differ", "padded pictures"],
)
def test_pictures_that_cannot_be_loaded_again_are_in_the_file(tmp_path, batches, by_rows):
    path = tmp_path / "batch.safetensors"
    assert save_generation_batch(path, batches, by_rows=by_rows) is None
    assert pictures_in(path) == sum(each["pixel_values"].numel() for each in batches)
    assert_same(load_generation_batch(path, lambda rows: 1 / 0, CPU), batches)


@pytest.mark.parametrize("change", [lambda value: value + 1, lambda value: value[:-1], lambda value: value[:0]])
def test_a_row_with_other_pictures_is_named(tmp_path, change):
    path = tmp_path / "batch.safetensors"
    save_generation_batch(path, micro_batches(), by_rows=True)
    pictures = {row: {"pixel_values": of_row(row, "grid")["pixel_values"]} for row in (2, 5, 9)}
    pictures[9]["pixel_values"] = change(pictures[9]["pixel_values"])
    with refused(ValueError, names=["row 9", "pictures"]):
        load_generation_batch(path, lambda rows: pictures, CPU)


def with_others(others, tensors=None):
    return save(tensors or {}, metadata={"others": json.dumps(others)})


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no tensors",
        save({"0/x": torch.zeros(2)}),
        save({"0/x": torch.zeros(2)}, metadata={"others": "[" * 100_000}),
        with_others(None),
        with_others({"micro_batches": [None], "pictures": {}}),
        with_others({"micro_batches": [{"num_images": [1, "2"]}], "pictures": {}}),
        with_others({"micro_batches": [{"num_images": True}], "pictures": {}}),
        with_others({"micro_batches": [{}], "pictures": {"3": "ab"}}),
        with_others({"micro_batches": [{}], "pictures": {}}, {"1/x": torch.zeros(2)}),
    ],
)
def test_a_file_that_another_program_wrote_is_an_error(tmp_path, content):
    (tmp_path / "batch.safetensors").write_bytes(content)
    with pytest.raises(Exception, match=r".+"):
        load_generation_batch(tmp_path / "batch.safetensors", lambda rows: {}, CPU)


@pytest.mark.parametrize("value", ["text", [1.5], [[1]], {"a": 1}, [True]])
def test_what_cannot_be_saved_exactly_is_said_and_nothing_is_written(tmp_path, value):
    reason = save_generation_batch(tmp_path / "batch.safetensors", [{"new_in_trl": value}], by_rows=True)
    assert "new_in_trl" in reason
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_an_error_and_leaves_nothing(tmp_path):
    with file_size_limit(100), pytest.raises(SafetensorError, match="File too large"):
        save_generation_batch(tmp_path / "batch.safetensors", micro_batches(), by_rows=True)
    assert not list(tmp_path.iterdir())


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
