"""The oracle: it knows every pass rate, and so chooses the best batch there is; for simulations alone."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from trl_vade.checks import FloatArray, IntArray, as_vector, check_whole_number
from trl_vade.errors import ConfigurationError, ObservationError, abbreviated
from trl_vade.samplers.information import information_gain
from trl_vade.samplers.posterior import BetaPosterior
from trl_vade.samplers.strata import largest

from .peers.base import BoolArray, PeerSampler, saved_numbers


def mixed_ratio(pass_rate: FloatArray, num_generations: int) -> FloatArray:
    """Return 1 - p^G - (1 - p)^G, the chance that G completions are neither all right nor all wrong, for each p."""
    mixed: FloatArray = 1.0 - pass_rate**num_generations - (1.0 - pass_rate) ** num_generations
    return mixed


def check_pass_rates(pass_rate: ArrayLike, num_samples: int) -> FloatArray:
    """Return (N,) pass rates as a new array, or raise `ObservationError` unless they are N numbers in [0, 1]."""
    p = as_vector("pass_rate", pass_rate, kinds="biuf").astype(np.float64)
    if p.size != num_samples or not ((p >= 0) & (p <= 1)).all():
        raise ObservationError(
            f"pass_rate is {abbreviated(p.tolist())}; it must hold {num_samples} probabilities in [0, 1], one for "
            "each row. Pass how likely a completion of each row is to be right."
        )
    return p


class OracleSampler(PeerSampler):
    """Choose the K rows with the largest gain at their true pass rates, which a simulation tells it.

        ratio        1 - p^G - (1 - p)^G    the probability that a group of G completions has a gradient
        symmetric    p (1 - p)              asymmetric   p (1 - p)^2, as VADE

    Rows of equal gain are chosen at random. `Draw` has the true rates and the gain. Observations change no choice, but
    for the cooldown.

    Args:
        num_samples: N, at least 1.
        num_generations: G, at least 2.
        pass_rate: (N,) in [0, 1], or None: then `set_pass_rates` comes before the first draw.
        seed: in [0, 2**63).
        gain: "ratio", "symmetric" or "asymmetric".
        cooldown: steps for which a scored row rests, as in `ThompsonSampler`.

    Raises:
        ConfigurationError, ObservationError: an argument is outside its range; the latter for `pass_rate`.
    """

    kind = "oracle"

    def __init__(
        self,
        num_samples: int,
        *,
        num_generations: int,
        pass_rate: ArrayLike | None = None,
        seed: int = 0,
        gain: str = "ratio",
        cooldown: int = 0,
    ) -> None:
        if gain not in ("ratio", "symmetric", "asymmetric"):
            raise ConfigurationError(f"gain is {gain!r}; it must be 'ratio', 'symmetric' or 'asymmetric'. Set one.")
        generations = check_whole_number("num_generations", num_generations, minimum=2, advice="The paper has 8.")
        super().__init__(BetaPosterior(num_samples), seed, {"num_generations": generations, "gain": gain})
        self._cooldown = cooldown
        self._pass_rate: FloatArray | None = None  # (N,)
        self._mixed: FloatArray | None = None  # (N,)
        if pass_rate is not None:
            self.set_pass_rates(pass_rate)

    def set_pass_rates(self, pass_rate: ArrayLike, mixed: ArrayLike | None = None) -> None:
        """Tell the true pass rates, (N,) in [0, 1]; the draws that follow rest on them.

        `mixed`, (N,) in [0, 1], is how likely a group has a gradient where that does not follow from the pass rates.
        """
        self._pass_rate = check_pass_rates(pass_rate, self.posterior.num_samples)
        self._mixed = None if mixed is None else check_pass_rates(mixed, self.posterior.num_samples)

    def _choose(self, k: int, free: BoolArray, generator: np.random.Generator) -> tuple[IntArray, FloatArray]:
        if self._pass_rate is None:
            raise ConfigurationError("The oracle has no pass rates to choose by; call set_pass_rates before draw.")
        # `largest` takes the first of equals: they are shuffled, and rounded, or p and 1 - p would not be equals.
        order = generator.permutation(np.flatnonzero(free))
        gain = self._gain(self._pass_rate[order]) if self._mixed is None else self._mixed[order]
        if self._cooldown:
            last = self.posterior.last_update[order]
            gain = gain - np.where(last > 0, np.maximum(last + self._cooldown - self.posterior.step, 0), 0)
        rows = order[largest(np.round(gain, 12), k)]
        return rows, self._pass_rate[rows]

    def _gain(self, pass_rate: FloatArray) -> FloatArray:
        if self._settings["gain"] == "ratio":
            return mixed_ratio(pass_rate, self._settings["num_generations"])
        return information_gain(pass_rate, self._settings["gain"])

    def _recall(self) -> dict[str, Any]:
        return {"pass_rate": None if self._pass_rate is None else self._pass_rate.tolist()}

    def _remember(self, memory: Mapping[str, Any]) -> None:
        p, size = memory["pass_rate"], self.posterior.num_samples
        self._pass_rate = None if p is None else np.array(saved_numbers("p", p, float, low=0.0, high=1.0, size=size))
