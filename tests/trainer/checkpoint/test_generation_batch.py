"""TRL's buffered completions as a file, and back."""

import hashlib
import json

import pytest
import torch
from safetensors.torch import save

from tests.support.refusals import refused
from trl_vade.errors import SnapshotCorruptError
from trl_vade.trainer.checkpoint.generation_batch import load_generation_batch, save_generation_batch

CPU = torch.device("cpu")


def micro_batches():
    whole = torch.arange(24).reshape(8, 3)
    return [
        {
            "prompt_ids": whole[i * 4 : (i + 1) * 4],  # slices that share memory, as TRL's do
            "advantages": torch.tensor([0.5, -0.5, float("nan"), 1e-30]) * (i + 1),
            "pixel_values": torch.full((2, 5), 0.1, dtype=torch.bfloat16),
            "mask": torch.tensor([True, False, True, True]),
            "num_items_in_batch": torch.tensor(11),
            "num_images": [1, 0, 2, 1],
            "nothing": None,
        }
        for i in range(2)
    ]


def assert_same(left, right):
    assert left.keys() == right.keys()
    for name, value in left.items():
        if isinstance(value, torch.Tensor):
            assert value.dtype == right[name].dtype
            torch.testing.assert_close(value, right[name], rtol=0, atol=0, equal_nan=True)
        else:
            assert value == right[name]


def test_what_was_saved_comes_back_to_the_bit(tmp_path):
    path = tmp_path / "checkpoint-3" / "batch.safetensors"
    digest = save_generation_batch(path, micro_batches())
    loaded = load_generation_batch(path, digest, CPU)
    assert len(loaded) == 2
    for mine, theirs in zip(loaded, micro_batches(), strict=True):
        assert_same(mine, theirs)
    assert [file.name for file in path.parent.iterdir()] == ["batch.safetensors"]


def test_a_file_that_is_not_there_is_no_batch(tmp_path):
    assert load_generation_batch(tmp_path / "batch.safetensors", "0" * 64, CPU) is None


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b[:-1] + bytes([b[-1] ^ 1]), lambda b: b""])
def test_a_damaged_file_is_refused_by_name(tmp_path, damage):
    path = tmp_path / "batch.safetensors"
    digest = save_generation_batch(path, micro_batches())
    path.write_bytes(damage(path.read_bytes()))
    with refused(SnapshotCorruptError, names=[path]):
        load_generation_batch(path, digest, CPU)


def with_others(others, tensors=None):
    return save(tensors or {}, metadata={"others": json.dumps(others)})


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no tensors",
        save({"0/x": torch.zeros(2)}),
        save({"0/x": torch.zeros(2)}, metadata={"others": "["}),
        save({"0/x": torch.zeros(2)}, metadata={"others": "[" * 100_000}),
        with_others(None),
        with_others({"0": {}}),
        with_others([None]),
        with_others([{"num_images": [1, "2"]}]),
        with_others([{"num_images": True}]),
        *(with_others([{}], {key: torch.zeros(2)}) for key in ("1/x", "-1/x", "00/x", "x", "0")),
        with_others([{"x": None}], {"0/x": torch.zeros(2)}),
    ],
)
def test_a_file_that_save_generation_batch_did_not_write_is_refused_whatever_its_digest(tmp_path, content):
    path = tmp_path / "batch.safetensors"
    path.write_bytes(content)
    with refused(SnapshotCorruptError, names=[path]):
        load_generation_batch(path, hashlib.sha256(content).hexdigest(), CPU)


@pytest.mark.parametrize("value", ["text", [1.5], [[1]], {"a": 1}, [True]])
def test_what_cannot_be_saved_exactly_is_refused_and_nothing_is_written(tmp_path, value):
    with refused(TypeError, names=["new_in_trl"]):
        save_generation_batch(tmp_path / "batch.safetensors", [{"new_in_trl": value}])
    assert not list(tmp_path.iterdir())
