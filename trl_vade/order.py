"""Two orders of rows: the largest values first, and the one in which the stock trainer takes the rows of an epoch."""

import numpy as np

from .checks import FloatArray, IntArray


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


def stock_order(num_samples: int, seed: int, epoch: int) -> IntArray:
    """Return the order of the rows, (N,), that the stock trainer has in `epoch` of an uninterrupted run.

    TRL's `RepeatSampler` (1.16) calls `torch.randperm(N, generator=g)` once an epoch, with one `g` seeded once. On the
    CPU that is a Fisher-Yates shuffle that takes N - 1 outputs of a 32-bit Mersenne Twister (ATen, randperm_cpu), and
    `RandomState` is the same twister with the same seeding and a stream that numpy has frozen (NEP 19).
    """
    twister = np.random.MT19937()
    np.random.RandomState(twister).seed(seed % 2**32)  # torch, too, seeds its twister with the low 32 bits
    twister.random_raw(epoch * (num_samples - 1), output=False)  # skips the epochs before
    outputs = twister.random_raw(num_samples - 1).astype(np.uint32)
    jumps = (outputs % np.arange(num_samples, 1, -1, dtype=np.uint32)).tolist()
    rows = list(range(num_samples))
    for i, jump in enumerate(jumps):
        rows[i], rows[i + jump] = rows[i + jump], rows[i]
    return np.array(rows, dtype=np.int64)
