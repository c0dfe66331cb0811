"""What only the main process does, and all processes must hear of: its result, its error, its end."""

import time
from collections.abc import Callable
from typing import Any

from accelerate import PartialState
from accelerate.utils import broadcast_object_list

POLL_SECONDS = {True: 0.02, False: 1.0}
"""Between two looks; whether there is only one process."""


def on_main_process(compute: Callable[[], Any]) -> Any:
    """Return on all processes what `compute` returns on the main one, or raise there what it raises.

    Without this the others would go on into a collective that the main process never comes to. What it returns or
    raises is pickled between the processes of one run, and so must be such as can be.
    """
    state = PartialState()
    result, error = None, None
    if state.is_main_process:
        try:
            result = compute()
        except Exception as raised:
            if state.num_processes == 1:
                raise
            error = raised
    if state.num_processes > 1:
        result, error = broadcast_object_list([result, error])
    if error is not None:
        raise error
    return result


def wait_for_main_process(done: Callable[[], bool]) -> None:
    """Return when `done` is true on the main process.

    The other processes ask every second: one collective that takes as long as an upload does would run into the time
    limit of the process group (10 minutes with NCCL, 30 with gloo).
    """
    while not on_main_process(done):
        time.sleep(POLL_SECONDS[PartialState().num_processes == 1])
