"""A folder that may not be written, not even by root."""

import ctypes
import os
from pathlib import Path

CAP_DAC_OVERRIDE = 1 << 1  # root's right to write where no permission bit lets it (linux/capability.h)
CAPABILITY_VERSION = 0x20080522


class WriteProtected:
    """Takes the write bit from `path`, and from root, which needs none, the right to do without; gives both back."""

    def __init__(self, path: Path):
        self._path = path
        # Another user is no way: where the tests run in an environment of root's own, it cannot even import.
        self._libc = ctypes.CDLL(None, use_errno=True) if os.geteuid() == 0 else None

    def __enter__(self) -> "WriteProtected":
        self._path.chmod(self._path.stat().st_mode & ~0o222)
        self._set_override(False)
        return self

    def __exit__(self, *error: object) -> None:
        self._set_override(True)
        self._path.chmod(self._path.stat().st_mode | 0o200)

    def _set_override(self, wanted: bool) -> None:
        """For this thread: in the effective set of capabilities, where the permitted set has it."""
        if self._libc is None:
            return
        header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0)
        sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; twice, for 64 capabilities
        assert self._libc.capget(header, sets) == 0, os.strerror(ctypes.get_errno())
        sets[0] = sets[0] | (CAP_DAC_OVERRIDE & sets[1]) if wanted else sets[0] & ~CAP_DAC_OVERRIDE
        assert self._libc.capset(header, sets) == 0, os.strerror(ctypes.get_errno())
