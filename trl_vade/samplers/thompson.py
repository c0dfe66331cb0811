"""Which rows are rolled out next: Thompson sampling over the posterior (VADE); beside it, what it is compared with.

Source: VADE, arXiv 2511.18902, Algorithm 1. Axis letters: N rows of the data set, K rows drawn for a generation batch,
M rows that a draw leaves out.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from trl_vade.checks import FloatArray, IntArray, check_bool, check_labels, check_share, check_whole_number
from trl_vade.errors import SnapshotCorruptError

from .base import Draw, PosteriorSampler
from .counts import LARGE
from .information import SPREAD_GAIN, check_gain_kind, gain_of
from .large_pool import BoolArray, Choice, FreeRows, LargePool
from .posterior import BetaPosterior
from .prior import Prior, check_prior_kind, learned_prior
from .strata import Strata, best_places, check_same_strata, digest
from .top_k import largest


class ThompsonSampler(PosteriorSampler):
    """Choose the K rows whose sampled pass rate promises the largest information gain.

        p~_i ~ Beta(alpha_i + 1, beta_i + 1)    for all N rows
        I_i  = information_gain(p~_i)           (eq. 4)

    A row that is little known is drawn all over [0, 1], so it is explored; a row known to be too easy or too hard is
    not. Each draw is a pure function of the seed, the number of draws made before and the posterior, for one release
    of numpy (which may change how a Beta variate is made, not how the bits under it are).

    The defaults are the paper's rule. Beyond it, each a setting of its own:

    * `gain="symmetric"`, p(1 - p), treats impossible and mastered rows alike, where the paper's p(1 - p)^2 prefers the
      impossible ones.
    * `signal_aware_decay`: see `BetaPosterior`.
    * `cooldown`: rows that come back at once are trained on too often, and the rest of the data set is forgotten.
    * `prior="learned"`: unseen rows are believed to be like the seen ones (of their stratum); see `prior.fit_prior`.
    * `uniform_share`: a part of each batch is chosen blindly, which keeps every row in play: an unbiased probe.
    * `stratify`: each domain has its share of every batch, and its best rows within it, so that none starves.

    Source: arXiv 2511.18902, Algorithm 1, lines 6-9.

    Args:
        num_samples: N, at least 1.
        seed: in [0, 2**63).
        gain: "asymmetric" p(1 - p)^2; "symmetric" p(1 - p), an ablation of the paper; "spread" s / 2, where outcomes
            are spreads and not pass rates.
        greedy: use the expected pass rate in place of a sampled one, an ablation of the paper. Ties are common then:
            a fresh greedy sampler takes the rows in their order.
        decay_sampled, decay_unsampled, signal_aware_decay: of the `BetaPosterior`.
        cooldown: c >= 0, in steps: a row that was scored in the last c steps is not chosen. Where that leaves fewer
            than K rows, those that have rested longest are let in first.
        prior: "flat", Beta(1, 1), or "learned".
        strata: (N,) labels; each stratum with enough scored rows gets a learned prior of its own.
        uniform_share: in [0, 1], the share of a batch (rounded to rows) that is drawn uniformly from all other rows.
        stratify: (N,) labels; of a batch's other rows each stratum gives its share of the N, its best; see `Strata`.

    Raises:
        ConfigurationError: an argument is outside its range.
    """

    kind = "thompson"

    def __init__(
        self,
        num_samples: int,
        *,
        seed: int = 0,
        gain: str = "asymmetric",
        greedy: bool = False,
        decay_sampled: float = 0.2,
        decay_unsampled: float = 0.999,
        signal_aware_decay: bool = False,
        cooldown: int = 0,
        prior: str = "flat",
        strata: ArrayLike | None = None,
        uniform_share: float = 0.0,
        stratify: ArrayLike | None = None,
    ) -> None:
        check_gain_kind(gain)
        check_prior_kind(prior)
        posterior = BetaPosterior(
            num_samples,
            decay_sampled=decay_sampled,
            decay_unsampled=decay_unsampled,
            signal_aware_decay=signal_aware_decay,
        )
        self._strata = None if strata is None else check_labels("strata", strata, posterior.num_samples)
        self._num_strata = 1 if self._strata is None else int(self._strata.max()) + 1
        settings = {
            "gain": gain,
            "greedy": check_bool("greedy", greedy),
            "cooldown": check_whole_number(
                "cooldown", cooldown, minimum=0, maximum=2**53, advice="It counts generation batches; 0 is none."
            ),
            "prior": prior,
            "strata": None if self._strata is None else digest(self._strata),
            "uniform_share": check_share("uniform_share", uniform_share),
        }
        self._stratify = None
        if stratify is not None:
            labels = check_labels("stratify", stratify, posterior.num_samples)
            self._stratify = Strata(labels)
            settings["stratify"] = digest(labels)  # without strata it is left out: states saved earlier lack it
        super().__init__(posterior, seed, settings, {"num_draws": 2**63 - 1})
        self._taken_over = 0  # the step that `take_over` took, 0: none

    def take_over(self, sample_index: ArrayLike, successes: ArrayLike, trials: ArrayLike) -> None:
        """Take one step of the posterior from evidence of another run: as `observe`, but the rows need not rest.

        The cooldown is for rows that were trained on. Rows without evidence have none either, so those of which
        something is known would all come after them, and what is known would serve for nothing.
        """
        self.observe(sample_index, successes, trials)
        self._taken_over = self.posterior.step

    def use_spreads(self) -> None:
        """See `PosteriorSampler.use_spreads`; the gain is then s / 2."""
        self._settings["gain"] = SPREAD_GAIN

    def prior(self) -> Prior:
        """Return the belief about rows without evidence, as it is now."""
        if self._settings["prior"] == "flat":
            return super().prior()
        posterior = self.posterior
        return learned_prior(*posterior.visited_counts(), posterior.visited, self._strata, self._num_strata)

    def draw(self, k: int, *, exclude: ArrayLike | None = None) -> Draw:
        """Return `k` rows: those with the largest gains, in falling order, of equal gains the lower row first; then
        those of the uniform share. With `stratify` the largest gains are those of each stratum's share.

        From 100,000 rows on only candidates for the best are drawn (see `large_pool`): the same distribution from
        other random numbers, and no order of rows where rounding makes gains equal.

        Args:
            k: a whole number in [1, N - M].
            exclude: (M,) rows that are not to be chosen.

        Raises:
            ConfigurationError: `k` is outside its range.
            ObservationError: a row to exclude is outside [0, N).
        """
        k, excluded = self._check_draw(k, exclude)
        generator = self._generator(self._progress["num_draws"])
        num_blind = int(self._settings["uniform_share"] * k + 0.5)
        wanted = k - num_blind, num_blind, excluded, generator
        rows, pass_rate, mean = self._from_large_pool(*wanted) or self._from_all(*wanted)
        self._progress["num_draws"] += 1
        return Draw(rows, pass_rate, gain_of(pass_rate, self._settings["gain"]), mean)

    def state_dict(self) -> dict[str, Any]:
        """See `PosteriorSampler.state_dict`; `taken_over` is there only where `take_over` was called."""
        return super().state_dict() | ({"taken_over": self._taken_over} if self._taken_over else {})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `PosteriorSampler.load_state_dict`; a state without `stratify` is that of a sampler without it."""
        check_same_strata(state, {"kind": self.kind, "settings": self._settings})
        taken_over = 0
        if isinstance(state, Mapping) and "taken_over" in state:
            taken_over = check_whole_number(
                "The saved taken_over",
                state["taken_over"],
                minimum=1,
                maximum=2**53,
                advice="The file was damaged or edited; load an earlier snapshot.",
                error=SnapshotCorruptError,
            )
            state = {name: value for name, value in state.items() if name != "taken_over"}
        super().load_state_dict(state)
        self._taken_over = taken_over

    def _from_all(self, k: int, num_blind: int, excluded: IntArray, chance: np.random.Generator) -> Choice:
        """The best `k` and then `num_blind` others: a pass rate is drawn for each of the N rows."""
        a, b = self.belief()
        pass_rate = a / (a + b) if self._settings["greedy"] else chance.beta(a, b)
        rows = np.arange(a.size)
        if excluded.size:
            rows = np.delete(rows, excluded)
        value = gain_of(pass_rate[rows] if excluded.size else pass_rate, self._settings["gain"])
        # A gain is below 1: rows that rest come after all others, those that have rested longest first.
        resting = self._steps_to_rest(rows)
        value -= resting
        chosen = np.empty(0, dtype=np.int64)
        if k:
            chosen = best_places(rows, value, k, self._stratify, self._quotas(k))
        if num_blind:
            blind = chance.random(a.size)[rows] - resting
            blind[chosen] = -np.inf
            chosen = np.concatenate([chosen, largest(blind, num_blind)])
        rows = rows[chosen]
        return rows, pass_rate[rows], a[rows] / (a[rows] + b[rows])

    def _from_large_pool(
        self, k: int, num_blind: int, excluded: IntArray, chance: np.random.Generator
    ) -> Choice | None:
        """The same, faster; None for a small pool, and where the large one cannot be drawn from in this way."""
        # Milliseconds are nothing beside the rollouts of a batch: smaller pools keep the choices that they always had.
        if self.posterior.num_samples < LARGE or self._settings["gain"] == SPREAD_GAIN:
            return None
        rows = FreeRows(self.posterior, self.prior(), self._rests, excluded, chance)
        how = {name: self._settings[name] for name in ("gain", "greedy")}
        return LargePool(rows, **how, strata=self._stratify, quotas=self._quotas).draw(k, num_blind)

    def _quotas(self, k: int) -> IntArray | None:
        """(S,) the share of each stratum in this draw; None: without strata."""
        strata, number = self._stratify, self._progress["num_draws"]
        return None if strata is None else strata.quotas(k, seed=self._seed, number=number)

    def _rests(self, rows: IntArray) -> BoolArray:
        return np.broadcast_to(np.asarray(self._steps_to_rest(rows) > 0), rows.shape)

    def _steps_to_rest(self, rows: IntArray) -> FloatArray | float:
        """(K,) steps in which the cooldown still keeps the rows out; 0 for all without one."""
        if not self._settings["cooldown"]:
            return 0.0
        last, until = self.posterior.last_update_of(rows), self._settings["cooldown"] - self.posterior.step
        return np.where(last > self._taken_over, np.maximum(last + until, 0), 0).astype(np.float64)
