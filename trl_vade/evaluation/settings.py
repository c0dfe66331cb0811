"""The settings of an evaluation, and what is refused before a model is loaded."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from trl_vade.errors import ConfigurationError
from trl_vade.rewards.functions import INSTRUCTION

from .benchmarks import FIVE, Benchmark, find_benchmarks
from .judge import Judge

LMMS_EVAL = "0.7.3"  # the release whose faults are corrected
SAMPLED = 0.6  # the temperature of benchmarks whose figures in the paper are of different runs
BACKENDS = {"transformers": "qwen2_5_vl", "vllm": "vllm", "server": "openai"}
"""Our names of the backends, and those of lmms-eval."""
PACKAGES = ("trl-vade", "lmms-eval", "trl", "transformers", "torch", "vllm", "datasets", "evaluate", "math-verify")


@dataclass(frozen=True)
class Generation:
    """The decoding of answers. The paper names none of these values."""

    # 0 is greedy, with one run, because greedy runs are equal. None is greedy where the paper's figures are, else 0.6.
    temperature: float | None = None
    top_p: float = 0.95  # 1 turns it off
    top_k: int = 0  # 0 turns it off; not for a server, which uses its own
    max_new_tokens: int = 2048  # tokens of an answer; the recipes train with the default
    # 1 is none, as in training. A model's own, such as Qwen2.5-VL's 1.05, is ignored. A server uses its own.
    repetition_penalty: float = 1.0

    def of(self, benchmark: Benchmark) -> "Generation":
        """Return the decoding of a benchmark, with a temperature."""
        chosen = 0.0 if benchmark.greedy else SAMPLED
        return self if self.temperature is not None else replace(self, temperature=chosen)

    def named(self, benchmark: Benchmark, backend: str) -> str:
        """Return the decoding of a benchmark in words, for the head of a table; a greedy one starts with "greedy"."""
        one = self.of(benchmark)
        top_k = f", top-k {one.top_k}" if one.top_k and backend != "server" else ""
        words = f"temperature {one.temperature:g}, top-p {one.top_p:g}{top_k}" if one.temperature else "greedy"
        theirs = "top-k and penalties of the server" if backend == "server" else None
        return f"{words}, {theirs or f'repetition penalty {self.repetition_penalty:g}'}"


@dataclass(frozen=True)
class Evaluation:
    """The settings of an evaluation."""

    model: str  # a folder, a Hub id, or the model's name on the server
    output: Path  # the output directory, used by this model with these settings only
    tasks: Sequence[str] = FIVE  # names of `benchmarks.BENCHMARKS`
    seeds: Sequence[int] = (0, 1, 2, 3)  # the seeds; each benchmark has one run for each
    limit: int | None = None  # number of questions of each benchmark, from the first; None asks all
    backend: str = "transformers"  # one of `BACKENDS`
    server_url: str | None = None  # address of an OpenAI-compatible server, ending in /v1
    revision: str | None = None  # branch, tag or commit of a model on the Hub
    judge: Judge | None = None  # the judge of the benchmarks that need one
    generation: Generation = field(default_factory=Generation)  # the sampling of answers
    batch_size: int = 8  # questions at a time; with a server, concurrent requests
    instruction: str | None = None  # a text added to every question
    system_prompt: str | None = None  # a system prompt before every question
    data: Mapping[str, Path] = field(default_factory=dict)  # by benchmark, a folder with its rows, instead of the Hub
    # further arguments of lmms-eval's class, such as `max_pixels` or `tensor_parallel_size`
    model_args: Mapping[str, Any] = field(default_factory=dict)
    command: str = ""  # the command line of the evaluation, for the record

    def seeds_of(self, benchmark: Benchmark) -> Sequence[int]:
        """Return the seeds of a benchmark: the first one alone for greedy answers."""
        return self.seeds if self.generation.of(benchmark).temperature else self.seeds[:1]


def check(evaluation: Evaluation) -> list[Benchmark]:
    """Return the benchmarks, or raise `ConfigurationError` for what would fail late or be ignored in silence."""
    benchmarks, data = find_benchmarks(evaluation.tasks), evaluation.data
    if (found := versions().get("lmms-eval")) != LMMS_EVAL:
        raise ConfigurationError(f'lmms-eval {LMMS_EVAL} is needed, not {found}: pip install "trl-vade[eval]".')
    if (evaluation.backend == "server") != bool(evaluation.server_url):
        raise ConfigurationError("--backend server and --server_url go together.")
    if judged := [one.name for one in benchmarks if one.judged and evaluation.judge is None]:
        raise ConfigurationError(
            f"--tasks {','.join(judged)}: a language model judges the answers. Serve one (Qwen2.5-72B-Instruct in the "
            "paper) and give --judge_url and --judge_model. scienceqa_img,chartqa,mathvision_rules need none."
        )
    if without := [one.name for one in benchmarks if not one.dataset and one.name not in ("testbed", *data)]:
        raise ConfigurationError(f"--tasks {without[0]} has your rows. Give their folder: --data {without[0]}=FOLDER.")
    if unused := [name for name in data if name == "testbed" or name not in evaluation.tasks]:
        raise ConfigurationError(f"--data {','.join(unused)}: it is not among --tasks, or has its own rows.")
    return benchmarks


def instruction_text(text: str | None) -> str | None:
    """Return the instruction of the training mixture for "mixture", and any other text as it is."""
    return INSTRUCTION if text == "mixture" else text


def versions() -> dict[str, str]:
    """Return the versions of the installed packages that an evaluation depends on."""
    found = {}
    for name in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found
