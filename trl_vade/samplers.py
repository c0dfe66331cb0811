"""Which rows are rolled out next: Thompson sampling over the posterior (VADE), or every row in turn (vanilla GRPO).

Source: VADE, arXiv 2511.18902, Algorithm 1. Axis letters: N rows of the data set, K rows drawn for a generation batch.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from .checks import IntArray, check_fields, check_same, check_whole_number
from .errors import ConfigurationError, SnapshotCorruptError
from .information import check_gain_kind, information_gain
from .order import largest, stock_order
from .posterior import BetaPosterior, beta_mean
from .prompt_sampler import Draw


class _PosteriorSampler:
    """What both samplers share: a seed, a posterior that takes in every outcome, and the state."""

    kind: ClassVar[str]

    def __init__(
        self, posterior: BetaPosterior, seed: int, settings: dict[str, Any], progress_limits: dict[str, int]
    ) -> None:
        self.posterior = posterior
        self._seed = check_whole_number(
            "seed",
            seed,
            minimum=0,
            maximum=2**63 - 1,
            advice="It is the key of the random numbers; any number in that range will do.",
        )
        self._settings = {**settings, **posterior.decays}
        # How far the random stream has been used, in whole numbers that start at 0, and the largest that each can be.
        self._progress_limits = progress_limits
        self._progress = dict.fromkeys(progress_limits, 0)

    def observe(self, sample_index: ArrayLike, successes: ArrayLike, trials: ArrayLike) -> None:
        """Take one step of the posterior; see `BetaPosterior.observe`."""
        self.posterior.observe(sample_index, successes, trials)

    def metrics(self) -> dict[str, float]:
        """Return `coverage`, the share of rows visited, and `mean_pass_rate`, the posterior mean averaged over N."""
        return {
            "coverage": float(np.mean(self.posterior.visits > 0)),
            "mean_pass_rate": float(self.posterior.posterior_mean.mean()),
        }

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state; `type(sampler)(num_samples, seed=seed, **settings)` is one that can load it."""
        return {
            "kind": self.kind,
            "seed": self._seed,
            **self._progress,
            "settings": dict(self._settings),
            "posterior": self.posterior.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned: the next draws are bit-identical. On an error nothing changes.

        The seed is compared and not taken over: a run that asks for seed 1 and goes on with 0 would surprise.

        Raises:
            SnapshotMismatchError: another kind of sampler, seed, setting, N or set of fields; both sides are named.
            SnapshotCorruptError: numbers that no run can have saved.
        """
        # The kind goes first. The fields follow from it, and would make the worse message.
        if isinstance(state, Mapping) and "kind" in state:
            check_same("sampler", state, {"kind": self.kind})
        check_fields("sampler", state, ["kind", "seed", *self._progress, "settings", "posterior"])
        check_fields("settings of the sampler", state["settings"], self._settings)
        check_same("sampler", {"seed": state["seed"], **state["settings"]}, {"seed": self._seed, **self._settings})
        progress = {
            name: check_whole_number(
                f"The saved {name}",
                state[name],
                minimum=0,
                maximum=limit,
                advice="The file was damaged or edited; load an earlier snapshot.",
                error=SnapshotCorruptError,
            )
            for name, limit in self._progress_limits.items()
        }
        self.posterior.load_state_dict(state["posterior"])  # the last step that can fail, and it is all or nothing
        self._progress = progress

    def _check_k(self, k: int) -> int:
        num_samples = self.posterior.num_samples
        return check_whole_number(
            "k",
            k,
            minimum=1,
            maximum=num_samples,
            advice=f"The rows of a generation batch are distinct and the data set has {num_samples}: make the batch "
            "smaller or the data set larger.",
        )


class ThompsonSampler(_PosteriorSampler):
    """Choose the K rows whose sampled pass rate promises the largest information gain.

        p~_i ~ Beta(alpha_i + 1, beta_i + 1)    for all N rows
        I_i  = information_gain(p~_i)           (eq. 4)

    A row that is little known is drawn all over [0, 1], so it is explored; a row known to be too easy or too hard is
    not. Each draw is a pure function of the seed, the number of draws made before and the posterior, for one release
    of numpy (which may change how a Beta variate is made, not how the bits under it are).

    Source: arXiv 2511.18902, Algorithm 1, lines 6-9.

    Args:
        num_samples: N, at least 1.
        seed: in [0, 2**63).
        gain: "asymmetric" p(1 - p)^2, or "symmetric" p(1 - p), an ablation of the paper.
        greedy: use the posterior mean in place of a sampled pass rate, an ablation of the paper. Ties are common
            then: a fresh greedy sampler takes the rows in their order.
        decay_sampled, decay_unsampled: lambda_1 and lambda_2 of the `BetaPosterior`.

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
    ) -> None:
        check_gain_kind(gain)
        if not isinstance(greedy, bool):
            raise ConfigurationError(
                f"greedy is {greedy!r}; it must be True or False, since any other value is a slip."
            )
        posterior = BetaPosterior(num_samples, decay_sampled=decay_sampled, decay_unsampled=decay_unsampled)
        super().__init__(posterior, seed, {"gain": gain, "greedy": greedy}, {"num_draws": 2**63 - 1})

    def draw(self, k: int) -> Draw:
        """Return the `k` rows with the largest gains, in falling order; of equal gains the lower row comes first.

        Raises:
            ConfigurationError: `k` is not a whole number in [1, N].
        """
        k = self._check_k(k)
        alpha, beta = self.posterior.counts()
        mean = beta_mean(alpha, beta)
        pass_rate = mean if self._settings["greedy"] else self._generator().beta(alpha + 1.0, beta + 1.0)
        gain = information_gain(pass_rate, self._settings["gain"])
        rows = largest(gain, k)
        self._progress["num_draws"] += 1
        return Draw(rows, pass_rate[rows], gain[rows], mean[rows])

    def _generator(self) -> np.random.Generator:
        # Philox is counter-based: each key is a stream of its own, so a draw needs no state but its number.
        key = np.array([self._seed, self._progress["num_draws"]], dtype=np.uint64)
        return np.random.Generator(np.random.Philox(key=key))


class UniformSampler(_PosteriorSampler):
    """Choose every row once an epoch, in the order of the stock `GRPOTrainer` with the same seed: vanilla GRPO.

    An epoch is one permutation. As with TRL's `RepeatSampler`, a draw that does not fit into what is left of it
    starts the next one, and the rest is dropped.

    Outcomes are observed as by `ThompsonSampler`, so that the figures of both can stand side by side, and no choice
    rests on them. In a `Draw` the sampled pass rate is the posterior mean and the gain is the asymmetric one of that
    mean.

    Args:
        num_samples: N, at least 1 and below 2**32 / 20 = 214,748,364, where torch changes its algorithm.
        seed: in [0, 2**63).
        decay_sampled, decay_unsampled: lambda_1 and lambda_2 of the `BetaPosterior`.

    Raises:
        ConfigurationError: an argument is outside its range.
    """

    kind = "uniform"

    def __init__(
        self, num_samples: int, *, seed: int = 0, decay_sampled: float = 0.2, decay_unsampled: float = 0.999
    ) -> None:
        check_whole_number(
            "num_samples",
            num_samples,
            minimum=1,
            maximum=2**32 // 20 - 1,
            advice="The order is that of torch.randperm, which is another one for longer data sets. Use a part of "
            "the rows.",
        )
        posterior = BetaPosterior(num_samples, decay_sampled=decay_sampled, decay_unsampled=decay_unsampled)
        # An epoch is found by going through the random numbers of all before it. No run takes 2**30 rows; a damaged
        # file may say so, and the next draw would not end.
        super().__init__(posterior, seed, {}, {"epoch": 2**30 // num_samples, "position": num_samples})
        self._cached_order: tuple[int, IntArray] = (-1, np.empty(0, dtype=np.int64))  # epoch, (N,)

    def draw(self, k: int) -> Draw:
        """Return the next `k` rows of the permutation.

        Raises:
            ConfigurationError: `k` is not a whole number in [1, N].
        """
        k = self._check_k(k)
        epoch, position = self._progress["epoch"], self._progress["position"]
        if position + k > self.posterior.num_samples:
            epoch, position = epoch + 1, 0
        rows = self._order(epoch)[position : position + k].copy()
        self._progress = {"epoch": epoch, "position": position + k}
        mean = beta_mean(*self.posterior.counts(rows))
        return Draw(rows, mean.copy(), information_gain(mean), mean)

    def _order(self, epoch: int) -> IntArray:
        if self._cached_order[0] != epoch:
            self._cached_order = (epoch, stock_order(self.posterior.num_samples, self._seed, epoch))
        return self._cached_order[1]
