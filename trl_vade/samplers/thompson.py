"""Thompson sampling over the posterior, the rule of VADE.

Source: VADE, arXiv 2511.18902, Algorithm 1. Axis letters: N rows of the data set, K rows drawn for a generation batch,
M excluded rows.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from trl_vade.checks import FloatArray, IntArray, check_bool, check_whole_number
from trl_vade.errors import SnapshotCorruptError

from .base import Draw, PosteriorSampler
from .counts import DAMAGED, LARGE, saved_number
from .even_draw import even_draw_ratio
from .information import SPREAD_GAIN, check_gain_kind, gain_of
from .large_pool import BoolArray, Choice, FreeRows, LargePool
from .posterior import BetaPosterior
from .prior import FLAT, Prior, check_prior_kind
from .problems import VariantRows, problems_of
from .prompt_prior import Words, check_words, prompt_prior
from .strata import best_places, strata_of

Fitted = TypeVar("Fitted")


class ThompsonSampler(PosteriorSampler):
    """A sampler that draws a pass rate for every row and chooses the K rows with the largest information gain.

        p~_i ~ Beta(alpha_i + 1, beta_i + 1)    for all N rows
        I_i  = information_gain(p~_i)           (eq. 4)

    Draws for a little-known row vary over all of [0, 1], so the row is explored. Draws for a row known to be too easy
    or too hard do not. The seed, the number of earlier draws and the posterior determine a draw, for one release of
    numpy (a release may change how Beta variates are computed).

    The defaults are the paper's rule.

    Source: arXiv 2511.18902, Algorithm 1, lines 6-9.

    Args:
        num_samples: N, the number of rows, at least 1.
        seed: the key of the random numbers, in [0, 2**63).
        gain: "asymmetric", p(1 - p)^2, prefers impossible rows to mastered ones. "symmetric", p(1 - p), treats both
            alike; it is an ablation of the paper. "spread", s / 2, is for outcomes that are spreads.
        greedy: use the expected pass rate in place of a sampled one, an ablation of the paper. Ties are common then:
            a fresh greedy sampler takes the rows in their order.
        decay_sampled: see `BetaPosterior`.
        decay_unsampled: see `BetaPosterior`.
        signal_aware_decay: see `BetaPosterior`.
        cooldown: posterior steps for which a scored row rests, at least 0. Without it few rows may be trained on too
            often. If fewer than K rows remain, those that have rested longest are added first.
        even_rest: posterior steps of an epoch, at least 0. Above 0 a scored row rests longer than `cooldown` where
            selection has little to win: for the share of an epoch that even draws would give of groups with a
            gradient, as `even_draw_ratio` estimates it before each draw.
        num_generations: G, the completions of a group, at least 2; only `even_rest` reads it.
        prior: the belief about unseen rows: "flat", Beta(1, 1), or "prompts", from the words of their prompts (see
            `prompt_prior`).
        words: (N, 16) uint8, the result of `prompt_words`, with the prior "prompts".
        stratify: (N,) labels; each stratum gives its share of the rows of a batch, its best rows.
        stratify_shares: shares by label, as text, in place of the strata's shares of the rows. Labels without a share
            divide the rest. If a stratum has fewer rows than its share asks for, others fill its places.
        variants: the original and the kind of each row, for data sets with variants.
        variant_groups: V. With V > 0 a draw holds problems: each an original, followed by V matched variants. A
            problem is worth the largest gain of its rows. `cooldown` and `stratify` then count problems, by their
            originals. A problem with fewer than V variants is never drawn.
        variant_match: the variants of a problem: "posterior", those with the largest gains, or "difficulty", by the
            law of DIVA-GRPO.

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
        even_rest: int = 0,
        num_generations: int = 8,
        prior: str = "flat",
        words: Words | None = None,
        stratify: ArrayLike | None = None,
        stratify_shares: Mapping[str, float] | None = None,
        variants: VariantRows | None = None,
        variant_groups: int = 0,
        variant_match: str = "posterior",
    ) -> None:
        check_gain_kind(gain)
        check_prior_kind(prior)
        posterior = BetaPosterior(
            num_samples,
            decay_sampled=decay_sampled,
            decay_unsampled=decay_unsampled,
            signal_aware_decay=signal_aware_decay,
        )
        settings = {
            "gain": gain,
            "greedy": check_bool("greedy", greedy),
            "cooldown": check_whole_number(
                "cooldown", cooldown, minimum=0, maximum=2**53, advice="It counts posterior steps; set 0 for none."
            ),
            "prior": prior,
        }
        if even_rest:  # not in states of early releases
            settings |= {
                "even_rest": check_whole_number(
                    "even_rest", even_rest, minimum=0, maximum=2**53, advice="It counts the steps of an epoch."
                ),
                "num_generations": check_whole_number(
                    "num_generations", num_generations, minimum=2, advice="It is the completions of a group."
                ),
            }
        problems, with_variants = problems_of(variants, variant_groups, variant_match, posterior.num_samples)
        settings |= with_variants
        self._words = check_words(words, posterior.num_samples) if prior == "prompts" else None
        originals = None if problems is None else problems.originals
        self._stratify, with_strata = strata_of(stratify, stratify_shares, posterior.num_samples, originals)
        settings |= with_strata
        super().__init__(posterior, seed, settings, {"num_draws": 2**63 - 1}, problems)
        self.unscored: dict[int, tuple[int, int]] = {}  # by row: the step and the number of draws since its last score
        self._taken_over = 0  # the step that `take_over` took; 0: none
        self._fitted: dict[str, tuple[int, Any]] = {}  # by name: version of the posterior, and what was fitted to it

    def take_over(self, sample_index: ArrayLike, successes: ArrayLike, trials: ArrayLike) -> None:
        """Take one step of the posterior from evidence of another run; its rows need not rest.

        The cooldown is for rows that were trained on. If these rows rested, the sampler would choose all unknown rows
        first and make no use of the evidence.
        """
        self.observe(sample_index, successes, trials)
        self._taken_over = self.posterior.step

    def observe(
        self, sample_index: ArrayLike, successes: ArrayLike, trials: ArrayLike, mixed: ArrayLike | None = None
    ) -> None:
        """Take one step of the posterior, and note the rows without a trial: they rest, too."""
        super().observe(sample_index, successes, trials, mixed)
        for row, number in zip(np.asarray(sample_index).tolist(), np.asarray(trials).tolist(), strict=True):
            _, times = self.unscored.pop(row, (0, 0))
            if not number:
                self.unscored[row] = self.posterior.step, times + 1

    def use_spreads(self) -> None:
        """Treat later outcomes as spreads and use the gain s / 2."""
        self._settings["gain"] = SPREAD_GAIN

    def prior(self) -> Prior:
        """Return the present belief about rows without evidence."""
        words = self._words
        if words is not None:
            return self._fit_once("prior", lambda: prompt_prior(self.posterior, words))
        return super().prior()

    def draw(self, k: int, *, exclude: ArrayLike | None = None) -> Draw:
        """Choose the rows with the largest gains.

        Gains fall from the first row on; among equal gains the lower row comes first. With `stratify` each stratum
        gives the rows with its largest gains. From 100,000 rows on the sampler draws only candidates for the best (see
        `large_pool`). The distribution is the same, from other random numbers, without an order among equal gains.
        Draws of problems and draws with another prior than "flat" read all rows of a large pool, too.

        Args:
            k: the number of rows, in [1, N - M]; with `variant_groups` a multiple of 1 + V.
            exclude: (M,) rows that are not chosen; a row excludes its problem.

        Raises:
            ConfigurationError: `k` is outside its range.
            ObservationError: an excluded row is outside [0, N).
        """
        k, excluded = self._check_draw(k, exclude)
        generator = self._generator(self._progress["num_draws"])
        wanted = k, excluded, generator
        rows, pass_rate, mean = self._from_large_pool(*wanted) or self._from_all(*wanted)
        self._progress["num_draws"] += 1
        return Draw(rows, pass_rate, gain_of(pass_rate, self._settings["gain"]), mean)

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state; see `PosteriorSampler.state_dict`.

        With `taken_over` if `take_over` was called, and `unscored` if a row was drawn without a score.
        """
        unscored = [[row, *drawn] for row, drawn in sorted(self.unscored.items())]
        more = {"taken_over": self._taken_over, "unscored": unscored}
        return super().state_dict() | {name: value for name, value in more.items() if value}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the result of `state_dict`; see `PosteriorSampler.load_state_dict`."""
        taken_over, unscored = 0, {}
        if isinstance(state, Mapping):
            if "taken_over" in state:
                taken_over = saved_number("taken_over", state["taken_over"], minimum=1)
            unscored = _saved_unscored(state.get("unscored", []), self.posterior.num_samples)
            state = {name: value for name, value in state.items() if name not in ("taken_over", "unscored")}
        super().load_state_dict(state)
        self._taken_over, self.unscored = taken_over, unscored

    def _from_all(self, k: int, excluded: IntArray, chance: np.random.Generator) -> Choice:
        """Choose the best `k` rows, with a pass rate drawn for each of the N rows.

        With problems, `k` and `excluded` are problems, and the rows of the chosen ones are returned.
        """
        a, b = self.belief()
        mean = a / (a + b)
        pass_rate = mean if self._settings["greedy"] else chance.beta(a, b)
        gain, problems = gain_of(pass_rate, self._settings["gain"]), self._problems
        value = gain if problems is None else problems.best(gain)
        rows = np.delete(np.arange(value.size), excluded)
        # Gains are below 1, so resting rows come after all others, those that have rested longest first.
        resting = self._steps_to_rest(rows if problems is None else problems.originals[rows])
        value = value[rows] - resting
        rows = rows[best_places(rows, value, k, self._stratify, self._quotas(k))]
        if problems is not None:
            rows = problems.rows_of(rows, gain.__getitem__, mean.__getitem__, chance)
        return rows, pass_rate[rows], mean[rows]

    def _from_large_pool(self, k: int, excluded: IntArray, chance: np.random.Generator) -> Choice | None:
        """Choose the same faster, or return None for a small pool or one that needs a draw of all rows."""
        # A small pool gains only milliseconds a batch, and its choices stay those of early releases.
        if self.posterior.num_samples < LARGE or self._settings["gain"] == SPREAD_GAIN or self._problems is not None:
            return None
        if self.prior() is not FLAT or self.unscored:
            return None
        rows = FreeRows(self.posterior, self._rests, excluded, chance)
        how = {name: self._settings[name] for name in ("gain", "greedy")}
        return LargePool(rows, **how, strata=self._stratify, quotas=self._quotas).draw(k)

    def _quotas(self, k: int) -> IntArray | None:
        """Return the share of each stratum in this draw, (S,), or None without strata."""
        strata, number = self._stratify, self._progress["num_draws"]
        return None if strata is None else strata.quotas(k, seed=self._seed, number=number)

    def _rests(self, rows: IntArray) -> BoolArray:
        return np.broadcast_to(np.asarray(self._steps_to_rest(rows) > 0), rows.shape)

    def _steps_to_rest(self, rows: IntArray) -> FloatArray | float:
        """Return the steps for which each row still rests, (K,), or 0 if rows do not rest."""
        if not (rest := self._rest()):
            return 0.0
        last, until = self.posterior.last_update_of(rows), rest - self.posterior.step
        if self.unscored:  # a row rests because it was drawn
            drawn = np.zeros(self.posterior.num_samples, dtype=np.int64)
            drawn[[*self.unscored]] = [step for step, _ in self.unscored.values()]
            last = np.maximum(last, drawn[rows])
        return np.where(last > self._taken_over, np.maximum(last + until, 0), 0).astype(np.float64)

    def _rest(self) -> int:
        """Return the posterior steps for which a scored row rests."""
        cooldown, epoch = (int(self._settings.get(name, 0)) for name in ("cooldown", "even_rest"))
        if not epoch:
            return cooldown
        num_generations, spreads = self._settings["num_generations"], self._settings["gain"] == SPREAD_GAIN
        share = self._fit_once("rest", lambda: even_draw_ratio(self.posterior, num_generations, spreads=spreads))
        return max(cooldown, round(share * epoch))

    def _fit_once(self, name: str, fit: Callable[[], Fitted]) -> Fitted:
        """Return the result of `fit`, which is called once for the present counts."""
        if self._fitted.get(name, (None,))[0] != self.posterior.version:
            self._fitted[name] = self.posterior.version, fit()
        found: Fitted = self._fitted[name][1]
        return found


def _saved_unscored(saved: Any, num_samples: int) -> dict[int, tuple[int, int]]:
    if not isinstance(saved, list) or not all(isinstance(each, list) and len(each) == 3 for each in saved):
        raise SnapshotCorruptError(f"The saved unscored rows are no list of row, step and number of draws. {DAMAGED}")
    return {
        saved_number("unscored row", row, maximum=num_samples - 1): (
            saved_number("step of an unscored row", step, minimum=1),
            saved_number("draws of an unscored row", times, minimum=1),
        )
        for row, step, times in saved
    }
