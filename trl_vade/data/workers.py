"""Rows loaded by processes of their own, for a data set that threads must not load: a transform of the user's."""

import pickle
import random
import signal
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from datasets import Dataset

Share = tuple[list[int], int]
"""Rows, and the seed under which they are loaded."""


@dataclass(frozen=True)
class Workers:
    """
    Settings of the processes.

    Args:
        number: of processes; 0: the rows are loaded by the thread that asks.
        persistent: whether they live for the run, and not for an epoch; see `RowWorkers.begin_epoch`.
        seed: of the run, and different on each of its processes.
    """

    number: int = 0
    persistent: bool = False
    seed: int = 0


class RowWorkers:
    """
    Loads the rows of a draw in equal shares, one for each process.

    The random numbers of a transform follow from the run's seed, the draw and the share alone. So a resumed run sees
    the same values, whether or not the rows were begun ahead.

    Args:
        dataset: N rows.
        settings: with at least one process.
    """

    def __init__(self, dataset: Dataset, settings: Workers):
        self.dataset, self.settings = dataset, settings
        self._shares: list[Share] = []
        self._loader: Any = None
        self._results: Any = None
        self._begun: tuple[list[int], int] | None = None

    def begin(self, rows: list[int], draw: int) -> None:
        """Begin with `rows`, (K,) numbers, of a draw, unless it was begun already; return at once."""
        if self._begun == (rows, draw):
            return
        size = -(-len(rows) // self.settings.number)
        starts = range(0, len(rows), size)
        seeds = np.random.SeedSequence([self.settings.seed % 2**64, draw]).generate_state(len(starts)).tolist()
        self._shares[:] = [(rows[start : start + size], seed) for start, seed in zip(starts, seeds, strict=True)]
        self._loader = self._loader or self._make_loader()
        self._results, self._begun = iter(self._loader), (rows, draw)

    def load(self, rows: list[int], draw: int) -> list[dict[str, Any]]:
        """Return the rows; an error of the data set names its row."""
        self.begin(rows, draw)
        try:
            loaded = [row for share in self._results for row in pickle.loads(share)]
        except BaseException:
            self.forget()
            raise
        self._begun = None
        return loaded

    def begin_epoch(self) -> None:
        """End processes that are not to persist: a transform is in them as it was when they were started."""
        if not self.settings.persistent:
            self.forget()

    def forget(self) -> None:
        """Give up what was begun, and end the processes."""
        if self._results is not None:
            self._results._shutdown_workers()  # its `__del__` (torch 2.15) waits for the last traceback that holds it
        self._loader = self._results = self._begun = None

    def _make_loader(self) -> Any:
        return torch.utils.data.DataLoader(
            _Shares(self.dataset),
            sampler=self._shares,
            batch_size=None,
            collate_fn=bytes,
            num_workers=self.settings.number,
            prefetch_factor=1,  # a share for each process: all are begun at once
            persistent_workers=True,
            worker_init_fn=_ignore_signals,
            generator=torch.Generator(),  # else torch takes a seed from its global one, which sampling goes on from
        )


def _ignore_signals(worker: int) -> None:
    """A preemption or Ctrl-C may signal all processes, and the trainer then needs rows up to its last checkpoint.

    The processes end with the trainer's: torch looks for it every five seconds.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


class _Shares(torch.utils.data.Dataset[bytes]):
    """Item (rows, seed) is the rows, pickled here: torch would wait for ever for what it fails to pickle."""

    def __init__(self, dataset: Dataset):
        self.dataset = dataset

    def __getitem__(self, share: Share) -> bytes:
        rows, seed = share
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        loaded = load_rows(self.dataset, rows)
        try:
            return pickle.dumps(loaded)
        except Exception as error:
            error.add_note(
                "The rows of the training data have a value that cannot be sent from process to process. Set "
                "dataloader_num_workers=0, or let the transform return something that can be pickled."
            )
            raise


def load_rows(dataset: Dataset, rows: list[int]) -> list[dict[str, Any]]:
    """Return `dataset.__getitems__(rows)`; to an error, the number of its row is added."""
    try:
        return list(dataset.__getitems__(rows))
    except Exception as error:
        for row in rows if len(rows) > 1 else ():
            load_rows(dataset, [row])
        error.add_note(f"This happened while row {', '.join(map(str, rows))} of the training data was loaded.")
        raise
