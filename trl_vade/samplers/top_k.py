"""The k largest values of an array."""

import numpy as np

from trl_vade.checks import FloatArray, IntArray


def largest(values: FloatArray, k: int) -> IntArray:
    """Return the indices of the `k` largest `values`, in descending order; among equals the lower index comes first.

    The result equals `np.argsort(-values, kind="stable")[:k]`, in O(N + k log k).

    Args:
        values: (N,) without NaN.
        k: in [1, N].
    """
    if values.size >= 1024 and 8 * k < values.size:
        # A sample of every eighth value gives a threshold that about 2k + 64 values reach. The others are dropped.
        sample = values[::8]
        place = max(sample.size - k // 4 - 8, 0)
        few = np.flatnonzero(values >= np.partition(sample, place)[place])
        if k <= few.size < values.size:
            return few[largest(values[few], k)]
    threshold = np.partition(values, values.size - k)[values.size - k]
    above = np.flatnonzero(values > threshold)
    # np.argpartition would take an arbitrary part of the values that tie at the threshold.
    equal = np.flatnonzero(values == threshold)[: k - above.size]
    chosen = np.concatenate([above, equal])
    order = np.argsort(-values[chosen], kind="stable")  # each part ascends, and no value is in both
    return chosen[order].astype(np.int64)
