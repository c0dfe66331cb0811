"""Thompson sampling over the posterior, the rule of VADE.

Source: VADE, arXiv 2511.18902, Algorithm 1. Axis letters: N rows of the data set, K rows of a draw, M excluded rows.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from trl_vade.checks import FloatArray, IntArray, check_bool, check_whole_number
from trl_vade.errors import ConfigurationError, abbreviated

from .base import Draw, PosteriorSampler
from .information import SPREAD_GAIN, information_gain
from .posterior import BetaPosterior
from .priors import EVIDENCE, FLAT, PRIORS, UNKNOWN, WIDTH, Belief, Words, more_errors, prompt_prior, rest_ratio
from .problems import VariantRows, problems_of
from .strata import Strata, largest


class ThompsonSampler(PosteriorSampler):
    """A sampler that draws a pass rate for every row and chooses the K rows with the largest information gain.

        p~_i ~ Beta(alpha_i + a_i, beta_i + b_i)    for all N rows; a_i = b_i = 1 with the flat prior
        I_i  = information_gain(p~_i)               (eq. 4)

    The seed, the number of earlier draws and the posterior determine a draw, for one release of numpy. The defaults
    forget as the preset `balanced` does. With `signal_aware_decay=False` they are the paper's rule.

    Args:
        num_samples: N, the number of rows, at least 1.
        seed: the key of the random numbers, in [0, 2**63).
        gain: see `information_gain`. "symmetric" is an ablation of the paper.
        greedy: use the expected pass rate in place of a sampled one, an ablation of the paper.
        decay_sampled: see `BetaPosterior`.
        decay_unsampled: see `BetaPosterior`.
        signal_aware_decay: see `BetaPosterior`.
        cooldown: posterior steps for which a chosen row rests, at least 0. Without it few rows may be trained on too
            often. If fewer than K rows remain, those that have rested longest are added first.
        even_rest: posterior steps of an epoch, at least 0. Above 0 a chosen row rests longer than `cooldown` where
            selection has little to win: for the share of an epoch that even draws would give of groups with a
            gradient, as `rest_ratio` estimates it before each draw.
        num_generations: G, the completions of a group, at least 2; only `even_rest` reads it.
        prior: the belief about unseen rows: "flat", Beta(1, 1), or "prompts", from the words of their prompts (see
            `prompt_prior`).
        words: (N, 16) uint8, the result of `prompt_words`, with the prior "prompts".
        stratify: (N,) labels; each stratum gives its share of the rows of a batch, its best rows.
        variants: the original and the kind of each row, for data sets with variants.
        variant_groups: V. With V > 0 a draw holds problems: each an original, followed by V matched variants. A
            problem is worth the largest gain of its rows. `cooldown` and `stratify` then count problems, by their
            originals. A problem with fewer than V variants is never drawn.
        variant_match: the variants of a problem: "posterior", those with the largest gains, or "difficulty", by the
            law of DIVA-GRPO.
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
        signal_aware_decay: bool = True,
        cooldown: int = 0,
        even_rest: int = 0,
        num_generations: int = 8,
        prior: str = "flat",
        words: Words | None = None,
        stratify: ArrayLike | None = None,
        variants: VariantRows | None = None,
        variant_groups: int = 0,
        variant_match: str = "posterior",
    ) -> None:
        information_gain(0.0, gain)  # which refuses other kinds
        shape = (num_samples, WIDTH // 8)
        if prior not in PRIORS or (prior == "prompts" and (words is None or words.shape != shape)):
            raise ConfigurationError(
                f"prior is {abbreviated(prior)} and words {abbreviated(words)}; these must be 'flat', or 'prompts' "
                f"and the prompt_words of all rows, uint8 {shape}."
            )
        decays = {"decay_sampled": decay_sampled, "decay_unsampled": decay_unsampled}
        posterior = BetaPosterior(num_samples, **decays, signal_aware_decay=signal_aware_decay)
        cooldown = check_whole_number("cooldown", cooldown, minimum=0, advice="It counts posterior steps.")
        greedy = check_bool("greedy", greedy)
        settings: dict[str, Any] = {"gain": gain, "greedy": greedy, "cooldown": cooldown, "prior": prior}
        if even_rest:
            settings["even_rest"] = check_whole_number("even_rest", even_rest, minimum=0, advice="It counts steps.")
            settings["num_generations"] = num_generations
        problems, with_variants = problems_of(variants, variant_groups, variant_match, num_samples)
        settings |= with_variants
        self._words = words if prior == "prompts" else None
        self._strata = None
        if stratify is not None:
            self._strata = Strata(stratify, num_samples)
            settings["stratify"] = self._strata.digest
            if problems is not None:
                self._strata = Strata(np.asarray(stratify)[problems.originals], problems.originals.size)
        super().__init__(posterior, seed, settings, {"num_draws": 2**63 - 1}, problems)
        self.unscored: dict[int, tuple[int, int]] = {}  # by row: the step and the number of draws since its last score
        self._taken_over = 0  # the step that `take_over` took; 0: none
        self._errors = UNKNOWN  # of the prior from the words
        self._fitted: dict[str, tuple[int, Any]] = {}  # by name: version of the posterior, and what was fitted to it

    def draw(self, k: int, *, exclude: ArrayLike | None = None) -> Draw:
        """Choose the rows with the largest gains.

        Gains fall from the first row on; among equal gains the lower row comes first. With `stratify` each stratum
        gives the rows with its largest gains. Resting rows come after all others, those that rested longest first.

        Args:
            k: the number of rows, in [1, N - M]; with `variant_groups` a multiple of 1 + V.
            exclude: (M,) rows that are not chosen; a row excludes its problem.
        """
        k, excluded = self._check_draw(k, exclude)
        number, problems, kind = self.progress["num_draws"], self._problems, self._settings["gain"]
        chance = self._generator(number)
        a, b = self.belief()
        mean = a / (a + b)
        rate = mean if self._settings["greedy"] else chance.beta(a, b)
        gain = information_gain(rate, kind)
        value = gain if problems is None else problems.best(gain)
        rows = np.delete(np.arange(value.size), excluded)
        rests = self._steps_to_rest()
        # Gains are below 1, so resting rows come after all others.
        value = value[rows] - rests[rows if problems is None else problems.originals[rows]]
        if self._strata is None:
            rows = rows[largest(value, k)]
        else:
            rows = rows[self._strata.best(rows, value, self._strata.quotas(k, seed=self._seed, number=number))]
        if problems is not None:
            rows = problems.rows_of(rows, gain.__getitem__, mean.__getitem__, chance)
        self.progress["num_draws"] += 1
        return Draw(rows, rate[rows], information_gain(rate[rows], kind), mean[rows])

    def observe(
        self, sample_index: ArrayLike, successes: ArrayLike, trials: ArrayLike, mixed: ArrayLike | None = None
    ) -> None:
        """Take one step of the posterior, and note the rows without a trial: they rest, too."""
        rows, prior = self.posterior.check_rows(sample_index), self.prior()
        new = np.add(*self.posterior.counts(rows)) < EVIDENCE
        super().observe(sample_index, successes, trials, mixed)
        tries = np.asarray(trials, dtype=np.float64)
        if prior is not FLAT:
            new &= tries > 0
            mean = np.divide(prior[0], np.add(*prior))[rows[new]]
            self._errors = more_errors(self._errors, mean, np.asarray(successes)[new], tries[new])
        for row, number in zip(rows.tolist(), tries.tolist(), strict=True):
            _, times = self.unscored.pop(row, (0, 0))
            if not number:
                self.unscored[row] = self.posterior.step, times + 1

    def take_over(self, sample_index: ArrayLike, successes: ArrayLike, trials: ArrayLike) -> None:
        """Take one step of the posterior from evidence of another run. Its rows need not rest: they were not drawn."""
        self.observe(sample_index, successes, trials)
        self._taken_over = self.posterior.step

    def use_spreads(self) -> None:
        """Treat later outcomes as spreads and use the gain s / 2."""
        self._settings["gain"] = SPREAD_GAIN

    def prior(self) -> Belief:
        """Return a and b of the present belief about rows without evidence; see `PosteriorSampler.prior`."""
        if self._words is None:
            return FLAT
        prior: Belief = self._fit_once("prior", prompt_prior, self._words, self._errors)
        return prior

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state. What never happened has no field."""
        unscored = {str(row): [*drawn] for row, drawn in self.unscored.items()}
        errors = [] if self._errors == UNKNOWN else [*self._errors]
        more = {"taken_over": self._taken_over, "unscored": unscored, "prior_errors": errors}
        return super().state_dict() | {name: value for name, value in more.items() if value}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the result of `state_dict`; see `PosteriorSampler.load_state_dict`."""
        state = dict(state)
        taken_over, (excess, room) = state.pop("taken_over", 0), state.pop("prior_errors", UNKNOWN)
        unscored = {int(row): (step, times) for row, (step, times) in state.pop("unscored", {}).items()}
        super().load_state_dict(state)
        self._taken_over, self.unscored, self._errors = taken_over, unscored, (excess, room)

    def _steps_to_rest(self) -> FloatArray:
        """Return the steps for which each row still rests, (N,)."""
        rest, last, settings = int(self._settings["cooldown"]), self.posterior.last_update, self._settings
        if epoch := settings.get("even_rest"):
            spreads = settings["gain"] == SPREAD_GAIN
            ratio = self._fit_once("rest", rest_ratio, settings["num_generations"], spreads)
            rest = max(rest, round(epoch * ratio))
        if self.unscored:  # a row rests because it was drawn
            last = last.copy()
            drawn = [step for step, _ in self.unscored.values()]
            last[[*self.unscored]] = np.maximum(last[[*self.unscored]], drawn)
        steps: IntArray = np.where(last > self._taken_over, np.maximum(last + rest - self.posterior.step, 0), 0)
        return steps.astype(np.float64)

    def _fit_once(self, name: str, fit: Callable[..., Any], *arguments: Any) -> Any:
        if self._fitted.get(name, (None,))[0] != self.posterior.version:
            self._fitted[name] = self.posterior.version, fit(self.posterior, *arguments)
        return self._fitted[name][1]
