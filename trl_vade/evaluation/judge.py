"""The language model that judges answers to MathVista, MathVerse and MathVision in lmms-eval 0.7.3.

It runs on a server with OpenAI's interface (in the paper Qwen2.5-72B-Instruct on vLLM). If the judge is dead,
lmms-eval scores 0 and exits with 0. It also takes every text that contains "1" for "right". So the judge is probed
before the first run and after each judged one (`Judge.probe`), and watched inside lmms-eval's process (`judge_guard`).
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from trl_vade.errors import EvaluationError, JudgeError, abbreviated

KEY = "JUDGE_API_KEY"  # the environment variable with the key of its server
TIMEOUT = 30.0  # seconds for an answer to the probe
SERVE = "Serve a judge (`vllm serve Qwen/Qwen2.5-72B-Instruct`), and give --judge_url http://HOST:8000/v1."

# In the form of lmms-eval's own questions (llm_judge/prompt.py).
_GRADE = (
    "You grade answers to questions of mathematics. Say 1 where the prediction comes to the reference answer, and 0 "
    "where it does not. Say nothing but 1 or 0.\n\nQuestion:\nWhat is 48 divided by 4?\n\nReference answer:\n12\n\n"
    "Prediction:\n48 / 4 = {0}, so the answer is {0}.\n\nYour verdict, 1 or 0:"
)
RIGHT, WRONG = _GRADE.format(12), _GRADE.format(13)  # the control questions; `judge_guard` asks the first, too


@dataclass(frozen=True)
class Judge:
    """A judge and its server. Its key is read from the environment variable JUDGE_API_KEY."""

    url: str  # address of the interface, without routes: "http://127.0.0.1:8000/v1"
    model: str  # the name of the model on the server

    def environment(self) -> dict[str, str]:
        """Return the environment variables that lmms-eval reads at import."""
        key, server = {"OPENAI_API_KEY": _key(KEY)}, {"API_TYPE": "openai", "OPENAI_API_URL": self.url}
        return key | server | {"MODEL_VERSION": self.model}

    def probe(self) -> None:
        """Check the judge: its name, and its verdicts on a right and on a wrong answer. A fault is a `JudgeError`."""
        # As lmms-eval does (providers/openai.py): OpenAI's reasoning models refuse a temperature.
        greedy = {} if self.model.startswith(("gpt-5", "o1", "o3", "o4")) else {"temperature": 0.0}
        try:
            if self.model not in (served := served_models(self.url, KEY)):
                raise JudgeError(f"the server has {', '.join(served) or 'no model'}")
            with _client(self.url, KEY) as client:
                for prompt, right in ((RIGHT, 1), (WRONG, 0)):
                    messages = [{"role": "user", "content": prompt}]
                    answer = client.chat.completions.create(model=self.model, messages=messages, **greedy)
                    text = answer.choices[0].message.content or ""
                    if verdict(text) != right:
                        raise JudgeError(f"asked for a verdict that is {right}, it said {abbreviated(text)}")
        except Exception as error:  # of many kinds: no server, no time, no JSON, no chat completion
            raise JudgeError(
                f"The judge {self.model} at {self.url} cannot be used: {told(error, KEY)}. lmms-eval itself would "
                f"score 0. {SERVE}"
            ) from error


_LOCAL = ("localhost", "127.0.0.1", "::1")  # through a proxy these are another machine


def _client(url: str, key: str) -> Any:
    from openai import DefaultHttpxClient, OpenAI

    http = DefaultHttpxClient(trust_env=urlsplit(url).hostname not in _LOCAL)
    return OpenAI(base_url=url, api_key=_key(key), timeout=TIMEOUT, max_retries=0, http_client=http)


def served_models(url: str, key: str) -> list[str]:
    """Return the names of the models on a server, whose key is in the environment variable `key`."""
    with _client(url, key) as client:
        return [model.id for model in client.models.list()]


def told(error: Exception, key: str) -> str:
    """Return an error in one line, without the key in the environment variable `key`, which a server may repeat."""
    cause = f" ({error.__cause__})" if error.__cause__ else ""
    text = str(error) if isinstance(error, EvaluationError) else f"{type(error).__name__}: {error}{cause}"
    return " ".join(text.replace(_key(key), "***").split())[:300]


def no_proxy(environ: Mapping[str, str]) -> dict[str, str]:
    """Return variables that keep lmms-eval's clients from using a proxy for this machine."""
    hosts = ",".join([environ.get("no_proxy") or environ.get("NO_PROXY") or "", *_LOCAL]).lstrip(",")
    return {"no_proxy": hosts, "NO_PROXY": hosts}


def _key(variable: str) -> str:
    return os.environ.get(variable, "").strip() or "EMPTY"  # OpenAI's client needs one, and vLLM accepts any


# Characters around a verdict, and words before it.
_AROUND = " \t\r\n*_`#>\"'[](){}$\u201c\u201d\u2018\u2019"
_LEAD = re.compile(r"^(?:(?:final|my|your) )?(?:score|answer|judge?ment|verdict|result)[*_`\s]*[:=]", re.IGNORECASE)
_VERDICTS = {"1": 1, "yes": 1, "correct": 1, "0": 0, "no": 0, "incorrect": 0}


def verdict(text: str) -> int | None:
    """Return the verdict in a judge's text: 1 for right, 0 for wrong, None if there is none.

    A verdict is 1, yes or correct, or 0, no or incorrect, alone on the first or the last line. Marks around it and a
    lead such as "Score:" are allowed. Two different verdicts count as none. lmms-eval 0.7.3 (llm_judge/utils.py) takes
    "12" and "The prediction 12 is wrong" for 1, because they contain "1".
    """
    lines = [line.strip(_AROUND) for line in text.splitlines() if line.strip(_AROUND)]
    # A full stop only on the right: ".1" is not a verdict.
    words = [_LEAD.sub("", line).strip(_AROUND).rstrip(_AROUND + ".").lower() for line in (lines[:1] + lines[-1:])]
    found = {_VERDICTS[word] for word in words if word in _VERDICTS}
    return found.pop() if len(found) == 1 else None
