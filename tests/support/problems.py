"""Data sets of originals and variants, for the tests of samplers."""

import numpy as np

from trl_vade.samplers.problems import VariantRows

KINDS = ("original", "hint-1", "hint-2", "hint-3", "hint-4", "text", "rotation-1", "gaussian-2", "blur-3", "drawn")


def variant_rows(counts, seed=None):
    """`VariantRows` of a problem with each number of variants, in order, or shuffled by a seed."""
    rng = np.random.default_rng(seed)
    of, kind = [], []
    for count in counts:
        numbers = np.arange(1, len(KINDS)) if seed is None else rng.permutation(np.arange(1, len(KINDS)))
        of += [len(of)] * (1 + count)
        kind += [0, *numbers[:count].tolist()]
    place = np.arange(len(of)) if seed is None else rng.permutation(len(of))  # the new row of each row
    order = np.argsort(place)
    return VariantRows(place[np.array(of)][order], np.array(kind)[order], KINDS)
