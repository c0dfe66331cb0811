"""Bytes: what torch allocated on a GPU, of a process, or of the storages that operations touch on a CPU."""

import contextlib
import ctypes
import gc
import threading
import weakref
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class GpuMemory:
    """The GPU's memory. `in use` is the driver's figure for all of it: torch does not see a sleeping engine's."""

    def __init__(self) -> None:
        self._most_in_use, self._stopped = 0, threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "GpuMemory":
        self._watcher.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stopped.set()
        self._watcher.join()

    @staticmethod
    def allocated() -> int:
        return torch.cuda.memory_allocated()

    def peaks(self) -> dict[str, int]:
        """Peaks in bytes since the last call."""
        found = {
            "allocated": torch.cuda.max_memory_allocated(),
            "reserved": torch.cuda.max_memory_reserved(),
            "in use": max(self._most_in_use, self._in_use()),
        }
        torch.cuda.reset_peak_memory_stats()
        self._most_in_use = 0
        return found

    @staticmethod
    def _in_use() -> int:
        free, total = torch.cuda.mem_get_info()
        return total - free

    def _watch(self) -> None:
        while not self._stopped.wait(0.02):
            self._most_in_use = max(self._most_in_use, self._in_use())


class ProcessMemory:
    """What a process has in memory above what it had at `begin`, as Linux counts it; 0 elsewhere."""

    def __init__(self) -> None:
        self._before = 0

    def __enter__(self) -> "ProcessMemory":
        return self

    def __exit__(self, *error: Any) -> None:
        pass

    def begin(self) -> None:
        gc.collect()
        with contextlib.suppress(AttributeError, OSError, TypeError):  # what was freed goes back; glibc alone has it
            ctypes.CDLL(None).malloc_trim(0)
        self._before = self._status("VmRSS")

    def peaks(self) -> dict[str, int]:
        """Peaks in bytes since the last call."""
        found = {"resident": max(self._status("VmHWM") - self._before, 0)}
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
        return found

    @staticmethod
    def _status(name: str) -> int:
        with contextlib.suppress(OSError):
            lines = Path("/proc/self/status").read_text().splitlines()
            return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")), 0)
        return 0


class TensorMemory(TorchDispatchMode):
    """Storages of the tensors that operations have touched since it was entered, and that still exist.

    An operation's own scratch memory is not seen. It slows every operation, so nothing is timed under it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._now = self._most = 0
        self._storages: dict[int, weakref.ref] = {}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = function(*args, **(kwargs or {}))
        for value in tree_leaves((args, kwargs, output)):
            if isinstance(value, torch.Tensor):
                self._note(value.untyped_storage())
        return output

    def _note(self, storage: torch.UntypedStorage) -> None:
        key, size = id(storage), storage.nbytes()
        if key in self._storages:
            return

        def gone(_: Any) -> None:
            del self._storages[key]
            self._now -= size

        self._storages[key] = weakref.ref(storage, gone)
        self._now += size
        self._most = max(self._most, self._now)

    def allocated(self) -> int:
        return self._now

    def peaks(self) -> dict[str, int]:
        """Peaks in bytes since the last call."""
        found, self._most = {"allocated": self._most}, self._now
        return found
