"""Two orders of rows: the largest values first, and the one in which the stock trainer takes the rows of an epoch."""

import numpy as np

from trl_vade.checks import FloatArray, IntArray


def largest(values: FloatArray, k: int) -> IntArray:
    """Return the indices of the `k` largest `values`, in falling order, the lower index first among equals.

    The same as `np.argsort(-values, kind="stable")[:k]`, in O(N + k log k). `values`: (N,) without NaN; k in [1, N].
    """
    if values.size >= 1024 and 8 * k < values.size:
        # Every eighth value tells one that about 2k + 64 are not below; all others are then done with.
        sample = values[::8]
        place = max(sample.size - k // 4 - 8, 0)
        few = np.flatnonzero(values >= np.partition(sample, place)[place])
        if k <= few.size < values.size:
            return few[largest(values[few], k)]
    threshold = np.partition(values, values.size - k)[values.size - k]
    above = np.flatnonzero(values > threshold)
    # np.argpartition would take an arbitrary part of the rows that tie at the threshold.
    equal = np.flatnonzero(values == threshold)[: k - above.size]
    chosen = np.concatenate([above, equal])
    order = np.argsort(-values[chosen], kind="stable")  # each part ascends, and no value is in both
    return chosen[order].astype(np.int64)
