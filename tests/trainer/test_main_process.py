import pickle

from trl_vade.errors import HubError


def test_an_error_of_the_hub_travels_between_processes_whole():
    error = pickle.loads(pickle.dumps(HubError("refused", status=403, retry_after=2.0)))
    assert (str(error), error.status, error.may_pass, error.retry_after) == ("refused", 403, False, 2.0)
