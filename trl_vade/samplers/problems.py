"""Problems of a generation batch: each an original and its matched variants.

Axis letters: N rows of the data set, P problems that can be drawn, Q problems of a draw, V variants a problem in a
draw, W the most variants of a problem in the data set.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from trl_vade.checks import FloatArray, IntArray, check_whole_number
from trl_vade.errors import ConfigurationError, abbreviated

from .difficulty import kind_offsets, variant_offsets
from .variants import VariantRows, check_variants

MATCHES = ("posterior", "difficulty", "random")


class Problems:
    """The originals with at least V variants, and the rule that matches V variants to a chosen original.

    Args:
        variants: the original and the kind of each row.
        groups: V, at least 1.
        match: "posterior", "difficulty" or "random"; see `rows_of`.

    Raises:
        ConfigurationError: no original has V variants, or the rule does not know a kind.
    """

    def __init__(self, variants: VariantRows, groups: int, match: str) -> None:
        rows, number = np.flatnonzero(variants.kind), variants.num_variants
        if groups > number.max():
            raise ConfigurationError(
                f"variant_groups is {groups}, and no row has more than {number.max()} variants. Set a smaller number, "
                "or build more kinds of variants."
            )
        self.originals: IntArray = np.flatnonzero(number >= groups)
        """The originals that can be drawn, (P,), in ascending order."""
        self.size = 1 + groups
        """The rows of a problem in a draw, 1 + V."""
        rows = rows[number[variants.of[rows]] >= groups]
        self._rows: IntArray = rows[np.argsort(variants.of[rows], kind="stable")]  # variants, sorted by problem
        self._number = number[self.originals]
        self._start = np.cumsum(self._number) - self._number
        self._of, self._match = variants.of, match
        self._offset = kind_offsets(variants) if match == "difficulty" else None

    def check_draw(self, k: int, excluded: IntArray) -> tuple[int, IntArray]:
        """Return the number of problems of a draw of `k` rows, and the places, in [0, P), of the excluded problems.

        A row excludes its problem.

        Raises:
            ConfigurationError: `k` is no multiple of 1 + V, or too few problems are left.
        """
        excluded = np.flatnonzero(np.isin(self.originals, self._of[excluded])) if excluded.size else excluded
        left = self.size * (self.originals.size - excluded.size)
        advice = f"A draw holds whole problems of {self.size} rows, and {left // self.size} problems can be chosen."
        if check_whole_number("k", k, minimum=1, maximum=left, advice=advice) % self.size:
            raise ConfigurationError(f"k is {k}; it must be a multiple of {self.size}. {advice}")
        return k // self.size, excluded

    def best(self, gain: FloatArray) -> FloatArray:
        """Return the largest gain of the rows of each problem, (P,), from the gain of each row, (N,)."""
        best: FloatArray = np.maximum(gain[self.originals], np.maximum.reduceat(gain[self._rows], self._start))
        return best

    def rows_of(
        self,
        chosen: IntArray,
        gain: Callable[[IntArray], FloatArray],
        mean: Callable[[IntArray], FloatArray],
        chance: np.random.Generator,
    ) -> IntArray:
        """Return the rows of the chosen problems, (Q (1 + V),): each original, and then its matched variants.

        The rule "posterior" takes the variants with the largest gains, the lower row among equals. The rule "random"
        takes any. The rule "difficulty" takes the variants nearest to offsets that `variant_offsets` draws.

        Args:
            chosen: (Q,) places of the problems, in [0, P).
            gain: returns for rows the gain of their drawn pass rates.
            mean: returns for rows their expected pass rates.
            chance: the random numbers of the draw.
        """
        originals, number = self.originals[chosen], self._number[chosen, None]
        slots = np.arange(number.max())
        free = slots < number  # (Q, W)
        rows = self._rows[self._start[chosen, None] + np.where(free, slots, 0)]
        shape = (self.size - 1, *rows.shape)
        if self._offset is not None:
            wanted = variant_offsets(mean(originals), self.size - 1, chance)  # (V, Q)
            # Offsets are multiples of 1/2: the random part decides between equally near variants alone.
            score = 0.25 * chance.random(shape) - np.abs(self._offset[rows] - wanted[:, :, None])
        elif self._match == "random":
            score = np.broadcast_to(chance.random(rows.shape), shape)
        else:
            score = np.broadcast_to(gain(rows.ravel()).reshape(rows.shape), shape)
        matched, problem = [originals], np.arange(chosen.size)
        for values in score:
            best = np.where(free, values, -np.inf).argmax(axis=1)
            free[problem, best] = False
            matched.append(rows[problem, best])
        return np.stack(matched, axis=1).ravel()


def problems_of(variants: Any, groups: Any, match: Any, num_samples: int) -> tuple[Problems | None, dict[str, Any]]:
    """Return the problems of a sampler, or None if V is 0, and the settings that a saved state must share.

    Without variants there are no settings, as in states of early releases.

    Raises:
        ConfigurationError: an argument is outside its range.
    """
    if match not in MATCHES:
        raise ConfigurationError(f"variant_match is {abbreviated(match)}; it must be one of {', '.join(MATCHES)}.")
    advice = "It counts the variants of each drawn problem; set 0 to draw rows."
    groups = check_whole_number("variant_groups", groups, minimum=0, advice=advice)
    if variants is None:
        if groups:
            raise ConfigurationError(f"variant_groups is {groups} and variants is None. Pass the VariantRows, too.")
        return None, {}
    settings = {"variants": check_variants(variants, num_samples).digest, "variant_groups": groups}
    return (Problems(variants, groups, match), settings | {"variant_match": match}) if groups else (None, settings)
