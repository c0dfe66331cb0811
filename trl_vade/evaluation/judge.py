"""The language model that judges answers to MathVista, MathVerse and MathVision in lmms-eval 0.7.3.

It runs on a server with OpenAI's interface (in the paper Qwen2.5-72B-Instruct on vLLM). If the judge is dead,
lmms-eval scores 0 and exits with 0. It also takes every text that contains "1" for "right". So the judge is probed
before the first run (`Judge.probe`), and watched inside lmms-eval's process (`judge_guard.JudgeGuard`).
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trl_vade.errors import ConfigurationError, JudgeError, abbreviated

from .servers import is_loopback, most_tokens, no_proxy_variables, openai_address, server_key, without_key

try:
    import httpx2 as httpx  # of huggingface_hub 2; huggingface_hub 1 has httpx, with the same interface
except ModuleNotFoundError:
    import httpx  # type: ignore[no-redef]


KEY = "JUDGE_API_KEY"
TIMEOUT = httpx.Timeout(30.0, connect=5.0)  # seconds for an answer and for a connection
SERVE = (
    "Serve a judge, for example with `vllm serve Qwen/Qwen2.5-72B-Instruct --tensor-parallel-size 4 --port 8000`, and "
    "give --judge_url http://HOST:8000/v1 and --judge_model Qwen/Qwen2.5-72B-Instruct."
)

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
    """A judge and its server, made by `Judge.of`. Its key is read from the environment variable JUDGE_API_KEY."""

    url: str  # address of the interface, without routes: "http://127.0.0.1:8000/v1"
    model: str  # the name of the model on the server

    @classmethod
    def of(cls, url: str, model: str) -> "Judge":
        """Return the judge at `url`. A missing "/v1" is added, "/chat/completions" and a slash at the end are removed.

        See `check_address`; a `model` without a name is a `ConfigurationError`, too.
        """
        if not isinstance(model, str) or not model.strip():
            raise ConfigurationError(
                f"--judge_model is {abbreviated(model)}; it must be a model name that the judge's server lists. "
                f"{SERVE}"
            )
        return cls(openai_address("--judge_url", url, key=KEY, advice=SERVE), model.strip())

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the environment variables that lmms-eval reads at import.

        If the environment names a proxy and the judge runs on this machine, NO_PROXY is among the variables, because
        OpenAI's client would use the proxy for 127.0.0.1, too.
        """
        variables = {"API_TYPE": "openai", "OPENAI_API_URL": self.url, "MODEL_VERSION": self.model}
        return {**variables, "OPENAI_API_KEY": _key(environ), **no_proxy_variables(self.url, environ)}

    def probe(self) -> None:
        """Check the judge with four requests: its name, a right answer, a wrong answer, and an extraction.

        Raises:
            JudgeError: the judge does not answer, or an answer is wrong.
            ConfigurationError: the key holds characters that cannot be sent.
        """
        served = _names(self._ask("GET /models"))
        if self.model not in served:
            came = f"it serves only {self._server_text(', '.join(served))}" if served else "it names no model"
            raise self._refusal("its models", came, "Give --judge_model as the server names it.")
        for prompt, what, right in ((RIGHT, "a right", 1), (_WRONG, "a wrong", 0)):
            asked = f"the verdict on {what} answer"
            text = self._content(asked, self._ask("POST /chat/completions", self._payload(prompt, 1024)))
            found = verdict(text)
            if found != right:
                fault = "which is neither 1 nor 0" if found is None else f"where {right} is right"
                came = f"it said {self._server_text(text)}, {fault}"
                raise self._refusal(asked, came, "Take a model that can judge this answer.")
        asked = "the answer in a response, which is 81,"
        text = self._content(asked, self._ask("POST /chat/completions", self._payload(_EXTRACT, 256)))
        # More than "81" is accepted: lmms-eval's own question has five examples of the form, this one has one.
        if not re.search(r"(?<![\d.])81(?!\d|\.\d)", text):
            came = f"it said {self._server_text(text)}"
            raise self._refusal(asked, came, "Take a model that can extract this answer.")

    def _payload(self, prompt: str, tokens: int) -> dict[str, Any]:
        """Return a request as lmms-eval makes it (providers/openai.py), also for OpenAI's reasoning models."""
        payload = {
            "model": self.model,
            "messages": [{"role": "user", "content": prompt}],
            **most_tokens(self.model, tokens),
        }
        return payload if "max_completion_tokens" in payload else payload | {"temperature": 0.0}

    def _ask(self, route: str, payload: Any = None) -> Any:
        """Send a request to the server and return its JSON."""
        method, path = route.split(" ")
        headers = {"Authorization": f"Bearer {_key(os.environ)}"}
        try:
            # For a judge on this machine the environment, with its proxy, is ignored: 127.0.0.1 of the proxy is
            # another machine, and many clusters do not set NO_PROXY.
            with httpx.Client(headers=headers, timeout=TIMEOUT, trust_env=not is_loopback(self.url)) as client:
                response = client.request(method, self.url + path, json=payload)
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError, ImportError) as error:
            # The last three: a wrong proxy or SSL_CERT_FILE in the environment.
            came = f"no answer came ({type(error).__name__}: {self._server_text(str(error))})"
            if isinstance(error, httpx.TimeoutException):
                came = f"no answer came in time ({TIMEOUT.connect:g} s to connect, {TIMEOUT.read:g} s to answer)"
            advice = "Check whether the server runs at this address, is still loading, or is overloaded."
            raise self._refusal(route, came, advice) from error
        if response.status_code != 200:
            came = f"HTTP status {response.status_code} came with {self._server_text(response.text)}"
            advice = _STATUS_ADVICE.get(response.status_code, "Look into the log of its server.")
            raise self._refusal(route, came, advice)
        try:
            return response.json()
        except ValueError as error:
            came = f"the answer is not JSON: {self._server_text(response.text)}"
            raise self._refusal(route, came, _NOT_OPENAI) from error

    def _content(self, asked: str, answer: Any) -> str:
        """Return the text in a chat completion."""
        try:
            content = answer["choices"][0]["message"]["content"]
        except (KeyError, IndexError, TypeError) as error:
            came = f"the answer is not a chat completion: {self._server_text(str(answer))}"
            raise self._refusal(asked, came, _NOT_OPENAI) from error
        if not isinstance(content, str) or not content.strip():
            advice = "A reasoning model may have used its tokens before the answer. Take a model that answers at once."
            raise self._refusal(asked, "an empty answer came", advice)
        return content

    def _server_text(self, text: str) -> str:
        """Return the server's text for a message, shortened and without the key."""
        return abbreviated(without_key(text, KEY, os.environ))

    def _refusal(self, asked: str, came: str, advice: str) -> JudgeError:
        return JudgeError(
            f"The judge {self.model} at {self.url} cannot be used. Asked for {asked}, {came}. This is an "
            f"error, not a score; lmms-eval itself would score 0. {advice} {SERVE}"
        )


_STATUS_ADVICE = {
    **dict.fromkeys((401, 403), f"Set the environment variable {KEY} to the server's key."),
    404: "Most addresses end in /v1.",
}
_NOT_OPENAI = "The server does not have OpenAI's interface."


def _key(environ: Mapping[str, str]) -> str:
    return server_key(KEY, environ)


def _names(answer: Any) -> list[str]:
    models = answer.get("data") if isinstance(answer, dict) else None
    return [str(model.get("id")) for model in models if isinstance(model, dict)] if isinstance(models, list) else []


# Characters around a verdict, and words before it.
_AROUND = " \t\r\n*_`#>\"'[](){}$\u201c\u201d\u2018\u2019"
_LEAD = re.compile(r"(?:(?:final|my|your) )?(?:score|answer|judge?ment|verdict|result)[*_`\s]*[:=]", re.IGNORECASE)
_VERDICTS = {"1": 1, "yes": 1, "correct": 1, "0": 0, "no": 0, "incorrect": 0}


def verdict(text: str) -> int | None:
    """Return the verdict in a judge's text: 1 for right, 0 for wrong, None if there is none.

    A verdict is 1, yes or correct, or 0, no or incorrect, alone on the first or the last line. Marks around it and a
    lead such as "Score:" are allowed. Two different verdicts count as none. lmms-eval 0.7.3 (llm_judge/utils.py) takes
    "12" and "The prediction 12 is wrong" for 1, because they contain "1".
    """
    lines = [line for line in text.splitlines() if line.strip(_AROUND)]
    found = {_word(line) for line in (lines[:1] + lines[-1:])} - {None}
    return found.pop() if len(found) == 1 else None


def _word(line: str) -> int | None:
    line = line.strip(_AROUND)
    lead = _LEAD.match(line)
    line = line[lead.end() :].strip(_AROUND) if lead else line
    # Only on the right: ".1" is not a verdict. A full stop may be inside the marks or after them.
    return _VERDICTS.get(line.rstrip(_AROUND + ".").lower())


_OF_ITSELF = re.compile(r"\b(?:i|i'm|we|me|my|sorry|service|server|request)\b")
_ANSWER, _CUT = (
    r"\b(?:answer|value|option|choice|conclusion)s?\b",
    r"\b(?:cut off|truncated|incomplete|missing|unclear)\b",
)
_GIVE = r"(?:provid|contain|giv|includ|stat|specif|mention|ha[sv]|present|f[io]und?|offer|reach|determin|extract|show)"
_NOT = r"\b(?:not|n't|cannot|never|without|fails? to)\b(?: \S+){0,3}"
_NOT_GIVEN = re.compile(
    rf"{_NOT} {_GIVE}.*{_ANSWER}|{_ANSWER}.*{_NOT} {_GIVE}|\bno\b(?: (?!the|this|that)\S+){{0,2}} {_ANSWER}"
    rf"|{_CUT}.*{_ANSWER}|{_ANSWER}.*{_CUT}|^\W*(?:none|null|n/a)\W*$"
)


def names_no_answer(text: str) -> bool:
    """Return whether a judge says, instead of an extracted answer, that the response has none.

    A response that was cut has none, so this is an honest judge. A judge that speaks of itself is none.
    """
    text = text.lower().replace("\u2019", "'").replace("n't", " n't")
    return bool(_NOT_GIVEN.search(text)) and not _OF_ITSELF.search(text)
