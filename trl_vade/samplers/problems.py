"""Problems: an original row and its variants, which ask the same question in another way.

Axis letters: N rows of the data set, P problems that can be drawn, Q problems of a draw, V variants a problem in a
draw, W the most variants of a problem in the data set.
"""

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from trl_vade.checks import FloatArray, IntArray, check_whole_number
from trl_vade.errors import ConfigurationError, abbreviated

ORIGINAL = "original"
MATCHES = ("posterior", "difficulty")
MEAN_OFFSETS = (6.0, 5.0, 4.0, 3.0, 2.0, 1.0, -1.0, -3.0, -5.0)  # for originals of difficulty 1, 2, ..., 9
_HINT = re.compile(r"hint-([1-9]\d*)")
_PICTURE = re.compile(r"(?:rotation|gaussian|salt-pepper|speckle|blur|low-resolution)-([123])")


@dataclass(frozen=True, eq=False)
class VariantRows:
    """The original and the kind of each row, all of which have a posterior of their own."""

    of: IntArray  # (N,) the row of each row's original; an original has its own row
    kind: IntArray  # (N,) the number of each row's kind in `kinds`; 0 for originals
    kinds: tuple[str, ...]  # the names of the kinds; the first is "original"

    def __post_init__(self) -> None:
        is_original = self.of == np.arange(self.of.size)
        _, first = np.unique(self.of * len(self.kinds) + self.kind, return_index=True)
        wrong = (is_original != (self.kind == 0)) | ~is_original[self.of]
        wrong[np.setdiff1d(np.arange(self.of.size), first)] = True
        if wrong.any():
            row = np.flatnonzero(wrong)[0]
            raise ConfigurationError(
                f"Row {row} of kind {self.kinds[self.kind[row]]!r} has the original {self.of[row]}. An original must "
                f"name itself and be of kind {ORIGINAL!r}. A variant must name an original and be of a kind that no "
                "other variant of it has. Number these, as in 'hint-1' and 'hint-2'."
            )

    @property
    def num_variants(self) -> IntArray:
        """The number of variants of each row, (N,), 0 for a variant."""
        return np.bincount(self.of[self.kind > 0], minlength=self.of.size)

    @property
    def digest(self) -> str:
        """The SHA-256 of the fields, which a saved state holds in their place."""
        rows = np.stack([self.of, self.kind]).astype(np.int64)
        return hashlib.sha256("\0".join(self.kinds).encode() + rows.tobytes()).hexdigest()


class Problems:
    """The originals with at least V variants, and the rule that matches V variants to a chosen original.

    `groups` is V, at least 1, and `match` "posterior" or "difficulty"; see `rows_of`. If no original has V variants,
    or the rule does not know a kind, it is a `ConfigurationError`.
    """

    def __init__(self, variants: VariantRows, groups: int, match: str) -> None:
        rows, number = np.flatnonzero(variants.kind), variants.num_variants
        if groups > number.max():
            raise ConfigurationError(
                f"variant_groups is {groups}, and no row has more than {number.max()} variants. Set a smaller number."
            )
        self.originals: IntArray = np.flatnonzero(number >= groups)  # those that can be drawn, (P,), ascending
        self.size = 1 + groups  # the rows of a problem in a draw
        rows = rows[number[variants.of[rows]] >= groups]
        self._rows: IntArray = rows[np.argsort(variants.of[rows], kind="stable")]  # variants, sorted by problem
        self._number = number[self.originals]
        self._start = np.cumsum(self._number) - self._number
        self._of = variants.of
        self._offset = kind_offsets(variants) if match == "difficulty" else None

    def check_draw(self, k: int, excluded: IntArray) -> tuple[int, IntArray]:
        """Return the number of problems in `k` rows, and the places, in [0, P), of the excluded rows' problems."""
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

        The rule "posterior" takes the variants with the largest gains, the lower row among equals. The rule
        "difficulty" takes the variants nearest to offsets that `variant_offsets` draws.
        `chosen`, (Q,), are places of problems, in [0, P). `gain` returns for rows the gain of their drawn pass rates,
        and `mean` their expected pass rates.
        """
        originals, number = self.originals[chosen], self._number[chosen, None]
        slots = np.arange(number.max())
        free = slots < number  # (Q, W)
        rows = self._rows[self._start[chosen, None] + np.where(free, slots, 0)]
        shape = (self.size - 1, *rows.shape)
        if self._offset is None:
            score = np.broadcast_to(gain(rows.ravel()).reshape(rows.shape), shape)
        else:
            wanted = variant_offsets(mean(originals), self.size - 1, chance)  # (V, Q)
            # Offsets are multiples of 1/2: the random part decides between equally near variants alone.
            score = 0.25 * chance.random(shape) - np.abs(self._offset[rows] - wanted[:, :, None])
        matched, problem = [originals], np.arange(chosen.size)
        for values in score:
            best = np.where(free, values, -np.inf).argmax(axis=1)
            free[problem, best] = False
            matched.append(rows[problem, best])
        return np.stack(matched, axis=1).ravel()


def problems_of(variants: Any, groups: Any, match: Any, num_samples: int) -> tuple[Problems | None, dict[str, Any]]:
    """Return the problems of a sampler, or None if V is 0, and the settings that a saved state records."""
    if match not in MATCHES:
        raise ConfigurationError(f"variant_match is {abbreviated(match)}; it must be one of {', '.join(MATCHES)}.")
    groups = check_whole_number("variant_groups", groups, minimum=0, advice="Set 0 to draw rows.")
    if variants is None and not groups:
        return None, {}
    if not isinstance(variants, VariantRows) or variants.of.size != num_samples:
        raise ConfigurationError(
            f"variants is {abbreviated(variants)} with variant_groups={groups}; it must be the VariantRows of all "
            f"{num_samples} rows."
        )
    settings = {"variants": variants.digest, "variant_groups": groups}
    return (Problems(variants, groups, match), settings | {"variant_match": match}) if groups else (None, settings)


def variant_offsets(mean: FloatArray, count: int, chance: np.random.Generator) -> FloatArray:
    """Draw the wanted offsets of `count` variants of each original, (V, Q), whole numbers in [-8, 8].

    An offset is drawn from N(mu, 1) and rounded. The mean mu falls from 6 to -5 with the original's difficulty
    1 + 8 (1 - m), for the expected pass rates `mean`, (Q,). Between whole difficulties it is interpolated.
    Source: DIVA-GRPO, arXiv 2603.01106, section 3.2; the numbers are those of the released code.
    """
    mu = np.interp(1.0 + 8.0 * (1.0 - mean), np.arange(1.0, 10.0), MEAN_OFFSETS)
    return np.clip(np.rint(mu + chance.standard_normal((count, mean.size))), -8.0, 8.0)


def kind_offsets(variants: VariantRows) -> FloatArray:
    """Return the offset of each row's difficulty from its original's, (N,), by the name of its kind.

    The law gives a kind to two neighbouring offsets, so the kind lies half-way between them: "text" at 0, the hints 1
    to 3 at -1.5, -3.5 and -5.5, longer ones at -6.5 and the longest of these in a problem at -7.5, pictures of the
    levels 1 to 3 at 1.5, 3.5 and 5.5, and "drawn" at 7.5. Any other kind is a `ConfigurationError`.
    """
    offsets = np.array([_offset(kind) for kind in variants.kinds])[variants.kind]
    if unknown := [variants.kinds[number] for number in np.unique(variants.kind[np.isnan(offsets)])]:
        raise ConfigurationError(
            f"variant_match is 'difficulty', and {abbreviated(unknown)} has no place in its law. The law knows text, "
            "drawn, hint-1 and higher, and the levels 1 to 3 of rotation, gaussian, salt-pepper, speckle, blur and "
            "low-resolution. Use 'posterior', which matches variants of any kind."
        )
    easiest = np.zeros_like(offsets)
    np.minimum.at(easiest, variants.of, offsets)
    is_whole = (offsets < -6.5) & (offsets == easiest[variants.of])
    return np.where(is_whole, -7.5, np.maximum(offsets, -6.5))


def _offset(kind: str) -> float:
    if hint := _HINT.fullmatch(kind):
        return 0.5 - 2.0 * int(hint[1])
    if picture := _PICTURE.fullmatch(kind):
        return 2.0 * int(picture[1]) - 0.5
    return {ORIGINAL: 0.0, "text": 0.0, "drawn": 7.5}.get(kind, np.nan)
