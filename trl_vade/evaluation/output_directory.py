"""The output directory of an evaluation: whose it is, and what its runs have in common."""

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from trl_vade.errors import ConfigurationError
from trl_vade.files import save_whole

from .benchmarks import find_benchmarks
from .models import EvaluatedModel
from .results.runs import finished_run, run_folder
from .settings import Evaluation, comparable

SETTINGS_FILE = "evaluation.json"


@contextmanager
def owned(output: Path) -> Iterator[IO[str]]:
    """Hold the output directory: two evaluations in one would mix their files.

    Raises:
        ConfigurationError: another one is at work there.
    """
    if output.exists() and not output.is_dir():
        raise ConfigurationError(
            f"--output_path {output} is a file. Give a folder, which is made where it is missing."
        )
    output.mkdir(parents=True, exist_ok=True)
    with (output / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:  # not what a file system without locks says
            raise ConfigurationError(
                f"--output_path {output}: another evaluation is at work there. Wait for it, or give another folder."
            ) from error
        yield lock


def keep_settings(evaluation: Evaluation, model: EvaluatedModel) -> None:
    """Write down what this directory is for; refuse another evaluation in it once one of its runs is finished.

    Raises:
        ConfigurationError: it is for something else, or has runs that this evaluation would leave out.
    """
    path = evaluation.output / SETTINGS_FILE
    here = comparable(evaluation, model) | {"tasks": list(evaluation.tasks), "seeds": list(evaluation.seeds)}
    text = json.dumps(here, indent=2, ensure_ascii=False) + "\n"
    if not path.exists() and (evaluation.output / "runs").exists():
        raise ConfigurationError(
            f"--output_path {evaluation.output} has runs and no {SETTINGS_FILE}, so nobody knows of which model and "
            "settings they are: give another folder, or remove them."
        )
    if path.exists():
        try:
            saved = json.loads(path.read_text(encoding="utf-8"))
            differences = _differences(saved, json.loads(text), _finished(saved, evaluation.output))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigurationError(
                f"{path} is none that this command has written ({type(error).__name__}: {error}), so nobody knows "
                "which evaluation the runs beside it are of: give another --output_path."
            ) from error
        if differences:
            raise ConfigurationError(
                f"--output_path {evaluation.output} belongs to another evaluation: {'; '.join(differences)}. Its runs "
                "cannot be averaged with these: give another folder, or the same settings and at least its tasks and "
                "seeds."
            )
    save_whole(path, text.encode())


def _finished(saved: dict[str, Any], output: Path) -> list[tuple[str, int]]:
    """The runs in the directory that count, each by its benchmark and its seed."""
    runs = [(benchmark, seed) for benchmark in find_benchmarks(saved["tasks"]) for seed in saved["seeds"]]
    return [
        (benchmark.name, seed)
        for benchmark, seed in runs
        if finished_run(run_folder(output, benchmark, seed), benchmark, seed, saved["limit"])
    ]


def _differences(saved: dict[str, Any], here: dict[str, Any], finished: list[tuple[str, int]]) -> list[str]:
    """What is not as it was, in words; nothing, where no run is finished: the settings may have been why.

    Tasks and seeds may have been added, with the rows and the judge that the new tasks need; the same judge may
    be served elsewhere: on a cluster it is, each time; and the same weights may have another name or commit, such as
    the one that their results made.
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
    lacking = [
        f"{name} with seed {seed}, which is finished,"
        for name, seed in finished
        if not (name in here["tasks"] and seed in here["seeds"])
    ]
    return [
        *(f"{name} was {saved[name]} and is {here[name]}" for name in changed),
        *(f"{what} would be left out" for what in lacking),
    ]
