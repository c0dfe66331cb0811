"""A briefly taught model: enough for the form of an answer and for lucky guesses, pass rates of 0 to 0.2."""

import pytest
import torch
from transformers import AutoModelForImageTextToText, AutoProcessor

from trl_vade.testbed import load_testbed_model
from trl_vade.testbed.model import SFTSettings


@pytest.fixture(scope="session")
def directory(tmp_path_factory):
    cache = tmp_path_factory.getbasetemp() / "brief"
    return load_testbed_model(cache_dir=cache, settings=SFTSettings(steps=100, batch_size=12), progress=False)


@pytest.fixture(scope="module")
def model(directory):
    return AutoModelForImageTextToText.from_pretrained(directory).eval()


@pytest.fixture(scope="module")
def processor(directory):
    return AutoProcessor.from_pretrained(directory)


@pytest.fixture(scope="module")
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
