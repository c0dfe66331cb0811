"""Checks of the settings that say which reward is a success."""

from typing import Any

from trl_vade.errors import ConfigurationError, abbreviated
from trl_vade.selection.signal import AUTO, SPREAD

from .presets import setting

LARGEST_REWARD = (2 - 2**-23) * 2.0**127
"""The largest finite float32. TRL keeps rewards as float32."""


def is_reward(value: Any) -> bool:
    """Return whether TRL can keep `value` as a reward."""
    return is_number(value) and abs(value) <= LARGEST_REWARD


def is_number(value: Any) -> bool:
    """Return whether JSON can hold `value` as a number. The trainer state and the posterior's metadata are JSON."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_success(args: Any) -> None:
    """Check the threshold and the bounds of success."""
    threshold, bounds = setting(args, "success_threshold"), setting(args, "success_bounds")
    is_word = threshold is None or (isinstance(threshold, str) and threshold in (AUTO, SPREAD))
    if not is_word and not is_reward(threshold):
        raise ConfigurationError(
            f"vade_success_threshold={abbreviated(threshold)} is not a finite float32 number, so no reward could "
            "reach it. Set the lowest reward of a right answer (0.5 for rewards of 0 and 1), None for fractions of a "
            "success, 'spread', or 'auto'."
        )
    if bounds is not None and (
        threshold not in (None, AUTO)
        or not isinstance(bounds, list | tuple)
        or len(bounds) != 2
        or not all(map(is_reward, bounds))
        or bounds[0] >= bounds[1]
    ):
        raise ConfigurationError(
            f"vade_success_bounds={abbreviated(bounds)} with vade_success_threshold={threshold!r}. Bounds are for "
            "fractions of a success: the reward of no success, and a larger one, the reward of a full success. Set "
            "two such numbers and vade_success_threshold=None, or vade_success_bounds=None."
        )


def threshold_of(text: str) -> float | str | None:
    """Return the value of `--vade_success_threshold` as it came from the command line."""
    words = {"none": None, "null": None, AUTO: AUTO, SPREAD: SPREAD}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return float(text)
    except ValueError as error:
        raise ConfigurationError(
            f"vade_success_threshold={abbreviated(text)} is not a number. Set the lowest reward of a right answer "
            "(0.5 for rewards of 0 and 1), none for fractions of a success, spread, or auto."
        ) from error
