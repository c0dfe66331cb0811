"""The posterior over the pass rate of every row: decayed pseudo-counts of one Beta distribution a row.

Source: VADE, arXiv 2511.18902, equations 5 and 6. Axis letters: N rows of the data set, K rows observed in one step.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from trl_vade.checks import (
    FloatArray,
    IntArray,
    as_vector,
    check_bool,
    check_decay,
    check_fields,
    check_outcomes,
    check_same,
    check_whole_number,
)
from trl_vade.errors import ConfigurationError, ObservationError, SnapshotCorruptError

from .counts import DAMAGED, STATE_ARRAYS, RowStore, check_saved_numbers

MOST_POWERS = 2**20  # the largest step up to which the powers of lambda_2 are cached (16 MB)


class BetaPosterior:
    """The belief `p_i ~ Beta(alpha_i + 1, beta_i + 1)` about the pass rate `p_i` of each of N rows.

    The counts start at zero, which is the uniform Beta(1, 1). The "+ 1" never decays, so a row without new evidence
    returns to Beta(1, 1). All counts are effective: decayed to the present step.

    Memory and the cost of a step grow with the V rows ever visited. `RowStore` describes the storage.

    Source: arXiv 2511.18902, equations 5 and 6.

    Args:
        num_samples: N, the number of rows, at least 1.
        decay_sampled: lambda_1 in [0, 1], the share of the old counts that a selected row keeps in a step.
        decay_unsampled: lambda_2 in [0, 1], the same for every other row. 0.999 halves the counts in 693 steps.
        signal_aware_decay: apply lambda_1 only to selected rows with a mixed group, and lambda_2 to all others. A
            group without a gradient trains nothing, so its evidence may add up. With False (the paper's rule) a row
            that is never solved stays at about Beta(1, 11).

    Raises:
        ConfigurationError: an argument is outside its range or of another type.
    """

    def __init__(
        self,
        num_samples: int,
        *,
        decay_sampled: float = 0.2,
        decay_unsampled: float = 0.999,
        signal_aware_decay: bool = False,
    ) -> None:
        self._num_samples = check_whole_number(
            "num_samples", num_samples, minimum=1, advice="A posterior needs at least one row; pass len(dataset)."
        )
        self._decay_sampled = check_decay("decay_sampled", decay_sampled)
        self._decay_unsampled = check_decay("decay_unsampled", decay_unsampled)
        self._signal_aware_decay = check_bool("signal_aware_decay", signal_aware_decay)
        self._step = 0
        self.version = 0  # another number after each change of the counts
        self._powers = np.ones(1)  # lambda_2 ** 0, ** 1, ...: a lookup is faster than a power
        # The store holds alpha and beta as of the row's last_update; reading decays them to the present step.
        self._store = RowStore(self._num_samples)

    def observe(
        self, sample_index: ArrayLike, successes: ArrayLike, trials: ArrayLike, mixed: ArrayLike | None = None
    ) -> None:
        """Take one step: add the outcomes of the given groups and decay the counts of every other row.

            selected      alpha <- lambda_1 alpha + successes    beta <- lambda_1 beta + trials - successes    (eq. 5)
            not selected  alpha <- lambda_2 alpha                beta <- lambda_2 beta                         (eq. 6)

        A row without trials counts as not selected. A step without rows still decays all N. With signal-aware decay a
        selected row without a mixed group keeps lambda_2 of its counts. Equation 6 is applied when a row is read, so a
        step writes only K rows.

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
        for name, values in {"successes and trials": successes, "mixed": trained}.items():
            if values.shape != rows.shape:
                raise ObservationError(
                    f"sample_index has shape {rows.shape} and {name} {values.shape}; they must be equal, one entry a "
                    "row. Sum the completions of each group before the call."
                )
        values, occurrences = np.unique(rows, return_counts=True)
        if values.size != rows.size:
            raise ObservationError(
                f"sample_index has {values[occurrences > 1][:8].tolist()} more than once; the rows of a step must be "
                "distinct, because a second update would decay the first. Add up their successes and trials."
            )
        scored = trials > 0
        rows, successes, trials, trained = rows[scored], successes[scored], trials[scored], trained[scored]
        alpha, beta = self.counts(rows)  # read before the step advances: equation 5 needs the counts at t - 1
        kept = np.where(trained | (not self._signal_aware_decay), self._decay_sampled, self._decay_unsampled)
        self._store.write(
            rows,
            alpha=kept * alpha + successes,
            beta=kept * beta + (trials - successes),
            last_update=self._step + 1,
            visits=self._store.read(rows, "visits")[0] + 1,
        )
        self._step += 1
        self.version += 1

    def counts(self, sample_index: ArrayLike | None = None) -> tuple[FloatArray, FloatArray]:
        """Return the effective alpha and beta of the given rows, (K,) each, or of all rows, (N,) each, as new arrays.

        Raises:
            ObservationError: a row is outside [0, N) or not an integer.
        """
        return self._counts(None if sample_index is None else self.check_rows(sample_index))

    def visited_counts(self) -> tuple[FloatArray, FloatArray]:
        """Return the effective alpha and beta of the visited rows, (V,) each, as new arrays."""
        return self._counts(self.visited)

    def _counts(self, rows: IntArray | None) -> tuple[FloatArray, FloatArray]:
        alpha, beta, last_update = self._store.read(rows, "alpha", "beta", "last_update")
        kept = self._kept(self._step - last_update)  # equation 6, for all steps since the row's last update
        alpha = alpha * kept
        return alpha, np.multiply(beta, kept, out=kept)  # `out` saves an allocation, the slow part here

    def _kept(self, steps: IntArray) -> FloatArray:
        """Return the share of the counts left after `steps`, as a new array; lambda_2 = 0 works (0 ** 0 is 1)."""
        if self._step > MOST_POWERS:  # only a damaged or edited state has so many steps
            return np.power(self._decay_unsampled, steps)
        if self._step >= self._powers.size:
            self._powers = np.power(self._decay_unsampled, np.arange(2 * self._step + 1))
        return self._powers[steps]

    @property
    def alpha(self) -> FloatArray:
        """The effective pseudo-counts of successes, (N,), as a new array."""
        return self.counts()[0]

    @property
    def beta(self) -> FloatArray:
        """The effective pseudo-counts of failures, (N,), as a new array."""
        return self.counts()[1]

    @property
    def posterior_mean(self) -> FloatArray:
        """The expected pass rates in (0, 1), (N,)."""
        return beta_mean(*self.counts())

    @property
    def visits(self) -> IntArray:
        """The number of steps in which each row had a trial, (N,), as a new array."""
        return self._store.read(None, "visits")[0].copy()

    @property
    def visited(self) -> IntArray:
        """The rows that ever had a trial, (V,), in ascending order. Do not write into the array."""
        return self._store.visited

    @property
    def most_counts(self) -> float:
        """An upper bound of the effective alpha + beta of all rows: the largest sum at a last update."""
        return self._store.most_counts * (1.0 + 1e-6)  # the sum of two float32 is rounded

    @property
    def step(self) -> int:
        """The number of steps taken."""
        return self._step

    @property
    def num_samples(self) -> int:
        """The number of rows, N."""
        return self._num_samples

    @property
    def last_update(self) -> IntArray:
        """The step in which each row last had a trial, (N,), as a new array; 0 stands for never."""
        return self.last_update_of(None).copy()

    def last_update_of(self, rows: IntArray | None) -> IntArray:
        """Return `last_update` of the given rows, (K,), or of all, (N,). Do not write into the array."""
        last_update: IntArray = self._store.read(rows, "last_update")[0]
        return last_update

    @property
    def decays(self) -> dict[str, Any]:
        """The settings `decay_sampled` (lambda_1), `decay_unsampled` (lambda_2) and `signal_aware_decay`."""
        return {
            "decay_sampled": self._decay_sampled,
            "decay_unsampled": self._decay_unsampled,
            "signal_aware_decay": self._signal_aware_decay,
        }

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state as new arrays and plain numbers.

        The arrays have one entry for each visited row. The counts are those at `last_update`: decayed counts would
        make a resumed run differ in the last bit.
        """
        rows = self.visited
        columns = zip(STATE_ARRAYS[1:], self._store.read(rows, *STATE_ARRAYS[1:]), strict=True)
        return {"step": self._step, **self._settings(), "sample_index": rows.copy(), **dict(columns)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the result of `state_dict`, bit for bit. On an error nothing changes.

        Float64 counts of a large pool, as early releases saved them, are rounded to float32.

        Raises:
            SnapshotMismatchError: the fields, N or the decays differ.
            SnapshotCorruptError: no run can have saved these numbers.
        """
        check_fields("posterior", state, ["step", *self._settings(), *STATE_ARRAYS])
        check_same("posterior", state, self._settings())
        check_saved_numbers(state, self._num_samples)
        store = RowStore(self._num_samples)
        store.write(state["sample_index"], **{name: state[name] for name in STATE_ARRAYS[1:]})
        self._store = store
        self._step = int(state["step"])
        self.version += 1

    def _settings(self) -> dict[str, Any]:
        return {"num_samples": self._num_samples, **self.decays}

    def check_rows(self, sample_index: ArrayLike) -> IntArray:
        """Return the rows, (K,), as int64, or raise `ObservationError` unless they are integers in [0, N)."""
        rows = as_vector("sample_index", sample_index, kinds="iu")
        wrong = rows[(rows < 0) | (rows >= self._num_samples)]
        if wrong.size:
            raise ObservationError(
                f"sample_index holds {wrong[:8].tolist()}; rows must be in [0, {self._num_samples}), the positions in "
                "the data set. numpy would count a negative one from the end. Pass positions in the training set."
            )
        return rows.astype(np.int64)


def beta_mean(alpha: FloatArray, beta: FloatArray) -> FloatArray:
    """Return the mean of Beta(alpha + 1, beta + 1), `(alpha + 1) / (alpha + beta + 2)`, in the shape of `alpha`."""
    return (alpha + 1.0) / (alpha + beta + 2.0)


def posterior_from(state: Mapping[str, Any]) -> BetaPosterior:
    """Return a posterior with the settings and the counts of a saved `state`.

    Raises:
        SnapshotMismatchError: the fields differ from those of this release.
        SnapshotCorruptError: no run can have saved these numbers or settings.
    """
    settings = ["num_samples", *BetaPosterior(1).decays]
    check_fields("posterior", state, ["step", *settings, *STATE_ARRAYS])
    try:
        posterior = BetaPosterior(**{name: state[name] for name in settings})
    except ConfigurationError as error:
        raise SnapshotCorruptError(f"A saved setting is impossible: {error} {DAMAGED}") from error
    posterior.load_state_dict(state)
    return posterior
