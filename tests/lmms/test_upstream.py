"""The faults of `docs/upstream` that lmms-eval has: each script prints what its page says, on the stock library."""

import importlib.util

import pytest

from tests.docs.test_upstream import assert_prints_what_its_page_says, pages_that_need


@pytest.mark.lmms
@pytest.mark.skipif(importlib.util.find_spec("lmms_eval") is None, reason="needs the extra eval")
@pytest.mark.parametrize("name", pages_that_need("lmms_eval"))
def test_the_stock_library_still_has_the_fault(name, tmp_path):
    assert_prints_what_its_page_says(name, "", tmp_path)
