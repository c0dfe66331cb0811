"""The language model that judges answers to MathVista, MathVerse and MathVision in lmms-eval 0.7.3.

It runs on a server with OpenAI's interface (in the paper Qwen2.5-72B-Instruct on vLLM). If the judge is dead,
lmms-eval scores 0 and exits with 0. It also takes every text that contains "1" for "right". So the judge is probed
before the first run and after each judged one (`Judge.probe`), and watched inside lmms-eval's process (`JudgeGuard`).
"""

import dataclasses
import functools
import os
import re
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from trl_vade.errors import EvaluationError, JudgeError, abbreviated

KEY = "JUDGE_API_KEY"  # the environment variable with the key of its server
PROBE_TIMEOUT = 30.0  # seconds for an answer to the probe
TIMEOUT = 60.0  # Seconds for an attempt of lmms-eval. It sets 60, too, but its provider ignores it.
JUDGE_EXIT = 42  # the exit status of a process whose `JudgeGuard` found the judge dead
_QUESTION = (400, 413, 422)  # HTTP statuses that may concern one question only, such as a response that is too long
_FINAL = (401, 403, 404, *_QUESTION)  # and those after which a retry cannot help
SERVE = "Serve a judge (`vllm serve Qwen/Qwen2.5-72B-Instruct`), and give --judge_url http://HOST:8000/v1."

# In the form of lmms-eval's own questions (llm_judge/prompt.py).
_GRADE = (
    "You grade answers to questions of mathematics. Say 1 where the prediction comes to the reference answer, and 0 "
    "where it does not. Say nothing but 1 or 0.\n\nQuestion:\nWhat is 48 divided by 4?\n\nReference answer:\n12\n\n"
    "Prediction:\n48 / 4 = {0}, so the answer is {0}.\n\nYour verdict, 1 or 0:"
)
RIGHT, WRONG = _GRADE.format(12), _GRADE.format(13)  # the control questions; `JudgeGuard` asks the first, too


@dataclass(frozen=True)
class Judge:
    """A judge and its server. Its key is read from the environment variable JUDGE_API_KEY."""

    url: str  # address of the interface, without routes: "http://127.0.0.1:8000/v1"
    model: str  # the name of the model on the server

    def environment(self) -> dict[str, str]:
        """Return the environment variables that lmms-eval reads at import."""
        server = {"API_TYPE": "openai", "OPENAI_API_URL": self.url, "OPENAI_API_KEY": _key(KEY)}
        return server | {"MODEL_VERSION": self.model}

    def probe(self) -> None:
        """Check the judge: its name, and its verdicts on a right and on a wrong answer. A fault is a `JudgeError`."""
        try:
            if self.model not in (served := served_models(self.url, KEY)):
                raise JudgeError(f"the server has {', '.join(served) or 'no model'}")
            with _client(self.url, KEY) as client:
                for prompt, right in ((RIGHT, 1), (WRONG, 0)):
                    messages = [{"role": "user", "content": prompt}]
                    answer = client.chat.completions.create(model=self.model, messages=messages)
                    text = answer.choices[0].message.content or ""
                    if verdict(text) != right:
                        raise JudgeError(f"asked for a verdict that is {right}, it said {abbreviated(text)}")
        except Exception as error:  # of many kinds: no server, no time, no JSON, no chat completion
            raise JudgeError(
                f"The judge {self.model} at {self.url} cannot be used: {told(error, KEY)}. lmms-eval itself would "
                f"score 0. {SERVE} Behind a proxy, name its host in no_proxy."
            ) from error


def _client(url: str, key: str) -> Any:
    from openai import OpenAI

    return OpenAI(base_url=url, api_key=_key(key), timeout=PROBE_TIMEOUT, max_retries=0)


def served_models(url: str, key: str) -> list[str]:
    """Return the names of the models on a server, whose key is in the environment variable `key`."""
    with _client(url, key) as client:
        return [model.id for model in client.models.list()]


def told(error: Exception, key: str) -> str:
    """Return an error in one line, without the key in the environment variable `key`, which a server may repeat."""
    cause = f" ({error.__cause__})" if error.__cause__ else ""
    text = str(error) if isinstance(error, EvaluationError) else f"{type(error).__name__}: {error}{cause}"
    return " ".join(text.replace(_key(key), "***").split())[:300]


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


def end_process(message: str) -> None:
    """Write the reason to stderr, on one line, and end this process. lmms-eval would catch any exception."""
    print(f"\ntrl_vade: {' '.join(message.split())}", file=sys.stderr, flush=True)
    os._exit(JUDGE_EXIT)


class JudgeGuard:
    """Guard of lmms-eval's calls of the judge, from all threads of its process.

    A failed call is repeated as often as in lmms-eval 0.7.3, 5 times, but `delay` seconds apart: MathVista does not
    pause, so a server that restarts would end everything. OpenAI's client (timeout 600 s, two retries of its own) may
    hang for hours. Here a server that refuses all calls counts as dead after 40 s, and one that hangs after 6 minutes.
    """

    def __init__(self, *, delay: float = 10.0) -> None:
        self._delay, self._lock, self._calls = delay, threading.Lock(), 0
        self._unreadable: dict[Any, str] = {}  # the judge's answers, in their order

    def report(self) -> dict[str, Any]:
        """Return the number of `calls`, of `unreadable` answers, and an `example` of these.

        Unreadable are answers without a verdict, empty ones, and refused questions. Each question counts once.
        """
        example = next(iter(self._unreadable.values()), None)
        return {"calls": self._calls, "unreadable": len(self._unreadable), "example": example}

    def install(self) -> None:
        """Wrap lmms-eval's provider, in place of an earlier guard.

        MathVista calls `OpenAIProvider.evaluate` directly, the other two tasks by `ServerInterface.evaluate_binary`.
        """
        from lmms_eval.llm_judge.base import ServerInterface
        from lmms_eval.llm_judge.providers.openai import OpenAIProvider

        ask = getattr(OpenAIProvider.evaluate, "__wrapped__", OpenAIProvider.evaluate)
        grade = getattr(ServerInterface.evaluate_binary, "__wrapped__", ServerInterface.evaluate_binary)

        @functools.wraps(ask)
        def evaluate(provider: Any, request: Any) -> Any:
            return self._evaluate(ask, provider, request)

        @functools.wraps(grade)
        def evaluate_binary(provider: Any, *args: Any, **named: Any) -> Any:
            result = grade(provider, *args, **named)
            text = result["raw_response"]
            found = verdict(text)
            if found is None and text:
                self._note(object(), text)
            return result | {"result": found or 0}

        OpenAIProvider.evaluate, ServerInterface.evaluate_binary = evaluate, evaluate_binary

    def _evaluate(self, ask: Any, provider: Any, request: Any) -> Any:
        """Make a call. Without an answer, the judge counts as dead unless it still answers another question."""
        with self._lock:
            self._calls += 1
        response = failure = None
        try:
            response = self._patiently(ask, provider, request)
            if response.content:
                return response
            reason = "an empty answer"
        except Exception as error:
            failure, reason = error, told(error, "OPENAI_API_KEY")
        # A single question, with an empty or endless response, must not end a run of hours.
        about_it = failure is None or getattr(failure, "status_code", None) in _QUESTION
        if about_it and self._lives(ask, provider, request):
            # MathVista's requests have no question and prediction. It repeats the message, or its end.
            self._note((request.question, request.prediction, str(request.messages)[-500:]), reason)
            if failure is None:
                return response
            raise failure  # MathVista shortens a question that is too long
        end_process(f"The judge {provider.config.model_name} at {provider.base_url} is dead: {reason}. {SERVE}")
        raise JudgeError(reason)

    def _patiently(self, ask: Any, provider: Any, request: Any) -> Any:
        config = request.config or provider.config
        once = dataclasses.replace(request, config=dataclasses.replace(config, num_retries=1))
        provider.client = provider.client.with_options(timeout=TIMEOUT, max_retries=0)
        for _ in range(1, config.num_retries):
            try:
                return ask(provider, once)
            except Exception as error:
                if getattr(error, "status_code", None) in _FINAL:
                    raise
            time.sleep(self._delay)
        return ask(provider, once)

    def _lives(self, ask: Any, provider: Any, request: Any) -> bool:
        with suppress(Exception):
            check = dataclasses.replace(request, messages=[{"role": "user", "content": RIGHT}])
            return bool(self._patiently(ask, provider, check).content)
        return False

    def _note(self, question: Any, text: str) -> None:
        with self._lock:
            self._unreadable.setdefault(question, text[:200])
