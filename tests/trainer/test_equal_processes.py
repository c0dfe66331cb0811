"""What a process says of the weights that it holds. Two real processes: test_two_processes.py, test_sharded.py."""

from types import SimpleNamespace

import pytest
import torch
from transformers import AutoModelForSequenceClassification

from tests.support.refusals import refused
from trl_vade.errors import ConfigurationError
from trl_vade.trainer import equal_processes
from trl_vade.trainer.equal_processes import refuse_differing_weights, weights_here


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


def test_zeros_are_told_from_weights_and_from_nothing():
    square = torch.arange(4.0).reshape(2, 2).T
    assert weights_here(model_of(square)) == weights_here(model_of(square.contiguous()))
    assert weights_here(model_of([0.0, 0.0])) == weights_here(model_of([0.0], [0.0])) == "all zero"
    assert weights_here(model_of([0.0], [0.5])) != "all zero"
    assert weights_here(model_of([])) is None


def trainer_with_a_reward_model(text_model_path):
    """Beside a function, which is no matter of weights."""
    model = AutoModelForSequenceClassification.from_pretrained(text_model_path, num_labels=1)
    return SimpleNamespace(ref_model=None, reward_func_names=["length", "judge"], reward_funcs=[len, model])


def test_a_reward_model_without_weights_on_another_process_is_refused_by_its_name(text_model_path, monkeypatch):
    """Another process is played here; two real ones differ in test_two_processes.py and test_sharded.py."""
    monkeypatch.setattr(equal_processes, "gather_object", lambda here: [*here, "all zero"])
    offers = ["fsdp_cpu_ram_efficient_loading", "false", "5.18", "revision"]
    with refused(ConfigurationError, ["judge", "all zero"], offers):
        refuse_differing_weights(trainer_with_a_reward_model(text_model_path))


@pytest.mark.parametrize("other", ["the same", None], ids=["a replica", "a process that holds nothing of it"])
def test_processes_that_agree_are_let_through(text_model_path, monkeypatch, other):
    monkeypatch.setattr(equal_processes, "gather_object", lambda here: [*here, *(here if other else [None])])
    refuse_differing_weights(trainer_with_a_reward_model(text_model_path))
