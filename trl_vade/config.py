"""`VADEGRPOConfig`: TRL's `GRPOConfig` and the nine settings of VADE, refused early when they cannot work."""

import copy
from dataclasses import dataclass, field, fields
from typing import Any

from trl import GRPOConfig

from .checks import shown
from .errors import ConfigurationError

SAMPLERS = ("thompson", "greedy", "uniform")
INFORMATION_GAINS = ("asymmetric", "symmetric")
POSTERIOR_INITS = ("prior", "rollout")
ON_MISMATCH = ("error", "join", "reset")

LARGEST_REWARD = (2 - 2**-23) * 2.0**127
"""The largest finite float32, in which TRL keeps rewards."""


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
        vade_on_mismatch (`str`, *optional*, defaults to `"error"`):
            What a resume does where the checkpoint's posterior is about another run. `"error"`: refuse it, naming both
            sides. `"join"`: go on with the counts of the rows that both data sets have, by their identity (needs the
            same success signal). `"reset"`: go on with the checkpoint's weights and start the posterior again, also
            where the saved one is damaged or missing. The log says what was done.
        vade_outage_guard (`bool`, *optional*, defaults to `True`):
            When all verdicts of a generation batch turn against the posterior at once (a judge that is down answers 0
            to everything), keep the counts of before, and put them back when the verdicts return.

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
    vade_on_mismatch: str = field(
        default="error",
        metadata={
            "help": "On resume from a posterior of other rows or settings: error refuses it, join takes the counts of "
            "the rows that both have, reset starts the posterior again.",
            "choices": list(ON_MISMATCH),
        },
    )
    vade_outage_guard: bool = field(
        default=True,
        metadata={"help": "Keep the counts of before a reward outage, and put them back when it ends."},
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        # A YAML recipe hands over a number or None, the command line a string (`--vade_success_threshold none`).
        if isinstance(self.vade_success_threshold, str):
            self.vade_success_threshold = _threshold(self.vade_success_threshold)
        validate(self)


def with_vade_defaults(args: GRPOConfig) -> GRPOConfig:
    """Return `args` itself if it has VADE's fields, else a copy that has them at their defaults; validated either way.

    A field can have been set after the configuration was made.

    A plain `GRPOConfig` (or a subclass of the user's own) keeps its class: building a new configuration from it would
    run `__post_init__` twice, which TRL 1.16 refuses (`generation_batch_size` and `steps_per_generation` both set).
    """
    if not isinstance(args, VADEGRPOConfig):
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
    _validate_own(args)
    if not isinstance(args.num_generations, int) or args.num_generations < 2:
        raise ConfigurationError(
            f"num_generations={shown(args.num_generations)}: a group needs at least 2 completions, or its rewards "
            "have no spread and no row ever teaches anything. Set num_generations to 2 or more (the paper uses 8)."
        )
    if args.use_vllm and args.vllm_mode == "colocate" and "seed" in (args.generation_kwargs or {}):
        raise ConfigurationError(
            f"generation_kwargs has seed={shown(args.generation_kwargs['seed'])} with vllm_mode='colocate': TRL 1.16 "
            "sends each prompt num_generations times with one set of sampling parameters, so all completions of a "
            "group would be the same one, and no group would have a gradient. Leave it out; `seed` seeds the run."
        )
    if chooses(args):
        _validate_choosing(args)
    elif vade(args, "posterior_init") == "rollout":
        raise ConfigurationError(
            "vade_posterior_init='rollout' with vade_sampler='uniform' would spend num_generations rollouts on every "
            "row for a posterior that no choice rests on. Set vade_posterior_init='prior'."
        )


def _validate_own(args: GRPOConfig) -> None:
    """The values of VADE's fields, each by itself."""
    for name, known in (
        ("sampler", SAMPLERS),
        ("information_gain", INFORMATION_GAINS),
        ("posterior_init", POSTERIOR_INITS),
        ("on_mismatch", ON_MISMATCH),
    ):
        value = vade(args, name)
        if not isinstance(value, str) or value not in known:
            raise ConfigurationError(
                f"vade_{name}={shown(value)} is not known. Set vade_{name} to one of {', '.join(known)}."
            )
    for name in ("decay_sampled", "decay_unsampled"):
        value = vade(args, name)
        if not _is_number(value) or not 0.0 <= value <= 1.0:
            raise ConfigurationError(
                f"vade_{name}={shown(value)} is no number in [0, 1]. It is the share of the counts that a row keeps "
                f"in one generation batch: 1 forgets nothing, 0 forgets everything (the paper uses 0.2 and 0.999)."
            )
    reward = vade(args, "success_reward")
    if reward is not None and (not isinstance(reward, str) or not reward):
        raise ConfigurationError(
            f"vade_success_reward={shown(reward)} is no name. Set it to the name of the reward function that says "
            "whether the answer is right, as it appears in the logs (not the function itself), or to None where there "
            "is only one."
        )
    threshold = vade(args, "success_threshold")
    if threshold is not None and (not _is_number(threshold) or not abs(threshold) <= LARGEST_REWARD):
        raise ConfigurationError(
            f"vade_success_threshold={shown(threshold)} is no reward that an answer could reach: rewards are finite "
            "float32 numbers. Set a finite number (0.5 for rewards of 0 and 1), or None to take rewards in [0, 1] as "
            "fractions."
        )
    if not isinstance(vade(args, "outage_guard"), bool):
        raise ConfigurationError(
            f"vade_outage_guard={shown(vade(args, 'outage_guard'))} is neither True nor False; a text such as 'false' "
            "would count as True. Set one of the two."
        )


def _is_number(value: Any) -> bool:
    """Whether a JSON file can hold it as a number, as trainer_state.json and the posterior's metadata must."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _threshold(text: str) -> float | None:
    """Read `--vade_success_threshold` from the command line."""
    if text.lower() in ("none", "null"):
        return None
    try:
        return float(text)
    except ValueError as error:
        raise ConfigurationError(
            f"vade_success_threshold={shown(text)} is no number. Set the reward from which an answer counts as right "
            "(0.5 for rewards of 0 and 1), or none to take rewards in [0, 1] as fractions."
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
