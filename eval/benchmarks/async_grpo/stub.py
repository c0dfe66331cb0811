"""A stand-in for vLLM's `/v1/completions`: answers yes or no with a row's pass rate, after a random time.

It answers as vLLM 0.31 does to TRL's rollout loop: ids, log-probabilities and finish reason of one completion, and an
error body with status 400 for a request that vLLM would refuse.
"""

import asyncio
import random
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from aiohttp import web
from datasets import Dataset

from trl_vade.testbed.processor import CHAT_TEMPLATE, build_tokenizer

MODEL = "stub"


def tokenizer():
    """The testbed's tokenizer, with the template by which transformers reads a completion."""
    made = build_tokenizer()
    made.chat_template = CHAT_TEMPLATE
    made.response_template = {
        "defaults": {"role": "assistant"},
        "start_anchor": "<|im_start|>assistant\n",
        "fields": {"content": {"close_pattern": r"<\|im_end\|>\s*", "content": "text"}},
    }
    return made


def rows(count: int) -> Dataset:
    return Dataset.from_list(
        [{"prompt": [{"role": "user", "content": f"row {n} ?"}], "id": f"row-{n}"} for n in range(count)]
    )


def says_yes(completions, **kwargs) -> list[float]:
    """The reward."""
    return [float("yes" in completion[-1]["content"]) for completion in completions]


def pass_rates(count: int, *, impossible: float, seed: int) -> np.ndarray:
    """A share of rows that no answer solves, and the others anywhere in [0, 1]."""
    chance = np.random.default_rng(seed)
    rates = chance.uniform(0.0, 1.0, count)
    rates[chance.permutation(count)[: round(impossible * count)]] = 0.0
    return rates


@contextmanager
def serving(rates: Sequence[float], *, seconds: float = 0.02, seed: int = 0) -> Iterator[str]:
    """Serve in a thread of its own; yield the address. An answer takes `seconds` on average, exponential."""
    chance, words = random.Random(seed), tokenizer()
    ids = {right: words(word)["input_ids"] + [words.eos_token_id] for right, word in ((True, "yes"), (False, "no"))}

    async def complete(request: web.Request) -> web.Response:
        asked = await request.json()
        if not asked.get("return_token_ids") or asked.get("n") != 1:
            fault = {"message": "the stub gives one completion, with its ids", "type": "BadRequestError"}
            return web.json_response({"error": fault | {"param": None, "code": 400}}, status=400)
        row = int(re.search(r"row\s*(\d+)", words.decode(asked["prompt"])).group(1))
        await asyncio.sleep(chance.expovariate(1.0 / seconds))
        made = ids[chance.random() < rates[row]]
        choice = {
            "index": 0,
            "text": words.decode(made),
            "token_ids": made,
            "prompt_token_ids": asked["prompt"],
            "logprobs": {"tokens": [*map(str, made)], "token_logprobs": [-0.7] * len(made), "top_logprobs": None},
            "finish_reason": "stop",
            "stop_reason": None,
        }
        usage = {"prompt_tokens": len(asked["prompt"]), "completion_tokens": len(made)}
        return web.json_response(
            {"id": "cmpl-0", "object": "text_completion", "model": MODEL, "choices": [choice], "usage": usage}
        )

    loop, ready, address = asyncio.new_event_loop(), threading.Event(), []

    async def run() -> None:
        app = web.Application()
        app.router.add_post("/v1/completions", complete)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        address.append(f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}")
        ready.set()
        try:
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()

    task = loop.create_task(run())

    def serve() -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(task)
        except asyncio.CancelledError:
            pass
        finally:
            loop.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    ready.wait()
    try:
        yield address[0]
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join()
