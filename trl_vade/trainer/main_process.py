"""Work of the main process whose result or error all processes must know."""

from collections.abc import Callable
from typing import Any

from accelerate import PartialState
from accelerate.utils import broadcast_object_list


def on_main_process(compute: Callable[[], Any]) -> Any:
    """Run `compute` on the main process, and return its result or raise its error on all processes.

    Without this, an error on the main process would leave the others waiting in a collective. Results and errors must
    be picklable.
    """
    state = PartialState()
    if state.num_processes == 1:
        return compute()
    result, error = None, None
    if state.is_main_process:
        try:
            result = compute()
        except Exception as raised:
            error = raised
    result, error = broadcast_object_list([result, error])
    if error is not None:
        raise error
    return result
