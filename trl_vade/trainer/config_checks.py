"""Checks of a run's settings, made when the configuration is made and again when the trainer is."""

import os
from typing import Any

from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id

from trl_vade.errors import ConfigurationError, abbreviated
from trl_vade.hub.posteriors.facts import POSTERIOR_INITS
from trl_vade.samplers.information import INFORMATION_GAINS

from .credentials import refuse_secrets
from .down_sampling import check_down_sampling
from .images.settings import check_images
from .own_sampler import check_sampler
from .presets import CONSOLES, ON_MISMATCH, PRESETS, PRIORS, is_adaptive, setting, warm_start_source
from .success_checks import check_success, is_number
from .variant_checks import check_variants

MOST_REFILLS = 1000
LONGEST_PROMPT = 10**9
"""Tokens. A larger number is a slip."""
CHOICES = {
    "preset": tuple(PRESETS),  # checked first, because other settings may take their values from it
    "information_gain": INFORMATION_GAINS,
    "prior": PRIORS,
    "on_mismatch": ON_MISMATCH,
    "console": CONSOLES,
}
_DECAY = (
    "It is the share of the counts that a row keeps in one generation batch: 1 forgets nothing, 0 forgets everything. "
    "Set the paper's value: 0.2 for vade_decay_sampled, 0.999 for vade_decay_unsampled."
)
RANGES = {
    "decay_sampled": ("[0, 1]", _DECAY),
    "decay_unsampled": ("[0, 1]", _DECAY),
    "cooldown": (
        "[0, 1)",
        "It is the share of an epoch for which a chosen row rests. Set 0.2 (the default), 0 for no rest (the paper's "
        "rule), or vade_sampler='uniform' to take every row once an epoch.",
    ),
    "warm_start_discount": (
        "(0, 1]",
        "It is the share of the other run's counts that is taken over. Set 0.2 (the default), or "
        "vade_posterior_init='prior' to start without evidence.",
    ),
    "warm_start_min_match": (
        "[0, 1]",
        "It is the smallest share of rows that the other run and this data set must have in common. Set 0.5 (the "
        "default), or 0 to accept any.",
    ),
}
"""The range of each setting that is a share, and the advice for a value outside."""
SWITCHES = (
    *("signal_aware_decay", "even_rest", "dynamic_sampling"),
    *("outage_guard", "overwrite_output_dir", "report"),
)
NAMES = {
    "success_reward": "reward function that decides whether an answer is right, as it appears in the logs",
    "variants": "column with the id of each row's original",
    "stratify_by": "column whose values (tasks, domains, sources) each get their share of a generation batch",
}
WHOLE_NUMBERS = {
    "max_refills": (
        MOST_REFILLS,
        "It is the largest number of refills of a generation batch; each refill costs rollouts. Set 10, or "
        "vade_dynamic_sampling=False for no refills.",
    ),
    "max_prompt_length": (
        LONGEST_PROMPT,
        "It is the largest number of tokens of a prompt, image tokens included. Set 8192, as in the paper, or None.",
    ),
}


def validate(args: Any) -> None:
    """Check the settings of `args`, each by itself and then together.

    Raises:
        ConfigurationError: A setting cannot work. The message names the value, the rule and what to set.
    """
    refuse_secrets(args)  # first, since the other messages repeat what was set
    check_values(args)
    if not isinstance(args.num_generations, int) or args.num_generations < 2:
        raise ConfigurationError(
            f"num_generations={abbreviated(args.num_generations)}: a group needs at least 2 completions. The reward "
            "of a single completion has nothing to differ from, so no row would ever teach anything. Set "
            "num_generations to 2 or more (the paper uses 8)."
        )
    if args.use_vllm and args.vllm_mode == "colocate" and "seed" in (args.generation_kwargs or {}):
        raise ConfigurationError(
            f"generation_kwargs has seed={abbreviated(args.generation_kwargs['seed'])} with vllm_mode='colocate'. TRL "
            "1.16 sends each prompt num_generations times with one set of sampling parameters. All completions of a "
            "group would be equal, and no group would have a gradient. Remove it; `seed` seeds the run."
        )
    check_down_sampling(args)
    check_images(args)
    check_variants(args)
    if is_adaptive(args):
        _check_loader(args)


def check_values(args: Any) -> None:
    """Check the settings of VADE that can be judged by themselves. Nothing else is read of `args`."""
    _check_values(args)
    check_success(args)
    _check_repository(setting(args, "posterior_hub_id"))
    _check_sampler(args)


def _refuse(args: Any, name: str, problem: str) -> None:
    raise ConfigurationError(f"vade_{name}={abbreviated(setting(args, name))} {problem}")


def _check_values(args: Any) -> None:
    """Check each setting of VADE by itself."""
    check_sampler(args.vade_sampler)
    for name, known in CHOICES.items():
        value = setting(args, name)
        if not isinstance(value, str) or value not in known:
            _refuse(args, name, f"is not known. Set vade_{name} to one of {', '.join(known)}.")
    for name, (interval, advice) in RANGES.items():
        value = setting(args, name)
        excluded = [end for end, bracket in ((0, "("), (1, ")")) if bracket in interval]
        if not is_number(value) or not 0.0 <= value <= 1.0 or value in excluded:
            _refuse(args, name, f"is not a number in {interval}. {advice}")
    for name, meaning in NAMES.items():
        value = setting(args, name)
        if value is not None and (not isinstance(value, str) or not value):
            _refuse(args, name, f"is not a name. Set it to the name of the {meaning}, or to None.")
    for name in SWITCHES:
        if not isinstance(setting(args, name), bool):
            _refuse(args, name, "is neither True nor False. A text such as 'false' would count as True. Set a bool.")
    for name, (largest, advice) in WHOLE_NUMBERS.items():
        value = setting(args, name)
        whole = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= largest
        if not whole and (value is not None or name == "max_refills"):
            _refuse(args, name, f"is not a whole number from 1 to {largest}. {advice}")
    init = setting(args, "posterior_init")
    if not isinstance(init, str) or not (init in POSTERIOR_INITS or "/" in init or os.path.exists(init)):
        raise ConfigurationError(
            f"vade_posterior_init={abbreviated(init)} is not known. Set it to one of {', '.join(POSTERIOR_INITS)}, or "
            "to the posterior of another run: 'user/repo' or 'user/repo@revision' on the Hub, or an existing folder."
        )


def _check_repository(name: Any) -> None:
    try:
        if name is not None and not isinstance(name, str):
            raise HFValidationError("it is not a text")
        validate_repo_id(name)
    except HFValidationError as error:
        raise ConfigurationError(
            f"vade_posterior_hub_id={abbreviated(name)} is not the name of a repository: {abbreviated(str(error))}. "
            "Set it to the data-set repository that receives the posteriors, 'user/name' or 'name', or to None."
        ) from error


def _check_sampler(args: Any) -> None:
    """Check the settings that only some samplers can use."""
    sampler, source = setting(args, "sampler"), warm_start_source(args)
    if setting(args, "posterior_init") == "rollout" and not is_adaptive(args):
        raise ConfigurationError(
            "vade_posterior_init='rollout' with vade_sampler='uniform' would spend num_generations rollouts on every "
            "row for a posterior that this sampler does not use. Set vade_posterior_init='prior'."
        )
    if sampler not in ("thompson", "greedy"):
        reason = "takes every row once an epoch" if sampler == "uniform" else "has a rule of its own"
        off = {"posterior_init": "'prior'", "stratify_by": "None"}
        for name, value in zip(off, (source, setting(args, "stratify_by")), strict=True):
            if value is not None:
                raise ConfigurationError(
                    f"vade_{name}={abbreviated(value)} with vade_sampler={sampler!r}, which {reason} and cannot use "
                    f"it. Set vade_{name}={off[name]}, or vade_sampler='thompson' or 'greedy'."
                )
    _check_strata_shares(setting(args, "strata_shares"), setting(args, "stratify_by"))


def _check_strata_shares(shares: Any, column: str | None) -> None:
    if shares is None:
        return
    if not isinstance(shares, dict) or not all(
        isinstance(name, str) and is_number(share) and 0 < share <= 1 for name, share in shares.items()
    ):
        raise ConfigurationError(
            f"vade_strata_shares={abbreviated(shares)} is not a dictionary of values and shares in (0, 1]. Set it to "
            "shares of a generation batch, such as {'original': 0.5}, or to None."
        )
    if column is None:
        raise ConfigurationError(
            f"vade_strata_shares={abbreviated(shares)} without vade_stratify_by. The shares are those of values of "
            "a column. Set vade_stratify_by to its name, or vade_strata_shares=None."
        )


def _check_loader(args: Any) -> None:
    """Refuse settings of the data loader that do not work with rows chosen for each generation batch."""
    sampler = setting(args, "sampler")
    for name in ("split_batches", "dispatch_batches"):
        if getattr(args.accelerator_config, name):
            raise ConfigurationError(
                f"accelerator_config.{name}=True with vade_sampler={sampler!r}: one process would read the data "
                "loader for all, but every process chooses the rows of a generation batch behind the loader. Set "
                f"accelerator_config.{name}=False, or vade_sampler='uniform'."
            )
    if not args.shuffle_dataset:
        raise ConfigurationError(
            f"shuffle_dataset=False asks for the rows in file order, and vade_sampler={sampler!r} chooses the rows by "
            "their posterior. Set shuffle_dataset=True, or vade_sampler='uniform'."
        )
