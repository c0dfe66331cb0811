"""`VADEGRPOConfig`: TRL's `GRPOConfig` and the settings of VADE, checked when the configuration is made."""

from dataclasses import dataclass, fields
from typing import Literal

from trl import GRPOConfig

from trl_vade.selection.signal import AUTO

from .config_checks import validate
from .docstring_help import help_from_docstring
from .own_sampler import as_text
from .success_checks import threshold_of


@help_from_docstring
@dataclass
class VADEGRPOConfig(GRPOConfig):
    """Configuration of `VADEGRPOTrainer`: every field of `trl.GRPOConfig`, and the settings of VADE.

    "The paper" is VADE, arXiv 2511.18902. A generation batch is the rows that TRL generates for at once:
    `generation_batch_size / num_generations` rows with `num_generations` completions each.

    Args:
        vade_preset: Chooses the values of settings that are `None`. `"balanced"` changes the paper's rule in four
            ways. Rows that are never solved are chosen less often. A chosen row rests for half an epoch at least, and
            longer where most rows teach. The words of the prompts tell what to expect of new rows. There is no initial
            pass. `"frontier"` has the first and the last of them, and a rest of 0.2 epochs: choices are sharper, and
            few rows come again and again. `"paper"` is Algorithm 1 of the paper, with its initial pass:
            `num_generations` rollouts of every row before the first update. `"paper_symmetric"`, `"paper_greedy"` and
            `"paper_last_update"` are the paper's ablations.
        vade_sampler: Chooses the rows of each generation batch: `"thompson"`, `"greedy"`, `"uniform"`, or a sampler of
            your own. `"thompson"` draws a pass rate from each row's posterior and takes the rows with the largest
            information gain (Algorithm 1 of the paper). `"greedy"` uses the posterior mean instead of a draw, and is
            what `"thompson"` means with `vade_preset="paper_greedy"`. `"uniform"` takes every row once an epoch. It
            equals vanilla GRPO bit for bit, with five exceptions. Vision placeholders cannot be sampled. A transform
            of the data set runs once for each chosen row and not for each completion. An infinite reward is refused. A
            resumed run continues inside its epoch even with `ignore_data_skip`. Generation with vLLM is corrected. A
            sampler of your own is an object with the verbs of `trl_vade.PromptSampler`, or the import path of its
            class, `"package.module:Class"`, which is called with the number of rows and `seed`. See
            docs/guides/own_sampler.md.
        vade_information_gain: How much a row with pass rate p is expected to teach. `"asymmetric"` is p(1-p)^2 (eq. 4
            of the paper), largest at p = 1/3: it prefers hard rows to easy rows. `"symmetric"` is p(1-p), largest at
            p = 1/2: it avoids impossible and mastered rows alike. `None` uses the preset's gain.
        vade_signal_aware_decay: Whether a chosen row forgets by `vade_decay_sampled` only if its group had a gradient:
            different rewards, by any reward function. Any other group trains nothing, so its row forgets by
            `vade_decay_unsampled` and the evidence adds up. `None` uses the preset's value.
        vade_cooldown: Share of an epoch, in [0, 1), for which a chosen row rests. The row is not chosen again for
            `vade_cooldown` x rows / rows of a generation batch (rounded) generation batches. Raise it if the same rows
            come back too often. 0 turns it off, as in the paper. `None` uses the preset's value.
        vade_even_rest: Whether a chosen row rests longer than `vade_cooldown` where selection has little to win: for
            the share of an epoch that even draws would give of groups with a gradient. Before each draw the posterior
            gives that share. Where almost every row teaches, rows then come back about once an epoch. `None` uses the
            preset's value.
        vade_prior: The belief about a row that was not chosen yet. `"flat"`: any pass rate, as in the paper.
            `"prompts"`: the pass rate that a logistic regression on the words of the prompts expects. It is fitted
            anew for each generation batch, to all rows seen. `None` uses the preset's value.
        vade_decay_sampled: Share of its earlier counts, in [0, 1], that a chosen row keeps in one generation batch
            (lambda_1 of the paper's eq. 5). 1 forgets nothing, 0 forgets everything. `None` uses the preset's value.
        vade_decay_unsampled: Share of its counts, in [0, 1], that any other row keeps in one generation batch
            (lambda_2 of the paper's eq. 6). 0.999 is a half-life of 693 batches. `None` uses the preset's value.
        vade_stratify_by: Column of the training set with the task, domain or source of each row. With `"thompson"` and
            `"greedy"` each value gets its proportional share of every generation batch, filled with its best rows. Set
            it if a domain must not starve. `None` takes the best rows of the whole training set.
        vade_strata_shares: Shares of a generation batch, in (0, 1], for values of `vade_stratify_by`, such as
            `{"original": 0.5}`; JSON on the command line. Values without a share divide the rest in proportion to
            their rows. Where a value has too few rows, the best other rows take their places. `None` gives each value
            its share of the rows.
        vade_variants: Column of the training set with the id of each row's original, beside the columns `id` and
            `kind`; an original is its own. Each variant is a row with a posterior of its own, and evaluations leave
            variants out. See docs/guides/variants.md. `None`: the rows have no variants.
        vade_variant_groups: Variants of each chosen problem, at least 0 (N of DIVA-GRPO, arXiv 2603.01106). A
            generation batch then has `1 + vade_variant_groups` groups for a problem, side by side: that of the
            original, and those of its matched variants. A problem is worth as much as the best of its rows. With 0
            each row is chosen by itself.
        vade_variant_match: The variants of a chosen problem. `"posterior"` takes those with the largest information
            gain of their drawn pass rates, with any sampler. `"difficulty"` is DIVA-GRPO's law: hints where the
            original is hard, changed images where it is easy. It needs the kinds of
            docs/guides/variants.md.
        vade_advantage: Advantages with at least one variant group. `"local"` compares the completions of a group, as
            TRL does. `"global"` compares all completions of a problem. `"local+global"` is the sum of both. `"diva"`
            is the sum as in DIVA-GRPO: each part is standardised over the batch and scaled by its range of rewards,
            and the global one is weighted by difficulty.
        vade_difficulty_weight: Strength, at least 0, of that weight (k of DIVA-GRPO), with `vade_advantage="diva"`.
        vade_max_reward: Largest possible weighted sum of rewards, above 0, with `vade_advantage="diva"`. A larger
            reward is refused.
        vade_posterior_init: What the posterior starts with. `"prior"`: no evidence, at no cost. `"rollout"`:
            `num_generations` rollouts of every row before the first update (Algorithm 1 of the paper, lines 1-4);
            these rollouts are counted. Anything else names the posterior of another run, which costs no rollouts: a
            data-set repository on the Hub (`user/repo` or `user/repo@revision`), or a folder (a checkpoint, an output
            directory, a copy of such a repository). Rows are matched by their `id`, or by their content without one.
            `None` uses the preset's value.
        vade_warm_start_discount: Share, in (0, 1], of the other run's counts that `vade_posterior_init` takes over.
            Those counts describe another policy. The default is lambda_1, as if every row had been trained on once
            since. Raise it for a posterior of the same policy.
        vade_warm_start_min_match: Smallest share of rows, in [0, 1], that must match between the other run and this
            data set, counted in the smaller of the two. Below it the warm start is refused. 0 accepts any share.
        vade_dynamic_sampling: Whether to use DAPO's dynamic sampling (arXiv 2503.14476), with any sampler. Groups
            without a gradient are dropped after scoring, and new rows refill the generation batch. Every rollout is
            counted and observed. Schedules stay in optimiser steps.
        vade_max_refills: Largest number of refills of one generation batch, from 1 to 1000. After these the batch is
            trained on as it is, and a warning is logged. Used by `vade_dynamic_sampling`.
        vade_down_sampling: Rows of a generation batch that are trained on. All are generated, scored and observed.
            `"none"` trains on every row, as TRL does. `"lossless"` leaves out the rows without an advantage. The
            weights are the same to rounding, for less time. It is refused where such rows have an effect: `beta`, an
            entropy bonus, a router loss, `top_entropy_quantile`, `loss_type="bnpo"`, or a `steps_per_generation` that
            does not divide `gradient_accumulation_steps`. `"live"` leaves the same rows out there, too: a KL term then
            acts on the rows that are trained on. `"rows"` keeps the share `vade_keep_rollouts` with the most varied
            advantages (D3S, arXiv 2509.22115), at most the rows with an advantage. `"d3s"` also chooses the tokens
            `vade_keep_tokens` among these rows. `None` is `"lossless"` where that is exact, but `"none"` with
            `vade_sampler="uniform"`.
        vade_keep_rollouts: Share of a process's rows, in (0, 1], that `"rows"` and `"d3s"` keep. Two numbers are the
            shares at the first and at the last step, and the share grows evenly between them. `None` uses 0.25 and 1.
        vade_keep_tokens: Share of the completion tokens of a micro-batch, in (0, 1], that get a gradient with `"d3s"`:
            those with the largest product of |advantage| and entropy. One number or two, as `vade_keep_rollouts`.
            `None` uses 0.2 and 1.
        vade_images_once: Whether each image of a generation batch is processed once and kept once, not once for each
            of its completions. The training is the same, to the bit. With tools, environments, a rollout function, a
            subclass that sees the rows itself, or a processor of unknown fields, images go TRL's way. `False`: always
            TRL's way.
        vade_tower_once: Whether the vision tower encodes an image once in a forward pass and hands its features to
            each completion. Gradients are equal to rounding. `None` does so where the tower has no dropout, but not
            with `vade_sampler="uniform"`, which equals TRL to the bit. `True` with dropout is refused.
        vade_group_images: Which completions of an image share a micro-batch, so that `vade_tower_once` saves more.
            `"none"` leaves TRL's order. `"step"` sorts the completions within each optimiser step, which is the same
            update to rounding. `"batch"` sorts those of the whole generation batch: with several steps a batch, the
            completions of a row then share a step, which is another optimisation. `None` is `"step"` with
            `vade_tower_once`, where that is exact, else `"none"`.
        vade_pixels_on_device: Whether the processed images of a generation batch lie in GPU memory. `False` keeps
            them in pinned memory of the host and copies those of each micro-batch.
        vade_pixels_ahead: GiB of host memory, from 0 to 4096, that each process may use for images that are processed
            in the decoding threads, before their generation batch is due. For processors with a grid of patches, such
            as Qwen-VL's. 0 processes images when their batch is due.
        vade_success_reward: Name of the reward function that decides whether an answer is right, as it appears in the
            logs. `None` uses the only reward function, or the only one whose name says so: the name contains accura,
            correct, answer, exact, match, solve or verif, and no word of form such as format or length. If no name
            tells, rows are chosen by the spread of their total rewards.
        vade_success_threshold: Lowest reward that counts as a right answer. `None` takes the reward as a fraction of a
            success. `"spread"` counts no successes: it describes a row by the share of pairs of completions whose
            rewards differ, and chooses the largest drawn shares. `"auto"` takes the middle between the two values of
            a reward with two values, and `"spread"` for any other reward. With a sampler of your own, or where
            `vade_information_gain` or `vade_success_bounds` is set, `"auto"` means `None`.
        vade_success_bounds: Two numbers for rewards that are fractions of a success: the reward of no success and the
            reward of a full success. `None` uses 0 and 1. If a reward of the first 10 generation batches lies outside,
            `None` uses the lowest and the highest reward of these batches.
        vade_max_prompt_length: Largest number of tokens of a prompt, image tokens included. Longer rows are dropped
            from the training and evaluation sets before training, and the log says how many. The paper uses 8192.
            `None` keeps all rows.
        vade_on_mismatch: What a resume does if the checkpoint's posterior is about other rows, another success signal,
            group size, sampler or seed. `"error"` refuses it and names both sides. `"join"` starts a new posterior
            with the counts of the rows that both data sets have; the success signal must be the same. `"reset"` keeps
            the checkpoint's weights and starts a new posterior, also if the saved posterior is damaged or missing.
        vade_outage_guard: Whether to restore the earlier counts after a reward outage, such as a judge that is down
            and answers 0 to everything. The guard suspects an outage when almost all verdicts of a generation batch
            contradict the posterior. Set it to `False` to trust every verdict.
        vade_overwrite_output_dir: Whether a run may replace the run in `output_dir`. `True` makes `train` delete that
            run's checkpoints, its trainer state and its `vade_` files first, and the log names them. `False` refuses
            such a folder. A run that resumes from a checkpoint in the folder deletes nothing.
        vade_report: Whether `train` leaves a report in `output_dir`: `vade_run.json` at its start, `vade_rows.json` at
            every save, and `vade_report.html`, `vade_report.png` and `vade_summary.json` at its end. The curves need
            matplotlib (`pip install "trl-vade[report]"`). Rows and page are never pushed.
        vade_console: Output of the main process. `"panel"` is a panel that is redrawn in place, with validations,
            checkpoints, pushes and warnings above it. `"lines"` is one line a logging step. `"auto"` is the panel on a
            terminal, and lines in a file, in a notebook, or with `disable_tqdm`. `"stock"` keeps the bars and
            dictionaries of transformers. All of them log the same metrics.
        vade_posterior_hub_id: Data-set repository on the Hub, `user/name` or `name`, that receives the posterior of
            every checkpoint. The token comes from the login or from `HF_TOKEN`. `None` uploads no posterior.

    Raises:
        ConfigurationError: A setting cannot work. Settings are checked when the configuration is made.
    """

    vade_preset: Literal["balanced", "frontier", "paper", "paper_symmetric", "paper_greedy", "paper_last_update"] = (
        "balanced"
    )
    vade_sampler: str = "thompson"  # an object becomes the import path of its class, see `samplers.own.PathOf`
    vade_information_gain: Literal["asymmetric", "symmetric"] | None = None
    vade_signal_aware_decay: bool | None = None
    vade_cooldown: float | None = None
    vade_even_rest: bool | None = None
    vade_prior: Literal["flat", "prompts"] | None = None
    vade_decay_sampled: float | None = None
    vade_decay_unsampled: float | None = None
    vade_stratify_by: str | None = None
    vade_strata_shares: dict[str, float] | str | None = None
    vade_variants: str | None = None
    vade_variant_groups: int = 1
    vade_variant_match: Literal["posterior", "difficulty"] = "posterior"
    vade_advantage: Literal["local", "global", "local+global", "diva"] = "local"
    vade_difficulty_weight: float = 0.1
    vade_max_reward: float = 1.0
    vade_posterior_init: str | None = None
    vade_warm_start_discount: float = 0.2
    vade_warm_start_min_match: float = 0.5
    vade_dynamic_sampling: bool = False
    vade_max_refills: int = 10
    vade_down_sampling: Literal["none", "lossless", "live", "rows", "d3s"] | None = None
    vade_keep_rollouts: list[float] | None = None
    vade_keep_tokens: list[float] | None = None
    vade_images_once: bool = True
    vade_tower_once: bool | None = None
    vade_group_images: Literal["none", "step", "batch"] | None = None
    vade_pixels_on_device: bool = False
    vade_pixels_ahead: float = 0.0
    vade_success_reward: str | None = None
    vade_success_threshold: float | str | None = AUTO
    vade_success_bounds: list[float] | None = None
    vade_max_prompt_length: int | None = None
    vade_on_mismatch: Literal["error", "join", "reset"] = "error"
    vade_outage_guard: bool = True
    vade_overwrite_output_dir: bool = False
    vade_report: bool = True
    vade_console: Literal["auto", "panel", "lines", "stock"] = "auto"
    vade_posterior_hub_id: str | None = None

    _VALID_DICT_FIELDS = [*GRPOConfig._VALID_DICT_FIELDS, "vade_strata_shares"]  # JSON on the command line

    def __post_init__(self) -> None:
        # Older releases of transformers, such as vLLM 0.31 needs, have only the other name.
        if self.gradient_checkpointing and getattr(self, "activation_checkpointing", False) is None:
            self.activation_checkpointing = True  # TRL's default, by the name of which transformers does not warn
        super().__post_init__()
        # A YAML recipe gives a number or None, the command line a string (`--vade_success_threshold none`).
        if isinstance(self.vade_success_threshold, str):
            self.vade_success_threshold = threshold_of(self.vade_success_threshold)
        self.vade_sampler = as_text(self.vade_sampler)
        validate(self)


def with_vade_defaults(args: GRPOConfig) -> GRPOConfig:
    """Set the VADE fields that `args` lacks to their defaults, check all settings again, and return `args`.

    A plain `GRPOConfig` is changed in place and keeps its class, as in TRL: later changes by the caller count.

    Raises:
        ConfigurationError: A setting cannot work.
    """
    for name, default in VADE_DEFAULTS.items():
        setattr(args, name, getattr(args, name, default))
    args.vade_sampler = as_text(args.vade_sampler)
    validate(args)
    return args


VADE_DEFAULTS = {f.name: f.default for f in fields(VADEGRPOConfig) if f.name.startswith("vade_")}
