"""The language model that judges answers in lmms-eval 0.7.3's tasks for MathVista, MathVerse and MathVision.

It is behind a server with OpenAI's interface (in the paper Qwen2.5-72B-Instruct on vLLM). lmms-eval scores 0, and
exits with 0, where the judge is dead, and takes every text with a "1" in it for "right". So the judge is asked before
anything starts (`Judge.probe`), and watched from inside lmms-eval's process (`judge_guard.JudgeGuard`).
"""

import functools
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from trl_vade.errors import ConfigurationError, JudgeError, abbreviated

from .servers import is_address, is_loopback, no_proxy_variables

try:
    import httpx2 as httpx  # what huggingface_hub 2 depends on; huggingface_hub 1 depends on httpx, which is the same
except ModuleNotFoundError:
    import httpx  # type: ignore[no-redef]


SERVE = (
    "Serve a judge, for example by `vllm serve Qwen/Qwen2.5-72B-Instruct --tensor-parallel-size 4 --port 8000`, and "
    "give --judge_url http://HOST:8000/v1 and --judge_model Qwen/Qwen2.5-72B-Instruct."
)
_NO_ZERO = "This is an error and not a score: where a judge fails, lmms-eval scores 0 and exits with 0."


# In the form of lmms-eval's own questions (llm_judge/prompt.py, tasks/mathvista/mathvista_evals.py).
_GRADE = (
    "You grade answers to questions of mathematics. Say 1 where the prediction comes to the reference answer, and 0 "
    "where it does not. Say nothing but 1 or 0.\n\nQuestion:\nWhat is 48 divided by 4?\n\nReference answer:\n12\n\n"
    "Prediction:\n{prediction}\n\nYour verdict, 1 or 0:"
)

RIGHT = _GRADE.format(prediction="48 / 4 = 12, so the answer is 12.")  # the control question, of `judge_guard` too

_WRONG = _GRADE.format(prediction="48 / 4 = 13, so the answer is 13.")
_EXTRACT = (
    "Take the final answer out of the response, and write nothing but this answer, as in the example.\n\n"
    "Question: How many sides has a hexagon?\n\nResponse: A hexagon is a polygon of six sides, so there are 6 sides."
    "\n\nExtracted answer: 6\n\nQuestion: What is the area of a square with sides of 9?\n\nResponse: The area of a "
    "square is the square of its side. With 9 this makes 9 * 9, so the area is 81.\n\nExtracted answer: "
)


@dataclass(frozen=True)
class Judge:
    """A judge and where it is served; made by `Judge.of`, which corrects and checks both.

    Its key is in the environment variable JUDGE_API_KEY and nowhere else.

    Attributes:
        url: of the interface, without the routes: "http://127.0.0.1:8000/v1".
        model: the name under which the server has it.
    """

    url: str
    model: str

    @classmethod
    def of(cls, url: str, model: str) -> "Judge":
        """The judge at `url`; a lacking "/v1" is added, a slash and "/chat/completions" at the end are taken off.

        Raises:
            ConfigurationError: `url` is no http(s) address, or could hold a secret; `model` is empty.
        """
        if not isinstance(model, str) or not model.strip():
            raise ConfigurationError(
                f"--judge_model is {abbreviated(model)}; it must be a name that the judge's server lists. {SERVE}"
            )
        return cls(_address(url), model.strip())

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The variables that lmms-eval reads when it is imported, for the process in which it is to judge.

        Args:
            environ: where the key is looked for. Where it names a proxy and the judge is on this machine, NO_PROXY is
                among the variables: OpenAI's client would ask the proxy for 127.0.0.1, too.
        """
        variables = {"API_TYPE": "openai", "OPENAI_API_URL": self.url, "MODEL_VERSION": self.model}
        return {**variables, "OPENAI_API_KEY": _key(environ), **no_proxy_variables(self.url, environ)}

    def probe(self, *, timeout: float = 30.0, connect: float = 5.0) -> None:
        """Ask the judge for its name, for the verdict on a right and on a wrong answer, and to extract an answer.

        Args:
            timeout: seconds that each of the four answers may take.
            connect: seconds that a connection may take.

        Raises:
            JudgeError: it does not answer, or answers what a judge would not.
            ConfigurationError: the key cannot be sent.
        """
        ask = functools.partial(self._ask, timeout=httpx.Timeout(timeout, connect=connect))
        served = _names(ask("GET /models"))
        if self.model not in served:
            came = f"it serves {self._server_text(', '.join(served))} alone" if served else "it names no model"
            raise self._refusal("its models", came, "Give --judge_model as the server has it.")
        for prompt, what, right in ((RIGHT, "a right", 1), (_WRONG, "a wrong", 0)):
            asked = f"the verdict on {what} answer"
            text = self._content(asked, ask("POST /chat/completions", self._payload(prompt, 1024)))
            found = verdict(text)
            if found != right:
                fault = "which is neither 1 nor 0" if found is None else f"where {right} is right"
                came = f"it said {self._server_text(text)}, {fault}"
                raise self._refusal(asked, came, "A model that cannot tell this is no judge.")
        asked = "the answer in a response, which is 81,"
        text = self._content(asked, ask("POST /chat/completions", self._payload(_EXTRACT, 256)))
        # Not "81" alone: lmms-eval's own question has five examples of the form, this one has one.
        if not re.search(r"(?<![\d.])81(?!\d|\.\d)", text):
            came = f"it said {self._server_text(text)}"
            raise self._refusal(asked, came, "A model that cannot extract this is no judge.")

    def _payload(self, prompt: str, tokens: int) -> dict[str, Any]:
        """As lmms-eval asks (providers/openai.py), with its special case for OpenAI's reasoning models."""
        payload = {"model": self.model, "messages": [{"role": "user", "content": prompt}]}
        if self.model.startswith(("gpt-5", "o1", "o3", "o4")):
            return payload | {"max_completion_tokens": tokens}
        return payload | {"max_tokens": tokens, "temperature": 0.0}

    def _ask(self, route: str, payload: Any = None, *, timeout: httpx.Timeout) -> Any:
        """The server's JSON."""
        method, path = route.split(" ")
        headers = {"Authorization": f"Bearer {_key(os.environ)}"}
        try:
            # Without the environment, and so without a proxy, where the judge is on this machine: a proxy elsewhere
            # has another 127.0.0.1, and many clusters forget NO_PROXY.
            with httpx.Client(headers=headers, timeout=timeout, trust_env=not is_loopback(self.url)) as client:
                response = client.request(method, self.url + path, json=payload)
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError, ImportError) as error:
            # The last three: a bad proxy, or a bad SSL_CERT_FILE, in the environment.
            came = f"no answer came ({type(error).__name__}: {self._server_text(str(error))})"
            if isinstance(error, httpx.TimeoutException):
                came = f"no answer came in time ({timeout.connect:g} s to connect, {timeout.read:g} s to answer)"
            advice = "See whether the server runs under this address, is still loading, or overloaded."
            raise self._refusal(route, came, advice) from error
        if response.status_code != 200:
            came = f"HTTP status {response.status_code} came with {self._server_text(response.text)}"
            raise self._refusal(route, came, _STATUS_ADVICE.get(response.status_code, "See the log of its server."))
        try:
            return response.json()
        except ValueError as error:
            raise self._refusal(route, f"no JSON came, but {self._server_text(response.text)}", _NOT_OPENAI) from error

    def _content(self, asked: str, answer: Any) -> str:
        """The text in a chat completion."""
        try:
            content = answer["choices"][0]["message"]["content"]
        except (KeyError, IndexError, TypeError) as error:
            came = f"what came is no chat completion: {self._server_text(str(answer))}"
            raise self._refusal(asked, came, _NOT_OPENAI) from error
        if not isinstance(content, str) or not content.strip():
            advice = "A reasoning model may have used up its tokens before the answer: take one that answers at once."
            raise self._refusal(asked, "an empty answer came", advice)
        return content

    def _server_text(self, text: str) -> str:
        """The server's text for a message: short, and without the key, which a server may repeat."""
        key = _key(os.environ)
        return abbreviated(text if key == "EMPTY" else text.replace(key, "***"))

    def _refusal(self, asked: str, came: str, advice: str) -> JudgeError:
        return JudgeError(
            f"The judge {self.model} at {self.url} cannot be used. Asked for {asked}, {came}. {_NO_ZERO} {advice} "
            f"{SERVE}"
        )


_KEY_ADVICE = "Put the server's key into the environment variable JUDGE_API_KEY."
_STATUS_ADVICE = {401: _KEY_ADVICE, 403: _KEY_ADVICE, 404: "Most addresses end in /v1."}
_NOT_OPENAI = "This is no server with OpenAI's interface."


def _address(url: str) -> str:
    text = url.strip() if isinstance(url, str) else ""
    advice = "It must be as http://HOST:8000/v1."
    # Not shown: the address stands in results.json and in messages, and what is before the @, or behind the ?, may be
    # a secret.
    if "@" in text or "?" in text or "#" in text:
        raise ConfigurationError(
            f"--judge_url has a @, ? or #, so it may hold a secret, and it is written into results.json. {advice} "
            f"{_KEY_ADVICE}"
        )
    if not is_address(text):
        raise ConfigurationError(f"--judge_url is {abbreviated(url)}; this is no http(s) address. {advice} {SERVE}")
    parts = urlsplit(text)
    path = parts.path.rstrip("/").removesuffix("/chat/completions").rstrip("/")
    return f"{parts.scheme}://{parts.netloc}{path or '/v1'}"


def _key(environ: Mapping[str, str]) -> str:
    """The judge's, and not OPENAI_API_KEY, which is for another server. vLLM takes any key where it was given none,
    and OpenAI's client insists on one.
    """
    key = environ.get("JUDGE_API_KEY", "").strip()
    if not re.fullmatch(r"[!-~]*", key):
        # The error of the HTTP client would have the key in it.
        raise ConfigurationError("JUDGE_API_KEY has a character in it that cannot be sent: a space, an accent.")
    return key or "EMPTY"


def _names(answer: Any) -> list[str]:
    models = answer.get("data") if isinstance(answer, dict) else None
    return [str(model.get("id")) for model in models if isinstance(model, dict)] if isinstance(models, list) else []


# Of the whole text, or of its first or last line: what may stand around a verdict, and before it.
_AROUND = " \t\r\n*_`#>\"'[](){}$\u201c\u201d\u2018\u2019"
_LEAD = re.compile(r"(?:(?:final|my|your) )?(?:score|answer|judge?ment|verdict|result)[*_`\s]*[:=]", re.IGNORECASE)
_VERDICTS = {"1": 1, "yes": 1, "correct": 1, "0": 0, "no": 0, "incorrect": 0}


def verdict(text: str) -> int | None:
    """What a judge says of an answer: 1 for right, 0 for wrong, None for what is no verdict.

    A verdict is 1, yes or correct, or 0, no or incorrect, alone on the first or the last line, but for marks around it
    and a lead such as "Score:". Two that differ are none. lmms-eval 0.7.3 (llm_judge/utils.py) takes "12", and "The
    prediction 12 is wrong", for 1: there is a "1" in it.
    """
    lines = [line for line in text.splitlines() if line.strip(_AROUND)]
    found = {_word(line) for line in (lines[:1] + lines[-1:])} - {None}
    return found.pop() if len(found) == 1 else None


def _word(line: str) -> int | None:
    line = line.strip(_AROUND)
    lead = _LEAD.match(line)
    line = line[lead.end() :].strip(_AROUND) if lead else line
    # On the right only: ".1" is no verdict. A full stop may stand inside the marks, or after them.
    return _VERDICTS.get(line.rstrip(_AROUND + ".").lower())
