"""The faults of `docs/upstream` that lmms-eval has: each script prints what its page says, on the stock library."""

import pytest

from tests.docs.test_upstream import assert_scripts_print_what_their_pages_say, pages_that_need


@pytest.mark.lmms
def test_the_stock_library_still_has_its_faults(vision_model_path, tmp_path):
    modules = "lmms_eval.evaluator,lmms_eval.models.chat.qwen2_5_vl"
    assert_scripts_print_what_their_pages_say(pages_that_need("lmms_eval"), tmp_path, vision_model_path, modules)
