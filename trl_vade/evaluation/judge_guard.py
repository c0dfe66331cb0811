"""A guard around lmms-eval 0.7.3's calls of the judge, inside its process.

lmms-eval catches every error of a judge and scores 0. It takes every text that contains "1" for "right". `JudgeGuard`
wraps its provider: it ends the process if the judge is dead, and reads the verdicts itself.
"""

import dataclasses
import functools
import os
import sys
import threading
import time
from typing import Any

from trl_vade.errors import JudgeError

from .judge import RIGHT, SERVE, told, verdict

JUDGE_EXIT = 42  # the exit status of a process whose `JudgeGuard` found the judge dead
TIMEOUT = 60.0  # Seconds for an attempt. lmms-eval sets 60, too, but its provider ignores it.
_QUESTION = (400, 413, 422)  # HTTP statuses that may concern one question only, such as a response that is too long
_FINAL = (401, 403, 404, *_QUESTION)  # and those after which a retry cannot help


def end_process(message: str) -> None:
    """Write the reason to stderr, on one line, and end this process. lmms-eval would catch any exception."""
    print(f"\ntrl_vade: {' '.join(message.split())}", file=sys.stderr, flush=True)
    os._exit(JUDGE_EXIT)


class JudgeGuard:
    """Guard of lmms-eval's calls of the judge, from all threads of its process.

    A failed call is repeated as often as in lmms-eval 0.7.3, 5 times, but `delay` seconds apart: MathVista does not
    pause, so a server that restarts would end everything. OpenAI's client (timeout 600 s, two retries of its own) may
    hang for hours. Here a server that refuses all calls counts as dead after 40 s, and one that hangs after two
    minutes: after `patience` seconds only the second attempt still starts.
    """

    def __init__(self, *, delay: float = 10.0, patience: float = 60.0) -> None:
        self._delay, self._patience = delay, patience
        self._lock, self._calls, self._dead = threading.Lock(), 0, False
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
            if self._dead:
                raise JudgeError("The judge is dead.")
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
        with self._lock:
            first, self._dead = not self._dead, True
        if first:
            end_process(f"The judge {provider.config.model_name} at {provider.base_url} is dead: {reason}. {SERVE}")
        raise JudgeError(reason)

    def _patiently(self, ask: Any, provider: Any, request: Any) -> Any:
        """Return the answer, after several attempts if needed, or raise the last error."""
        config = request.config or provider.config
        once = dataclasses.replace(request, config=dataclasses.replace(config, num_retries=1))
        provider.client = provider.client.with_options(timeout=TIMEOUT, max_retries=0)
        began = time.monotonic()
        for attempt in range(1, config.num_retries):
            try:
                return ask(provider, once)
            except Exception as error:
                late = attempt > 1 and time.monotonic() - began > self._patience
                if late or getattr(error, "status_code", None) in _FINAL:
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
