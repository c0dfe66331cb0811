"""The cases of the faults, and their table."""

import io
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

import torch

from .bench import Bench
from .damage import damaged_checkpoints, damaged_logs
from .disks import disk_full, permission_denied
from .fuzz import fuzz_everything
from .hostile import hostile_posteriors
from .hub import hub_failures
from .kills import killed_at_random, killed_in_a_save, killed_in_a_second_save
from .kinds import kinds_killed, kinds_resumed
from .processes import other_processes
from .pushing import killed_while_pushing
from .result import Result
from .rewards import pools, reward_outage, rewards


def damaged_files(bench: Bench) -> list[Result]:
    """Random damage to the files of a run, and settings of any kind; see `fuzz`."""
    return fuzz_everything(500 if bench.quick else 10_000, bench.seed, bench.folder())


# ---------------------------------------------------------------------------------------------------------- the table

CASES: dict[str, Callable[[Bench], Result | list[Result]]] = {
    "kinds": kinds_killed,
    "resumes": kinds_resumed,
    "kill-random": killed_at_random,
    "kill-in-save": killed_in_a_save,
    "kill-in-second-save": killed_in_a_second_save,
    "checkpoint-files": damaged_checkpoints,
    "log": damaged_logs,
    "hostile": hostile_posteriors,
    "disk-full": disk_full,
    "permission": permission_denied,
    "reward": rewards,
    "rows": pools,
    "outage": reward_outage,
    "hub": hub_failures,
    "processes": other_processes,
    "kill-pushing": killed_while_pushing,
    "fuzz": damaged_files,
}


@contextmanager
def bench(*, seed: int = 0, quick: bool = False) -> Iterator[Bench]:
    """A bench in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="vade-faults-") as directory:
        yield Bench(Path(directory), seed=seed, quick=quick)


def run_case(name: str, on: Bench) -> list[Result]:
    """The rows of a case; what the runs print is not shown."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the model is tiny, and threads that wait for each other are slow on a busy machine
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            rows = CASES[name](on)
    finally:
        torch.set_num_threads(threads)
    return rows if isinstance(rows, list) else [rows]


def table(results: list[Result]) -> str:
    head = ("case", "tries", "survived", "lost", "what happened")
    lines = [head, *((r.case, str(r.tries), str(r.survived), str(r.lost), r.note) for r in results)]
    width = max(len(line[0]) for line in lines)
    return "\n".join(f"{case:{width}}  {a:>6}  {b:>8}  {c:>6}  {note}" for case, a, b, c, note in lines)
