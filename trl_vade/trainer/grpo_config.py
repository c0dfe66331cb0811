"""`VADEGRPOConfig`: TRL's `GRPOConfig` and the settings of VADE, checked when the configuration is made."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from trl import GRPOConfig

from trl_vade.samplers.own import as_text
from trl_vade.settings import has_what_it_needs, help_from_docstring, settings_of

from .config_checks import validate
from .presets import PRESETS, setting


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
            information gain (Algorithm 1 of the paper). `"greedy"` uses the posterior mean instead of a draw. `None`
            is the preset's, which is `"thompson"` but for `"paper_greedy"`. Where no sampler can choose (a stream,
            environments that own the data, `shuffle_dataset=False`), it is `"uniform"`, and the log says
            so. `"uniform"` takes every row once an epoch. It equals vanilla GRPO bit for bit, with six exceptions.
            Vision placeholders cannot be sampled. A transform of the data set runs once for each chosen row and not
            for each completion. An infinite reward is refused. A resumed run continues inside its epoch even with
            `ignore_data_skip`. Another `train()` begins with a new generation batch. Generation with vLLM is
            corrected. A sampler of your own is an object with the verbs of `trl_vade.PromptSampler`, or the import
            path of its class, `"package.module:Class"`, which is called with the number of rows and `seed`. See
            docs/guides/own_sampler.md.
        vade_cooldown: Share of an epoch, in [0, 1), for which a chosen row rests. The row is not chosen again for
            `vade_cooldown` x rows / rows of a generation batch (rounded) generation batches. Raise it if the same rows
            come back too often. 0 turns it off, as in the paper. `None` uses the preset's value.
        vade_stratify_by: Column of the training set with the task, domain or source of each row. With `"thompson"` and
            `"greedy"` each value gets its proportional share of every generation batch, filled with its best rows. Set
            it if a domain must not starve. `None` takes the best rows of the whole training set.
        vade_variants: Column of the training set with the id of each row's original, beside the columns `id` and
            `kind`; an original is its own. Each variant is a row with a posterior of its own, and evaluations leave
            variants out. See docs/guides/variants.md. `None`: the rows have no variants.
        vade_variant_groups: Variants of each chosen problem, at least 0 (N of DIVA-GRPO, arXiv 2603.01106). A
            generation batch then has `1 + vade_variant_groups` groups for a problem, side by side: that of the
            original, and those of its matched variants. A problem is worth as much as the best of its rows. With 0
            each row is chosen by itself.
        vade_variant_match: The variants of a chosen problem. `"posterior"` takes those with the largest information
            gain of their drawn pass rates, with any sampler. `"difficulty"` is DIVA-GRPO's law: hints where the
            original is hard, changed images where it is easy. It needs the kinds of examples/variants.
        vade_advantage: Advantages with at least one variant group. `"local"` compares the completions of a group, as
            TRL does. `"global"` compares all completions of a problem. `"local+global"` is the sum of both. `"diva"`
            is the sum as in DIVA-GRPO: each part is standardised over the batch and scaled by its range of rewards,
            and the global one is weighted by difficulty.
        vade_posterior_init: What the posterior starts with. `"prior"`: no evidence, at no cost. `"rollout"`:
            `num_generations` rollouts of every row before the first update (Algorithm 1 of the paper, lines 1-4);
            these rollouts are counted. Anything else names the posterior of another run, which costs no rollouts: a
            data-set repository on the Hub (`user/repo` or `user/repo@revision`), or a folder (a checkpoint, an output
            directory, a copy of such a repository). Rows are matched by their `id`, or by their content without one.
            `"column:NAME"` starts each row from its pass rate in a column of the training set: a fraction, or with
            `"column:NAME/100"` percent and with `"column:NAME/16"` successes among 16 answers. A row without a value
            starts from the prior. `None` uses the preset's value.
        vade_warm_start_discount: Share, in (0, 1], of the other run's counts that `vade_posterior_init` takes over. A
            pass rate of a column has 8 counts. Those counts describe another policy. The default is lambda_1 of the
            paper, as if every row had been trained on once since. Raise it for a posterior of the same policy.
        vade_dynamic_sampling: Whether to use DAPO's dynamic sampling (arXiv 2503.14476), with any sampler. Groups
            without a gradient are dropped after scoring, and new rows refill the generation batch, at most ten times.
            Every rollout is counted and observed. Schedules stay in optimiser steps.
        vade_down_sampling: Rows of a generation batch that are trained on. All are generated, scored and observed.
            `"none"` trains on every row, as TRL does. `"lossless"` leaves out the rows without an advantage. The
            weights are the same to rounding, for less time; with dropout they are others of the same distribution. It
            is refused where such rows have an effect: `beta`, an entropy bonus, a router loss, `top_entropy_quantile`,
            `loss_type="bnpo"`, or a `steps_per_generation` that does not divide `gradient_accumulation_steps`.
            `"live"` leaves the same rows out there, too: a KL term then acts on the rows that are trained on. `"rows"`
            keeps the share `vade_keep_rollouts` with the most varied advantages (D3S, arXiv 2509.22115), at most the
            rows with an advantage. `"d3s"` also chooses the tokens `vade_keep_tokens` among these rows. `None` is
            `"lossless"` where that is exact, but `"none"` with `vade_sampler="uniform"`.
        vade_replay: Generation batches, at most 1000, for which a group with a gradient may be trained on again. Where
            rows of a batch are left out (`"lossless"`, `"live"`), groups of the last batches take their places: whole,
            newest first, with the advantages and log-probabilities that they were written with, so that TRL's loss
            weighs and clips them. An update never holds more rows, nor more padded tokens, than TRL's. 0 is off. With
            tools, environments, a rollout function, a subclass that sees the rows itself, or images that are not kept
            once, it is off, too, and the log says so. See docs/guides/down_sampling.md.
        vade_keep_rollouts: Share of a process's rows, in (0, 1], that `"rows"` and `"d3s"` keep. Two numbers are the
            shares at the first and at the last step, and the share grows evenly between them. `None` uses 0.25 and 1.
        vade_keep_tokens: Share of the completion tokens of a micro-batch, in (0, 1], that get a gradient with `"d3s"`:
            those with the largest product of |advantage| and entropy. One number or two, as `vade_keep_rollouts`.
            `None` uses 0.2 and 1.
        vade_images_once: Whether each image of a generation batch is processed once, kept once, and encoded once in a
            forward pass, not once for each of its completions. The first two change no bit of the training. The third,
            for which the completions of an image are put side by side within an optimiser step, changes gradients by
            rounding. It is left out with `vade_sampler="uniform"`, which equals TRL to the bit, and where the vision
            tower has dropout. With tools, environments, a rollout function, a subclass that sees the rows itself, or a
            processor of unknown fields, images go TRL's way. `False`: always TRL's way.
        vade_success_reward: Name of the reward function that decides whether an answer is right, as it appears in the
            logs. `None` uses the only reward function, or the only one whose name says so: the name contains accura,
            correct, answer, exact, match, solve or verif, and no word of form such as format or length. If no name
            tells, rows are chosen by the spread of their total rewards.
        vade_success_threshold: Lowest reward that counts as a right answer. `None` takes the reward as a fraction of a
            success. `"spread"` counts no successes: it describes a row by the share of pairs of completions whose
            rewards differ, and chooses the largest drawn shares. `"auto"` takes the middle between the two values of
            a reward with two values, and `"spread"` for any other reward. With a sampler of your own
            `"auto"` means `None`. Fractions are those of 0 to 1; if a reward of the first 10 generation batches lies
            outside, those between the lowest and the highest reward of these batches.
        vade_max_prompt_length: Largest number of tokens of a prompt, image tokens included. Longer rows are dropped
            from the training and evaluation sets before training, and the log says how many. The paper uses 8192.
            `None` keeps all rows.
        vade_posterior_hub_id: With `push_to_hub`, the data-set repository, `user/name` or `name`, that receives the
            posterior of every push. `None` takes the name of the model's repository with `-posterior` behind it.

    Raises:
        ConfigurationError: A setting cannot work. Settings are checked when the configuration is made.
    """

    # Beside the type stands the setting's rule, see `trl_vade.settings`.
    vade_preset: Annotated[
        Literal["balanced", "frontier", "paper", "paper_symmetric", "paper_greedy", "paper_last_update"],
        {"of": "posterior"},
    ] = "balanced"
    vade_sampler: str | None = None  # an object becomes the import path of its class, see `samplers.own.PathOf`
    vade_cooldown: Annotated[float | None, {"range": "[0, 1)", "of": "posterior"}] = None
    vade_stratify_by: str | None = None
    vade_variants: str | None = None
    vade_variant_groups: Annotated[int, {"range": "[0, 100]", "needs": "vade_variants"}] = 1
    vade_variant_match: Annotated[Literal["posterior", "difficulty"], {"needs": "vade_variants"}] = "posterior"
    vade_advantage: Annotated[Literal["local", "global", "local+global", "diva"], {"needs": "vade_variants"}] = "local"
    vade_posterior_init: Annotated[str | None, {"of": "posterior"}] = None
    vade_warm_start_discount: Annotated[float, {"range": "(0, 1]", "of": "posterior"}] = 0.2
    vade_dynamic_sampling: bool = False
    vade_down_sampling: Literal["none", "lossless", "live", "rows", "d3s"] | None = None
    vade_replay: Annotated[int, {"range": "[0, 1000]"}] = 0
    vade_keep_rollouts: Annotated[
        list[float] | None, {"range": "(0, 1]", "needs": "vade_down_sampling", "values": ("rows", "d3s")}
    ] = None
    vade_keep_tokens: Annotated[
        list[float] | None, {"range": "(0, 1]", "needs": "vade_down_sampling", "values": ("d3s",)}
    ] = None
    vade_images_once: Annotated[bool, {"card": False}] = True
    vade_success_reward: Annotated[str | None, {"card": False}] = None
    vade_success_threshold: Annotated[
        float | str | None, {"range": "[-3.4e38, 3.4e38]", "words": ("auto", "spread"), "card": False}
    ] = "auto"
    vade_max_prompt_length: Annotated[int | None, {"range": "[1, 1e9]"}] = None
    vade_posterior_hub_id: Annotated[str | None, {"card": False}] = None

    num_completions_to_print: int | None = 4  # TRL prints all

    def __post_init__(self) -> None:
        # Older releases of transformers, such as vLLM 0.31 needs, have only the other name.
        if self.gradient_checkpointing and getattr(self, "activation_checkpointing", False) is None:
            self.activation_checkpointing = True  # TRL's default, by the name of which transformers does not warn
        super().__post_init__()
        self.vade_sampler = as_text(self.vade_sampler)
        validate(self, VADEGRPOConfig)


def with_vade_defaults(args: GRPOConfig) -> GRPOConfig:
    """Set the VADE fields that `args` lacks to their defaults, check all settings again, and return `args`.

    A plain `GRPOConfig` is changed in place and keeps its class, as in TRL. A wrong one is a `ConfigurationError`.
    """
    for name, default in VADE_DEFAULTS.items():
        setattr(args, name, getattr(args, name, default))
    args.vade_sampler = as_text(args.vade_sampler)
    validate(args, VADEGRPOConfig)
    return args


def settings_in_use(args: GRPOConfig) -> dict[str, Any]:
    """Return the settings, or rules of the preset, that the run reads, without `vade_`, and None for others."""
    chooses = setting(args, "sampler") in ("thompson", "greedy")
    found = {
        each.name.removeprefix("vade_"): has_what_it_needs(args, each) and (chooses or "of" not in each.rule)
        for each in settings_of(VADEGRPOConfig)
        if each.rule.get("card", True)
    }
    of_posterior = ("decay_sampled", "decay_unsampled")
    rules = {name for name in PRESETS[args.vade_preset] if f"vade_{name}" not in VADE_DEFAULTS}
    found |= dict.fromkeys(sorted(rules.difference(of_posterior)), chooses)
    return {name: setting(args, name) if is_read else None for name, is_read in found.items()}


VADE_DEFAULTS = {each.name: each.default for each in settings_of(VADEGRPOConfig)}
