"""A watch over lmms-eval 0.7.3's calls of the judge, from inside its process: a dead judge is an end, and no zero.

lmms-eval catches whatever a judge raises and scores 0. It takes every text with a "1" in it for "right". So
`JudgeGuard` stands around its provider: it ends the process where the judge is dead, and reads verdicts itself.
"""

import dataclasses
import functools
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from trl_vade.errors import JudgeError, abbreviated

from ..judge import RIGHT, SERVE, verdict

JUDGE_EXIT = 42
"""The exit status of a process whose `JudgeGuard` found the judge dead."""


# What the server says of one request: another attempt would end in the same.
_FINAL = (400, 401, 403, 404, 413, 422)
_QUESTION = (400, 413, 422)  # and what it may say of one question alone: a response too long for the judge's context


def end_process(message: str) -> None:
    """Write the reason to stderr, on a line of its own, and end this process with `JUDGE_EXIT`.

    An exception would not do: lmms-eval's callers catch all of them, and score 0.
    """
    try:
        print(f"\ntrl_vade: {' '.join(message.split())}", file=sys.stderr, flush=True)
    finally:
        os._exit(JUDGE_EXIT)


class JudgeGuard:
    """Watches lmms-eval's calls of the judge, in lmms-eval's process and from all threads of it.

    A call that fails is repeated as often as lmms-eval 0.7.3 would, which is 5 times for each of the three tasks, but
    at another pace: MathVista waits for nothing between them, so that a server that restarts ends everything, and
    OpenAI's client (timeout 600 s, two more attempts of its own) may hang for hours. Here a server that refuses all is
    dead after 40 s, and one that hangs after two minutes.

    Args:
        on_dead: called with the reason, once, when the judge is dead; `end_process` by default.
        delay: seconds between two attempts.
        patience: seconds after which no attempt begins, other than the second.
        timeout: seconds that an attempt may take. 60 is lmms-eval's own number, which its provider forgets to use.
    """

    def __init__(
        self,
        on_dead: Callable[[str], None] = end_process,
        *,
        delay: float = 10.0,
        patience: float = 60.0,
        timeout: float = 60.0,
    ) -> None:
        self.on_dead = on_dead
        self._delay, self._patience, self._timeout = delay, patience, timeout
        self._lock = threading.Lock()
        self.reset()

    def reset(self) -> None:
        """Begin to count anew."""
        with self._lock:
            self._calls, self._dead = 0, False
            self._unreadable: dict[Any, str] = {}  # the judge's answers, in their order

    def report(self) -> dict[str, Any]:
        """`calls` of the judge (a call may take several attempts), how many answers were `unreadable`, an `example`.

        Unreadable are what is no verdict, which counts as wrong, an empty answer, and a question that the judge
        refuses. MathVista repeats a question after the latter two; it counts once.
        """
        with self._lock:
            return {
                "calls": self._calls,
                "unreadable": len(self._unreadable),
                "example": next(iter(self._unreadable.values()), None),
            }

    def install(self) -> None:
        """Put the guard around lmms-eval's provider; one that was installed before goes.

        Of `OpenAIProvider.evaluate` are all calls of the three tasks: MathVista's directly, MathVerse's and those of
        `verifiers.openai.OpenAIVerifier`, which is MathVision's, by `ServerInterface.evaluate_binary`.
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
        """One call; what is no answer ends all, unless the judge still answers another question."""
        with self._lock:
            self._calls += 1
            if self._dead:
                raise JudgeError("The judge is dead.")
        response = failure = None
        try:
            response = self._patiently(ask, provider, request)
            if response.content:
                return response
            reason = "an empty answer"
        except Exception as error:
            failure, reason = error, _without_key(error, provider.api_key)
        # One question in a thousand, of a response that says nothing or never ends, is not to cost a run of hours.
        if (failure is None or _status(failure) in _QUESTION) and self._lives(ask, provider, request):
            # MathVista, of whose requests the first two are None, repeats the whole question, or its end.
            self._note((request.question, request.prediction, str(request.messages)[-500:]), reason)
            if failure is None:
                return response
            raise failure  # MathVista shortens a question that is too long
        with self._lock:
            first, self._dead = not self._dead, True
        message = f"The judge {provider.config.model_name} at {provider.base_url} is dead: {reason}. {SERVE}"
        if first:
            self.on_dead(message)
        raise JudgeError(message)

    def _patiently(self, ask: Any, provider: Any, request: Any) -> Any:
        """The answer, after several attempts if need be, or the last one's exception."""
        config = request.config or provider.config
        once = dataclasses.replace(request, config=dataclasses.replace(config, num_retries=1))
        client = getattr(provider, "client", None)  # none where openai is missing
        if client and (client.max_retries, client.timeout) != (0, self._timeout):
            provider.client = client.with_options(timeout=self._timeout, max_retries=0)
        began = time.monotonic()
        for attempt in range(1, config.num_retries):
            try:
                return ask(provider, once)
            except Exception as error:
                late = attempt > 1 and time.monotonic() - began > self._patience
                if late or _status(error) in _FINAL:
                    raise
            time.sleep(self._delay)
        return ask(provider, once)

    def _lives(self, ask: Any, provider: Any, request: Any) -> bool:
        check = dataclasses.replace(request, messages=[{"role": "user", "content": RIGHT}])
        try:
            return bool(self._patiently(ask, provider, check).content)
        except Exception:
            return False

    def _note(self, question: Any, text: str) -> None:
        with self._lock:
            self._unreadable.setdefault(question, text[:200])


def _status(error: Exception) -> int | None:
    """The HTTP status, of openai's exceptions and of requests', which the provider uses where openai is missing."""
    return getattr(error, "status_code", None) or getattr(getattr(error, "response", None), "status_code", None)


def _without_key(error: Exception, key: str) -> str:
    cause = f" ({error.__cause__})" if error.__cause__ else ""
    text = f"{type(error).__name__}: {error}{cause}"
    return abbreviated(text if key in ("", "EMPTY") else text.replace(key, "***"))
