"""Evaluation of a model on benchmarks by lmms-eval, with several seeds.

A run is one benchmark with one seed. Runs that an earlier command finished in the output directory are not repeated.
The directory is locked, and keeps the settings that its runs share.
"""

import fcntl
import json
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from trl_vade.errors import ConfigurationError, JudgeError
from trl_vade.files import save_whole

from .benchmarks import Benchmark, find_benchmarks
from .lmms.process import run_plan
from .lmms.tasks import task_folder
from .models import BACKENDS, EvaluatedModel, find_model, model_arguments
from .results.runs import Run, finished_runs, read_run, run_folder
from .results.summary import write_results
from .results.table import Results
from .servers import no_proxy_variables
from .settings import Evaluation, check, comparable

SETTINGS_FILE = "evaluation.json"


@contextmanager
def owned(output: Path) -> Iterator[IO[str]]:
    """Create and lock the output directory within the block, and yield the lock; refuse one that is locked."""
    if output.exists() and not output.is_dir():
        raise ConfigurationError(f"--output_path {output} is a file. Give a folder; it is created if it is missing.")
    output.mkdir(parents=True, exist_ok=True)
    with (output / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:  # other errors come from a file system without locks
            raise ConfigurationError(
                f"--output_path {output}: another evaluation is running there. Wait for it, or give another folder."
            ) from error
        yield lock


def keep_settings(evaluation: Evaluation, model: EvaluatedModel) -> None:
    """Write the settings into the output directory, or refuse it: another evaluation has finished runs there."""
    path = evaluation.output / SETTINGS_FILE
    here = comparable(evaluation, model) | {"tasks": list(evaluation.tasks), "seeds": list(evaluation.seeds)}
    text = json.dumps(here, indent=2, ensure_ascii=False) + "\n"
    if not path.exists() and (evaluation.output / "runs").exists():
        raise ConfigurationError(
            f"--output_path {evaluation.output} has runs but no {SETTINGS_FILE}, so their model and settings are "
            "unknown. Give another folder, or remove the runs."
        )
    if path.exists():
        try:
            saved = json.loads(path.read_text(encoding="utf-8"))
            there = finished_runs(evaluation.output, find_benchmarks(saved["tasks"]), saved["seeds"], saved["limit"])
            differences = _differences(saved, json.loads(text), there)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigurationError(
                f"{path} was not written by this command ({type(error).__name__}: {error}), so the evaluation of the "
                "runs beside it is unknown. Give another --output_path."
            ) from error
        if differences:
            raise ConfigurationError(
                f"--output_path {evaluation.output} belongs to another evaluation: {'; '.join(differences)}. Its runs "
                "cannot be averaged with these. Give another folder, or the same settings and at least its tasks and "
                "seeds."
            )
    save_whole(path, text.encode())


def _differences(saved: dict[str, Any], here: dict[str, Any], finished: Collection[tuple[str, int]]) -> list[str]:
    """Return the differences to the saved settings, in words. Empty if no run is finished.

    Allowed are: more tasks and seeds, with the rows and the judge that they need; the same judge at another address;
    the same weights under another name or commit, such as the commit that published their results.
    """
    if not finished:
        return []
    may_grow = ("tasks", "seeds", "data", "rows", "judge", "model")
    changed = [name for name in here if name not in may_grow and here[name] != saved[name]]
    for part in ("data", "rows"):
        both = [task for task in saved["tasks"] if task in here["tasks"]]
        if any(saved[part].get(task) != here[part].get(task) for task in both):
            changed.append(part)
    if saved["judge"] and here["judge"] and saved["judge"]["model"] != here["judge"]["model"]:
        changed.append("judge")
    if saved["model"]["fingerprint"] != here["model"]["fingerprint"]:
        changed.append("model")
    lacking = [pair for pair in finished if not (pair[0] in here["tasks"] and pair[1] in here["seeds"])]
    return [
        *(f"{name} was {saved[name]} and is {here[name]}" for name in changed),
        *(f"the finished run of {name} with seed {seed} would be left out" for name, seed in lacking),
    ]


Progress = Callable[[Run], None]


def evaluate(evaluation: Evaluation, progress: Progress | None = None) -> Results:
    """Run an evaluation, write its results, and return them; see `summary.write_results`.

    `progress` is called with each finished run, those of earlier commands first.

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
        each = [(benchmark, seed) for seed in evaluation.seeds for benchmark in benchmarks]
        pairs = [(benchmark, seed) for benchmark, seed in each if seed in evaluation.seeds_of(benchmark)]
        todo = [(benchmark, seed) for benchmark, seed in pairs if (benchmark.name, seed) not in runs]
        if todo:
            runs |= _run_all(evaluation, model, arguments, todo, lock, progress)
        facts = {
            **comparable(evaluation, model),
            "decoding": {one.name: evaluation.generation.named(one, evaluation.backend) for one in benchmarks},
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
            "repetition_penalty": evaluation.generation.repetition_penalty,
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
            environment |= no_proxy_variables(evaluation.server_url, os.environ)
            environment |= {"VADE_SERVER_API_KEY": key} if key else {}
        run_plan(plan, log, finished, environment=environment, lock=lock.fileno())
    return runs


def _planned(evaluation: Evaluation, model: EvaluatedModel, benchmark: Benchmark, seed: int) -> dict[str, Any]:
    """Empty the folder of a run, and return the run as `runner` takes it."""
    folder = run_folder(evaluation.output.resolve(), benchmark, seed)
    shutil.rmtree(folder, ignore_errors=True)  # lmms-eval 0.7.3 would append to the files of an interrupted run
    folder.mkdir(parents=True)
    own_seed = {} if evaluation.backend == "transformers" else {"seed": seed}
    sampling = vars(evaluation.generation.of(benchmark)) | own_seed
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
