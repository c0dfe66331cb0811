"""What asynchronous GRPO lacks on a CPU: a kernel, and a way for the weights. Rollouts come from the stub server."""

from types import SimpleNamespace

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from eval.benchmarks.async_grpo import stub
from trl_vade.trainer.async_grpo import VADEAsyncGRPOTrainer, trl_async


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
    tokenizer = stub.tokenizer()
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = Qwen2Config(vocab_size=len(tokenizer), num_key_value_heads=1, pad_token_id=0, **sizes)
    Qwen2ForCausalLM(config).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return str(path)


def make_trainer(monkeypatch, model, address, output_dir, *, rows=60, selection=None, **changes):
    """A trainer whose rollout worker is TRL's own, in a process of its own."""
    monkeypatch.setattr("trl.experimental.async_grpo.async_rollout_worker.is_vllm_available", lambda: True)
    monkeypatch.setattr(
        "trl.experimental.async_grpo.async_grpo_trainer.get_peak_flops_per_device", lambda *given: None
    )
    kernel = SimpleNamespace(flash_attn_varlen_func=varlen_attention)
    monkeypatch.setattr("trl.experimental.async_grpo.packing._flash_attn", lambda: kernel)
    settings = {
        "output_dir": str(output_dir),
        "per_device_train_batch_size": 8,
        "gradient_accumulation_steps": 1,
        "num_generations": 4,
        "max_completion_length": 8,
        "max_inflight_tasks": 16,
        "max_steps": 4,
        "save_steps": 2,
        "logging_steps": 1,
        "report_to": "none",
        "use_cpu": True,
        "bf16": False,
        "token_budget": 512,
        "vllm_server_base_url": address,
    }
    return VADEAsyncGRPOTrainer(
        model,
        stub.says_yes,
        trl_async.AsyncGRPOConfig(**settings | changes),
        train_dataset=stub.rows(rows),
        processing_class=stub.tokenizer(),
        weight_transfer=NoTransfer(),
        selection=selection,
    )
