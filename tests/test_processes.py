"""What processes tell each other: weights and errors. Two real ones: test_two_processes.py, test_sharded.py."""

import pickle
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoModelForSequenceClassification

from tests.support.refusals import refused
from trl_vade import processes
from trl_vade.errors import ConfigurationError, HubError
from trl_vade.processes import refuse_differing_weights, weights_here


def model_of(*values, dtype=torch.float32):
    tensors = (torch.as_tensor(value, dtype=dtype) for value in values)
    return torch.nn.ParameterList([torch.nn.Parameter(each, requires_grad=False) for each in tensors])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.uint8])
def test_one_weight_that_differs_is_seen_in_every_type(dtype):
    one, same = model_of([1.0, 2.0], 3.0, dtype=dtype), model_of([1.0, 2.0], 3.0, dtype=dtype)
    assert weights_here(one) == weights_here(same) != weights_here(model_of([1.0, 2.0], 4.0, dtype=dtype))


def test_zeros_are_told_from_weights_and_from_nothing():
    square = torch.arange(4.0).reshape(2, 2).T
    assert weights_here(model_of(square)) == weights_here(model_of(square.contiguous()))
    assert weights_here(model_of([0.0, 0.0])) == weights_here(model_of([0.0], [0.0])) == "all zero"
    assert "all zero" not in (weights_here(model_of([0.0], [0.5])), weights_here(model_of([2.0, -2.0])))
    assert weights_here(model_of([])) is None


def test_a_reward_model_without_weights_on_another_process_is_refused_by_its_name(text_model_path, monkeypatch):
    """Another process is played here: one that agrees, one that holds nothing of the model, and one that differs."""
    model = AutoModelForSequenceClassification.from_pretrained(text_model_path, num_labels=1)
    models = [("The reference model", None), ("length", len), ("judge", model)]
    with monkeypatch.context() as alone:  # the weights of a process alone are not even read
        alone.setattr(processes, "weights_here", None)
        refuse_differing_weights(models)
    monkeypatch.setattr(processes, "PartialState", lambda: SimpleNamespace(num_processes=2))
    for other in (weights_here(model), None):
        monkeypatch.setattr(processes, "gather_object", lambda here, other=other: [*here, other])
        refuse_differing_weights(models)
    monkeypatch.setattr(processes, "gather_object", lambda here: [*here, "all zero"])
    offers = ["fsdp_cpu_ram_efficient_loading", "false", "5.18", "revision"]
    with refused(ConfigurationError, ["judge", "all zero"], offers):
        refuse_differing_weights(models)


def test_an_error_of_the_hub_travels_between_processes_whole():
    error = pickle.loads(pickle.dumps(HubError("refused", status=403, retry_after=2.0)))
    assert (str(error), error.status, error.may_pass, error.retry_after) == ("refused", 403, False, 2.0)
