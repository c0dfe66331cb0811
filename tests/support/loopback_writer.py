"""A stand-in for an LLM that writes paraphrases and solutions, on `LoopbackJudge`'s server.

    with LoopbackWriter() as writer:
        writer.fault = lambda prompt, attempt: "status500" if attempt == 0 else "good"
        run("variants", "testbed", "--endpoint", writer.url, "--model", writer.model, ...)

`fault` says what it does with a prompt at an attempt, from 0: a mode of `loopback_judge.MODES` or one of `TEXTS`.
A prompt with pictures is the JSON of its parts.
"""

import json
import re
from collections import Counter

from starlette.responses import JSONResponse

from tests.support.loopback_judge import LoopbackJudge

ASKED = re.compile(r"Question:\n(.*?)(?:\n\nRight answer:\n(.*))?\Z", re.DOTALL)


def paraphrase(question):
    return f"Look at the picture: {question[0].lower()}{question[1:]}"


def good(question, answer):
    if answer is None:
        return paraphrase(question)
    return f"1. Look at the whole picture.\n2. Note each thing.\n3. Put them together.\nAnswer: {answer}"


TEXTS = {
    "good": good,
    "empty": lambda question, answer: "",
    "nonsense": lambda question, answer: "Perhaps a triangle, perhaps not.",
    "refusal": lambda question, answer: "I'm sorry, but I can't help with that.",
    "page": lambda question, answer: "<html><body><h1>Welcome</h1></body></html>",
    "leak": lambda question, answer: f"1. It is {answer}.\n2. Check it.\n3. Done.\nAnswer: {answer}",
    "copy": lambda question, answer: question,
    "numberless": lambda question, answer: paraphrase(re.sub(r"\d+", "some", question)),
    "endless": lambda question, answer: " ".join([good(question, answer)] * 999),
    "no text": lambda question, answer: None,
}


class LoopbackWriter(LoopbackJudge):
    """The stand-in. `attempts` counts the requests by their content, `pictures` those that came with some."""

    def __init__(self, **settings):
        super().__init__(model="writer/72B", **settings)
        self.fault = lambda prompt, attempt: "good"
        self.attempts, self.pictures, self.bodies = Counter(), 0, []

    def mode_for(self, body):
        asked = json.loads(body)
        self.bodies.append(asked)
        content = asked["messages"][-1]["content"]
        self.pictures += not isinstance(content, str)
        whole = json.dumps(content)
        self.attempts[whole] += 1
        return self.fault(content if isinstance(content, str) else whole, self.attempts[whole] - 1)

    def _completion(self, mode, asked):
        content = asked["messages"][-1]["content"]
        prompt = content if isinstance(content, str) else content[-1]["text"]
        text = TEXTS[mode](*ASKED.search(prompt).groups()) if mode in TEXTS else mode
        if mode == "no choices":
            return JSONResponse({"object": "chat.completion", "choices": []})
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        about = {"id": f"chatcmpl-{self.calls}", "object": "chat.completion", "created": 0, "model": self.model}
        return JSONResponse(about | {"choices": [choice]})
