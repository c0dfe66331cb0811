"""The settings of an evaluation, what is refused before a model is loaded, and the model, found."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from trl_vade.errors import ConfigurationError, EvaluationError

from .benchmarks import FIVE, Benchmark, find_benchmarks
from .judge import Judge, served_models, told

LMMS_EVAL = "0.7.3"  # the release whose faults are corrected
SAMPLED = 0.6  # the temperature of benchmarks whose figures in the paper are of different runs
BACKENDS = {"transformers": "qwen2_5_vl", "vllm": "vllm", "server": "openai"}  # our names, and those of lmms-eval
SERVER_KEY = "VADE_SERVER_API_KEY"  # the environment variable with the key of an evaluated server
MODEL_FILES = ("config.json", "*processor*.json", "tokenizer*", "*.jinja", "*.safetensors")
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
        words = f"temperature {one.temperature:g}, top-p {one.top_p:g}" if one.temperature else "greedy"
        if backend == "server":
            return f"{words}, top-k and penalties of the server"
        top_k = f", top-k {one.top_k}" if one.temperature and one.top_k else ""
        return f"{words}{top_k}, repetition penalty {one.repetition_penalty:g}"


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


def versions() -> dict[str, str]:
    """Return the versions of the installed packages that an evaluation depends on."""
    found = {}
    for name in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


@dataclass(frozen=True)
class EvaluatedModel:
    """A model to evaluate."""

    name: str  # a folder's name, a Hub id, or the name on a server
    folder: Path | None  # the folder of its files; None for a served model
    revision: str | None  # the commit on the Hub; None for a local or served model
    fingerprint: str  # see `fingerprint`; of a served model its name


def find_model(evaluation: Evaluation) -> EvaluatedModel:
    """Return the model: a folder, a model of the Hub, which this process downloads, or a model on a server."""
    name, folder, commit = evaluation.model, Path(evaluation.model), None
    try:
        if evaluation.backend == "server":
            served = served_models(str(evaluation.server_url), SERVER_KEY)
            if name not in served:
                raise EvaluationError(f"the server has {', '.join(served) or 'no model'}")
            return EvaluatedModel(name, None, None, name)
        if not folder.is_dir() or evaluation.revision:
            from huggingface_hub import snapshot_download

            others = ["checkpoint-*", "last-checkpoint/*", "vade_evaluation/*"]
            folder = Path(snapshot_download(name, revision=evaluation.revision, ignore_patterns=others))
            commit = folder.name  # the name of a snapshot in the cache is its commit
        kind = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("model_type")
    except Exception as error:  # of many kinds: no repository, network or login, a wrong name, no model
        raise EvaluationError(f"The model {name} cannot be evaluated: {told(error, SERVER_KEY)}") from error
    if evaluation.backend == "transformers" and kind != "qwen2_5_vl":
        raise ConfigurationError(f"{name} is a {kind!r}, not Qwen2.5-VL: use --backend vllm or --backend server.")
    own = [path for pattern in MODEL_FILES for path in folder.glob(pattern) if not path.name.startswith("vade_")]
    return EvaluatedModel(name if commit else folder.resolve().name, folder.resolve(), commit, fingerprint(own))


def fingerprint(files: Iterable[Path]) -> str:
    """Return 16 hexadecimal digits of names, sizes and times of files, which a commit elsewhere does not change."""
    facts = sorted((path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in files)
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]
