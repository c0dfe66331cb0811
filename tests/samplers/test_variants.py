"""Which rows are variants of which: the descriptions that are refused, and the digest that a state holds."""

import numpy as np
import pytest

from tests.support.refusals import refused
from trl_vade.errors import ConfigurationError
from trl_vade.samplers.problems import VariantRows

KINDS = ("original", "text", "hint-1")


@pytest.mark.parametrize(
    ("of", "kind", "kinds", "names"),
    [
        ([0, 0, 1], [0, 1, 2], KINDS, [2, 1, 0]),  # a variant of a variant
        ([0, 0], [1, 1], KINDS, [0, "text"]),  # an original of another kind
        ([0, 0], [0, 0], KINDS, [1, 0, "original"]),  # a variant of the kind of originals
        ([0, 1, 0, 0], [0, 0, 1, 1], KINDS, [3, "text", 0]),  # two of a kind
        ([0, 2], [0, 1], KINDS, ["of", 1, 2]),
        ([0, -1], [0, 1], KINDS, ["of", 1, -1]),
        ([0, 0], [0, 3], KINDS, ["kind", 1, 3]),
        ([0, 0], [0], KINDS, ["kind"]),
        ([[0, 0]], [[0, 1]], KINDS, ["of"]),
        ([], [], KINDS, ["of"]),
        ([0.0, 0.0], [0, 1], KINDS, ["of", "float64"]),
        ([0, 0], [0, 1], ("text", "original"), ["kinds", "original"]),
        ([0, 0], [0, 1], ("original", "text", "text"), ["kinds"]),
        ([0, 0], [0, 1], ("original", 7), ["kinds"]),
    ],
)
def test_rows_that_are_no_originals_and_variants_are_refused(of, kind, kinds, names):
    with refused(ConfigurationError, names=names):
        VariantRows(np.array(of), np.array(kind), kinds)


def test_originals_without_variants_and_variants_before_their_originals_are_fine():
    variants = VariantRows(np.array([2, 1, 2, 2]), np.array([1, 0, 0, 2], dtype=np.int8), list(KINDS))
    assert (variants.of.dtype, variants.kind.dtype) == (np.int64, np.int64)
    assert variants.kinds == KINDS
    assert variants.num_variants.tolist() == [0, 0, 2, 0]


def test_the_digest_tells_apart_all_that_describes_the_rows():
    of, kind = np.array([0, 0, 2, 2, 2]), np.array([0, 1, 0, 1, 2])
    same = VariantRows(of.copy(), kind.astype(np.int32), KINDS).digest
    others = [
        VariantRows(np.array([0, 0, 2, 2, 0]), kind, KINDS),
        VariantRows(of, np.array([0, 2, 0, 1, 2]), KINDS),
        VariantRows(of, kind, ("original", "hint-1", "text")),
        VariantRows(of, kind, (*KINDS, "drawn")),
    ]
    assert VariantRows(of, kind, KINDS).digest == same
    assert len({same, *(each.digest for each in others)}) == 5
