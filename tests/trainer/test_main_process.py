import pickle

import pytest

from trl_vade.errors import HubError
from trl_vade.trainer.main_process import on_main_process, wait_for_main_process


def test_one_process_computes_and_raises_as_it_would_without_this():
    assert on_main_process(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        on_main_process(lambda: 1 // 0)


def test_it_waits_until_the_end():
    answers = [False, False, True]
    wait_for_main_process(lambda: answers.pop(0))
    assert answers == []


def test_an_error_of_the_hub_travels_between_processes_whole():
    error = pickle.loads(pickle.dumps(HubError("refused", status=403, retry_after=2.0)))
    assert (str(error), error.status, error.may_pass, error.retry_after) == ("refused", 403, False, 2.0)
