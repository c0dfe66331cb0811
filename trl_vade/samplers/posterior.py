"""The posterior over the pass rate of every row: decayed pseudo-counts of one Beta distribution a row.

Source: VADE, arXiv 2511.18902, equations 5 and 6. Axis letters: N rows, V of them ever scored, K rows of one step.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trl_vade.checks import (
    MOST_TRIALS,
    FloatArray,
    IntArray,
    as_vector,
    check_bool,
    check_fields,
    check_outcomes,
    check_same,
    check_share,
    check_whole_number,
)
from trl_vade.errors import ObservationError, SnapshotCorruptError

DECAYS = ("decay_sampled", "decay_unsampled", "signal_aware_decay")
STATE_ARRAYS = ("sample_index", "alpha", "beta", "last_update", "visits")  # of `BetaPosterior.state_dict`
OF_COUNTS = "It is the share of the old counts that a row keeps."
DAMAGED = "The file was damaged or edited; load an earlier snapshot."


class BetaPosterior:
    """The belief `p_i ~ Beta(alpha_i + 1, beta_i + 1)` about the pass rate `p_i` of each of N rows.

    The counts start at zero, which is the uniform Beta(1, 1). The "+ 1" never decays, so a row without new evidence
    returns to Beta(1, 1). All counts are effective: decayed to the present step.

    Args:
        num_samples: N, the number of rows, at least 1.
        decay_sampled: lambda_1 in [0, 1], the share of the old counts that a selected row keeps in a step.
        decay_unsampled: lambda_2 in [0, 1], the same for every other row. 0.999 halves the counts in 693 steps.
        signal_aware_decay: apply lambda_1 only to selected rows with a mixed group, and lambda_2 to all others. A
            group without a gradient trains nothing, so its evidence may add up. With False (the paper's rule) a row
            that is never solved stays at about Beta(1, 11).

    Attributes:
        step: the number of steps taken.
        version: another number after each change of the counts.
        last_update: (N,) the step in which each row last had a trial; 0 stands for never. Do not write into it.
        visits: (N,) the number of steps in which each row had a trial. Do not write into it.
    """

    def __init__(
        self,
        num_samples: int,
        *,
        decay_sampled: float = 0.2,
        decay_unsampled: float = 0.999,
        signal_aware_decay: bool = False,
    ) -> None:
        self.num_samples = check_whole_number("num_samples", num_samples, minimum=1, advice="Pass len(dataset).")
        self.decays: dict[str, Any] = {
            "decay_sampled": check_share("decay_sampled", decay_sampled, OF_COUNTS),
            "decay_unsampled": check_share("decay_unsampled", decay_unsampled, OF_COUNTS),
            "signal_aware_decay": check_bool("signal_aware_decay", signal_aware_decay),
        }
        self.step = self.version = 0
        # alpha and beta are those of the row's last update. Reading decays them, so a step writes only K rows.
        self._alpha, self._beta = np.zeros((2, self.num_samples))
        self.last_update, self.visits = np.zeros((2, self.num_samples), dtype=np.int64)

    def observe(
        self, sample_index: ArrayLike, successes: ArrayLike, trials: ArrayLike, mixed: ArrayLike | None = None
    ) -> None:
        """Take one step: add the outcomes of the given groups and decay the counts of every other row.

            selected      alpha <- lambda_1 alpha + successes    beta <- lambda_1 beta + trials - successes    (eq. 5)
            not selected  alpha <- lambda_2 alpha                beta <- lambda_2 beta                         (eq. 6)

        A row without trials counts as not selected. A step without rows still decays all N. With signal-aware decay a
        selected row without a mixed group keeps lambda_2 of its counts.

        Args:
            sample_index: (K,) integers, distinct rows in [0, N).
            successes: (K,) successful completions in [0, trials]; fractions are allowed.
            trials: (K,) scored completions, in [0, 2**53].
            mixed: (K,) bool, the groups with different rewards, and so a gradient. None: 0 < successes < trials.

        Raises:
            ObservationError: an argument breaks these rules. The posterior is then unchanged.
        """
        rows = self.check_rows(sample_index)
        successes, trials = check_outcomes(successes, trials)
        trained = (successes > 0) & (successes < trials) if mixed is None else as_vector("mixed", mixed, kinds="b")
        if not rows.shape == successes.shape == trained.shape or np.unique(rows).size < rows.size:
            raise ObservationError(
                f"sample_index has shape {rows.shape} ({np.unique(rows).size} distinct rows), successes and trials "
                f"{successes.shape}, mixed {trained.shape}. There must be one entry a row and no row twice. Add up "
                "the completions of each row before the call."
            )
        scored = trials > 0
        rows, successes, trials, trained = rows[scored], successes[scored], trials[scored], trained[scored]
        alpha, beta = self.counts(rows)  # read before the step advances: equation 5 needs the counts at t - 1
        by_signal = self.decays["signal_aware_decay"]
        kept = np.where(trained | (not by_signal), self.decays["decay_sampled"], self.decays["decay_unsampled"])
        self.step += 1
        self.version += 1
        self._alpha[rows], self._beta[rows] = kept * alpha + successes, kept * beta + (trials - successes)
        self.last_update[rows] = self.step
        self.visits[rows] += 1

    def counts(self, sample_index: ArrayLike | None = None) -> tuple[FloatArray, FloatArray]:
        """Return the effective alpha and beta of the given rows, (K,) each, or of all, (N,) each, as new arrays."""
        rows = slice(None) if sample_index is None else self.check_rows(sample_index)
        # Equation 6, for all steps since the row's last update. lambda_2 = 0 works: 0 ** 0 is 1.
        kept = np.power(self.decays["decay_unsampled"], self.step - self.last_update[rows])
        return self._alpha[rows] * kept, self._beta[rows] * kept

    @property
    def alpha(self) -> FloatArray:
        """The effective pseudo-counts of successes, (N,)."""
        return self.counts()[0]

    @property
    def beta(self) -> FloatArray:
        """The effective pseudo-counts of failures, (N,)."""
        return self.counts()[1]

    @property
    def posterior_mean(self) -> FloatArray:
        """The expected pass rates in (0, 1), (N,)."""
        return beta_mean(*self.counts())

    @property
    def visited(self) -> IntArray:
        """The rows that ever had a trial, (V,), in ascending order."""
        return np.flatnonzero(self.visits)

    @property
    def _columns(self) -> tuple[NDArray[Any], ...]:
        return self._alpha, self._beta, self.last_update, self.visits

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state; the counts are those at `last_update`, as decayed ones would lose the last bit."""
        rows = self.visited
        arrays = zip(STATE_ARRAYS, (rows, *(column[rows] for column in self._columns)), strict=True)
        return {"step": self.step, "num_samples": self.num_samples, **self.decays, **dict(arrays)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the counts of `state_dict`, bit for bit, and keep this posterior's own decays. On an error do nothing.

        Raises:
            SnapshotError: the fields or N differ, or no run can have saved these numbers.
        """
        check_same("posterior", state, {"num_samples": self.num_samples})
        step, lambda_2 = _check_saved(state, self.num_samples), self.decays["decay_unsampled"]
        rows, alpha, beta, last_update, visits = (state[name] for name in STATE_ARRAYS)
        if state["decay_unsampled"] != lambda_2:
            # Counts are stored as of the last update. Another lambda_2 needs others there for the same counts now.
            now, kept = np.power(state["decay_unsampled"], step - last_update), np.power(lambda_2, step - last_update)
            share = np.divide(now, kept, out=np.zeros_like(kept), where=kept > 0.0)
            alpha, beta = (np.minimum(share * counts, MOST_TRIALS * visits) for counts in (alpha, beta))
        for column, values in zip(self._columns, (alpha, beta, last_update, visits), strict=True):
            column[:] = 0
            column[rows] = values
        self.step = step
        self.version += 1

    def check_rows(self, sample_index: ArrayLike) -> IntArray:
        """Return the rows, (K,), as int64, or raise `ObservationError` unless they are integers in [0, N)."""
        rows = as_vector("sample_index", sample_index, kinds="iu")
        wrong = rows[(rows < 0) | (rows >= self.num_samples)]
        if wrong.size:
            raise ObservationError(
                f"sample_index holds {wrong[:8].tolist()}; rows are places in the data set, [0, {self.num_samples})."
            )
        return rows.astype(np.int64)


def beta_mean(alpha: FloatArray, beta: FloatArray) -> FloatArray:
    """Return the mean of Beta(alpha + 1, beta + 1), `(alpha + 1) / (alpha + beta + 2)`, in the shape of `alpha`."""
    return (alpha + 1.0) / (alpha + beta + 2.0)


def saved_counts(state: Mapping[str, Any]) -> tuple[FloatArray, FloatArray]:
    """Check a saved `state`, and return the counts of its V scored rows, (V,) each, in memory for these alone."""
    step = _check_saved(state, saved_number("num_samples", state.get("num_samples"), minimum=1))
    kept = np.power(state["decay_unsampled"], step - state["last_update"])
    return state["alpha"] * kept, state["beta"] * kept


def saved_number(name: str, value: Any, *, minimum: int = 0, maximum: int = 2**53) -> int:
    """Return a saved whole number, or raise `SnapshotCorruptError` unless it is in [minimum, maximum]."""
    limits = {"minimum": minimum, "maximum": maximum}
    return check_whole_number(f"The saved {name}", value, **limits, advice=DAMAGED, error=SnapshotCorruptError)


def _check_saved(state: Mapping[str, Any], num_samples: int) -> int:
    """Return the saved step, or raise a `SnapshotError` unless a run over N rows can have saved `state`."""
    check_fields("posterior", state, ["step", "num_samples", *DECAYS, *STATE_ARRAYS])
    step, decays = saved_number("step", state["step"]), [state[name] for name in DECAYS]
    arrays = [state[name] for name in STATE_ARRAYS]
    kinds = [f"{getattr(array, 'dtype', type(array).__name__)} {getattr(array, 'shape', '')}" for array in arrays]
    size = getattr(arrays[0], "size", 0)
    if kinds != [f"{dtype} ({size},)" for dtype in ("int64", "float64", "float64", "int64", "int64")]:
        raise SnapshotCorruptError(
            f"The saved {', '.join(STATE_ARRAYS)} are {', '.join(kinds)}; they must be int64 vectors of one length, "
            f"alpha and beta float64. {DAMAGED}"
        )
    rows, alpha, beta, last, visits = arrays
    most = MOST_TRIALS * visits
    rules = {
        "the decays must be in [0, 1]": np.array([isinstance(d, float | bool) and 0 <= d <= 1 for d in decays]),
        f"sample_index must rise strictly, in [0, {num_samples})": np.diff(rows, prepend=-1, append=num_samples) > 0,
        "1 <= visits <= last_update <= step must hold": (visits >= 1) & (visits <= last) & (last <= step),
        "alpha must be in [0, 2**53] a visit": (alpha >= 0) & (alpha <= most),
        "beta must be in [0, 2**53] a visit": (beta >= 0) & (beta <= most),
    }
    for rule, holds in rules.items():
        if not holds.all():
            raise SnapshotCorruptError(
                f"In the saved posterior {rule}; {np.count_nonzero(~holds)} of {rows.size} entries break it. {DAMAGED}"
            )
    return step
