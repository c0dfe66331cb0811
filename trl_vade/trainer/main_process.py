"""Work of the main process whose result, error or end all processes must know."""

import time
from collections.abc import Callable
from typing import Any

from accelerate import PartialState
from accelerate.logging import get_logger
from accelerate.utils import broadcast_object_list

logger = get_logger(__name__)

SAY_EVERY = 60.0  # seconds between two messages about a long wait
POLL_SECONDS = {True: 0.02, False: 1.0}  # seconds between two polls, by whether there is only one process


def on_main_process(compute: Callable[[], Any]) -> Any:
    """Run `compute` on the main process, and return its result or raise its error on all processes.

    Without this, an error on the main process would leave the others waiting in a collective. Results and errors must
    be picklable.
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


def wait_for_main_process(done: Callable[[], bool], pending: Callable[[], str] = str) -> None:
    """Wait on all processes until `done` returns True on the main process. Log now and then what is `pending`.

    The processes poll every second. A single collective that lasts as long as an upload would exceed the time limit of
    the process group (10 minutes with NCCL, 30 with gloo).
    """
    start = said = time.monotonic()
    while not on_main_process(done):
        if (now := time.monotonic()) - said > SAY_EVERY:
            said = now
            logger.warning(f"Still waiting after {now - start:.0f} s for {pending()}.")
        time.sleep(POLL_SECONDS[PartialState().num_processes == 1])
