"""The sampler that a trainer's settings ask for."""

from typing import Any

from trl import GRPOConfig

from trl_vade.errors import ConfigurationError, abbreviated
from trl_vade.samplers import ThompsonSampler, UniformSampler
from trl_vade.samplers.base import PosteriorSampler
from trl_vade.samplers.registry import PEER_SAMPLERS

from .presets import setting


def make_sampler(
    args: GRPOConfig,
    num_samples: int,
    *,
    num_groups: int,
    strata: list[Any] | None = None,
    stratify: list[Any] | None = None,
) -> PosteriorSampler:
    """Return a fresh sampler.

    Args:
        args: with VADE's fields, validated.
        num_samples: N, rows of the training set.
        num_groups: K, rows of a generation batch.
        strata: (N,) labels, the column `vade_strata`.
        stratify: (N,) labels, the column `vade_stratify_by`.

    Raises:
        ConfigurationError: the settings do not fit the sampler or the rows.
    """
    kind, seed = setting(args, "sampler"), args.seed
    if kind in PEER_SAMPLERS:
        kwargs = dict(setting(args, "sampler_kwargs") or {}) | ({"task": strata} if kind == "sec" else {})
        try:
            return PEER_SAMPLERS[kind](num_samples, seed=seed, **kwargs)
        except TypeError as error:
            raise ConfigurationError(
                f"vade_sampler_kwargs={abbreviated(setting(args, 'sampler_kwargs'))} does not fit "
                f"vade_sampler={kind!r} ({error}). Its arguments are those of "
                f"trl_vade.samplers.peers.{PEER_SAMPLERS[kind].__name__}."  # type: ignore[attr-defined]
            ) from error
    decays = {name: setting(args, name) for name in ("decay_sampled", "decay_unsampled", "signal_aware_decay")}
    if kind == "uniform":
        return UniformSampler(num_samples, seed=seed, **decays)
    return ThompsonSampler(
        num_samples,
        seed=seed,
        gain=setting(args, "information_gain"),
        greedy=kind == "greedy",
        cooldown=cooldown_steps(setting(args, "cooldown"), num_samples, num_groups),
        prior=setting(args, "prior"),
        strata=strata,
        uniform_share=setting(args, "uniform_share"),
        stratify=stratify,
        **decays,
    )


def cooldown_steps(share: float, num_samples: int, num_groups: int) -> int:
    """Return `share` of an epoch of `num_samples` rows in generation batches of `num_groups`, rounded."""
    return round(share * num_samples / num_groups)
