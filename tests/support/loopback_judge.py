"""A stand-in for a vLLM server that serves a judge, on the loopback interface; OpenAI's client and httpx talk to it.

    with LoopbackJudge() as judge:
        Judge(judge.url, judge.model).probe()
        judge.fail_after(3, "empty")  # three more good answers, then empty ones

It judges what is simple enough to be judged by a rule, and so a run's score means something: a number, an option's
letter or a text in the prediction is compared with the answer, and MathVista's extraction gets the last number or
letter. It knows the questions of `trl_vade.evaluation.judge` and lmms-eval 0.7.3's BINARY_JUDGE_PROMPT,
CORRECTNESS_JUDGE_PROMPT and DEMO_PROMPT.
"""

import asyncio
import json
import re

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse

from tests.support.loopback import Loopback

MODES = (
    *("good", "empty", "nonsense", "status500", "slow", "dead", "wrong model"),
    *("right", "wrong", "html", "no choices", "long refused", "long empty"),
)
"""What it does: judges; answers nothing, `words`, or with status 500; answers after `delay` seconds; cuts every
connection; serves another model; says 1, or 0, to everything; sends a web page, or JSON without an answer; refuses
questions of more than `limit` characters, as too long for its context, or answers nothing to them."""

# Each finds the answer and the prediction.
GRADED = (
    re.compile(r"Reference answer:\n(.*?)\n\nPrediction:\n(.*)\n\nYour verdict", re.DOTALL),
    re.compile(r"Ground Truth Answer:\n```\n(.*?)\n```\nModel Prediction:\n```\n(.*)\n```\n\n# Evaluation", re.DOTALL),
    re.compile(r"Correct Answer:\n(.*?)\n-{32}\nSolution: \n(.*)\n-{32}", re.DOTALL),
)
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
LIST = re.compile(r"\[[^\[\]]*\]")
LETTER = re.compile(r"\b[A-H]\b")


def last(pattern, text):
    """The last match of the pattern in the text, or ""."""
    return (pattern.findall(text) or [""])[-1]


def agrees(prediction, answer):
    """Whether the prediction ends in the answer, as far as a rule can see."""
    prediction, answer = prediction.strip().rstrip("."), answer.strip().rstrip(".")
    if NUMBER.fullmatch(answer):
        found = last(NUMBER, prediction.replace(",", ""))
        return bool(found) and float(found) == float(answer)
    if LETTER.fullmatch(answer):
        return last(LETTER, prediction) == answer
    return bool(answer) and prediction.lower().endswith(answer.lower())


def extract(prompt):
    """The answer in the response at the end of an extraction prompt: a letter where the question asks for one."""
    *_, asked, _ = prompt.split("Extracted answer:")
    *question, response = asked.strip().split("\n\n")[1:]
    if listed := LIST.findall(response):
        return listed[-1]
    return last(LETTER if "letter" in "".join(question) else NUMBER, response) or response.strip()


def answer_of(prompt):
    """What a good judge says."""
    found = next(filter(None, (pattern.search(prompt) for pattern in GRADED)), None)
    if found:
        positive = "Yes" if 'Return only "Yes"' in prompt else "1"
        negative = "No" if positive == "Yes" else "0"
        return positive if agrees(found[2], found[1]) else negative
    return extract(prompt) if "Extracted answer:" in prompt else "I can only judge and extract."


class LoopbackJudge(Loopback):
    """The stand-in, as a context manager that listens at `url` and serves `model`.

    `mode` is one of `MODES` and may be changed at any time. `calls` counts the questions, `prompts` holds them, and
    `keys` all keys seen. With `key`, another one is answered by status 401.
    """

    def __init__(self, mode="good", model="Qwen/Qwen2.5-72B-Instruct", key=None):
        self.model, self.key = model, key
        self.words, self.delay, self.limit = "Perhaps a triangle, perhaps not.", 60.0, 500
        self.calls, self.prompts, self.keys = 0, [], set()
        self._mode, self._failure = mode, None

    @property
    def mode(self):
        """What it does now."""
        if self._failure and self.calls >= self._failure[0]:
            return self._failure[1]
        return self._mode

    @mode.setter
    def mode(self, mode):
        assert mode in MODES
        self._mode, self._failure = mode, None

    def fail_after(self, calls, mode="dead"):
        """From now on, `calls` questions more as before, then `mode`."""
        assert mode in MODES
        self._mode, self._failure = self.mode, (self.calls + calls, mode)

    def _models(self, mode):
        name = "another/model" if mode == "wrong model" else self.model
        return JSONResponse({"object": "list", "data": [{"id": name, "object": "model", "owned_by": "vllm"}]})

    def reply(self, prompt, asked):
        """What it says when it is good."""
        return answer_of(prompt)

    def _completion(self, mode, asked):
        prompt = asked["messages"][-1]["content"]
        self.prompts.append(prompt)
        if asked["model"] != self.model or mode == "wrong model":
            return refused(404, f"The model `{asked['model']}` does not exist.")
        if mode == "long refused" and len(prompt) > self.limit:
            return refused(400, "The context length is too small. Please reduce the length of the messages.")
        if mode == "no choices":
            return JSONResponse({"object": "chat.completion", "choices": []})
        said = {"empty": "", "nonsense": self.words, "right": "1", "wrong": "0"}
        text = said[mode] if mode in said else self.reply(prompt, asked)
        text = "" if mode == "long empty" and len(prompt) > self.limit else text
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        words, said = len(prompt.split()), len(text.split())
        usage = {"prompt_tokens": words, "completion_tokens": said, "total_tokens": words + said}
        about = {"id": f"chatcmpl-{self.calls}", "object": "chat.completion", "created": 0, "model": self.model}
        return JSONResponse(about | {"choices": [choice], "usage": usage})

    async def _serve(self, scope, receive, send):
        request = Request(scope, receive)
        body = await request.body()
        mode = self.mode
        line, key = f"{request.method} {request.url.path}", request.headers.get("authorization", "")
        self.keys.add(key.removeprefix("Bearer "))
        if line == "POST /v1/chat/completions":
            self.calls += 1
        if mode == "dead":
            return scope["state"]["transport"].abort()
        if mode == "slow":
            await asyncio.sleep(self.delay)
        if mode == "html":
            response = HTMLResponse("<html><h1>Welcome</h1></html>")
        elif mode == "status500":
            response = refused(500, "EngineCore encountered an issue")
        elif self.key and key != f"Bearer {self.key}":
            response = refused(401, f"Not a key of this server: {key.removeprefix('Bearer ')}")
        elif line == "GET /v1/models":
            response = self._models(mode)
        elif line == "POST /v1/chat/completions":
            response = self._completion(mode, json.loads(body))
        else:
            response = JSONResponse({"detail": "Not Found"}, 404)
        await response(scope, receive, send)

    def __enter__(self):
        super().__enter__()
        self.url += "/v1"
        return self


def refused(status, message):
    """An error as vLLM tells it."""
    return JSONResponse({"error": {"message": message, "type": "Error", "param": None, "code": status}}, status)
