"""`cli.variants.endpoint`: a server that fails, stalls or answers nonsense loses no reply that came."""

import time

import pytest

from tests.support.loopback_writer import LoopbackWriter
from tests.support.refusals import refused
from trl_vade.cli.variants.endpoint import DEAD, KEY, Endpoint, Request
from trl_vade.cli.variants.replies import Replies
from trl_vade.data.text_variants import PARAPHRASE
from trl_vade.errors import ConfigurationError, EndpointError

SECRET = "sk-secret-4711"
STALLS = ("slow", "drips")


@pytest.fixture(autouse=True)
def quick_retries_without_keys_and_proxies(monkeypatch):
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
    for name in (KEY, "OPENAI_API_KEY", "HF_TOKEN", *(f"{kind}_proxy" for kind in ("http", "https", "all", "no"))):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def writer():
    with LoopbackWriter() as running:
        yield running


@pytest.fixture
def replies(tmp_path):
    return Replies(tmp_path / "replies.jsonl")


def endpoint_of(writer, **settings):
    return Endpoint.of(writer.url, writer.model, **{"timeout": 5.0, "retries": 2, "concurrency": 4} | settings)


def requests_of(endpoint, number, pictures=()):
    prompts = [PARAPHRASE.format(question=f"How many of the {n} shapes are red?") for n in range(number)]
    return [Request(endpoint.key_of(prompt), prompt, lambda: list(pictures)) for prompt in prompts]


def kept(replies, requests):
    return [replies.get(request.key) for request in requests]


def test_each_question_is_asked_once_and_its_reply_kept(writer, replies, tmp_path):
    endpoint = endpoint_of(writer, seed=3)
    requests = requests_of(endpoint, 20)
    endpoint.ask_all([*requests, *requests], replies)
    assert writer.calls == 20
    assert kept(replies, requests)[7] == "Look at the picture: how many of the 7 shapes are red?"
    assert kept(Replies(tmp_path / "replies.jsonl"), requests) == kept(replies, requests)
    assert not endpoint.failures
    assert {(body["model"], body["seed"]) for body in writer.bodies} == {(writer.model, 3)}
    assert all(0 < body["max_tokens"] <= 4096 for body in writer.bodies)
    assert writer.keys == {"EMPTY"}


def test_pictures_go_before_the_question(writer, replies):
    endpoint = endpoint_of(writer)
    endpoint.ask_all(requests_of(endpoint, 1, ["data:image/jpeg;base64,AAAA"]), replies)
    first, last = writer.bodies[0]["messages"][0]["content"]
    assert first["image_url"]["url"] == "data:image/jpeg;base64,AAAA"
    assert last["text"].endswith("shapes are red?")


def test_a_picture_that_cannot_be_sent_is_no_failure_of_the_server(writer, replies):
    endpoint = endpoint_of(writer)
    endpoint.ask_all([Request("a", "Question:\nWhy?", lambda: None)], replies)
    assert (writer.calls, replies.get("a"), endpoint.failures.total()) == (0, None, 0)


def test_model_seed_prompt_and_pictures_tell_requests_apart(writer):
    one, other = endpoint_of(writer), Endpoint.of(writer.url, "another")
    keys = [
        one.key_of("a"),
        one.key_of("b"),
        one.key_of("a", [b"1"]),
        one.key_of("a", [b"1", b"1"]),
        other.key_of("a"),
    ]
    keys.append(endpoint_of(writer, seed=1).key_of("a"))
    assert len({*keys}) == 6
    assert endpoint_of(writer, retries=5).key_of("a") == keys[0]


@pytest.mark.parametrize("mode", ["status500", "status429", "dead", "slow", "drips", "huge", "packed"])
def test_a_fault_that_passes_is_tried_again(writer, replies, mode):
    writer.fault = lambda prompt, attempt: mode if attempt == 0 else "good"
    endpoint = endpoint_of(writer, timeout=1.0 if mode in STALLS else 20.0)
    requests = requests_of(endpoint, 3)
    start = time.monotonic()
    endpoint.ask_all(requests, replies)
    assert all(kept(replies, requests))
    assert set(writer.attempts.values()) == {2}
    assert mode != "status429" or time.monotonic() - start >= 1.0  # as `Retry-After` asks
    assert not endpoint.failures


@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        ("status500", "HTTP status 500"),
        ("status400", "HTTP status 400"),
        ("dead", "the connection failed"),
        ("huge", "the connection failed"),
        ("packed", "the connection failed"),
        ("drips", "no answer in time"),
        ("slow", "no answer in time"),
        ("html", "the answer is no chat completion"),
        ("no json", "the answer is no chat completion"),
        ("deep", "the answer is no chat completion"),
        ("no choices", "the answer is no chat completion"),
        ("moved", "HTTP status 307"),
    ],
)
def test_a_fault_that_stays_is_counted_and_loses_no_other_reply(writer, replies, mode, reason):
    writer.fault = lambda prompt, attempt: mode if " 1 shapes" in prompt else "good"
    endpoint = endpoint_of(writer, timeout=1.0 if mode in STALLS else 20.0, retries=0)
    requests = requests_of(endpoint, 4)
    endpoint.ask_all(requests, replies)
    assert endpoint.failures == {reason: 1}
    assert [reply is not None for reply in kept(replies, requests)] == [True, False, True, True]


def test_an_empty_reply_is_a_reply(writer, replies):
    writer.fault = lambda prompt, attempt: ("empty", "no text")[" 1 shapes" in prompt]
    endpoint = endpoint_of(writer)
    requests = requests_of(endpoint, 2)
    endpoint.ask_all(requests, replies)
    assert kept(replies, requests) == ["", ""]


def test_a_dead_server_is_not_asked_on_and_on(writer, replies):
    writer.fault = lambda prompt, attempt: "status500"
    endpoint = endpoint_of(writer, retries=0)
    with refused(EndpointError, [writer.model, writer.url, "HTTP status 500"], ["same command", KEY]):
        endpoint.ask_all(requests_of(endpoint, 200), replies)
    assert DEAD <= writer.calls <= DEAD + 4


def test_a_server_that_dies_half_way_keeps_what_came_and_only_the_rest_is_asked_later(writer, tmp_path):
    writer.fault = lambda prompt, attempt: "good" if writer.calls < 12 else "dead"
    endpoint = endpoint_of(writer, retries=0)
    requests = requests_of(endpoint, 60)
    with refused(EndpointError, ["the connection failed"], ["same command"]):
        endpoint.ask_all(requests, Replies(tmp_path / "replies.jsonl"))
    before = Replies(tmp_path / "replies.jsonl")
    came = sum(reply is not None for reply in kept(before, requests))
    assert came == 12
    writer.fault, calls = (lambda prompt, attempt: "good"), writer.calls
    endpoint_of(writer).ask_all(requests, before)
    assert writer.calls - calls == 60 - 12
    assert all(kept(Replies(tmp_path / "replies.jsonl"), requests))


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_what_ends_the_rows_ends_the_asking_and_keeps_what_came(writer, tmp_path, error):
    endpoint = endpoint_of(writer)
    requests = requests_of(endpoint, 30)

    def some():
        yield from requests[:20]
        raise error

    with pytest.raises(error):
        endpoint.ask_all(some(), Replies(tmp_path / "replies.jsonl"))
    came = [reply for reply in kept(Replies(tmp_path / "replies.jsonl"), requests) if reply]
    assert len(came) == writer.calls


def test_a_wrong_key_ends_it_at_once_and_is_written_nowhere(replies, tmp_path, monkeypatch):
    monkeypatch.setenv(KEY, SECRET)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-other")
    with LoopbackWriter(key="sk-right") as writer:
        endpoint = endpoint_of(writer, concurrency=1)
        with refused(EndpointError, ["HTTP status 401"], [KEY]) as raised:
            endpoint.ask_all(requests_of(endpoint, 50), replies)
        assert writer.calls == 1
        assert writer.keys == {SECRET}
    assert SECRET not in str(raised.value)
    assert SECRET not in repr(endpoint) + (tmp_path / "replies.jsonl").read_text()


def test_a_key_that_the_server_repeats_is_not_kept(writer, replies, tmp_path, monkeypatch):
    monkeypatch.setenv(KEY, SECRET)
    endpoint = endpoint_of(writer)
    prompt = PARAPHRASE.format(question=f"Is {SECRET} the key?")
    endpoint.ask_all([Request("a", prompt, list)], replies)
    assert replies.get("a").endswith("is *** the key?")
    assert SECRET not in (tmp_path / "replies.jsonl").read_text()


@pytest.mark.parametrize("url", ["", "127.0.0.1:8000", f"http://me:{SECRET}@host/v1", f"http://host/v1?key={SECRET}"])
def test_an_address_that_is_none_or_may_hold_a_secret_is_refused(url):
    with refused(ConfigurationError, ["--endpoint"], ["http://HOST:8000/v1"]) as raised:
        Endpoint.of(url, "a-model")
    assert SECRET not in str(raised.value)


def test_a_proxy_of_the_environment_is_no_way_to_this_machine(writer, replies, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    endpoint = endpoint_of(writer)
    endpoint.ask_all(requests_of(endpoint, 1), replies)
    assert not endpoint.failures


def test_without_openai_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "openai", None)
    with refused(ConfigurationError, ["openai"], ['pip install "trl-vade[variants]"']):
        Endpoint.of("http://127.0.0.1:8000", "a-model")
