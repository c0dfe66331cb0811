"""Which servers are on this machine, and that no proxy is asked for them."""

from urllib.request import proxy_bypass_environment

import pytest

from trl_vade.evaluation.servers import is_loopback, no_proxy_variables

HERE = ["http://localhost:8000/v1", "http://127.0.0.1:8000/v1", "https://127.9.9.9/v1", "http://[::1]:8000/v1"]
ELSEWHERE = [
    "http://node-1:8000/v1",
    "https://api.example/v1",
    "http://10.0.0.1:8000/v1",
    "http://localhost.example/v1",
]
ELSEWHERE += ["http://127.0.0.1.example/v1", "http://[2001:db8::1]/v1", "http://0.0.0.0:8000/v1", "", "node-1"]
PROXIES = ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]


@pytest.mark.parametrize("url", HERE)
def test_an_address_of_this_machine_is_known(url):
    assert is_loopback(url)


@pytest.mark.parametrize("url", ELSEWHERE)
def test_an_address_of_another_machine_is_not(url):
    assert not is_loopback(url)
    assert no_proxy_variables(url, {"HTTP_PROXY": "http://proxy:3128"}) == {}


def test_without_a_proxy_nothing_has_to_be_said():
    assert no_proxy_variables(HERE[0], {"PATH": "/bin", "no_proxy": "a.example"}) == {}


@pytest.mark.parametrize("name", PROXIES)
def test_no_proxy_is_asked_for_a_server_of_this_machine(name):
    for url, host in zip(HERE, ["localhost", "127.0.0.1", "127.9.9.9", "::1"], strict=True):
        assert no_proxy_variables(url, {name: "http://proxy:3128"}) == {"no_proxy": host, "NO_PROXY": host}


def test_what_no_proxy_is_asked_for_already_stays_and_the_small_letters_count():
    proxy = {"HTTP_PROXY": "http://proxy:3128"}
    assert no_proxy_variables(HERE[1], proxy | {"NO_PROXY": "a.example,b"})["no_proxy"] == "a.example,b,127.0.0.1"
    both = {"NO_PROXY": "ignored", "no_proxy": "a.example"}
    assert set(no_proxy_variables(HERE[1], proxy | both).values()) == {"a.example,127.0.0.1"}
    assert set(no_proxy_variables(HERE[1], proxy | {"no_proxy": ""}).values()) == {"127.0.0.1"}


def test_a_client_in_that_environment_asks_no_proxy():
    for url, host in zip(HERE, ["localhost", "127.0.0.1", "127.9.9.9", "::1"], strict=True):
        environment = no_proxy_variables(url, {"HTTP_PROXY": "http://proxy:3128", "NO_PROXY": "a.example"})
        assert proxy_bypass_environment(host, {"no": environment["no_proxy"]})
        assert not proxy_bypass_environment("node-1", {"no": environment["no_proxy"]})
