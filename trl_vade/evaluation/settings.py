"""The settings of an evaluation, and what cannot work: refused before a model is looked for."""

import importlib.util
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi

from trl_vade.checks import check_whole_number
from trl_vade.errors import ConfigurationError, HubOfflineError
from trl_vade.hub.uploading import HubTarget, ensure_repo, offline
from trl_vade.rewards.functions import INSTRUCTION

from .benchmarks import FIVE, Benchmark, find_benchmarks
from .judge import Judge
from .lmms.tasks import check_rows, default_rows, rows_digest
from .models import BACKENDS, EvaluatedModel, check_arguments, check_place

LMMS_EVAL = "0.7.3"
"""The release whose faults `runner` corrects."""

LARGEST_SEED = 2**32 - 1
"""numpy's."""
PACKAGES = ("trl-vade", "lmms-eval", "trl", "transformers", "torch", "vllm", "datasets", "evaluate", "math-verify")


@dataclass(frozen=True)
class Generation:
    """How answers are sampled; the paper names none of these.

    Attributes:
        temperature: more than 0, unless there is one seed: greedy runs are all the same.
        top_p: in (0, 1]; 1 leaves nothing out.
        top_k: 0 leaves nothing out. A server is not told: its own default holds.
        max_new_tokens: as in training, in the recipes.
    """

    temperature: float = 0.6
    top_p: float = 0.95
    top_k: int = 0
    max_new_tokens: int = 2048


@dataclass(frozen=True)
class Evaluation:
    """What to evaluate, and how.

    Attributes:
        model: a folder, a Hub id, or what the server calls it.
        output: the directory of this evaluation: of this model with these settings, and of no other.
        tasks: names of `benchmarks.BENCHMARKS`.
        seeds: one run each.
        limit: the first so many questions of each benchmark; None: all.
        backend: "transformers", "vllm" or "server".
        server_url: of an OpenAI-compatible server, ending in /v1.
        revision: branch, tag or commit of a model of the Hub.
        judge: for the benchmarks that need one.
        judge_delay: seconds between two attempts to reach it during a run; after five it is dead.
        generation: how answers are sampled.
        batch_size: questions at a time; for a server, requests at a time.
        device: for transformers; None: the GPU where there is one.
        instruction: added to every question.
        system_prompt: said before every question.
        data: by benchmark, a folder with its rows, in place of the Hub.
        model_args: further arguments of lmms-eval's class, such as `max_pixels` or `tensor_parallel_size`.
        command: the command line that this came from.
    """

    model: str
    output: Path
    tasks: Sequence[str] = FIVE
    seeds: Sequence[int] = (0, 1, 2, 3)
    limit: int | None = None
    backend: str = "transformers"
    server_url: str | None = None
    revision: str | None = None
    judge: Judge | None = None
    judge_delay: float = 10.0
    generation: Generation = field(default_factory=Generation)
    batch_size: int = 8
    device: str | None = None
    instruction: str | None = None
    system_prompt: str | None = None
    data: Mapping[str, Path] = field(default_factory=dict)
    model_args: Mapping[str, Any] = field(default_factory=dict)
    command: str = ""


def check(evaluation: Evaluation, *, judged: bool = True) -> list[Benchmark]:
    """The benchmarks of an evaluation that can work.

    Args:
        evaluation: the settings.
        judged: whether a judge has to be named where one is needed.

    Raises:
        ConfigurationError: it cannot.
    """
    benchmarks = find_benchmarks(evaluation.tasks)
    _check_numbers(evaluation)
    if evaluation.backend not in BACKENDS:
        raise ConfigurationError(f"--backend {evaluation.backend}: there are {', '.join(BACKENDS)}.")
    if evaluation.device is not None and evaluation.backend != "transformers":
        raise ConfigurationError(
            f"--device {evaluation.device} with --backend {evaluation.backend}: vLLM and servers choose theirs "
            "themselves (CUDA_VISIBLE_DEVICES)."
        )
    check_place(evaluation.backend, revision=evaluation.revision, server_url=evaluation.server_url)
    check_arguments(evaluation.model_args, evaluation.backend)
    unjudged = [benchmark.name for benchmark in benchmarks if benchmark.judged and evaluation.judge is None]
    if unjudged and judged:
        raise ConfigurationError(
            f"{', '.join(unjudged)}: a language model judges the answers. Serve one (Qwen2.5-72B-Instruct in the "
            "paper; the README has the command) and give --judge_url and --judge_model, or leave these benchmarks "
            "out: --tasks scienceqa,chartqa,mathvision_rules needs none."
        )
    _check_data(evaluation, benchmarks)
    _check_lmms_eval()
    if evaluation.backend == "vllm" and importlib.util.find_spec("vllm") is None:
        raise ConfigurationError('--backend vllm: vLLM is not installed here: pip install "trl-vade[vllm]".')
    return benchmarks


def instruction_text(text: str | None) -> str | None:
    """The instruction by its name, "mixture", or as it is."""
    return INSTRUCTION if text == "mixture" else text


def check_publication(evaluation: Evaluation, target: HubTarget, limited: bool) -> None:
    """Refuse, before anything runs, what could not be published at the end; the repository is made if need be.

    Raises:
        ConfigurationError: the results would be of a part of the questions only, and that is not said to be wanted.
        HubError: the Hub refuses this login, cannot be reached, or HF_HUB_OFFLINE is set.

    A repository that is there and not as private as it was asked to be is a ConfigurationError, too.
    """
    if evaluation.limit is not None and not limited:
        raise ConfigurationError(
            f"--push_to_hub {target.repo_id} with --limit {evaluation.limit}: scores of a part of the questions would "
            "stand beside others' as if they were the benchmark's. Leave --limit out, or add --publish_limited, which "
            "sends the files and a table that says so."
        )
    if offline():
        raise HubOfflineError(
            f"--push_to_hub {target.repo_id} with HF_HUB_OFFLINE: evaluate without it, and give the same command with "
            "it later: what is finished is not run again."
        )
    found = ensure_repo(target)
    if target.private is not None and HfApi().repo_info(found.repo_id).private != target.private:
        raise ConfigurationError(
            f"--push_to_hub {found.repo_id} with {'--private' if target.private else '--public'}: it is there, and is "
            f"{'public' if target.private else 'private'}. Change that in its settings on the Hub, or leave the "
            "option out."
        )


def _check_numbers(evaluation: Evaluation) -> None:
    generation, seeds = evaluation.generation, list(evaluation.seeds)
    for seed in seeds:
        advice = "lmms-eval seeds numpy with it, which takes no other. Give 0,1,2,3."
        check_whole_number("--seeds", seed, minimum=0, maximum=LARGEST_SEED, advice=advice)
    if not seeds or len(set(seeds)) < len(seeds):
        raise ConfigurationError(f"--seeds {','.join(map(str, seeds))}: give at least one, and none twice.")
    if evaluation.limit is not None:
        check_whole_number("--limit", evaluation.limit, minimum=1, advice="Without it all questions are asked.")
    check_whole_number("--batch_size", evaluation.batch_size, minimum=1, advice="Give what the memory allows.")
    advice = "An answer has at least one token. Give what training had, 2048 in the recipes."
    check_whole_number("--max_new_tokens", generation.max_new_tokens, minimum=1, advice=advice)
    check_whole_number("--top_k", generation.top_k, minimum=0, advice="0 leaves no token out.")
    if not (math.isfinite(generation.temperature) and generation.temperature >= 0):
        raise ConfigurationError(f"--temperature {generation.temperature}: it is 0 or more.")
    if generation.temperature == 0 and len(seeds) > 1:
        raise ConfigurationError(
            f"--temperature 0 with {len(seeds)} seeds: greedy answers are the same for each of them, so their mean is "
            "that of one run, and its standard error 0. Give a temperature, or one seed."
        )
    if not (math.isfinite(evaluation.judge_delay) and evaluation.judge_delay >= 0):
        raise ConfigurationError(f"--judge_delay {evaluation.judge_delay}: it is 0 or more seconds.")
    if not 0 < generation.top_p <= 1:
        raise ConfigurationError(f"--top_p {generation.top_p}: it is more than 0 and at most 1.")
    if generation.top_k and evaluation.backend == "server":
        raise ConfigurationError(
            f"--top_k {generation.top_k} with --backend server: lmms-eval {LMMS_EVAL} does not send it. Set it where "
            "the server is started (vLLM: --override-generation-config)."
        )


def _check_data(evaluation: Evaluation, benchmarks: Sequence[Benchmark]) -> None:
    names = [benchmark.name for benchmark in benchmarks]
    if unused := [name for name in evaluation.data if name not in names]:
        raise ConfigurationError(f"--data {', '.join(unused)}: not among --tasks {','.join(names)}.")
    for benchmark in benchmarks:
        given = evaluation.data.get("testbed") if benchmark.name == "testbed" else None
        if given is not None and given != default_rows(names)["testbed"]:
            raise ConfigurationError(
                "--data testbed: it is the embedded data set, and its scores are told as such. Rows of your own are "
                "evaluated by --tasks mixture --data mixture=FOLDER, or in the place of another benchmark's."
            )
        if benchmark.name in evaluation.data:
            check_rows(benchmark, Path(evaluation.data[benchmark.name]))
        elif benchmark.dataset is None:
            raise ConfigurationError(
                f"--tasks {benchmark.name}: its rows are yours. Name their folder: --data {benchmark.name}=FOLDER "
                "(for the mixture what scripts/prepare_data.py made)."
            )


def _check_lmms_eval() -> None:
    if importlib.util.find_spec("lmms_eval") is None:
        raise ConfigurationError('lmms-eval is not installed here: pip install "trl-vade[eval]".')
    if (found := metadata.version("lmms-eval")) != LMMS_EVAL:
        raise ConfigurationError(
            f"lmms-eval {found} is installed. What is corrected of it is corrected in {LMMS_EVAL}: "
            'pip install "trl-vade[eval]".'
        )


def comparable(evaluation: Evaluation, model: EvaluatedModel) -> dict[str, Any]:
    """What all runs of an output directory have in common."""
    judged = any(benchmark.judged for benchmark in find_benchmarks(evaluation.tasks))
    judge = evaluation.judge if judged else None
    return {
        "model": {"name": model.name, "revision": model.revision, "fingerprint": model.fingerprint},
        "backend": evaluation.backend,
        "limit": evaluation.limit,
        "generation": asdict(evaluation.generation),
        "system_prompt": evaluation.system_prompt,
        "instruction": evaluation.instruction,
        "data": {name: Path(folder).name for name, folder in evaluation.data.items()},
        "model_args": dict(evaluation.model_args),
        "batch_size": evaluation.batch_size,  # which answer is drawn depends on what it is drawn beside
        "versions": versions(),
        "rows": {name: rows_digest(Path(folder)) for name, folder in evaluation.data.items()},
        "judge": judge and {"model": judge.model, "url": judge.url},
    }


def versions() -> dict[str, str]:
    """The packages that an evaluation rests on, those that are here."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
