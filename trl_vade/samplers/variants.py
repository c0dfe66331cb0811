"""The rows of a data set that are variants of other rows.

Axis letters: N rows of the data set.
"""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from trl_vade.checks import IntArray
from trl_vade.errors import ConfigurationError, abbreviated

ORIGINAL = "original"


@dataclass(frozen=True, eq=False)
class VariantRows:
    """The original and the kind of each row.

    A problem is an original with its variants. All of them are rows, each with a posterior of its own.

    Attributes:
        of: (N,) the row of each row's original; an original has its own row.
        kind: (N,) the number of each row's kind in `kinds`; 0 for originals.
        kinds: the names of the kinds; the first is "original".

    Raises:
        ConfigurationError: the arrays break these rules, or two variants of an original have one kind.
    """

    of: IntArray
    kind: IntArray
    kinds: tuple[str, ...]

    def __post_init__(self) -> None:
        of, kind, kinds = np.asarray(self.of), np.asarray(self.kind), tuple(self.kinds)
        for name, values, end in (("of", of, of.size), ("kind", kind, len(kinds))):
            if values.ndim != 1 or values.dtype.kind not in "iu" or values.shape != of.shape:
                raise ConfigurationError(
                    f"{name} of the variants has shape {values.shape} and dtype {values.dtype}. It must hold one "
                    f"whole number for each row, and of has shape {of.shape}."
                )
            if wrong := _first((values < 0) | (values >= end)):
                raise ConfigurationError(f"{name} of row {wrong[0]} is {values[wrong[0]]}; it must be in [0, {end}).")
        if kinds[0] != ORIGINAL or len(set(kinds)) < len(kinds) or not all(isinstance(each, str) for each in kinds):
            raise ConfigurationError(
                f"kinds is {abbreviated(kinds)}; it must hold distinct names, and the first must be {ORIGINAL!r}."
            )
        object.__setattr__(self, "of", of.astype(np.int64))
        object.__setattr__(self, "kind", kind.astype(np.int64))
        object.__setattr__(self, "kinds", kinds)
        self._check_problems()

    def _check_problems(self) -> None:
        """Raise `ConfigurationError` unless each variant has an original, and a kind of its own among its siblings."""
        of, kind = self.of, self.kind
        if wrong := _first(of[of] != of):
            raise ConfigurationError(
                f"Row {wrong[0]} is a variant of row {of[wrong[0]]}, which is itself a variant of row "
                f"{of[of[wrong[0]]]}. The column that ties variants to originals must name an original."
            )
        if wrong := _first((of == np.arange(of.size)) != (kind == 0)):
            raise ConfigurationError(
                f"Row {wrong[0]} has the original {of[wrong[0]]} and the kind {self.kinds[kind[wrong[0]]]!r}. An "
                f"original must name itself and be of kind {ORIGINAL!r}, and a variant must be of another kind."
            )
        _, first = np.unique(of * len(self.kinds) + kind, return_index=True)
        if first.size < of.size:
            row = np.setdiff1d(np.arange(of.size), first)[0]
            raise ConfigurationError(
                f"Row {row} is a second variant of kind {self.kinds[kind[row]]!r} of row {of[row]}. The kinds of a "
                "problem must be distinct. Number them, as in 'hint-1' and 'hint-2'."
            )

    @property
    def num_variants(self) -> IntArray:
        """The number of variants of each row, (N,), 0 for a variant."""
        return np.bincount(self.of[self.kind > 0], minlength=self.of.size)

    @property
    def digest(self) -> str:
        """The SHA-256 of all three fields, which a saved state holds in their place."""
        content = hashlib.sha256("\0".join(self.kinds).encode())
        content.update(self.of.tobytes())
        content.update(self.kind.tobytes())
        return content.hexdigest()


def check_variants(variants: Any, num_samples: int) -> VariantRows:
    """Return `variants`, or raise `ConfigurationError` unless they are the `VariantRows` of `num_samples` rows."""
    if not isinstance(variants, VariantRows):
        raise ConfigurationError(f"variants is {abbreviated(variants)}; it must be a VariantRows.")
    if variants.of.size != num_samples:
        raise ConfigurationError(
            f"variants describes {variants.of.size} rows and the sampler has {num_samples}. They must be equal."
        )
    return variants


def _first(wrong: Any) -> list[int]:
    """Return the first place where `wrong`, (N,) bool, is true, or an empty list."""
    places: list[int] = np.flatnonzero(wrong)[:1].tolist()
    return places
