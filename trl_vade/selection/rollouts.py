"""The rollouts of a generation batch to train on: those with a gradient, or the most varied (D3S, 2509.22115).

And their order.
"""

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

SAME_VARIANCE = 1e-12


def most_varied(advantages: ArrayLike, n: int) -> NDArray[np.int64]:
    """Return the places, (n,) ascending, of the `n` of N `advantages` with the largest variance among such subsets.

    Such a subset holds the lowest and the highest values (D3S, section 3.1; PODS, arXiv 2504.13818, theorem 1). Ties
    are settled alike on all processes: equal values stay in their order, and of equally good subsets the one with the
    fewest values from the low end is taken. `n` outside [0, N] and an infinite advantage or NaN are a `ValueError`.
    """
    values = np.asarray(advantages, dtype=np.float64)
    if not 0 <= n <= len(values) or not np.isfinite(values).all():
        raise ValueError(f"n={n} of {len(values)} advantages: n must be in [0, {len(values)}], the advantages finite.")
    order = np.argsort(values, kind="stable")
    ranked, low = values[order], np.arange(n + 1)
    sums, squares = (np.concatenate([[0.0], np.cumsum(part)]) for part in (ranked, ranked**2))
    first_high = len(values) - (n - low)  # with `low` low values, the high ones begin here
    mean, mean_square = ((part[low] + part[-1] - part[first_high]) / max(n, 1) for part in (sums, squares))
    variance = mean_square - mean**2
    best = int(np.flatnonzero(variance >= variance.max() - SAME_VARIANCE)[0])
    return np.sort(np.concatenate([order[:best], order[first_high[best] :]]))


def in_parts(rows: float, parts: int) -> int:
    """Return the number of rows nearest to `rows` that divides into `parts` equal parts of at least one row."""
    return max(1, round(rows / parts)) * parts


def enough_for(live: int, parts: int) -> int:
    """Return the smallest number of rows, at least `live`, that divides into `parts` parts of at least one row."""
    return max(1, -(-live // parts)) * parts


def scheduled(share: float | list[float] | tuple[float, float], progress: float) -> float:
    """Return `share`, or between those of the first and the last step the one at a progress in [0, 1] (D3S, 3.3)."""
    if isinstance(share, int | float):
        return float(share)
    first, last = share
    return (1.0 - progress) * first + progress * last


def first_of(live: NDArray[np.bool_], size: int) -> NDArray[np.int64]:
    """Return the places of the first `size` live rows or groups, ascending; the first others fill them up."""
    return np.sort(np.concatenate([np.flatnonzero(live), np.flatnonzero(~live)])[:size])


def spread(values: NDArray[np.int64], more: int) -> NDArray[np.int64]:
    """Return the places, (B + more,), of B values in ascending order, with `more` others evenly between them."""
    turns = [(np.argsort(np.argsort(values)) + 0.5) / max(len(values), 1), (np.arange(more) + 0.5) / max(more, 1)]
    return np.argsort(np.concatenate(turns), kind="stable")


def side_by_side(pictures: Sequence[Hashable], window: int) -> list[int]:
    """Return the places, (B,), of completions in an order with those of one picture together.

    Pictures come in the order of their first completion in a window of so many places, such as those of an optimiser
    step. No completion leaves its window.
    """
    order = []
    for start in range(0, len(pictures), window):
        places = range(start, min(start + window, len(pictures)))
        rank: dict[Hashable, int] = {}
        for place in places:
            rank.setdefault(pictures[place], len(rank))
        order += sorted(places, key=lambda place: rank[pictures[place]])
    return order
