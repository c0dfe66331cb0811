"""What is known about the pass rate of every row: decayed pseudo-counts of one Beta distribution a row.

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
from trl_vade.errors import ObservationError

from .counts import STATE_ARRAYS, RowStore, check_saved_numbers

MOST_POWERS = 2**20
"""Steps up to which the powers of lambda_2 are kept: 16 MB."""


class BetaPosterior:
    """Hold the belief `p_i ~ Beta(alpha_i + 1, beta_i + 1)` about the pass rate `p_i` of each of N rows.

    The counts start at zero, the uniform Beta(1, 1). The "+ 1" of that prior is never decayed: without evidence a row
    returns to it. All counts are effective *now*, that is, decayed to the current step.

    Memory and the cost of a step follow the V rows ever visited; see `RowStore`, also for the precision.

    Source: arXiv 2511.18902, equations 5 and 6.

    Args:
        num_samples: N, at least 1.
        decay_sampled: lambda_1 in [0, 1], the share of the old counts that a selected row keeps in a step.
        decay_unsampled: lambda_2 in [0, 1], the same for every other row. 0.999 halves the counts in 693 steps.
        signal_aware_decay: apply lambda_1 only to a selected row whose group was mixed, else lambda_2. The paper
            forgets a selected row fast because training on it moves its pass rate; a group without a gradient trained
            nothing, so its evidence may add up. Without this a row that is never solved stays at about Beta(1, 11).

    Raises:
        ConfigurationError: `num_samples` or a decay is outside its range, or `signal_aware_decay` is no bool.
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
            "num_samples", num_samples, minimum=1, advice="A posterior needs a row to describe; pass len(dataset)."
        )
        self._decay_sampled = check_decay("decay_sampled", decay_sampled)
        self._decay_unsampled = check_decay("decay_unsampled", decay_unsampled)
        self._signal_aware_decay = check_bool("signal_aware_decay", signal_aware_decay)
        self._step = 0
        # lambda_2 ** 0, ** 1, ...: to look one up is faster than to work it out.
        self._powers = np.ones(1)
        # alpha and beta are held as they were at the row's last_update; reading decays them to now.
        self._store = RowStore(self._num_samples)

    def observe(
        self,
        sample_index: ArrayLike,
        successes: ArrayLike,
        trials: ArrayLike,
        mixed: ArrayLike | None = None,
    ) -> None:
        """Take one step t: learn from the groups given, and let the counts of every other row decay.

            selected      alpha <- lambda_1 alpha + successes    beta <- lambda_1 beta + trials - successes    (eq. 5)
            not selected  alpha <- lambda_2 alpha                beta <- lambda_2 beta                         (eq. 6)

        A row with no trials counts as not selected, and a step without any row still decays all N. With signal-aware
        decay a selected row whose group was not mixed keeps lambda_2 of its counts. Equation 6 costs nothing here: a
        row gets it when it is read, so a step writes K rows and not N.

        Args:
            sample_index: (K,) integers, distinct rows in [0, N).
            successes: (K,) in [0, trials]; fractions are allowed.
            trials: (K,) completions that got a score, finite and not negative.
            mixed: (K,) bool, which groups had outcomes that differ; None: those with 0 < successes < trials.

        Raises:
            ObservationError: anything else; the posterior is then unchanged.
        """
        rows = self.check_rows(sample_index)
        successes, trials = check_outcomes(successes, trials)
        if rows.shape != successes.shape:
            raise ObservationError(
                f"sample_index has shape {rows.shape} and successes and trials have {successes.shape}; they must be "
                "equal, one entry a row. Sum the completions of a group before calling observe."
            )
        if np.unique(rows).size != rows.size:
            values, occurrences = np.unique(rows, return_counts=True)
            raise ObservationError(
                f"sample_index names {values[occurrences > 1][:8].tolist()} more than once; the rows of a step must "
                "be distinct, since a second update would decay the first. Add up their successes and trials."
            )
        trained = (successes > 0) & (successes < trials)
        if mixed is not None:
            trained = as_vector("mixed", mixed, kinds="b")
            if trained.shape != rows.shape:
                raise ObservationError(
                    f"mixed has shape {trained.shape} and sample_index {rows.shape}; they must be equal, one "
                    "entry a row."
                )
        scored = trials > 0
        rows, successes, trials, trained = rows[scored], successes[scored], trials[scored], trained[scored]
        alpha, beta = self.counts(rows)  # read before the step advances: equation 5 starts from the counts at t - 1
        kept = np.where(trained | (not self._signal_aware_decay), self._decay_sampled, self._decay_unsampled)
        self._store.write(
            rows,
            alpha=kept * alpha + successes,
            beta=kept * beta + (trials - successes),
            last_update=self._step + 1,
            visits=self._store.read(rows, "visits")[0] + 1,
        )
        self._step += 1

    def counts(self, sample_index: ArrayLike | None = None) -> tuple[FloatArray, FloatArray]:
        """Return the effective (alpha, beta) of the rows named, (K,) each, or of all rows, (N,) each, as new arrays.

        Raises:
            ObservationError: a row is outside [0, N) or not an integer.
        """
        return self._counts(None if sample_index is None else self.check_rows(sample_index))

    def visited_counts(self) -> tuple[FloatArray, FloatArray]:
        """Return the effective (alpha, beta) of the rows `visited`, (V,) each, as new arrays."""
        return self._counts(self.visited)

    def _counts(self, rows: IntArray | None) -> tuple[FloatArray, FloatArray]:
        alpha, beta, last_update = self._store.read(rows, "alpha", "beta", "last_update")
        # Equation 6 for all the steps since the row's last update at once.
        kept = self._kept(self._step - last_update)
        alpha = alpha * kept
        return alpha, np.multiply(beta, kept, out=kept)  # a new array less: it is these that take the time

    def _kept(self, steps: IntArray) -> FloatArray:
        """The share of the counts that so many steps leave, a new array. (0 ** 0 is 1, so lambda_2 = 0 works, too.)"""
        if self._step > MOST_POWERS:  # no run; a saved state may say so
            return np.power(self._decay_unsampled, steps)
        if self._step >= self._powers.size:
            self._powers = np.power(self._decay_unsampled, np.arange(2 * self._step + 1))
        return self._powers[steps]

    @property
    def alpha(self) -> FloatArray:
        """(N,) effective pseudo-counts of successes, a new array."""
        return self.counts()[0]

    @property
    def beta(self) -> FloatArray:
        """(N,) effective pseudo-counts of failures, a new array."""
        return self.counts()[1]

    @property
    def posterior_mean(self) -> FloatArray:
        """(N,) expected pass rates in (0, 1)."""
        return beta_mean(*self.counts())

    @property
    def visits(self) -> IntArray:
        """(N,) number of steps in which the row had at least one trial, a new array."""
        return self._store.read(None, "visits")[0].copy()

    @property
    def visited(self) -> IntArray:
        """(V,) the rows that ever had a trial, in rising order; not to be written into."""
        return self._store.visited

    @property
    def most_counts(self) -> float:
        """No row has a larger effective alpha + beta than this, the largest that one had at its last update."""
        return self._store.most_counts * (1.0 + 1e-6)  # the sum of two float32 is rounded

    @property
    def step(self) -> int:
        """Number of steps taken."""
        return self._step

    @property
    def num_samples(self) -> int:
        """N."""
        return self._num_samples

    @property
    def last_update(self) -> IntArray:
        """(N,) the step in which the row last had a trial, 0 for a row without any, a new array."""
        return self.last_update_of(None).copy()

    def last_update_of(self, rows: IntArray | None) -> IntArray:
        """Return (K,) `last_update` of the rows named, or (N,) of all; not to be written into."""
        last_update: IntArray = self._store.read(rows, "last_update")[0]
        return last_update

    @property
    def decays(self) -> dict[str, Any]:
        """`decay_sampled` (lambda_1), `decay_unsampled` (lambda_2) and `signal_aware_decay`."""
        return {
            "decay_sampled": self._decay_sampled,
            "decay_unsampled": self._decay_unsampled,
            "signal_aware_decay": self._signal_aware_decay,
        }

    def state_dict(self) -> dict[str, Any]:
        """Return everything that the next step depends on, as new arrays and plain numbers.

        `sample_index`, `alpha`, `beta`, `last_update` and `visits` have one entry for each row ever visited, and the
        counts are those *at* `last_update`: decaying them here would make a resumed run differ in the last bit.
        """
        rows = self.visited
        columns = zip(STATE_ARRAYS[1:], self._store.read(rows, *STATE_ARRAYS[1:]), strict=True)
        return {"step": self._step, **self._settings(), "sample_index": rows.copy(), **dict(columns)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned, bit for bit; on an error nothing changes.

        (Float64 counts of a large pool, as earlier releases saved them, are rounded.)

        Raises:
            SnapshotMismatchError: other fields, another N or other decays than this posterior's.
            SnapshotCorruptError: numbers that no run can have saved.
        """
        check_fields("posterior", state, ["step", *self._settings(), *STATE_ARRAYS])
        check_same("posterior", state, self._settings())
        check_saved_numbers(state, self._num_samples)
        store = RowStore(self._num_samples)
        store.write(state["sample_index"], **{name: state[name] for name in STATE_ARRAYS[1:]})
        self._store = store
        self._step = int(state["step"])

    def _settings(self) -> dict[str, Any]:
        return {"num_samples": self._num_samples, **self.decays}

    def check_rows(self, sample_index: ArrayLike) -> IntArray:
        """Return (K,) rows as int64, or raise `ObservationError` unless they are integers in [0, N)."""
        rows = as_vector("sample_index", sample_index, kinds="iu")
        wrong = rows[(rows < 0) | (rows >= self._num_samples)]
        if wrong.size:
            raise ObservationError(
                f"sample_index holds {wrong[:8].tolist()}; rows must be in [0, {self._num_samples}), the rows of the "
                "data set. A negative one would silently count from the end. Pass positions in the training set."
            )
        return rows.astype(np.int64)


def beta_mean(alpha: FloatArray, beta: FloatArray) -> FloatArray:
    """Return the mean of Beta(alpha + 1, beta + 1), `(alpha + 1) / (alpha + beta + 2)`, in the shape of `alpha`."""
    return (alpha + 1.0) / (alpha + beta + 2.0)


def posterior_from(state: Mapping[str, Any]) -> BetaPosterior:
    """Return a posterior with the settings and the counts of a saved `state`, whatever they are.

    Raises:
        SnapshotMismatchError: other fields.
        SnapshotCorruptError: numbers that no run can have saved.
        ConfigurationError: settings that no run can have had.
    """
    settings = ["num_samples", *BetaPosterior(1).decays]
    check_fields("posterior", state, ["step", *settings, *STATE_ARRAYS])
    posterior = BetaPosterior(**{name: state[name] for name in settings})
    posterior.load_state_dict(state)
    return posterior
