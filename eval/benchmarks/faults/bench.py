"""What the injected faults share: a place to work in, and how a try is counted."""

import multiprocessing
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.runs import make_text_model
from trl_vade.testbed.model import build_model
from trl_vade.testbed.processor import build_processor

from .runs import make_trainer


@dataclass(frozen=True)
class Result:
    """`tries` of one kind of fault, `survived + lost` of them; `note` says in words what came of them."""

    case: str
    tries: int
    survived: int
    lost: int
    note: str


def summed(case: str, results: list[Result], note: str) -> Result:
    """The results of several kinds of run as one; what was lost is named."""
    lost = [f"{result.case}: {result.note}" for result in results if result.lost]
    total = {name: sum(getattr(result, name) for result in results) for name in ("tries", "survived", "lost")}
    return Result(case, **total, note="; ".join([note, *lost]))


class Bench:
    """What the cases share: a folder to work in, the tiny model, the seed, and runs that nothing disturbed."""

    def __init__(self, directory: Path, *, seed: int = 0, quick: bool = False):
        self.directory, self.seed, self.quick = directory, seed, quick
        self.model = make_text_model(directory / "model")
        processor = build_processor()
        self.vision_model = str(directory / "vision_model")  # the testbed's untrained Qwen2.5-VL
        for part in (build_model(processor), processor):
            part.save_pretrained(self.vision_model)
        self._num_folders = 0
        # A server that has the imports forks the processes: this one has used torch, and must not be forked.
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["trl_vade.trainer.grpo_trainer", "eval.benchmarks.faults.runs"])

    def folder(self) -> Path:
        """A new output directory."""
        self._num_folders += 1
        path = self.directory / f"run-{self._num_folders:03d}"
        path.mkdir()
        return path

    def trainer(self, output_dir: Path, **settings: Any) -> Any:
        """A trainer of `runs.make_trainer` on the model of these settings."""
        return make_trainer(self.model_of(settings), output_dir, **settings)

    def model_of(self, settings: dict[str, Any]) -> str:
        """The tiny text model, or the testbed's with `pictures`."""
        return self.vision_model if settings.get("pictures") else self.model


def expect(condition: Any, otherwise: str) -> None:
    """An assertion that `python -O` keeps."""
    if not condition:
        raise AssertionError(otherwise)


def expect_equal(left: dict[str, Any], right: dict[str, Any]) -> None:
    """Raise with the names of the entries in which two runs differ."""
    differing = sorted(name for name in left.keys() | right.keys() if left.get(name) != right.get(name))
    expect(not differing, f"the run ended with another {', '.join(differing)} than the undisturbed one")


def tally(case: str, tries: dict[str, Callable[[], str]]) -> Result:
    """Try each; one that raises is lost. A try returns what it saw, which the note counts."""
    seen, lost = Counter(), []
    for name, attempt in tries.items():
        try:
            seen[attempt()] += 1
        except Exception as error:
            lost.append(f"{name}: {type(error).__name__}: {error}")
    words = [text if number == len(tries) else f"{number} x {text}" for text, number in seen.items()]
    words += [f"LOST {text}" for text in lost]
    return Result(case, len(tries), len(tries) - len(lost), len(lost), "; ".join(words))


def refused(what: type[Exception], attempt: Callable[[], Any]) -> str:
    """The message of the error that `attempt` must raise."""
    try:
        attempt()
    except what as error:
        return str(error)
    raise AssertionError(f"no {what.__name__}")
