"""Evaluation of a model on benchmarks by lmms-eval, with several seeds.

A run is one benchmark with one seed. Runs that an earlier command finished in the output directory are not repeated.
"""

import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import IO, Any

from trl_vade.errors import JudgeError

from .benchmarks import Benchmark
from .lmms.process import run_plan
from .lmms.tasks import task_folder
from .models import BACKENDS, EvaluatedModel, find_model, model_arguments
from .output_directory import keep_settings, owned
from .results.runs import Run, finished_runs, read_run, run_folder
from .results.summary import write_results
from .results.table import Results
from .servers import no_proxy_variables
from .settings import Evaluation, check, comparable

Progress = Callable[[Run], None]


def evaluate(evaluation: Evaluation, progress: Progress | None = None) -> Results:
    """Run an evaluation, write its results, and return them; see `summary.write_results`.

    Args:
        evaluation: the settings.
        progress: called with each finished run, those of earlier commands first.

    Raises:
        ConfigurationError: the evaluation cannot work; nothing was started.
        JudgeError: the judge cannot be used. Finished runs are kept, and no results are written.
        EvaluationError: a run failed or is not valid. Finished runs are kept, and no results are written.
    """
    benchmarks = check(evaluation)
    model = find_model(
        evaluation.model, backend=evaluation.backend, revision=evaluation.revision, server_url=evaluation.server_url
    )
    arguments = model_arguments(
        model,
        evaluation.backend,
        batch_size=evaluation.batch_size,
        given=evaluation.model_args,
        server_url=evaluation.server_url,
    )
    started = _now()
    with owned(evaluation.output) as lock:
        keep_settings(evaluation, model)
        runs = finished_runs(evaluation.output, benchmarks, evaluation.seeds, evaluation.limit)
        if progress:
            for run in runs.values():
                progress(run)
        # Seed by seed, so that an interrupted evaluation has complete seeds.
        pairs = [(benchmark, seed) for seed in evaluation.seeds for benchmark in benchmarks]
        todo = [(benchmark, seed) for benchmark, seed in pairs if (benchmark.name, seed) not in runs]
        if todo:
            runs |= _run_all(evaluation, model, arguments, todo, lock, progress)
        facts = {
            **comparable(evaluation, model),
            "seeds": list(evaluation.seeds),
            "command": evaluation.command,
            "started": started,
            "finished": _now(),
        }
        return write_results(evaluation.output, facts, [runs[benchmark.name, seed] for benchmark, seed in pairs])


def _run_all(
    evaluation: Evaluation,
    model: EvaluatedModel,
    arguments: Mapping[str, Any],
    todo: Sequence[tuple[Benchmark, int]],
    lock: IO[str],
    progress: Progress | None,
) -> dict[tuple[str, int], Run]:
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
                # The run does not count, now or later.
                (folder / "judge.json").unlink(missing_ok=True)
                raise
        run = runs[benchmark.name, seed] = read_run(folder, benchmark, seed, evaluation.limit)
        if progress:
            progress(run)

    benchmarks = list(dict.fromkeys(benchmark for benchmark, _ in todo))
    with task_folder(benchmarks, evaluation.data, asked_to_think=bool(evaluation.instruction)) as tasks:
        plan = {
            "model": BACKENDS[evaluation.backend],
            "arguments": dict(arguments),
            "device": evaluation.device,
            "judge_delay": evaluation.judge_delay,
            "tasks": str(tasks),
            "instruction": evaluation.instruction,
            "system_prompt": evaluation.system_prompt,
            "runs": [_planned(evaluation, model, benchmark, seed) for benchmark, seed in todo],
        }
        log = evaluation.output.resolve() / "logs" / f"{_now().replace(':', '-')}.log"
        environment = judge.environment(os.environ) if judge else {}
        if evaluation.server_url:
            key = os.environ.get("VADE_SERVER_API_KEY")
            environment |= no_proxy_variables(evaluation.server_url, os.environ) | (
                {"VADE_SERVER_API_KEY": key} if key else {}
            )
        run_plan(plan, log, finished, environment=environment, lock=lock.fileno())
    return runs


def _planned(evaluation: Evaluation, model: EvaluatedModel, benchmark: Benchmark, seed: int) -> dict[str, Any]:
    """Empty the folder of a run, and return the run as `runner` takes it."""
    folder = run_folder(evaluation.output.resolve(), benchmark, seed)
    shutil.rmtree(folder, ignore_errors=True)  # lmms-eval 0.7.3 would append to the files of an interrupted run
    folder.mkdir(parents=True)
    sampling = vars(evaluation.generation) | ({} if evaluation.backend == "transformers" else {"seed": seed})
    label = re.sub(r"[^\w.-]+", "_", model.name)  # the name of a folder; lmms-eval splits at commas
    options = {
        "model": BACKENDS[evaluation.backend],
        "model_args": f"pretrained={label}",
        "tasks": benchmark.task,
        "output_path": ".",
        "seed": seed,
        "gen_kwargs": ",".join(f"{name}={value}" for name, value in sampling.items()),
        "batch_size": evaluation.batch_size,
        "timezone": "UTC",
        **({} if evaluation.limit is None else {"limit": evaluation.limit}),
    }
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    run = {"task": benchmark.task, "folder": str(folder), "judged": benchmark.judged}
    return {**run, "options": [*words, "--log_samples"]}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
