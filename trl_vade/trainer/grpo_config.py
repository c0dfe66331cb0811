"""`VADEGRPOConfig`: TRL's `GRPOConfig` and the settings of VADE, refused early when they cannot work."""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any

from trl import GRPOConfig

from trl_vade.errors import ConfigurationError, abbreviated
from trl_vade.samplers.information import INFORMATION_GAINS
from trl_vade.samplers.prior import PRIORS
from trl_vade.samplers.registry import SAMPLERS
from trl_vade.selection.signal import AUTO, SPREAD

from .config_checks import validate
from .presets import ON_MISMATCH, PRESETS


def described(default: Any, text: str, choices: Iterable[str] | None = None) -> Any:
    """Return a dataclass field whose help and choices the command line shows; a list as default is made anew."""
    metadata = {"help": text} | ({} if choices is None else {"choices": list(choices)})
    if isinstance(default, list):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass
class VADEGRPOConfig(GRPOConfig):
    """
    Configuration of [`VADEGRPOTrainer`]: every field of `trl.GRPOConfig`, plus those below.

    Parameters:
        vade_preset (`str`, *optional*, defaults to `"frontier"`):
            What the settings that are `None` by default stand for. `"paper"`: arXiv 2511.18902 to the letter (the
            asymmetric gain, lambda_1 for every chosen row, no cooldown). `"frontier"`: the paper's gain with
            signal-aware decay and a cooldown of 0.2 epochs: rows that are never solved are written off, and what was
            just trained on rests. `"robust"`: the same with the symmetric gain, for pools with much that cannot be
            learned.
        vade_sampler (`str`, *optional*, defaults to `"thompson"`):
            Who chooses the rows of a generation batch. `"thompson"`: the rows with the largest information gain of a
            draw from their posteriors (Algorithm 1). `"greedy"`: the same with the posterior mean in place of the draw
            (the paper's ablation). `"uniform"`: a permutation an epoch, which is vanilla GRPO, bit for bit, with five
            exceptions: vision placeholders cannot be sampled; a transform of the data set runs once for each chosen
            row and not for each completion, which differs where it draws at random; an infinite reward is refused; a
            resumed run goes on inside its epoch in spite of `ignore_data_skip`; generation with vLLM is
            corrected. `"mopps"`, `"bots"`, `"sec"`, `"difficulty_pools"`, `"greso"`: other published rules, see
            `trl_vade.samplers.peers`; of the settings below only `vade_sampler_kwargs` and, for SEC, `vade_strata`
            reach them.
        vade_sampler_kwargs (`dict` or `None`, *optional*):
            Arguments for the constructor of one of those other rules.
        vade_information_gain (`str` or `None`, *optional*):
            `"asymmetric"`: p(1-p)^2, eq. 4, largest at p = 1/3: hard rows before easy ones. `"symmetric"`: p(1-p),
            largest at 1/2: impossible and mastered rows are avoided alike. `None`: the preset's.
        vade_signal_aware_decay (`bool` or `None`, *optional*):
            Apply lambda_1 only to a chosen row that had right and wrong answers, else lambda_2: a group without a
            gradient trained nothing, so its evidence may add up. `None`: the preset's.
        vade_cooldown (`float` or `None`, *optional*):
            A share of an epoch, in [0, 1): a row is not chosen again within it, that is, for `vade_cooldown` x rows /
            rows of a generation batch (rounded) generation batches. `None`: the preset's.
        vade_decay_sampled (`float`, *optional*, defaults to `0.2`):
            lambda_1 of eq. 5, in [0, 1]: what a chosen row keeps of its earlier counts in one generation batch.
        vade_decay_unsampled (`float`, *optional*, defaults to `0.999`):
            lambda_2 of eq. 6, in [0, 1]: what any other row keeps. 0.999 is a half-life of 693 generation batches.
        vade_prior (`str`, *optional*, defaults to `"flat"`):
            The belief about a row without evidence. `"flat"`: Beta(1, 1). `"learned"`: a Beta distribution fitted to
            the rows seen so far, within bounds; sharper predictions, no gain in score shown.
        vade_strata (`str` or `None`, *optional*):
            Column of the training set that holds each row's task or source: a learned prior for each (thompson,
            greedy; needs `vade_prior="learned"`), the arms of SEC.
        vade_stratify_by (`str` or `None`, *optional*):
            Column of the training set that holds each row's task, domain or source. Each of its values then has its
            proportional share of every generation batch, and its best rows are chosen within it, so that no domain
            starves (thompson, greedy). `None`: the best rows of all.
        vade_uniform_share (`float`, *optional*, defaults to `0.0`):
            Share of each generation batch, in [0, 1], that is chosen blindly from all other rows.
        vade_posterior_init (`str`, *optional*, defaults to `"prior"`):
            `"prior"`: every row starts as Beta(1, 1), at no cost. `"rollout"`: Algorithm 1, lines 1-4: one pass of
            `num_generations` rollouts over every row before the first update; these rollouts are counted. Else a
            source, which costs nothing: the posterior of another run, as a data-set or model repository on the Hub
            (`"user/repo"`, `"user/repo@revision"`) or a folder here (a checkpoint, an output directory, the layout of
            such a repository). Rows are found again by their `id` or their content; see `warm_start`.
        vade_warm_start_discount (`float`, *optional*, defaults to `0.2`):
            Share of the source's counts that is taken over, in (0, 1]. They are evidence about another policy, or an
            earlier one: 0.2 is lambda_1, as if every row had been trained on once since.
        vade_warm_start_min_match (`float`, *optional*, defaults to `0.5`):
            In [0, 1]. A source is refused where a smaller share of its rows (of the rows here, where these are fewer)
            is found here: it is of another data set. 0 accepts any.
        vade_dynamic_sampling (`bool`, *optional*, defaults to `False`):
            DAPO's dynamic sampling (arXiv 2503.14476): groups without a gradient are dropped after scoring, and the
            next draw refills the generation batch until it is full. Every rollout is counted and observed, and
            schedules stay in optimiser steps. Works with every sampler.
        vade_max_refills (`int`, *optional*, defaults to `10`):
            Refills of one generation batch at most; then it goes on with what there is, and says so.
        vade_success_reward (`str` or `None`, *optional*, defaults to `None`):
            Name of the reward function that decides success, as it appears in the logs. `None`: the only one, or the
            only one whose name says so (accuracy, correct, answer, exact, match, solve, verify; not format, length,
            ...). Where no name tells, rows are known by the spread of their total rewards.
        vade_success_threshold (`float`, `str` or `None`, *optional*, defaults to `"auto"`):
            A completion succeeds when that reward is at least this. `None` takes the reward as a fraction of a
            success. `"spread"` counts no successes: a row is known by its spread, the share of pairs of a group's
            completions whose rewards differ, and chosen by the largest drawn spread. `"auto"`: success, from halfway
            between them on, where the rewards have two values; else `"spread"` (fractions for the other rules and
            where `vade_information_gain` is set).
        vade_success_bounds (`list` of two `float`, *optional*):
            For fractions: the reward that is no success and the one that is a whole success. `None`: 0 and 1, or the
            lowest and the highest reward of the first 10 generation batches where some lie outside.
        vade_max_prompt_length (`int` or `None`, *optional*):
            Rows whose prompt has more tokens than this, image tokens counted as the processor makes them, are dropped
            from the training and evaluation sets before anything is trained, and the log says how many. The paper:
            8192. `None`: no row is dropped.
        vade_on_mismatch (`str`, *optional*, defaults to `"error"`):
            What a resume does where the checkpoint's posterior is about another run. `"error"`: refuse it, naming both
            sides. `"join"`: go on with the counts of the rows that both data sets have, by their identity (needs the
            same success signal). `"reset"`: go on with the checkpoint's weights and start the posterior again, also
            where the saved one is damaged or missing. The log says what was done.
        vade_outage_guard (`bool`, *optional*, defaults to `True`):
            When all verdicts of a generation batch turn against the posterior at once (a judge that is down answers 0
            to everything), keep the counts of before, and put them back when the verdicts return.
        vade_overwrite_output_dir (`bool`, *optional*, defaults to `False`):
            Whether a run may replace the one that `output_dir` holds. If `True`, `train` first deletes the checkpoints
            of that run, its trainer state and its `vade_` files, and the log names them. If `False`, it refuses such a
            folder. A run that resumes from a checkpoint of the folder deletes nothing.
        vade_posterior_hub_id (`str` or `None`, *optional*):
            Data-set repository on the Hub, `"user/name"` or `"name"`, to which the posterior of every checkpoint is
            published. The token is that of the login or of HF_TOKEN. `None`: it is not published.

    Raises:
        ConfigurationError: for a setting that cannot work, when the configuration is made.
    """

    vade_preset: str = described(
        "frontier",
        "What settings left open stand for: paper is the paper to the letter, frontier its gain without "
        "its faults, robust the symmetric gain.",
        PRESETS,
    )
    vade_sampler: str = described("thompson", "Who chooses the rows of a generation batch.", SAMPLERS)
    vade_sampler_kwargs: dict[str, Any] | str | None = described(
        None, "Arguments for the constructor of one of the other rules, as JSON (mopps: decay, ...)."
    )
    vade_information_gain: str | None = described(
        None,
        "Information gain: asymmetric is p(1-p)^2 (eq. 4), symmetric is p(1-p). Default: the preset's.",
        INFORMATION_GAINS,
    )
    vade_signal_aware_decay: bool | None = described(
        None, "lambda_1 only for a chosen row that had right and wrong answers. Default: the preset's."
    )
    vade_cooldown: float | None = described(
        None, "Share of an epoch within which a row is not chosen again. Default: the preset's."
    )
    vade_decay_sampled: float = described(0.2, "lambda_1 (eq. 5): what a chosen row keeps of its earlier counts.")
    vade_decay_unsampled: float = described(
        0.999, "lambda_2 (eq. 6): what a row that was not chosen keeps of its counts."
    )
    vade_prior: str = described("flat", "Belief about a row without evidence: Beta(1,1), or fitted.", PRIORS)
    vade_strata: str | None = described(None, "Column with each row's task: learned priors, and the arms of sec.")
    vade_stratify_by: str | None = described(
        None, "Column with each row's task: each of its values has its share of every generation batch."
    )
    vade_uniform_share: float = described(0.0, "Share of each generation batch that is chosen blindly.")
    vade_posterior_init: str = described(
        "prior",
        "prior: Beta(1,1) for every row. rollout: one pass of rollouts over all rows first (Algorithm 1). "
        "Else the posterior of another run: user/repo or user/repo@revision on the Hub, or a folder.",
    )
    vade_warm_start_discount: float = described(
        0.2, "Share of the counts of another run's posterior that is taken over, in (0, 1]."
    )
    vade_warm_start_min_match: float = described(
        0.5, "Another run's posterior is refused where a smaller share of its rows is found here."
    )
    vade_dynamic_sampling: bool = described(
        False, "DAPO: drop groups without a gradient and refill the generation batch from the next draw."
    )
    vade_max_refills: int = described(
        10, "Refills of one generation batch at most; then it goes on with what there is."
    )
    vade_success_reward: str | None = described(
        None, "Name of the reward function that decides success; needed when there are several."
    )
    vade_success_threshold: float | str | None = described(
        AUTO,
        "Success is a reward of at least this. none: rewards are fractions of a success. spread: rows are known by "
        "how often two rewards differ. auto: success where the rewards have two values, else spread.",
    )
    vade_success_bounds: list[float] | None = described(
        None, "With vade_success_threshold none: the rewards that are no success and a whole one, e.g. 0 1."
    )
    vade_max_prompt_length: int | None = described(
        None, "Rows with a longer prompt (tokens, those of its images included) are dropped first."
    )
    vade_on_mismatch: str = described(
        "error",
        "On resume from a posterior of other rows or settings: error refuses it, join takes the counts of "
        "the rows that both have, reset starts the posterior again.",
        ON_MISMATCH,
    )
    vade_outage_guard: bool = described(
        True, "Keep the counts of before a reward outage, and put them back when it ends."
    )
    vade_overwrite_output_dir: bool = described(
        False, "Delete the run that output_dir holds when this one starts. Else such a folder is refused."
    )
    vade_posterior_hub_id: str | None = described(
        None, "Data-set repository on the Hub that every checkpoint's posterior is published to."
    )

    _VALID_DICT_FIELDS = [*GRPOConfig._VALID_DICT_FIELDS, "vade_sampler_kwargs"]  # JSON on the command line

    def __post_init__(self) -> None:
        super().__post_init__()
        # A YAML recipe hands over a number or None, the command line a string (`--vade_success_threshold none`).
        if isinstance(self.vade_success_threshold, str):
            self.vade_success_threshold = _threshold(self.vade_success_threshold)
        validate(self)


def with_vade_defaults(args: GRPOConfig) -> GRPOConfig:
    """Set those of VADE's fields that `args` lacks to their defaults, validate all, and return `args`.

    A field can have been set after the configuration was made. A plain `GRPOConfig` stays the object and class that
    it is, as in the stock trainer: what the caller changes in it before training counts.
    """
    for name, default in VADE_DEFAULTS.items():
        setattr(args, name, getattr(args, name, default))
    validate(args)
    return args


def _threshold(text: str) -> float | str | None:
    """Read `--vade_success_threshold` from the command line."""
    words = {"none": None, "null": None, AUTO: AUTO, SPREAD: SPREAD}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return float(text)
    except ValueError as error:
        raise ConfigurationError(
            f"vade_success_threshold={abbreviated(text)} is no number. Set the reward from which an answer counts as "
            "right (0.5 for rewards of 0 and 1), none for fractions of a success, spread, or auto."
        ) from error


VADE_DEFAULTS = {f.name: f.default for f in fields(VADEGRPOConfig) if f.name.startswith("vade_")}
