"""An LLM behind OpenAI's interface.

The server is not trusted: it may fail, stall, or send a web page or gigabytes. Whatever text it sends is only kept and
checked. The key is read from the environment and written nowhere.
"""

import hashlib
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from trl_vade.errors import ConfigurationError, EndpointError, abbreviated
from trl_vade.evaluation.servers import is_loopback, most_tokens, openai_address, server_key, without_key

from .replies import Replies

try:
    import httpx2 as httpx  # of huggingface_hub 2; huggingface_hub 1 has httpx, with the same interface
except ModuleNotFoundError:
    import httpx  # type: ignore[no-redef]

KEY = "VARIANTS_API_KEY"
TOKENS = 2048  # the most of a reply
LONGEST_ANSWER = 2**20  # bytes of an HTTP answer, around a reply of a few kilobytes
DEAD = 8  # failed requests, one after the other without a reply, after which no more are sent


@dataclass(frozen=True)
class Request:
    """A question to the LLM. `pictures` makes its images as data URLs, or None if they cannot be sent."""

    key: str  # what the reply is kept under
    prompt: str
    pictures: Callable[[], list[str] | None]


class Failure(Exception):
    """A request without a reply. `ends` is whether no other request can succeed."""

    def __init__(self, reason: str, detail: str = "", *, ends: bool = False):
        super().__init__(reason)
        self.reason, self.detail, self.ends = reason, detail, ends


@dataclass
class Endpoint:
    """A model and its server. Made by `Endpoint.of`."""

    url: str
    model: str
    seed: int = 0
    concurrency: int = 16
    retries: int = 6
    timeout: float = 120.0  # seconds for a whole answer
    failures: Counter[str] = field(default_factory=Counter)  # by reason, of `ask_all`
    _in_a_row: int = 0
    _stopped: BaseException | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of(cls, url: str, model: str, **settings: Any) -> "Endpoint":
        """Return the model at `url`.

        Raises:
            ConfigurationError: the address is none or holds a secret, or the extra `variants` is not installed.
        """
        try:
            import openai  # noqa: F401
        except ModuleNotFoundError as error:
            raise ConfigurationError(
                '--endpoint needs the package openai. Install it with pip install "trl-vade[variants]".'
            ) from error
        return cls(openai_address("--endpoint", url, key=KEY), model, **settings)

    def key_of(self, prompt: str, pictures: Iterable[bytes] = ()) -> str:
        """Return the key of a request: a hash of the model, the seed, the prompt and the image files."""
        asked = [self.model, self.seed, prompt, *(hashlib.sha256(picture).hexdigest() for picture in pictures)]
        return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:32]

    def ask_all(self, requests: Iterable[Request], replies: Replies) -> None:
        """Ask what `replies` lacks, several requests at a time, and keep each reply when it comes.

        `failures` counts the requests without a reply.

        Raises:
            EndpointError: the server refuses every request, or failed `DEAD` times without a reply in between.
        """
        asked, room = set[str](), threading.Semaphore(2 * self.concurrency)
        with self._client() as client, ThreadPoolExecutor(self.concurrency) as pool:
            try:
                for request in requests:
                    if request.key in asked or replies.get(request.key) is not None:
                        continue
                    asked.add(request.key)
                    room.acquire()
                    if self._stopped:
                        break
                    task = pool.submit(self._ask_one, client, request, replies)
                    task.add_done_callback(lambda task: room.release())
            except BaseException as error:  # Ctrl-C: what waits for its turn is not sent
                self._stopped = error
        if self._stopped:
            raise self._stopped

    def _ask_one(self, client: Any, request: Request, replies: Replies) -> None:
        """Keep the reply of a request, or count its failure. Too many failures stop `ask_all`."""
        if self._stopped:
            return
        try:
            pictures = request.pictures()
            if pictures is None:
                return
            reply = self._reply(client, request.prompt, pictures)
            with self._lock:
                replies.keep(request.key, reply)
                self._in_a_row = 0
        except Failure as failure:
            with self._lock:
                self.failures[failure.reason] += 1
                self._in_a_row += 1
                if failure.ends or self._in_a_row >= max(DEAD, self.concurrency):
                    self._stopped = EndpointError(
                        f"{self.model} at {self.url} gives no replies: {failure.reason}. {failure.detail} The replies "
                        f"that came are kept. Check the server, its address, its model and the environment variable "
                        f"{KEY}. Then run the same command again: it asks only for what is missing."
                    )
        except Exception as error:  # a full disk
            self._stopped = error

    def _client(self) -> Any:
        from openai import OpenAI

        # For a server on this machine the environment, with its proxy, is ignored. Redirects would carry the key away.
        http = httpx.Client(
            timeout=httpx.Timeout(self.timeout, connect=10.0),
            limits=httpx.Limits(max_connections=self.concurrency),
            event_hooks={"response": [self._bound]},
            trust_env=not is_loopback(self.url),
            follow_redirects=False,
        )
        headers = {"Accept-Encoding": "identity"}
        key = server_key(KEY, os.environ)
        return OpenAI(
            base_url=self.url, api_key=key, max_retries=self.retries, http_client=http, default_headers=headers
        )

    def _bound(self, response: Any) -> None:
        """Limit the size and the time of an answer. Compressed bytes may be any size, and were not asked for."""
        if response.headers.get("content-encoding", "identity") != "identity":
            raise httpx.ReadError("the answer is compressed")
        response.stream = _BoundedStream(response.stream, time.monotonic() + self.timeout)

    def _reply(self, client: Any, prompt: str, pictures: list[str]) -> str:
        """Return the reply to a prompt. openai repeats it after 408, 409, 429, 5xx and timeouts."""
        import openai

        parts = [{"type": "image_url", "image_url": {"url": url}} for url in pictures]
        content = [*parts, {"type": "text", "text": prompt}] if parts else prompt
        try:
            answer = client.chat.completions.create(
                model=self.model,
                messages=[{"role": "user", "content": content}],
                seed=self.seed,
                **most_tokens(self.model, TOKENS),
            )
            text = answer.choices[0].message.content
        except openai.APITimeoutError as error:
            raise Failure("no answer in time", f"The limit is {self.timeout:g} s.") from error
        except openai.APIConnectionError as error:
            raise Failure("the connection failed", _shown(error.__cause__)) from error
        except openai.APIStatusError as error:
            detail, ends = _shown(error), error.status_code in (401, 403, 404)
            raise Failure(f"HTTP status {error.status_code}", detail, ends=ends) from error
        except (
            openai.OpenAIError,
            AttributeError,
            IndexError,
            KeyError,
            RecursionError,
            TypeError,
            ValueError,
        ) as error:
            raise Failure("the answer is no chat completion", _shown(error)) from error
        return without_key(text, KEY, os.environ) if isinstance(text, str) else ""


def _shown(error: Any) -> str:
    """Return an error's text for a message."""
    return f"Details: {abbreviated(without_key(str(error), KEY, os.environ))}."


class _BoundedStream(httpx.SyncByteStream):
    """The bytes of an answer, up to `LONGEST_ANSWER` and until a time of `time.monotonic`."""

    def __init__(self, stream: Any, end: float):
        self._stream, self._end = stream, end

    def __iter__(self) -> Iterator[bytes]:
        size = 0
        for part in self._stream:
            size += len(part)
            if size > LONGEST_ANSWER:
                raise httpx.ReadError(f"the answer has more than {LONGEST_ANSWER:,} bytes")
            if time.monotonic() > self._end:
                raise httpx.ReadTimeout("the answer takes too long")
            yield part

    def close(self) -> None:
        self._stream.close()
