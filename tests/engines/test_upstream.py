"""The faults of `docs/upstream` that need vLLM: each script prints what its page says, on the stock libraries."""

import os

import pytest

from tests.docs.test_upstream import assert_prints_what_its_page_says, pages_that_need
from tests.engines.on_cpu import ENVIRONMENT
from tests.engines.test_engines import pytestmark  # noqa: F401 - vLLM's marker, and its absence


@pytest.mark.parametrize("name", pages_that_need("vllm"))
def test_the_stock_library_still_has_the_fault(name, vision_model_path, tmp_path):
    environment = ENVIRONMENT | {"PATH": os.environ["PATH"]}
    assert_prints_what_its_page_says(name, vision_model_path, tmp_path, "-m", "tests.engines.on_cpu", **environment)
