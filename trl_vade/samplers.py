"""Which rows are rolled out next: Thompson sampling over the posterior (VADE), or every row in turn (vanilla GRPO).

Source: VADE, arXiv 2511.18902, Algorithm 1. Axis letters: N rows of the data set, K rows drawn for a generation batch,
M rows that a draw leaves out.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .checks import FloatArray, IntArray, check_bool, check_labels, check_share, check_whole_number
from .errors import SnapshotCorruptError
from .fresh_rows import FEW, BoolArray, Candidates, distinct_fresh, fresh_draw
from .information import check_gain_kind, information_gain
from .order import largest, stock_order
from .posterior import BetaPosterior, beta_mean
from .posterior_sampler import PosteriorSampler
from .prior import check_prior_kind, learned_prior
from .prompt_sampler import Draw
from .strata import Strata, check_same_strata, digest


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
        gain: "asymmetric" p(1 - p)^2, or "symmetric" p(1 - p), an ablation of the paper.
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

    def belief(self, sample_index: ArrayLike | None = None) -> tuple[FloatArray, FloatArray]:
        """Return (a, b) of the belief Beta(a, b) about the rows named, (K,) each, or about all rows, (N,) each."""
        if self._settings["prior"] == "flat":
            return super().belief(sample_index)
        alpha, beta = self.posterior.counts()
        a, b = learned_prior(alpha, beta, self._strata)
        rows = slice(None) if sample_index is None else self.posterior.check_rows(sample_index)
        return (alpha + a)[rows], (beta + b)[rows]

    def draw(self, k: int, *, exclude: ArrayLike | None = None) -> Draw:
        """Return `k` rows: those with the largest gains, in falling order, of equal gains the lower row first; then
        those of the uniform share. With `stratify` the largest gains are those of each stratum's share.

        Where `FEW` or more rows are alike, without evidence, only the best of them are drawn: the same distribution
        from other random numbers, and no order of rows where rounding makes gains equal.

        Args:
            k: a whole number in [1, N - M].
            exclude: (M,) rows that are not to be chosen.

        Raises:
            ConfigurationError: `k` is outside its range.
            ObservationError: a row to exclude is outside [0, N).
        """
        k, excluded = self._check_draw(k, exclude)
        generator = self._generator(self._progress["num_draws"])
        fresh = self._fresh_rows(excluded)
        if np.count_nonzero(fresh) >= FEW:
            rows, pass_rate, mean = self._few_candidates(k, fresh, excluded, generator)
        else:
            rows, pass_rate, mean = self._all_candidates(excluded, generator)
        gain = information_gain(pass_rate, self._settings["gain"])
        # A gain is below 1: rows that rest come after all others, those that have rested longest first.
        resting = self._steps_to_rest(rows)
        num_blind = int(self._settings["uniform_share"] * k + 0.5)
        chosen = self._best(rows, gain - resting, k - num_blind) if k > num_blind else np.empty(0, dtype=np.int64)
        if num_blind:
            chance = generator.random(self.posterior.num_samples)[rows] - resting
            chance[chosen] = -np.inf
            chosen = np.concatenate([chosen, largest(chance, num_blind)])
        self._progress["num_draws"] += 1
        return Draw(rows[chosen], pass_rate[chosen], gain[chosen], mean[chosen])

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

    def _best(self, rows: IntArray, value: FloatArray, k: int) -> IntArray:
        """(k,) places in `rows` of those with the largest `value`, of all or, with strata, of each one's share."""
        if self._stratify is None:
            return largest(value, k)
        return self._stratify.best(rows, value, k, seed=self._seed, number=self._progress["num_draws"])

    def _fresh_rows(self, excluded: IntArray) -> BoolArray:
        """(N,) rows without evidence that may be chosen; (0,) where the settings need a draw of all.

        Strata do: among the best few of all fresh rows there may be none of a stratum.
        """
        alike = self._settings["prior"] == "flat" and self._stratify is None
        if not alike or self._settings["greedy"] or self._settings["uniform_share"]:
            return np.empty(0, dtype=np.bool_)
        fresh: BoolArray = self.posterior.visits == 0
        fresh[excluded] = False
        return fresh

    def _all_candidates(self, excluded: IntArray, generator: np.random.Generator) -> Candidates:
        a, b = self.belief()
        mean = a / (a + b)
        pass_rate = mean if self._settings["greedy"] else generator.beta(a, b)
        rows = np.delete(np.arange(mean.size), excluded)
        return rows, pass_rate[rows], mean[rows]

    def _few_candidates(self, k: int, fresh: BoolArray, excluded: IntArray, chance: np.random.Generator) -> Candidates:
        """Rows with evidence (that do not rest, if k remain), and of the `fresh`, (N,), some that hold the best k."""
        known = ~fresh
        known[excluded] = False
        rows = np.flatnonzero(known)
        new = fresh_draw(int(np.count_nonzero(fresh)), k, self._settings["gain"], chance)
        if new.size >= k:  # enough without the rows that rest
            rows = rows[self._steps_to_rest(rows) == 0]
        rows = np.concatenate([rows, distinct_fresh(new.size, fresh, chance)])
        a, b = self.belief(rows)
        pass_rate = np.concatenate([chance.beta(a[: -new.size], b[: -new.size]), new])  # there is a new one: FEW > 0
        return rows, pass_rate, a / (a + b)

    def _steps_to_rest(self, rows: IntArray) -> FloatArray:
        """(K,) steps in which the cooldown still keeps the rows out."""
        last, until = self.posterior.last_update[rows], self._settings["cooldown"] - self.posterior.step
        return np.where(last > self._taken_over, np.maximum(last + until, 0), 0).astype(np.float64)


class UniformSampler(PosteriorSampler):
    """Choose every row once an epoch, in the order of the stock `GRPOTrainer` with the same seed: vanilla GRPO.

    An epoch is one permutation. As with TRL's `RepeatSampler`, a draw that does not fit into what is left of it
    starts the next one, and the rest is dropped.

    Outcomes are observed as by `ThompsonSampler`, so that the figures of both can stand side by side, and no choice
    rests on them. In a `Draw` the sampled pass rate is the posterior mean, and the gain is the asymmetric one of it.

    Args:
        num_samples: N, at least 1 and below 2**32 / 20 = 214,748,364, where torch changes its algorithm.
        seed: in [0, 2**63).
        decay_sampled, decay_unsampled, signal_aware_decay: of the `BetaPosterior`.

    Raises:
        ConfigurationError: an argument is outside its range.
    """

    kind = "uniform"

    def __init__(
        self,
        num_samples: int,
        *,
        seed: int = 0,
        decay_sampled: float = 0.2,
        decay_unsampled: float = 0.999,
        signal_aware_decay: bool = False,
    ) -> None:
        check_whole_number(
            "num_samples",
            num_samples,
            minimum=1,
            maximum=2**32 // 20 - 1,
            advice="The order is that of torch.randperm, which changes for longer data sets. Use a part of the rows.",
        )
        posterior = BetaPosterior(
            num_samples,
            decay_sampled=decay_sampled,
            decay_unsampled=decay_unsampled,
            signal_aware_decay=signal_aware_decay,
        )
        # An epoch is found by going through the random numbers of all before it. No run takes 2**30 rows; a damaged
        # file may say so, and the next draw would not end.
        super().__init__(posterior, seed, {}, {"epoch": 2**30 // num_samples, "position": num_samples})
        self._cached_order: tuple[int, IntArray] = (-1, np.empty(0, dtype=np.int64))  # epoch, (N,)

    def draw(self, k: int, *, exclude: ArrayLike | None = None) -> Draw:
        """Return the next `k` rows of the permutation that are not in `exclude`.

        Args:
            k: a whole number in [1, N - M].
            exclude: (M,) rows that are not to be chosen; they are passed over.

        Raises:
            ConfigurationError: `k` is outside its range.
            ObservationError: a row to exclude is outside [0, N).
        """
        k, excluded = self._check_draw(k, exclude)
        epoch, position = self._progress["epoch"], self._progress["position"]
        places = self._free(epoch, position, k, excluded)
        if places.size < k:
            epoch, places = epoch + 1, self._free(epoch + 1, 0, k, excluded)
        rows = self._order(epoch)[places]
        self._progress = {"epoch": epoch, "position": int(places[-1]) + 1}
        mean = beta_mean(*self.posterior.counts(rows))
        return Draw(rows, mean.copy(), information_gain(mean), mean)

    def _free(self, epoch: int, position: int, k: int, excluded: IntArray) -> IntArray:
        """The first `k` places in the permutation, from `position` on, whose rows may be chosen, or all if fewer."""
        if not excluded.size:
            return np.arange(position, min(position + k, self.posterior.num_samples))
        return position + np.flatnonzero(~np.isin(self._order(epoch)[position:], excluded))[:k]

    def _order(self, epoch: int) -> IntArray:
        if self._cached_order[0] != epoch:
            self._cached_order = (epoch, stock_order(self.posterior.num_samples, self._seed, epoch))
        return self._cached_order[1]
