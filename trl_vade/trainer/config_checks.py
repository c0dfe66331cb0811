"""Settings that cannot work, refused when the configuration is made."""

from typing import Any

from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id
from trl import GRPOConfig

from trl_vade.errors import ConfigurationError, abbreviated
from trl_vade.hub.posteriors.facts import POSTERIOR_INITS
from trl_vade.samplers.information import INFORMATION_GAINS
from trl_vade.samplers.prior import PRIORS
from trl_vade.samplers.registry import PEER_SAMPLERS, SAMPLERS
from trl_vade.selection.signal import AUTO, SPREAD

from .presets import ON_MISMATCH, PRESETS, is_adaptive, may_be_source, setting, warm_start_source

MOST_REFILLS = 1000
LONGEST_PROMPT = 10**9
"""Tokens; a number beyond is a slip."""
LARGEST_REWARD = (2 - 2**-23) * 2.0**127
"""The largest finite float32, in which TRL keeps rewards."""


def validate(args: GRPOConfig) -> None:
    """Refuse settings that cannot work. Raises `ConfigurationError` that names the value, the rule and the way out."""
    _validate_own(args)
    _refuse_tokens(args)
    if not isinstance(args.num_generations, int) or args.num_generations < 2:
        raise ConfigurationError(
            f"num_generations={abbreviated(args.num_generations)}: a group needs at least 2 completions, or its "
            "rewards have no spread and no row ever teaches anything. Set num_generations to 2 or more (the paper "
            "uses 8)."
        )
    if args.use_vllm and args.vllm_mode == "colocate" and "seed" in (args.generation_kwargs or {}):
        raise ConfigurationError(
            f"generation_kwargs has seed={abbreviated(args.generation_kwargs['seed'])} with vllm_mode='colocate': TRL "
            "1.16 sends each prompt num_generations times with one set of sampling parameters, so all completions of "
            "a group would be the same one, and no group would have a gradient. Leave it out; `seed` seeds the run."
        )
    _validate_stratified(args)
    _validate_initial(args)
    if is_adaptive(args):
        _validate_choosing(args)


def _refuse_tokens(args: GRPOConfig) -> None:
    init = args.model_init_kwargs or {}
    tokens = {"hub_token": args.hub_token} | {
        f"model_init_kwargs[{name!r}]": init.get(name) for name in ("token", "use_auth_token")
    }
    for name, value in tokens.items():
        if value and isinstance(value, str):  # True asks for the login; a text is not shown: it must not spread here
            raise ConfigurationError(
                f"{name} is set. The Trainer saves its arguments in clear in training_args.bin, which is uploaded "
                "with the model, so the token would be there for everybody to read. Leave it out, and set the "
                "environment variable HF_TOKEN or run `hf auth login`: the Hub's client finds the token there."
            )


def _validate_own(args: GRPOConfig) -> None:
    """The values of VADE's fields, each by itself."""
    for name, known in (
        ("preset", tuple(PRESETS)),  # first: the others may be left to it
        ("sampler", SAMPLERS),
        ("information_gain", INFORMATION_GAINS),
        ("prior", PRIORS),
        ("on_mismatch", ON_MISMATCH),
    ):
        value = setting(args, name)
        if not isinstance(value, str) or value not in known:
            raise ConfigurationError(
                f"vade_{name}={abbreviated(value)} is not known. Set vade_{name} to one of {', '.join(known)}."
            )
    for name in ("decay_sampled", "decay_unsampled"):
        value = setting(args, name)
        if not is_number(value) or not 0.0 <= value <= 1.0:
            raise ConfigurationError(
                f"vade_{name}={abbreviated(value)} is no number in [0, 1]. It is the share of the counts that a row "
                "keeps in one generation batch: 1 forgets nothing, 0 forgets everything (the paper uses 0.2 and "
                "0.999)."
            )
    cooldown, share = setting(args, "cooldown"), setting(args, "uniform_share")
    if not is_number(cooldown) or not 0.0 <= cooldown < 1.0:
        raise ConfigurationError(
            f"vade_cooldown={abbreviated(cooldown)} is no number in [0, 1). It is a share of an epoch (rows / rows of "
            "a generation batch): a row chosen within it is not chosen again; from 1 on every row would have to take "
            "its turn. Set 0.2 (the default), 0 for none (the paper's rule), or vade_sampler='uniform' for turns."
        )
    if not is_number(share) or not 0.0 <= share <= 1.0:
        raise ConfigurationError(
            f"vade_uniform_share={abbreviated(share)} is no number in [0, 1]. It is the share of each generation "
            "batch that is chosen blindly. Set 0 for none."
        )
    threshold = setting(args, "success_threshold")
    by_name = threshold is None or (isinstance(threshold, str) and threshold in (AUTO, SPREAD))
    if not by_name and not is_reward(threshold):
        raise ConfigurationError(
            f"vade_success_threshold={abbreviated(threshold)} is no reward that an answer could reach: rewards are "
            "finite float32 numbers. Set a finite number (0.5 for rewards of 0 and 1), None for fractions of a "
            "success, 'spread', or 'auto'."
        )
    bounds = setting(args, "success_bounds")
    if bounds is not None and (
        threshold not in (None, AUTO)
        or not isinstance(bounds, list | tuple)
        or len(bounds) != 2
        or not all(map(is_reward, bounds))
        or bounds[0] >= bounds[1]
    ):
        raise ConfigurationError(
            f"vade_success_bounds={abbreviated(bounds)} with vade_success_threshold={threshold!r}. It is for "
            "fractions of a success: the reward that is none and, larger, the reward that is a whole one. Set two "
            "such numbers and vade_success_threshold=None, or vade_success_bounds=None."
        )
    for name, meaning in (
        ("success_reward", "reward function that says whether the answer is right, as it appears in the logs"),
        ("strata", "column of the training set that holds each row's task or source"),
        ("stratify_by", "column whose values (tasks, domains, sources) each have their share of a generation batch"),
    ):
        value = setting(args, name)
        if value is not None and (not isinstance(value, str) or not value):
            raise ConfigurationError(
                f"vade_{name}={abbreviated(value)} is no name. Set it to the name of the {meaning}, or to None."
            )
    for name in ("outage_guard", "signal_aware_decay", "dynamic_sampling", "overwrite_output_dir"):
        if not isinstance(setting(args, name), bool):
            raise ConfigurationError(
                f"vade_{name}={abbreviated(setting(args, name))} is neither True nor False; a text such as 'false' "
                "would count as True. Set one of the two."
            )
    refills = setting(args, "max_refills")
    if not isinstance(refills, int) or isinstance(refills, bool) or not 1 <= refills <= MOST_REFILLS:
        raise ConfigurationError(
            f"vade_max_refills={abbreviated(refills)} is no whole number from 1 to {MOST_REFILLS}. It is how often a "
            "generation batch is refilled at most; each refill costs rollouts. Set 10, or vade_dynamic_sampling=False "
            "for none."
        )
    length = setting(args, "max_prompt_length")
    whole = isinstance(length, int) and not isinstance(length, bool)
    if length is not None and not (whole and 1 <= length <= LONGEST_PROMPT):
        raise ConfigurationError(
            f"vade_max_prompt_length={abbreviated(length)} is no whole number from 1 to {LONGEST_PROMPT}. It is how "
            "many tokens the prompt of a row may have, those of its images included. Set 8192, as the paper, or None."
        )
    _validate_sampler_kwargs(args)
    _validate_hub(args)


def _validate_hub(args: GRPOConfig) -> None:
    """Where the posterior comes from and where it goes."""
    init, discount = setting(args, "posterior_init"), setting(args, "warm_start_discount")
    match = setting(args, "warm_start_min_match")
    if not isinstance(init, str) or not (init in POSTERIOR_INITS or may_be_source(init)):
        raise ConfigurationError(
            f"vade_posterior_init={abbreviated(init)} is not known. Set vade_posterior_init to one of "
            f"{', '.join(POSTERIOR_INITS)}, or to the posterior of another run: 'user/repo' or 'user/repo@revision' "
            "on the Hub, or a folder that is there."
        )
    if not is_number(discount) or not 0.0 < discount <= 1.0:
        raise ConfigurationError(
            f"vade_warm_start_discount={abbreviated(discount)} is no number in (0, 1]. It is the share of the counts "
            "that is taken over from another run's posterior; 0 would take nothing over. Set 0.2 (the default), or "
            "vade_posterior_init='prior' to begin without evidence."
        )
    if not is_number(match) or not 0.0 <= match <= 1.0:
        raise ConfigurationError(
            f"vade_warm_start_min_match={abbreviated(match)} is no number in [0, 1]. It is the share of the rows of "
            "another run's posterior that must be found here. Set 0.5 (the default), or 0 to accept any."
        )
    _validate_hub_id(setting(args, "posterior_hub_id"))


def _validate_hub_id(name: Any) -> None:
    try:
        if name is not None and not isinstance(name, str):
            raise HFValidationError("it is no text")
        validate_repo_id(name)
    except HFValidationError as error:
        raise ConfigurationError(
            f"vade_posterior_hub_id={abbreviated(name)} is no name of a repository: {abbreviated(str(error))}. Set it "
            "to the data-set repository that posteriors are published to, 'user/name' or 'name', or to None."
        ) from error


def _validate_initial(args: GRPOConfig) -> None:
    """A posterior to begin with, where the sampler has no use for it."""
    sampler, init, source = setting(args, "sampler"), setting(args, "posterior_init"), warm_start_source(args)
    if init == "rollout" and not is_adaptive(args):
        raise ConfigurationError(
            "vade_posterior_init='rollout' with vade_sampler='uniform' would spend num_generations rollouts on every "
            "row for a posterior that no choice rests on. Set vade_posterior_init='prior'."
        )
    if source is None or sampler in ("thompson", "greedy"):
        return
    reason = "which knows its rows by a state of another kind, that a posterior does not fill"
    if not is_adaptive(args):
        reason = "which takes every row in turn: no choice would rest on the posterior"
    raise ConfigurationError(
        f"vade_posterior_init={abbreviated(source)} with vade_sampler={sampler!r}, {reason}. Set "
        "vade_posterior_init='prior', or vade_sampler='thompson' or 'greedy'."
    )


def _validate_sampler_kwargs(args: GRPOConfig) -> None:
    """Arguments for a peer's constructor; what they may be, it says itself when the trainer makes it."""
    sampler, kwargs = setting(args, "sampler"), setting(args, "sampler_kwargs")
    if kwargs is None:
        return
    if not isinstance(kwargs, dict) or not all(isinstance(name, str) for name in kwargs):
        raise ConfigurationError(
            f"vade_sampler_kwargs={abbreviated(kwargs)} is no dictionary of names and values. Set it to the arguments "
            "of the sampler, such as {'decay': 0.5}, or to None."
        )
    if kwargs and sampler not in PEER_SAMPLERS:
        raise ConfigurationError(
            f"vade_sampler_kwargs={abbreviated(kwargs)} with vade_sampler={sampler!r}, which has settings of its own "
            f"(vade_*). It is for {', '.join(PEER_SAMPLERS)}. Set it to None."
        )
    if kwargs.keys() & {"seed", "task", "num_samples"}:
        raise ConfigurationError(
            f"vade_sampler_kwargs={abbreviated(kwargs)} names what the trainer gives the sampler itself: the seed is "
            "that of the run, and the task is the column vade_strata. Leave these out."
        )


def _validate_stratified(args: GRPOConfig) -> None:
    sampler, column = setting(args, "sampler"), setting(args, "stratify_by")
    if column is None or sampler in ("thompson", "greedy"):
        return
    reason = "which has a rule of its own for what a batch is made of"
    if not is_adaptive(args):
        reason = "which takes every row once an epoch, so that each value has its share of an epoch without it"
    raise ConfigurationError(
        f"vade_stratify_by={column!r} with vade_sampler={sampler!r}, {reason}. Set vade_stratify_by=None, or "
        "vade_sampler='thompson' or 'greedy'."
    )


def is_reward(value: Any) -> bool:
    """Whether TRL can keep it as a reward."""
    return is_number(value) and abs(value) <= LARGEST_REWARD


def is_number(value: Any) -> bool:
    """Whether a JSON file can hold it as a number, as trainer_state.json and the posterior's metadata must."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _validate_choosing(args: GRPOConfig) -> None:
    """What cannot work when rows are chosen at the moment a generation batch is needed."""
    if setting(args, "sampler") == "sec" and setting(args, "strata") is None:
        raise ConfigurationError(
            "vade_sampler='sec' chooses among tasks and vade_strata is not set. Set vade_strata to the column of the "
            "training set that holds each row's task."
        )
    for name in ("split_batches", "dispatch_batches"):
        if getattr(args.accelerator_config, name):
            raise ConfigurationError(
                f"accelerator_config.{name}=True with vade_sampler={setting(args, 'sampler')!r}: then one process "
                "reads the loader for all of them, but the rows of a generation batch are chosen on every process "
                f"after the loader. Set accelerator_config.{name}=False, or vade_sampler='uniform'."
            )
    if not args.shuffle_dataset:
        raise ConfigurationError(
            f"shuffle_dataset=False asks for the rows in file order, and vade_sampler={setting(args, 'sampler')!r} "
            "chooses them by what it knows of them: both cannot be had. Set shuffle_dataset=True, or "
            "vade_sampler='uniform'."
        )
