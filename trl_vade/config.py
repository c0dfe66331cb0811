"""`VADEGRPOConfig`: TRL's `GRPOConfig` and the seven settings of VADE, refused early when they cannot work."""

import copy
import math
from dataclasses import dataclass, field, fields
from typing import Any

from trl import GRPOConfig

from .errors import ConfigurationError

SAMPLERS = ("thompson", "greedy", "uniform")
INFORMATION_GAINS = ("asymmetric", "symmetric")
POSTERIOR_INITS = ("prior", "rollout")


@dataclass
class VADEGRPOConfig(GRPOConfig):
    """
    Configuration of [`VADEGRPOTrainer`]: every field of `trl.GRPOConfig`, plus those below. Defaults are the paper's.

    Parameters:
        vade_sampler (`str`, *optional*, defaults to `"thompson"`):
            Who chooses the rows of a generation batch. `"thompson"`: the rows with the largest information gain of a
            draw from their posteriors (Algorithm 1). `"greedy"`: the same with the posterior mean in place of the draw
            (the paper's ablation). `"uniform"`: a permutation an epoch, which is vanilla GRPO.
        vade_information_gain (`str`, *optional*, defaults to `"asymmetric"`):
            `"asymmetric"`: p(1-p)^2, eq. 4, largest at p = 1/3. `"symmetric"`: p(1-p), largest at 1/2 (ablation).
        vade_decay_sampled (`float`, *optional*, defaults to `0.2`):
            lambda_1 of eq. 5, in [0, 1]: what a chosen row keeps of its earlier counts in one generation batch.
        vade_decay_unsampled (`float`, *optional*, defaults to `0.999`):
            lambda_2 of eq. 6, in [0, 1]: what any other row keeps. 0.999 is a half-life of 693 generation batches.
        vade_posterior_init (`str`, *optional*, defaults to `"prior"`):
            `"prior"`: every row starts as Beta(1, 1), at no cost. `"rollout"`: Algorithm 1, lines 1-4: one pass of
            `num_generations` rollouts over every row before the first update; these rollouts are counted.
        vade_success_reward (`str` or `None`, *optional*, defaults to `None`):
            Name of the reward function that decides success, as it appears in the logs. Needed when there are several;
            the weighted sum of rewards is never used as a success signal.
        vade_success_threshold (`float` or `None`, *optional*, defaults to `0.5`):
            A completion succeeds when that reward is at least this. `None` takes the reward itself, which must then
            lie in [0, 1], as a fraction of a success.

    Raises:
        ConfigurationError: for a setting that cannot work, when the configuration is made.
    """

    vade_sampler: str = field(
        default="thompson",
        metadata={"help": "Who chooses the rows of a generation batch.", "choices": list(SAMPLERS)},
    )
    vade_information_gain: str = field(
        default="asymmetric",
        metadata={
            "help": "Information gain: asymmetric is p(1-p)^2 (eq. 4), symmetric is p(1-p).",
            "choices": list(INFORMATION_GAINS),
        },
    )
    vade_decay_sampled: float = field(
        default=0.2, metadata={"help": "lambda_1 (eq. 5): what a chosen row keeps of its earlier counts."}
    )
    vade_decay_unsampled: float = field(
        default=0.999, metadata={"help": "lambda_2 (eq. 6): what a row that was not chosen keeps of its counts."}
    )
    vade_posterior_init: str = field(
        default="prior",
        metadata={
            "help": "prior: Beta(1,1) for every row. rollout: one pass of rollouts over all rows first (Algorithm 1).",
            "choices": list(POSTERIOR_INITS),
        },
    )
    vade_success_reward: str | None = field(
        default=None,
        metadata={"help": "Name of the reward function that decides success; needed when there are several."},
    )
    vade_success_threshold: float | str | None = field(
        default=0.5,
        metadata={"help": "Success is a reward of at least this. None takes rewards in [0, 1] as fractions."},
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        # A YAML recipe hands over a number or None, the command line a string (`--vade_success_threshold none`).
        if isinstance(self.vade_success_threshold, str):
            self.vade_success_threshold = _threshold(self.vade_success_threshold)
        validate(self)


def with_vade_defaults(args: GRPOConfig) -> GRPOConfig:
    """Return `args` itself if it has VADE's fields, else a copy that has them at their defaults, validated.

    A plain `GRPOConfig` (or a subclass of the user's own) keeps its class: building a new configuration from it would
    run `__post_init__` twice, which TRL 1.16 refuses (`generation_batch_size` and `steps_per_generation` both set).
    """
    if isinstance(args, VADEGRPOConfig):
        return args
    args = copy.copy(args)
    for name, default in VADE_DEFAULTS.items():
        setattr(args, name, getattr(args, name, default))
    validate(args)
    return args


def chooses(args: GRPOConfig) -> bool:
    """Whether the sampler chooses rows by what it knows of them (thompson, greedy), as opposed to taking turns."""
    return vade(args, "sampler") != "uniform"


def vade(args: GRPOConfig, name: str) -> Any:
    """The setting `vade_<name>`; `args` may be a plain `GRPOConfig` that went through `with_vade_defaults`."""
    return getattr(args, f"vade_{name}")


def validate(args: GRPOConfig) -> None:
    """Refuse settings that cannot work. Raises `ConfigurationError` that names the value, the rule and the way out."""
    for name, known in (
        ("sampler", SAMPLERS),
        ("information_gain", INFORMATION_GAINS),
        ("posterior_init", POSTERIOR_INITS),
    ):
        if vade(args, name) not in known:
            raise ConfigurationError(
                f"vade_{name}={vade(args, name)!r} is not known. Set vade_{name} to one of {', '.join(known)}."
            )
    for name in ("decay_sampled", "decay_unsampled"):
        if not 0.0 <= vade(args, name) <= 1.0:
            raise ConfigurationError(
                f"vade_{name}={vade(args, name)} is outside [0, 1]. It is the share of the counts that a row keeps in "
                f"one generation batch: 1 forgets nothing, 0 forgets everything (the paper uses 0.2 and 0.999)."
            )
    threshold = vade(args, "success_threshold")
    if threshold is not None and not math.isfinite(threshold):
        raise ConfigurationError(
            f"vade_success_threshold={threshold} is no reward that an answer could reach. Set a finite number (0.5 "
            "for rewards of 0 and 1), or None to take rewards in [0, 1] as fractions."
        )
    if args.num_generations < 2:
        raise ConfigurationError(
            f"num_generations={args.num_generations}: a group needs at least 2 completions, or its rewards have no "
            "spread and no row ever teaches anything. Set num_generations to 2 or more (the paper uses 8)."
        )
    if chooses(args):
        _validate_choosing(args)
    elif vade(args, "posterior_init") == "rollout":
        raise ConfigurationError(
            "vade_posterior_init='rollout' with vade_sampler='uniform' would spend num_generations rollouts on every "
            "row for a posterior that no choice rests on. Set vade_posterior_init='prior'."
        )


def _threshold(text: str) -> float | None:
    """Read `--vade_success_threshold` from the command line."""
    if text.lower() in ("none", "null"):
        return None
    try:
        return float(text)
    except ValueError as error:
        raise ConfigurationError(
            f"vade_success_threshold={text!r} is no number. Set the reward from which an answer counts as right (0.5 "
            "for rewards of 0 and 1), or none to take rewards in [0, 1] as fractions."
        ) from error


def _validate_choosing(args: GRPOConfig) -> None:
    """What cannot work when rows are chosen at the moment a generation batch is needed."""
    for name in ("split_batches", "dispatch_batches"):
        if getattr(args.accelerator_config, name):
            raise ConfigurationError(
                f"accelerator_config.{name}=True with vade_sampler={vade(args, 'sampler')!r}: then one process reads "
                "the loader for all of them, but the rows of a generation batch are chosen on every process after the "
                f"loader. Set accelerator_config.{name}=False, or vade_sampler='uniform'."
            )
    if not args.shuffle_dataset:
        raise ConfigurationError(
            f"shuffle_dataset=False asks for the rows in file order, and vade_sampler={vade(args, 'sampler')!r} "
            "chooses them by what it knows of them: both cannot be had. Set shuffle_dataset=True, or "
            "vade_sampler='uniform'."
        )


VADE_DEFAULTS = {f.name: f.default for f in fields(VADEGRPOConfig) if f.name.startswith("vade_")}
