"""What asynchronous GRPO lacks on a CPU: a kernel, a way for the weights, and vLLM's server, which is a stub here."""

import asyncio
import random
import re
import threading
from contextlib import contextmanager
from types import SimpleNamespace

import torch
from aiohttp import web
from datasets import Dataset
from transformers import Qwen2Config, Qwen2ForCausalLM

from examples.async_grpo import VADEAsyncGRPOTrainer, trl_async
from trl_vade.testbed.processor import CHAT_TEMPLATE, build_tokenizer


def make_tokenizer():
    """The testbed's tokenizer, with the template by which transformers reads a completion."""
    made = build_tokenizer()
    made.chat_template = CHAT_TEMPLATE
    made.response_template = {
        "defaults": {"role": "assistant"},
        "start_anchor": "<|im_start|>assistant\n",
        "fields": {"content": {"close_pattern": r"<\|im_end\|>\s*", "content": "text"}},
    }
    return made


def make_rows(count):
    return Dataset.from_list(
        [{"prompt": [{"role": "user", "content": f"row {n} ?"}], "id": f"row-{n}"} for n in range(count)]
    )


def says_yes(completions, **columns):
    """The reward; the loop's process imports it."""
    return [float("yes" in completion[-1]["content"]) for completion in completions]


@contextmanager
def serving(rates, seconds=0.005):
    """Serve `/v1/completions` as vLLM 0.31 does; yield the address. A row is answered by yes with its pass rate."""
    chance, words = random.Random(0), make_tokenizer()
    ids = {right: words(word)["input_ids"] + [words.eos_token_id] for right, word in ((True, "yes"), (False, "no"))}

    async def complete(request):
        asked = await request.json()
        row = int(re.search(r"row\s*(\d+)", words.decode(asked["prompt"])).group(1))
        await asyncio.sleep(chance.expovariate(1.0 / seconds))
        made = ids[chance.random() < rates[row]]
        logprobs = {"tokens": [*map(str, made)], "token_logprobs": [-0.7] * len(made), "top_logprobs": None}
        choice = {"index": 0, "text": words.decode(made), "token_ids": made, "prompt_token_ids": asked["prompt"]}
        choice |= {"logprobs": logprobs, "finish_reason": "stop", "stop_reason": None}
        usage = {"prompt_tokens": len(asked["prompt"]), "completion_tokens": len(made)}
        return web.json_response({"id": "0", "object": "text_completion", "choices": [choice], "usage": usage})

    loop, ready, address, stop = asyncio.new_event_loop(), threading.Event(), [], asyncio.Event()

    async def run():
        app = web.Application()
        app.router.add_post("/v1/completions", complete)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        address.append(f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}")
        ready.set()
        await stop.wait()
        await runner.cleanup()

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()), daemon=True)
    thread.start()
    ready.wait()
    try:
        yield address[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


def varlen_attention(query, key, value, starts_q, starts_k, most_q, most_k, *, softmax_scale, causal, **others):
    """`flash_attn_varlen_func` in torch: each segment of queries attends to the end of its own path of keys."""
    assert causal
    parts, repeat = [], query.shape[1] // key.shape[1]
    for number in range(len(starts_q) - 1):
        q = query[starts_q[number] : starts_q[number + 1]].transpose(0, 1)
        k, v = (each[starts_k[number] : starts_k[number + 1]].transpose(0, 1) for each in (key, value))
        k, v = (each.repeat_interleave(repeat, dim=0) for each in (k, v))
        hidden = torch.ones(q.shape[1], k.shape[1]).tril(k.shape[1] - q.shape[1]) == 0
        scores = (q @ k.transpose(1, 2) * softmax_scale).masked_fill(hidden, float("-inf"))
        parts.append((scores.softmax(-1) @ v).transpose(0, 1))
    return torch.cat(parts)


class NoTransfer:
    """The stub has no weights."""

    def init_weight_transfer(self):
        pass

    pause = resume = destroy = init_weight_transfer

    def send_weights(self, iterator):
        list(iterator)


def make_model(path):
    """Write a tiny Qwen2 with the stub's tokenizer to `path`."""
    tokenizer = make_tokenizer()
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = Qwen2Config(vocab_size=len(tokenizer), num_key_value_heads=1, pad_token_id=0, **sizes)
    Qwen2ForCausalLM(config).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return str(path)


def make_trainer(monkeypatch, model, address, output_dir, selection, rows=60):
    """A trainer whose rollout worker is TRL's own, in a process of its own."""
    monkeypatch.setattr("trl.experimental.async_grpo.async_rollout_worker.is_vllm_available", lambda: True)
    monkeypatch.setattr(
        "trl.experimental.async_grpo.async_grpo_trainer.get_peak_flops_per_device", lambda *given: None
    )
    kernel = SimpleNamespace(flash_attn_varlen_func=varlen_attention)
    monkeypatch.setattr("trl.experimental.async_grpo.packing._flash_attn", lambda: kernel)
    args = trl_async.AsyncGRPOConfig(
        output_dir=str(output_dir),
        per_device_train_batch_size=8,
        gradient_accumulation_steps=1,
        num_generations=4,
        max_completion_length=8,
        max_inflight_tasks=16,
        max_steps=4,
        save_steps=2,
        logging_steps=1,
        report_to="none",
        use_cpu=True,
        bf16=False,
        token_budget=512,
        vllm_server_base_url=address,
    )
    return VADEAsyncGRPOTrainer(
        model,
        says_yes,
        args,
        train_dataset=make_rows(rows),
        processing_class=make_tokenizer(),
        weight_transfer=NoTransfer(),
        selection=selection,
    )
