"""Evaluation of a model on benchmarks by lmms-eval: each run is one benchmark with one seed.

Runs that an earlier command finished in the output directory, whose settings all runs share, are not repeated.
"""

import json
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trl_vade.errors import ConfigurationError, EvaluationError, JudgeError
from trl_vade.files import save_whole

from .benchmarks import Benchmark
from .lmms_process import run_plan
from .results import Results, write_results
from .run_files import Run, read_run, run_folder
from .settings import BACKENDS, SERVER_KEY, EvaluatedModel, Evaluation, check, find_model, fingerprint, versions
from .tasks import task_folder


def evaluate(evaluation: Evaluation, progress: Callable[[Run], None] = lambda run: None) -> Results:
    """Run an evaluation, write its results, and return them; `progress` is called with each finished run.

    After an `EvaluationError` (also of the judge) finished runs are kept, and no results are written.
    """
    benchmarks = check(evaluation)
    model = find_model(evaluation)
    started, runs = _now(), {}
    facts = shared_facts(evaluation, model, benchmarks)
    keep_settings(evaluation.output, facts)
    # Seed by seed, so that an interrupted evaluation has complete seeds.
    pairs = [(one, seed) for seed in evaluation.seeds for one in benchmarks if seed in evaluation.seeds_of(one)]
    for pair in pairs:
        with suppress(EvaluationError):
            runs[pair] = read_run(run_folder(evaluation.output, *pair), *pair, evaluation.limit)
            progress(runs[pair])
    if todo := [pair for pair in pairs if pair not in runs]:
        runs |= _run_all(evaluation, model, todo, progress)
    facts |= {"decoding": {one.name: evaluation.generation.named(one, evaluation.backend) for one in benchmarks}}
    facts |= {"seeds": list(evaluation.seeds), "command": evaluation.command, "started": started, "finished": _now()}
    return write_results(evaluation.output, facts, [runs[pair] for pair in pairs])


def shared_facts(evaluation: Evaluation, model: EvaluatedModel, benchmarks: Sequence[Benchmark]) -> dict[str, Any]:
    """Return the facts that all runs of an output directory share, as JSON values."""
    judge = evaluation.judge if any(benchmark.judged for benchmark in benchmarks) else None
    return {
        "model": {"name": model.name, "revision": model.revision, "fingerprint": model.fingerprint},
        **{name: getattr(evaluation, name) for name in ("backend", "limit", "system_prompt", "instruction")},
        "generation": asdict(evaluation.generation),
        "model_args": dict(evaluation.model_args),
        "batch_size": evaluation.batch_size,  # a sampled answer depends on the rest of its batch
        "versions": versions(),
        "data": {name: folder.resolve().name for name, folder in evaluation.data.items()},
        "rows": {name: fingerprint(filter(Path.is_file, one.rglob("*"))) for name, one in evaluation.data.items()},
        "judge": judge and asdict(judge),
    }


def keep_settings(output: Path, facts: dict[str, Any]) -> None:
    """Write the settings into the output directory, or refuse it: it has runs with others.

    Further seeds and tasks are allowed, with a judge and rows of their own. Names, commits and addresses tell nothing.
    """
    path = output / "evaluation.json"
    here = {name: part for name, part in facts.items() if name not in ("model", "data", "rows", "judge")}
    here |= {f"rows of {name}": digest for name, digest in facts["rows"].items()}
    here |= {"weights": facts["model"]["fingerprint"]} | ({"judge": facts["judge"]["model"]} if facts["judge"] else {})
    saved = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if any(output.glob("runs/*/*/*_results.json")):
        both = saved.keys() & here.keys()
        changed = [f"{name} was {saved[name]} and is {here[name]}" for name in both if saved[name] != here[name]]
        if changed or not saved:
            raise ConfigurationError(
                f"--output_path {output} has runs with other settings: {'; '.join(changed) or 'unknown ones'}. They "
                "cannot be averaged with these. Give another folder, or the same settings."
            )
        here = saved | here
    save_whole(path, (json.dumps(here, indent=2, ensure_ascii=False) + "\n").encode())


def _run_all(
    evaluation: Evaluation, model: EvaluatedModel, todo: Sequence[tuple[Benchmark, int]], tell: Callable[[Run], None]
) -> dict[tuple[Benchmark, int], Run]:
    """Do the runs in one process of lmms-eval. Probe the judge before the first run and after each judged one."""
    judge, runs = evaluation.judge if any(benchmark.judged for benchmark, _ in todo) else None, {}
    if judge:
        judge.probe()

    def finished(number: int) -> None:
        benchmark, seed = todo[number]
        folder = run_folder(evaluation.output, benchmark, seed)
        if judge and benchmark.judged:
            try:
                judge.probe()
            except JudgeError:
                (folder / "judge.json").unlink()  # the run does not count, now or later
                raise
        runs[benchmark, seed] = read_run(folder, benchmark, seed, evaluation.limit)
        tell(runs[benchmark, seed])

    with task_folder(evaluation, list(dict.fromkeys(benchmark for benchmark, _ in todo))) as tasks:
        plan = {
            "model": BACKENDS[evaluation.backend],
            "arguments": model_arguments(evaluation, model),
            "repetition_penalty": evaluation.generation.repetition_penalty,
            **{"instruction": evaluation.instruction, "system_prompt": evaluation.system_prompt, "tasks": str(tasks)},
            "runs": [_planned(evaluation, benchmark, seed) for benchmark, seed in todo],
        }
        log = evaluation.output.resolve() / "logs" / f"{_now().replace(':', '-')}.log"
        run_plan(plan, log, finished, judge.environment() if judge else {})
    return runs


def model_arguments(evaluation: Evaluation, model: EvaluatedModel) -> dict[str, Any]:
    """Return the arguments of lmms-eval's class of the backend, with the user's.

    By default vLLM's class executes code of the model's repository, and takes the larger of its own `max_new_tokens`
    (4096) and the request's (lmms-eval 0.7.3, models/chat/vllm.py, models/simple/vllm.py). Both are turned off.
    """
    folder, size, given = str(model.folder), evaluation.batch_size, evaluation.model_args
    own = {
        "transformers": {"pretrained": folder, "batch_size": size},
        "vllm": {"model": folder, "batch_size": size, "trust_remote_code": False, "max_new_tokens": 1},
        "server": {"model_version": model.name, "base_url": evaluation.server_url, "num_concurrent": size},
    }[evaluation.backend]
    if clash := sorted({*own, "api_key", "seed", "system_prompt"} & given.keys()):
        raise ConfigurationError(f"--model_args {', '.join(clash)}: MODEL, the options and {SERVER_KEY} set these.")
    return own | dict(given)


def _planned(evaluation: Evaluation, benchmark: Benchmark, seed: int) -> dict[str, Any]:
    """Empty the folder of a run, and return the run as `process.main` takes it."""
    folder = run_folder(evaluation.output.resolve(), benchmark, seed)
    shutil.rmtree(folder, ignore_errors=True)  # lmms-eval 0.7.3 would append to the files of an interrupted run
    folder.mkdir(parents=True)
    own_seed = {} if evaluation.backend == "transformers" else {"seed": seed}
    sampling = vars(evaluation.generation.of(benchmark)) | own_seed
    options = {
        **{"model": BACKENDS[evaluation.backend], "model_args": "pretrained=model"},  # the name of a folder
        **{"tasks": benchmark.task, "output_path": ".", "seed": seed},
        "gen_kwargs": ",".join(f"{name}={value}" for name, value in sampling.items()),
        **{"batch_size": evaluation.batch_size, "timezone": "UTC"},
        **({} if evaluation.limit is None else {"limit": evaluation.limit}),
    }
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    return {"folder": str(folder), "judged": benchmark.judged, "options": [*words, "--log_samples"]}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
