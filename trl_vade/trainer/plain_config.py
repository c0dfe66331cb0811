"""Errors for a user whose configuration has no place for VADE's settings."""

import functools
from collections.abc import Callable
from typing import Any

from trl_vade.errors import VADEError


def saying_where_settings_go(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return `method` of the trainer, whose errors say that a setting of VADE is a field of `VADEGRPOConfig`.

    They say so where they name one and the trainer was given another configuration, which refuses the setting.
    """

    @functools.wraps(method)
    def wrapped(self: Any, *positional: Any, **named: Any) -> Any:
        try:
            return method(self, *positional, **named)
        except VADEError as error:
            args = self.args if hasattr(self, "args") else named.get("args", (*positional, None, None, None)[2])
            if "vade_" in str(error) and "vade_sampler" not in getattr(args, "__dataclass_fields__", {}):
                given = "no configuration" if args is None else f"a {type(args).__name__}"
                place = (
                    f"The trainer has {given}: vade_ settings are those of VADEGRPOConfig (trl_vade), so give it one."
                )
                error.args = (f"{error} {place}", *error.args[1:])
            raise

    return wrapped
