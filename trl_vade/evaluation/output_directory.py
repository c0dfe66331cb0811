"""The output directory of an evaluation: its lock, and the settings that its runs share."""

import fcntl
import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from trl_vade.errors import ConfigurationError
from trl_vade.files import save_whole

from .benchmarks import find_benchmarks
from .models import EvaluatedModel
from .results.runs import finished_runs
from .settings import Evaluation, comparable

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
    lacking = [
        f"the finished run of {name} with seed {seed}"
        for name, seed in finished
        if not (name in here["tasks"] and seed in here["seeds"])
    ]
    return [
        *(f"{name} was {saved[name]} and is {here[name]}" for name in changed),
        *(f"{what} would be left out" for what in lacking),
    ]
