"""Factories: the sampler, the reward signal and the selection for a trainer's settings."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
from accelerate.logging import get_logger
from trl import GRPOConfig

from trl_vade.data.row_views import prompt_texts, row_labels
from trl_vade.errors import ConfigurationError, abbreviated
from trl_vade.samplers import ThompsonSampler, UniformSampler
from trl_vade.samplers.base import PosteriorSampler
from trl_vade.samplers.own import make_own
from trl_vade.samplers.priors import prompt_words
from trl_vade.samplers.problems import VariantRows
from trl_vade.selection.batch_metrics import VariantMetrics
from trl_vade.selection.feedback import Feedback
from trl_vade.selection.log import SelectionLog
from trl_vade.selection.on_time import OnTimeSelection
from trl_vade.selection.success import AUTO, SPREAD, RewardSignal, names_of_success, success_name

from .presets import is_own, setting
from .variants import variant_rows

logger = get_logger(__name__)


def make_sampler(
    args: Any,
    num_samples: int,
    *,
    num_groups: int,
    stratify: list[Any] | None = None,
    variants: VariantRows | None = None,
    prompts: Iterable[str] | None = None,
) -> PosteriorSampler:
    """Return a new sampler for N = `num_samples` rows and generation batches of K = `num_groups` rows.

    `args` holds all settings of VADE, the seed, and G where rows rest by even draws. `stratify` are labels, (N,): the
    column `vade_stratify_by`. `variants` tells which rows are variants of which. `prompts` are the N texts from which
    the prior of `vade_preset="balanced"` guesses; None: no text has a word.
    """
    kind, seed = setting(args, "sampler"), args.seed
    more = {name: setting(args, name) for name in ("decay_sampled", "decay_unsampled", "signal_aware_decay")}
    if is_own(args):
        return make_own(kind, num_samples, seed=seed, **more)
    size = num_samples  # rows of an epoch; of a problem, its groups in a generation batch
    if variants is not None:
        groups, match = args.vade_variant_groups, args.vade_variant_match
        more |= {"variants": variants, "variant_groups": groups, "variant_match": match}
        drawn = (variants.kind == 0) & (variants.num_variants >= groups)  # the problems that can be
        size = np.count_nonzero(drawn) * (1 + groups) if groups else num_samples
    if kind == "uniform":
        return UniformSampler(num_samples, seed=seed, **more)
    prior = setting(args, "prior")
    if prior == "prompts":
        more["words"] = prompt_words([""] * num_samples if prompts is None else prompts)
    if setting(args, "even_rest"):
        more |= {"even_rest": cooldown_steps(1.0, size, num_groups), "num_generations": args.num_generations}
    return ThompsonSampler(
        num_samples,
        seed=seed,
        gain=setting(args, "information_gain"),
        greedy=kind == "greedy",
        cooldown=cooldown_steps(setting(args, "cooldown"), size, num_groups),
        prior=prior,
        stratify=stratify,
        **more,
    )


def cooldown_steps(share: float, num_samples: int, num_groups: int) -> int:
    """Return `share` of an epoch of `num_samples` rows in generation batches of `num_groups`, rounded."""
    return round(share * num_samples / num_groups)


def make_signal(args: GRPOConfig, reward_names: list[str], say: Callable[[str], Any] = logger.warning) -> RewardSignal:
    """Return the signal that turns rewards into outcomes, and log which of several rewards decides success.

    `say` is called with each later message. A success that no name tells, and is needed, is a `ConfigurationError`.
    """
    name, threshold = success_name(reward_names, args.vade_success_reward), args.vade_success_threshold
    reads = {  # of pass rates, which spreads are not
        "vade_sampler": is_own(args),
        "vade_variant_match": args.vade_variant_match == "difficulty",
        "vade_advantage": args.vade_advantage == "diva",
        "vade_success_threshold": threshold not in (AUTO, SPREAD),
    }
    of_pass_rates = {name: setting(args, name.removeprefix("vade_")) for name, is_read in reads.items() if is_read}
    if of_pass_rates and (name is None or threshold == SPREAD):
        raise ConfigurationError(
            f"{abbreviated(of_pass_rates)} needs successes, but rows would be chosen by the spread of their rewards: "
            f"vade_success_threshold={threshold!r}, vade_success_reward={args.vade_success_reward!r}, reward "
            f"functions {', '.join(reward_names)}. Set vade_success_reward to the name of the function that decides "
            "whether an answer is right, and vade_success_threshold to 'auto' or a number."
        )
    if threshold == AUTO and of_pass_rates:
        threshold = None  # fractions; with rewards of two values these are the same successes
    if len(reward_names) > 1:
        told = [name] if args.vade_success_reward else names_of_success(reward_names)
        how = f"{name!r} decides success" if name else "rows are chosen by the spread of their total rewards"
        logger.warning_once(
            f"{len(told)} of the {len(reward_names)} reward functions {', '.join(reward_names)} mean success"
            f"{' by their names' * (args.vade_success_reward is None)}, so {how}. A row for which it returns None for "
            "all completions is chosen by the spread of its total rewards. Set vade_success_reward to change this."
        )
    return RewardSignal(name, reward_names, threshold=threshold, say=say)


def warn(args: GRPOConfig, message: str) -> None:
    """Log a warning about a run, and leave it as an alert where trackio is on."""
    logger.warning(message)
    if "trackio" in args.report_to:
        import trackio

        with suppress(RuntimeError):  # before `trackio.init`
            trackio.alert(message.partition(". ")[0], message)


def make_selection(trainer: Any) -> OnTimeSelection:
    """Return a new selection over the present training rows of `trainer`."""
    args, rows, accelerator = trainer.args, trainer.train_dataset, trainer.accelerator
    num_groups = args.generation_batch_size // args.num_generations
    plain = rows.with_format(None)  # plain labels, whatever the format of the rows
    stratify = args.vade_stratify_by and plain[args.vade_stratify_by][:]
    variants, prompts = variant_rows(rows, args), prompt_texts(rows)
    say = partial(warn, args)
    feedback = Feedback(
        make_sampler(args, len(rows), num_groups=num_groups, stratify=stratify, variants=variants, prompts=prompts),
        num_generations=args.num_generations,
        log=SelectionLog(args.output_dir),
        writes=accelerator.is_main_process,
        stratify=stratify and row_labels(rows, args.vade_stratify_by, np.arange(len(rows))),  # by name
        variants=variants and VariantMetrics(variants, args.vade_variant_groups),
        signal=make_signal(args, trainer.reward_func_names, say),
        say=say,
    )
    # As in TRL: with `remove_unused_columns` a reward function sees no other columns.
    visible = trainer._remove_unused_columns(rows, description="training")
    selection = OnTimeSelection(feedback, visible, num_groups=num_groups, accelerator=accelerator)
    # Rewards get copies. An environment or a rollout function gets the pictures themselves; it is not on with these.
    selection.loader.decoder.shares_pictures = trainer._images.on
    return selection
