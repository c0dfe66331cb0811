"""The variant law of DIVA-GRPO: which kind of variant an original of some difficulty gets.

Source: arXiv 2603.01106, section 3.2; the numbers are those of the released code. The difficulty D of an original is
1 + 8 (1 - m) with the expected pass rate m, so that it needs no state of its own.

Axis letters: N rows of the data set, Q originals, V variants of each.
"""

import re

import numpy as np

from trl_vade.checks import FloatArray
from trl_vade.errors import ConfigurationError, abbreviated

from .variants import VariantRows

MEAN_OFFSETS = (6.0, 5.0, 4.0, 3.0, 2.0, 1.0, -1.0, -3.0, -5.0)
"""The mean offset of a variant's difficulty, for originals of difficulty 1, 2, ..., 9."""
LARGEST_OFFSET = 8.0

_HINT = re.compile(r"hint-([1-9]\d*)")
_PICTURE = re.compile(r"(?:rotation|gaussian|salt-pepper|speckle|blur|low-resolution)-([123])")


def variant_offsets(mean: FloatArray, count: int, chance: np.random.Generator) -> FloatArray:
    """Draw the wanted offsets of `count` variants of each original, (V, Q), whole numbers in [-8, 8].

    An offset is drawn from N(mu, 1) and rounded. The mean mu falls with the difficulty, from 6 to -5; between whole
    difficulties it is interpolated.

    Args:
        mean: (Q,) the expected pass rates of the originals.
        count: V.
        chance: the random numbers of the draw.
    """
    mu = np.interp(1.0 + 8.0 * (1.0 - mean), np.arange(1.0, 10.0), MEAN_OFFSETS)
    drawn = np.rint(mu + chance.standard_normal((count, mean.size)))
    offsets: FloatArray = np.clip(drawn, -LARGEST_OFFSET, LARGEST_OFFSET)
    return offsets


def kind_offsets(variants: VariantRows) -> FloatArray:
    """Return the offset of each row's difficulty from its original's, (N,), by the name of its kind.

    The law gives a kind to two neighbouring offsets, so the kind lies half-way between them:

        text                              0
        hint-1, hint-2, hint-3         -1.5, -3.5, -5.5
        more steps, and all of them    -6.5, -7.5
        pictures of level 1, 2, 3       1.5,  3.5,  5.5
        drawn                           7.5

    Raises:
        ConfigurationError: the law has no place for a kind.
    """
    steps = np.array([_steps(kind) for kind in variants.kinds])[variants.kind]
    most = np.zeros(steps.size)
    np.maximum.at(most, variants.of, steps)
    offsets = np.array([_offset(kind) for kind in variants.kinds])[variants.kind]
    offsets[(steps > 3) & (steps == most[variants.of])] = -7.5
    unknown = [variants.kinds[number] for number in np.unique(variants.kind[np.isnan(offsets)])]
    if unknown:
        raise ConfigurationError(
            f"variant_match is 'difficulty', and {abbreviated(unknown)} has no place in its law. The law knows text, "
            "drawn, hint-1 and higher, and the levels 1 to 3 of rotation, gaussian, salt-pepper, speckle, blur and "
            "low-resolution. Use 'posterior' or 'random', which match variants of any kind."
        )
    return offsets


def _steps(kind: str) -> int:
    """Return the number of steps that a hint gives, or 0 for other kinds."""
    hint = _HINT.fullmatch(kind)
    return int(hint[1]) if hint else 0


def _offset(kind: str) -> float:
    """Return the offset of a kind, NaN for an unknown one."""
    if steps := _steps(kind):
        return max(0.5 - 2.0 * steps, -6.5)
    if picture := _PICTURE.fullmatch(kind):
        return 2.0 * int(picture[1]) - 0.5
    return {"original": 0.0, "text": 0.0, "drawn": 7.5}.get(kind, np.nan)
