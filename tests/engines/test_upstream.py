"""The faults of `docs/upstream` that need vLLM: each script prints what its page says, on the stock libraries."""

import pytest

from tests.docs.test_upstream import assert_is_what_its_page_says, pages_that_need, run_python, write_script
from tests.engines.on_cpu import ENVIRONMENT
from tests.engines.test_engines import pytestmark  # noqa: F401 - vLLM's marker, and its absence


@pytest.mark.parametrize("name", pages_that_need("vllm"))
def test_the_stock_library_still_has_the_fault(name, vision_model_path, tmp_path):
    write_script(name, tmp_path)
    done = run_python(tmp_path, vision_model_path, "-m", "tests.engines.on_cpu", "script.py", **ENVIRONMENT)
    assert_is_what_its_page_says(name, done.stdout, done.stderr)
