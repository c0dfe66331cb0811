"""A text world beside the pictures: running sums of digits modulo 5, as chains whose every step builds on the last.

"What is the sum of 3 of the digits 31420213?" is answered by "343": 3, 3 + 1 = 4, 4 + 4 = 8, which is 3 modulo 5. The
first 3 digits count. A chain is right only when each of its steps is, so the pass rate falls steeply with the length,
and a policy that has become surer of its steps sees its first successes at lengths that were out of reach: what is
learned at one length unlocks the next. Rows have no image.

All questions show the same number of digits, so that a step finds its digit at the same distance whatever the length.
With just the digits that are summed up, the tiny model learned each length by itself and GRPO hardly moved up; modulo
10, it did not learn to add in 700 steps.
"""

import hashlib
import operator
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm.auto import tqdm

from trl_vade.testbed.dataset import MAX_ATTEMPTS, STREAMS, VALIDATION_SHARE, cached_directory
from trl_vade.testbed.model import FORMAT_VERSION as MODEL_VERSION
from trl_vade.testbed.model import IGNORED, build_model
from trl_vade.testbed.processor import build_processor

FORMAT_VERSION = 1  # of the cache keys: raised where the same settings would give other chains or another model
TASK = "chain"  # value of the column `task`; the column `level` is the number of digits to be summed up
WRITTEN, PRODUCTS = "written", "products"  # two more skills
MODULUS = 5
DIGITS = 8  # that a question shows, each 0 to `MODULUS` - 1; the longest chain
WINDOW = 20  # steps that a loss is averaged over before it is compared
MAX_COMPLETION_LENGTH = 14  # tokens of the longest answer, `<answer>`, `</answer>` and the end of the turn included
MAX_WRITTEN_LENGTH = 60  # of one that is written out


@dataclass(frozen=True)
class ChainSFTSettings:
    """The recipe. Teaching ends once the mean loss of the last `WINDOW` steps (nats a token) is below `until_loss`.

    Understanding comes suddenly, after a number of steps that differs by a third from seed to seed: a fixed number
    would leave one seed's model with nothing to learn and another's with nothing learned. `lengths` are the numbers of
    digits to be summed up, `shares` how often each is shown, in any unit.
    """

    until_loss: float = 0.14
    max_steps: int = 600
    batch_size: int = 32
    learning_rate: float = 2e-3
    warmup_steps: int = 20
    lengths: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7, 8)
    shares: tuple[float, ...] = (0.35, 0.35, 0.25, 0.03, 0.01, 0.005, 0.003, 0.002)


@dataclass(frozen=True)
class SkillsSFTSettings(ChainSFTSettings):
    """The recipe of three skills, of which a pool may hold some. `skill_shares` is how often each is shown."""

    until_loss: float = 0.05
    max_steps: int = 1500
    skills: tuple[str, ...] = (TASK, WRITTEN, PRODUCTS)
    skill_shares: tuple[float, ...] = (0.4, 0.4, 0.2)


@dataclass(frozen=True)
class Chain:
    """`DIGITS` digits, of which the first `level` are to be summed up, or taken by turns, or multiplied."""

    digits: str
    level: int
    task: str = TASK

    @property
    def question(self) -> str:
        what = {TASK: "sum", WRITTEN: "value", PRODUCTS: "product"}[self.task]
        return f"What is the {what} of {self.level} of the digits {self.digits}?"

    @property
    def answer(self) -> str:
        """The running sums or products, one digit each; or the running differences, each step written out."""
        digits = [int(digit) for digit in self.digits[: self.level]]
        if self.task == WRITTEN:  # "0-3=2, 2-1=1"
            totals = [0, *accumulate(digits, lambda total, digit: (total - digit) % MODULUS, initial=0)][1:]
            return ", ".join(f"{a}-{d}={b}" for a, d, b in zip(totals, digits, totals[1:], strict=False))
        step = operator.mul if self.task == PRODUCTS else operator.add
        return "".join(str(total % MODULUS) for total in accumulate(digits, step))

    @property
    def validation(self) -> bool:
        """Whether the chain belongs to the validation side, for every seed and size: one in `VALIDATION_SHARE`."""
        return hashlib.blake2b(self.digits.encode(), digest_size=8).digest()[0] % VALIDATION_SHARE == 0


def graded_reward(completions: Sequence[str], answers: Sequence[str]) -> list[float]:
    """Return the share of each answer's running sums that come right before the first wrong one, in [0, 1].

    An answer of another length counts as long as the longer of the two.
    """
    rewards = []
    for completion, answer in zip(completions, answers, strict=True):
        given = "".join(re.findall("<answer>(.*?)</answer>", completion, flags=re.DOTALL)[:1]).strip()
        right = accumulate((a == b for a, b in zip(given, answer, strict=False)), operator.and_)
        rewards.append(sum(right) / max(len(given), len(answer)))
    return rewards


def wrong_answer(answer: str) -> str:
    """Return `answer` with another last digit: what a slip of whoever labelled the row would have left."""
    return answer[:-1] + str((int(answer[-1]) + 1) % MODULUS)


def iter_chains(
    stream: str,
    seed: int,
    lengths: Sequence[int],
    shares: Sequence[float] | None = None,
    skills: Sequence[str] | None = None,
) -> Iterator[Chain]:
    """Yield chains without end, each on the side of the split that `stream` belongs to; a pure function.

    Only the stream `sft` may show the same digits twice. `shares` is how often each of the `lengths` is drawn, in any
    unit; without it the lengths are dealt in turn. `skills` has one for each of the lengths.
    """
    weights = None if shares is None else np.array(shares) / np.sum(shares)
    seen: set[str] = set()
    index = 0
    while True:
        # As in `iter_scenes`: a generator a row. The fourth number keeps chains apart from scenes.
        rng = np.random.Generator(np.random.Philox(np.random.SeedSequence((seed, STREAMS[stream], index, 1))))
        place = index % len(lengths) if weights is None else int(rng.choice(len(lengths), p=weights))
        for _ in range(MAX_ATTEMPTS):
            digits = "".join(str(digit) for digit in rng.integers(0, MODULUS, size=DIGITS))
            chain = Chain(digits, lengths[place], skills[place] if skills else TASK)
            if chain.validation == (stream == "validation") and chain.digits not in seen:
                break
        else:
            raise ValueError(f"no new chain of {DIGITS} digits for {stream!r} at row {index}: ask for fewer rows")
        if stream != "sft":
            seen.add(chain.digits)
        yield chain
        index += 1


def encode_chains(chains: Sequence[Chain], processor: Any) -> dict[str, torch.Tensor]:
    """Return `input_ids`, `attention_mask` and `labels` of B chains, each (B, T); only the answers are labelled."""
    tokenizer = processor.tokenizer
    prompts = [
        processor.apply_chat_template([{"role": "user", "content": chain.question}], add_generation_prompt=True)
        for chain in chains
    ]
    answers = [f"<answer>{chain.answer}</answer>{tokenizer.eos_token}" for chain in chains]
    batch = tokenizer(
        [prompt + answer for prompt, answer in zip(prompts, answers, strict=True)], padding=True, return_tensors="pt"
    )
    labels = torch.full_like(batch["input_ids"], IGNORED)
    # Padding is on the left, so every completion ends at the last column.
    for row, taught in enumerate(tokenizer(answers)["input_ids"]):
        labels[row, -len(taught) :] = batch["input_ids"][row, -len(taught) :]
    return {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"], "labels": labels}


def finetune_chains(
    model: Any, processor: Any, settings: ChainSFTSettings, seed: int = 0, *, progress: bool = True
) -> list[float]:
    """Train `model` in place on chains of the train side; return the loss of every step (nats a token).

    On one thread, as `sft.finetune` and for its reasons.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _finetune(model, processor, settings, seed, progress)
    finally:
        torch.set_num_threads(threads)


def _finetune(model: Any, processor: Any, settings: ChainSFTSettings, seed: int, progress: bool) -> list[float]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate, betas=(0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / settings.warmup_steps))
    lengths, shares, skills = settings.lengths, settings.shares, None
    if isinstance(settings, SkillsSFTSettings):
        skills = [skill for skill in settings.skills for _ in lengths]
        shares = [of_skill * share for of_skill in settings.skill_shares for share in shares]
        lengths = lengths * len(settings.skills)
    chains = iter_chains("sft", seed, lengths, shares, skills)
    losses: list[float] = []
    model.train()
    for _ in (bar := tqdm(range(settings.max_steps), desc="teaching chains", unit="step", disable=not progress)):
        batch = encode_chains([next(chains) for _ in range(settings.batch_size)], processor)
        loss = model(**batch).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        bar.set_postfix(loss=f"{losses[-1]:.3f}")
        if len(losses) >= WINDOW and np.mean(losses[-WINDOW:]) < settings.until_loss:
            break
    model.eval()
    return losses


def load_chain_model(
    seed: int, cache_dir: str | os.PathLike[str] | None, settings: ChainSFTSettings, *, progress: bool = True
) -> Path:
    """Return a directory with a tiny Qwen2.5-VL that was taught chains, and its processor; as `load_testbed_model`."""

    def build(directory: Path) -> None:
        processor = build_processor()
        model = build_model(processor, seed)
        finetune_chains(model, processor, settings, seed, progress=progress)
        model.save_pretrained(directory)
        processor.save_pretrained(directory)

    key = {"format": MODEL_VERSION, "chains": FORMAT_VERSION, "seed": seed, **asdict(settings)}
    return cached_directory("tiny-qwen2.5-vl-chains", key, build, cache_dir)
