"""What a process says of the weights that it holds. Two real processes: test_two_processes.py, test_sharded.py."""

import pytest
import torch

from trl_vade.trainer.equal_processes import weights_here


def model_of(*values, dtype=torch.float32):
    model = torch.nn.Module()
    for number, value in enumerate(values):
        model.register_parameter(
            f"p{number}", torch.nn.Parameter(torch.as_tensor(value, dtype=dtype), requires_grad=False)
        )
    return model


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.uint8])
def test_one_weight_that_differs_is_seen_in_every_type(dtype):
    one, same = model_of([1.0, 2.0], 3.0, dtype=dtype), model_of([1.0, 2.0], 3.0, dtype=dtype)
    assert weights_here(one) == weights_here(same) != weights_here(model_of([1.0, 2.0], 4.0, dtype=dtype))


def test_a_tensor_that_is_not_contiguous_counts_like_its_copy():
    square = torch.arange(4.0).reshape(2, 2).T
    assert weights_here(model_of(square)) == weights_here(model_of(square.contiguous()))


def test_zeros_are_told_from_weights_and_from_nothing():
    zeros = {weights_here(model_of([0.0, 0.0])), weights_here(model_of([0.0], [0.0, 0.0]))}
    assert len(zeros) == 1  # whatever their number
    assert weights_here(model_of([0.0], [0.5])) not in zeros
    assert weights_here(model_of([])) is None
