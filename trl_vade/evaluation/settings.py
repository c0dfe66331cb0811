"""The settings of an evaluation, and their checks before a model is loaded."""

import importlib.util
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, is_offline_mode

from trl_vade.checks import check_whole_number
from trl_vade.errors import ConfigurationError, HubOfflineError
from trl_vade.hub.uploading import HubTarget, ensure_repo, hub_id
from trl_vade.rewards.functions import INSTRUCTION

from .benchmarks import FIVE, Benchmark, find_benchmarks
from .judge import Judge
from .lmms.tasks import builtin_tasks, check_rows, default_rows, rows_digest
from .models import BACKENDS, EvaluatedModel, check_arguments, check_place

LMMS_EVAL = "0.7.3"  # the release whose faults `runner` corrects
SAMPLED = 0.6  # the temperature of benchmarks whose figures in the paper are of different runs
LARGEST_SEED = 2**32 - 1  # the largest seed of numpy
PACKAGES = ("trl-vade", "lmms-eval", "trl", "transformers", "torch", "vllm", "datasets", "evaluate", "math-verify")


@dataclass(frozen=True)
class Generation:
    """The decoding of answers. The paper names none of these values."""

    # 0 is greedy, with one run, because greedy runs are equal. None is greedy where the paper's figures are, else 0.6.
    temperature: float | None = None
    top_p: float = 0.95  # in (0, 1]; 1 turns it off
    top_k: int = 0  # 0 turns it off. It is not sent to a server, which uses its own default.
    max_new_tokens: int = 2048  # tokens of an answer; the recipes train with the default
    # 1 is none, as in training. A model's own, such as Qwen2.5-VL's 1.05, is ignored. A server uses its own default.
    repetition_penalty: float = 1.0

    def of(self, benchmark: Benchmark) -> "Generation":
        """Return the decoding of a benchmark, with a temperature."""
        chosen = 0.0 if benchmark.greedy else SAMPLED
        return self if self.temperature is not None else replace(self, temperature=chosen)

    def named(self, benchmark: Benchmark, backend: str) -> str:
        """Return the decoding of a benchmark in words, for the head of a table; a greedy one starts with "greedy"."""
        one, penalty = self.of(benchmark), f"repetition penalty {self.repetition_penalty:g}"
        penalty = "penalties of the server" if backend == "server" else penalty
        top_k = f", top-k {one.top_k}" if one.top_k else ""
        sampled = f"temperature {one.temperature:g}, top-p {one.top_p:g}{top_k}"
        return f"{sampled if one.temperature else 'greedy'}, {penalty}"


@dataclass(frozen=True)
class Evaluation:
    """The settings of an evaluation."""

    model: str  # a folder, a Hub id, or the model's name on the server
    output: Path  # the output directory, used by this model with these settings only
    tasks: Sequence[str] = FIVE  # names of `benchmarks.BENCHMARKS`
    seeds: Sequence[int] = (0, 1, 2, 3)  # the seeds; each benchmark has one run for each
    limit: int | None = None  # number of questions of each benchmark, from the first; None asks all
    backend: str = "transformers"  # "transformers", "vllm" or "server"
    server_url: str | None = None  # address of an OpenAI-compatible server, ending in /v1
    revision: str | None = None  # branch, tag or commit of a model on the Hub
    judge: Judge | None = None  # the judge of the benchmarks that need one
    # seconds between two attempts to reach the judge during a run; after five it counts as dead
    judge_delay: float = 10.0
    generation: Generation = field(default_factory=Generation)  # the sampling of answers
    batch_size: int = 8  # questions at a time; with a server, concurrent requests
    device: str | None = None  # the device for transformers; None is the GPU if there is one
    instruction: str | None = None  # a text added to every question
    system_prompt: str | None = None  # a system prompt before every question
    data: Mapping[str, Path] = field(default_factory=dict)  # by benchmark, a folder with its rows, instead of the Hub
    # further arguments of lmms-eval's class, such as `max_pixels` or `tensor_parallel_size`
    model_args: Mapping[str, Any] = field(default_factory=dict)
    command: str = ""  # the command line of the evaluation, for the record

    def seeds_of(self, benchmark: Benchmark) -> Sequence[int]:
        """Return the seeds of a benchmark: the first one alone for greedy answers."""
        return self.seeds if self.generation.of(benchmark).temperature else self.seeds[:1]


def check(evaluation: Evaluation, *, judged: bool = True) -> list[Benchmark]:
    """Return the benchmarks, or raise `ConfigurationError` for settings, packages or, with `judged`, the judge."""
    benchmarks = find_benchmarks(evaluation.tasks)
    _check_numbers(evaluation)
    if evaluation.backend not in BACKENDS:
        raise ConfigurationError(f"--backend {evaluation.backend} is not known. Give one of {', '.join(BACKENDS)}.")
    if evaluation.device is not None and evaluation.backend != "transformers":
        raise ConfigurationError(
            f"--device {evaluation.device} with --backend {evaluation.backend}: vLLM and servers choose their own "
            "device. Set CUDA_VISIBLE_DEVICES instead."
        )
    check_place(evaluation.backend, revision=evaluation.revision, server_url=evaluation.server_url)
    check_arguments(evaluation.model_args, evaluation.backend)
    unjudged = [benchmark.name for benchmark in benchmarks if benchmark.judged and evaluation.judge is None]
    if unjudged and judged:
        raise ConfigurationError(
            f"{', '.join(unjudged)}: a language model judges the answers. Serve one (Qwen2.5-72B-Instruct in the "
            "paper) and give --judge_url and --judge_model, or leave these benchmarks out: --tasks "
            "scienceqa_img,chartqa,mathvision_rules needs no judge."
        )
    _check_data(evaluation, benchmarks)
    builtin_tasks()  # refused without lmms-eval
    if (found := metadata.version("lmms-eval")) != LMMS_EVAL:
        raise ConfigurationError(
            f"lmms-eval {found} is installed, but the corrections of trl_vade are for {LMMS_EVAL}: "
            'pip install "trl-vade[eval]".'
        )
    if evaluation.backend == "vllm" and importlib.util.find_spec("vllm") is None:
        raise ConfigurationError('--backend vllm needs vLLM: pip install "trl-vade[vllm]".')
    return benchmarks


def given_text(option: str, text: str | None, **named: str) -> str | None:
    """Return a text that is added to the questions; None for "none" and for nothing.

    `named` has texts with a name, such as "mixture". Any other single word is refused as a slip.
    """
    name = (text or "none").strip().lower()
    if text and name.isalpha() and name != "none" and name not in named:
        raise ConfigurationError(
            f"{option} {text}: a single word would be added to every question. Give a sentence, or one of "
            f"{', '.join([*named, 'none'])}."
        )
    return None if name in ("none", "") else named.get(name, text)


def instruction_text(text: str | None, option: str = "--instruction") -> str | None:
    """Return the instruction of the training mixture for "mixture", and other texts as `given_text` does."""
    return given_text(option, text, mixture=INSTRUCTION)


def check_publication(evaluation: Evaluation, target: HubTarget, limited: bool) -> None:
    """Create the repository for the results, or refuse a publication that would fail after the evaluation.

    `limited` is whether to publish results on a part of the questions.

    Raises:
        ConfigurationError: the results would be limited, or of another model of the Hub than the repository's, or the
            repository is public instead of private or vice versa.
        HubError: the Hub refuses this login, cannot be reached, or HF_HUB_OFFLINE is set.
    """
    if evaluation.limit is not None and not limited:
        raise ConfigurationError(
            f"--push_to_hub {target.repo_id} with --limit {evaluation.limit}: readers would take scores on a part of "
            "the questions for scores of the benchmark. Remove --limit, or add --publish_limited, which publishes the "
            "files and a table with a warning."
        )
    if is_offline_mode():
        raise HubOfflineError(
            f"--push_to_hub {target.repo_id} with HF_HUB_OFFLINE: evaluate without --push_to_hub now, and give the "
            "full command later. Finished runs are not repeated."
        )
    model = hub_id(evaluation.model) if evaluation.backend != "server" and evaluation.model != "testbed" else None
    if model and model.split("/")[-1] != target.repo_id.split("/")[-1]:
        raise ConfigurationError(
            f"--push_to_hub {target.repo_id} with the model {model}: the card would describe another model. Give "
            f"--push_to_hub {model}, or evaluate {target.repo_id}."
        )
    found = ensure_repo(target)
    if target.private is not None and HfApi().repo_info(found.repo_id).private != target.private:
        raise ConfigurationError(
            f"--push_to_hub {found.repo_id} with {'--private' if target.private else '--public'}: the repository "
            f"exists and is {'public' if target.private else 'private'}. Change that in its settings on the Hub, or "
            "remove the option."
        )


def _check_numbers(evaluation: Evaluation) -> None:
    generation, seeds = evaluation.generation, list(evaluation.seeds)
    for seed in seeds:
        advice = "lmms-eval seeds numpy with it. Give 0,1,2,3."
        check_whole_number("--seeds", seed, minimum=0, maximum=LARGEST_SEED, advice=advice)
    if not seeds or len(set(seeds)) < len(seeds):
        raise ConfigurationError(f"--seeds {','.join(map(str, seeds))}: give at least one seed, and each only once.")
    if evaluation.limit is not None:
        check_whole_number("--limit", evaluation.limit, minimum=1, advice="Remove it to ask all questions.")
    check_whole_number("--batch_size", evaluation.batch_size, minimum=1, advice="Give as many as fit into memory.")
    advice = "An answer has at least one token. Give the value of the training, 2048 in the recipes."
    check_whole_number("--max_new_tokens", generation.max_new_tokens, minimum=1, advice=advice)
    check_whole_number("--top_k", generation.top_k, minimum=0, advice="0 turns it off.")
    temperature, top_p, penalty = generation.temperature, generation.top_p, generation.repetition_penalty
    for option, value, sound, rule in (
        ("temperature", temperature, temperature is None or 0 <= temperature < math.inf, "0 or more"),
        ("top_p", top_p, 0 < top_p <= 1, "more than 0 and at most 1"),
        ("repetition_penalty", penalty, 0 < penalty < math.inf, "more than 0. 1 is none"),
        ("judge_delay", evaluation.judge_delay, 0 <= evaluation.judge_delay < math.inf, "0 or more seconds"),
    ):
        if not sound:
            raise ConfigurationError(f"--{option} {value}: it must be {rule}.")
    for name, none in (("top_k", 0), ("repetition_penalty", 1)):
        if (value := getattr(generation, name)) != none and evaluation.backend == "server":
            raise ConfigurationError(
                f"--{name} {value} with --backend server: lmms-eval {LMMS_EVAL} does not send it. Set it when you "
                "start the server (vLLM: --override-generation-config)."
            )


def _check_data(evaluation: Evaluation, benchmarks: Sequence[Benchmark]) -> None:
    names = [benchmark.name for benchmark in benchmarks]
    if unused := [name for name in evaluation.data if name not in names]:
        raise ConfigurationError(f"--data {', '.join(unused)} is not among --tasks {','.join(names)}.")
    for benchmark in benchmarks:
        given = evaluation.data.get("testbed") if benchmark.name == "testbed" else None
        if given is not None and given != default_rows(names)["testbed"]:
            raise ConfigurationError(
                "--data testbed: the testbed is the embedded data set. Evaluate your own rows with --tasks mixture "
                "--data mixture=FOLDER, or as the rows of another benchmark."
            )
        if benchmark.name in evaluation.data:
            check_rows(benchmark, Path(evaluation.data[benchmark.name]))
        elif benchmark.dataset is None:
            raise ConfigurationError(
                f"--tasks {benchmark.name} needs your rows. Give their folder: --data {benchmark.name}=FOLDER (for "
                "the mixture, the output of scripts/prepare_data.py)."
            )


def comparable(evaluation: Evaluation, model: EvaluatedModel) -> dict[str, Any]:
    """Return the facts that all runs of an output directory must share, as JSON values."""
    judged = any(benchmark.judged for benchmark in find_benchmarks(evaluation.tasks))
    judge = evaluation.judge if judged else None
    return {
        "model": {"name": model.name, "revision": model.revision, "fingerprint": model.fingerprint},
        **{name: getattr(evaluation, name) for name in ("backend", "limit", "system_prompt", "instruction")},
        "generation": asdict(evaluation.generation),
        "data": {name: Path(folder).name for name, folder in evaluation.data.items()},
        "model_args": dict(evaluation.model_args),
        "batch_size": evaluation.batch_size,  # a sampled answer depends on the rest of its batch
        "versions": versions(),
        "rows": {name: rows_digest(Path(folder)) for name, folder in evaluation.data.items()},
        "judge": judge and {"model": judge.model, "url": judge.url},
    }


def versions() -> dict[str, str]:
    """Return the versions of the installed packages that an evaluation depends on."""
    found = {}
    for name in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found
