"""Progress of the testbed's long loops: a bar on a terminal, a few lines in a file."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tqdm.auto import tqdm

LINES = 4  # in a file


@contextmanager
def progress_bar(total: int, what: str, unit: str, *, shown: bool = True) -> Iterator[Callable[[], None]]:
    """Show the progress of the block, which calls the yielded function once for each of the `total` units."""
    if not shown or sys.stderr.isatty() or "ipykernel" in sys.modules:
        with tqdm(total=total, desc=what, unit=unit, disable=not shown) as bar:
            yield bar.update
        return
    done = 0

    def advance() -> None:
        nonlocal done
        done += 1
        if done * LINES // total > (done - 1) * LINES // total:
            print(f"{what}: {done:,} of {total:,} {unit}s", file=sys.stderr, flush=True)

    yield advance
