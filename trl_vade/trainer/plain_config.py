"""Errors for a trainer whose configuration is a plain `GRPOConfig`, which has no `vade_` fields."""

import functools
from collections.abc import Callable
from typing import Any

from trl_vade.errors import VADEError


def saying_where_settings_go(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method of the trainer: its errors about a `vade_` setting name the configuration that has the field.

    The sentence is added only if the trainer was given another configuration than a `VADEGRPOConfig`.
    """

    @functools.wraps(method)
    def wrapped(self: Any, *positional: Any, **named: Any) -> Any:
        try:
            return method(self, *positional, **named)
        except VADEError as error:
            args = self.args if hasattr(self, "args") else named.get("args", (*positional, None, None, None)[2])
            if "vade_" in str(error) and "vade_sampler" not in getattr(args, "__dataclass_fields__", {}):
                given = "no configuration" if args is None else f"a {type(args).__name__}"
                place = f"The trainer has {given}. Pass a VADEGRPOConfig (trl_vade): it has the vade_ settings."
                error.args = (f"{error} {place}", *error.args[1:])
            raise

    return wrapped
