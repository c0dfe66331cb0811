"""Worker processes that load rows of data sets unsafe in threads, such as those with a transform."""

import pickle
import random
import signal
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from datasets import Dataset

Share = tuple[list[int], int]  # rows and the seed for loading them


@dataclass(frozen=True)
class Workers:
    """The settings of the worker processes."""

    number: int = 0  # the number of processes. With 0 the calling thread loads the rows.
    persistent: bool = False  # whether the processes live for the whole run instead of one epoch
    seed: int = 0  # the seed of the run, different on each training process


class RowWorkers:
    """A loader of the rows of a draw in equal shares, one for each process.

    The seed of the run, the draw and the share determine the random numbers of a transform. So a resumed run sees the
    same values, with and without prefetching.
    """

    def __init__(self, dataset: Dataset, settings: Workers):
        self.dataset, self.settings = dataset, settings
        self._shares: list[Share] = []
        self._loader: Any = None
        self._results: Any = None
        self._begun: tuple[list[int], int] | None = None

    def begin(self, rows: list[int], draw: int) -> None:
        """Start loading the K rows of a draw, unless it was started already, and return at once."""
        if self._begun == (rows, draw):
            return
        size = -(-len(rows) // self.settings.number)
        starts = range(0, len(rows), size)
        seeds = np.random.SeedSequence([self.settings.seed % 2**64, draw]).generate_state(len(starts)).tolist()
        self._shares[:] = [(rows[start : start + size], seed) for start, seed in zip(starts, seeds, strict=True)]
        self._loader = self._loader or self._make_loader()
        self._results, self._begun = iter(self._loader), (rows, draw)

    def load(self, rows: list[int], draw: int) -> list[dict[str, Any]]:
        """Return the K rows of a draw. An error of the data set names its row."""
        self.begin(rows, draw)
        try:
            loaded = [row for share in self._results for row in pickle.loads(share)]
        except BaseException:
            self.forget()
            raise
        self._begun = None
        return loaded

    def begin_epoch(self) -> None:
        """End the processes unless they persist. New ones see the present state of a transform."""
        if not self.settings.persistent:
            self.forget()

    def forget(self) -> None:
        """Cancel the started rows and end the processes."""
        if self._results is not None:
            self._results._shutdown_workers()  # `__del__` (torch 2.15) waits until no traceback refers to it
        self._loader = self._results = self._begun = None

    def _make_loader(self) -> Any:
        return torch.utils.data.DataLoader(
            _Shares(self.dataset),
            sampler=self._shares,
            batch_size=None,
            collate_fn=bytes,
            num_workers=self.settings.number,
            prefetch_factor=1,  # one share a process, so all start at once
            persistent_workers=True,
            worker_init_fn=_ignore_signals,
            generator=torch.Generator(),  # else torch advances its global generator, which generation uses
        )


def _ignore_signals(worker: int) -> None:
    """Ignore preemption and Ctrl-C in this process: the trainer needs rows until its last checkpoint.

    The process ends with the trainer, which torch checks every five seconds.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


class _Shares(torch.utils.data.Dataset[bytes]):
    """A data set with the pickled rows as item (rows, seed). torch would hang on rows that it cannot pickle."""

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
                "The training rows have a value that cannot be sent between processes. Set dataloader_num_workers=0, "
                "or let the transform return values that can be pickled."
            )
            raise


def load_rows(dataset: Dataset, rows: list[int]) -> list[dict[str, Any]]:
    """Return `dataset.__getitems__(rows)`, and add the number of the row to an error."""
    try:
        return list(dataset.__getitems__(rows))
    except Exception as error:
        for row in rows if len(rows) > 1 else ():
            load_rows(dataset, [row])
        error.add_note(f"This happened while loading row {', '.join(map(str, rows))} of the training data.")
        raise
